# SPDX-License-Identifier: Apache-2.0
# slurm_ddp.Stop with the newest PyTorch (stop.py): a signal to all processes of a step, or the time limit, ends a training after a
# checkpoint, with workers of all kinds.
#
# shellcheck disable=SC2154 # rc, out and err come from try

load pytorch

setup_file()
{
	pytorch_up --nodes 2 --gpus 0 --conf KillWait=120 || return 1
	cp -r "$DDP_SRCDIR/runtime/python/slurm_ddp" "$PY"
	export PYTHONPATH=$PY
}
teardown_file() { cluster_down; }
teardown() { end_jobs; rm -rf "${WORK:?}"/* "$WORK"/.ddp; }

# submit OPTION... -- ARGUMENT...: starts a job with these options of sbatch, in which both ranks run stop.py with the arguments.
# Sets $job.
submit()
{
	local options=()
	until [ "$1" = -- ]; do
		options+=("$1")
		shift
	done
	shift
	job=$(mc sbatch --parsable -N2 -o job.out "${options[@]}" --wrap "exec ddp-run -N2 --ntasks-per-node=1 python3 $PY/stop.py $*")
}

both() { grep -qs "$1" "$WORK/rank-0" && grep -qs "$1" "$WORK/rank-1"; }

# saved REASON: both ranks save after the same step, for this reason, and end.
saved()
{
	local rank
	within 300 both exits
	for rank in 0 1; do
		same "$(sed -E '/trains/d; s/ [0-9]+ / STEP /' "$WORK/rank-$rank")" "saved STEP $1
exits"
	done
	same "$(grep saved "$WORK/rank-0")" "$(grep saved "$WORK/rank-1")"
	within 120 gone "$job"
}

@test "SIGUSR1 to all processes of a step: all ranks save after the same step, and ddp-run does not start them again" {
	submit -- 0 fork+ fork spawn forkserver+
	within 500 both trains
	mc scancel --signal=USR1 "$job.0"
	saved SIGUSR1
	has "$(<"$WORK/job.out")" '^ddp-run: step [0-9]+\.0 stopped on request: SIGUSR1$'
	same "$(grep -c '^slurm_ddp: SIGUSR1 was received; all ranks stop after this step$' "$WORK/job.out")" 1
}

@test "before the job's time limit all ranks save after the same step, and end" {
	submit -t 10 -- --before 590 0 fork+
	saved time
	has "$(<"$WORK/job.out")" "^ddp-run: step $job\\.0 stopped on request: time\$"
}

# framework NAME: a training that is run twice ends after the step in which rank 1 and its workers were signalled, and continues
# with the next one.
framework()
{
	"$PYTHON" -c "import $1" 2>/dev/null || skip "$PYTHON has no $1"
	for _ in 1 2; do
		step -N2 --ntasks-per-node=1 --ddp python3 "$PY/frameworks.py" "$1"
		echo "$output" >>"$WORK/out"
	done
	same "$(grep '^rank' "$WORK/out")" "rank 0: steps 1 to 3
rank 1: steps 1 to 3
rank 0: steps 4 to 10
rank 1: steps 4 to 10"
}

@test "Accelerate: after SIGTERM to a rank and its workers all ranks save after the same step" { framework accelerate; }
@test "Lightning: after SIGTERM to a rank and its workers all ranks save after the same step" { framework lightning; }
@test "Transformers: after SIGTERM to a rank and its workers all ranks save after the same step" { framework transformers; }

@test "without PyTorch: a child ends if its parent signals it, and not if another process does; its programs can be ended" {
	local method
	for method in fork spawn forkserver; do
		same "$(mc setsid -w python3 -u "$PY/workers.py" "$method" 2>&1)" "program ended with -15
program ended with -15
stop False
sender ended with 0
sender ended with 0
slurm_ddp: SIGTERM was received; all ranks stop after this step
stop True SIGTERM
program ended with -15
running True
terminated with 0
running True
terminated with 7"
	done
}

@test "slurm_ddp.world has the rank's numbers, and slurm_ddp.beat() writes the heartbeat of ddp-run" {
	try mc ddp-run -N2 --ntasks-per-node=1 python3 -c '
import os
from slurm_ddp import beat, world
beat()
beats = os.path.exists(os.environ["DDP_HEARTBEAT"])
print(world.rank, world.size, world.node, world.device, world.share, world.restart, world.end_time > 0, beats)'
	same "$(sort <<<"$out")" "0 2 0 0 1.0 0 True True
1 2 1 0 1.0 0 True True"
}
