# SPDX-License-Identifier: Apache-2.0
# ddp-train as users of a cluster run it: installed, started by srun and sbatch, and stopped by Slurm.
#
# shellcheck disable=SC2154 # rc, out and err come from try

load lib

setup_file()
{
	# SlurmdTimeout is long, so that Slurm does not detect a lost node during a test.
	cluster_up --nodes 4 --gpus 0 --conf KillWait=5 --conf SlurmdTimeout=300
	install_runtime
}

teardown_file() { cluster_down; }

# A training that does not end before a test interrupts it.
setup() { TRAIN=(ddp-train mnist --samples 1000 -e 1000 -b 16 --deterministic); }

teardown()
{
	[ -e "$TOP/lost" ] || end_jobs
	rm -rf "${WORK:?}"/* "$WORK"/.ddp
}

# start_training JOB_NAME: starts a training in the background, and waits for the first checkpoint.
start_training()
{
	background env -C "$WORK" timeout -k 5 300 "$minicluster" run srun -N2 -n2 --ddp \
		--job-name="$1" "${TRAIN[@]}" -q -c state --checkpoint-steps 5 -m model >"$TOP/output" 2>&1
	within 120 has_checkpoint
}

# Succeeds if there is a complete checkpoint. The name of an unfinished one has a suffix.
has_checkpoint() { compgen -G "$WORK/state/checkpoint-*.safetensors" >/dev/null; }

pids() { ranks | cut -d " " -f 1; }

have_ended() { [ -z "$(ranks)" ]; }

# Checks that the same command resumes the training, and that the weights 20 steps later are those of a training without an
# interruption.
resumes()
{
	local step
	step=$(cd "$WORK/state" && printf '%s\n' checkpoint-*.safetensors | tail -n 1 | tr -cd 0-9)
	TRAIN+=(--steps $((10#$step + 20)))
	try mc srun -N2 -n2 --ddp "${TRAIN[@]}" -c state --checkpoint-steps 5 -m model
	same "$rc" 0
	has "$out" "resumes from step $((10#$step)) of $((10#$step + 20))"
	mc srun -N2 -n2 --ddp "${TRAIN[@]}" -q -m undisturbed
	cmp "$WORK/model" "$WORK/undisturbed"
}

@test "two nodes: ddp-train writes its log, a row for each node, an HTML page and the model" {
	try mc srun -N2 -n2 --ddp ddp-train mnist --samples 1000 -e 1 -r page.html -m model
	same "$rc" 0
	has "$out" '^2 ranks on 2 nodes, cpu: '
	has "$out" '^epoch 1: train loss .* test loss .* of 167 in '
	has "$out" '^ +0  n1 '
	has "$out" '^ +1  n2 '
	has "$(<"$WORK/page.html")" '</html>'
	[ -s "$WORK/model" ]
	[ ! -e "$WORK/.ddp" ]
}

@test "-c1: one thread for each rank, however many CPUs the node has" {
	try mc srun -N2 -n2 -c1 --ddp ddp-train mnist --samples 200 -e 1
	same "$rc" 0
	has "$out" ', 1 thread$'
}

@test "SIGUSR1 from scancel: a checkpoint and exit status 3, and resuming gives bit-equal weights" {
	local pid
	start_training usr1
	# The signals must not have a handler: the handler's stack frame would overwrite data of oneDNN; see runtime/train/stop.c.
	for pid in $(pids); do
		same $((0x$(awk '/^SigCgt/ { print $2 }' "/proc/$pid/status") & 0x4203)) 0
	done
	mc scancel --signal=USR1 --name=usr1
	within 120 have_ended
	wait || true
	has "$(<"$TOP/output")" 'stopped by SIGUSR1 at step [0-9]+ of epoch [0-9]+'
	has "$(<"$TOP/output")" 'Exited with exit code 3'
	resumes
}

@test "after --stop-before ddp-run starts no other attempt, and requeues the job with --requeue" {
	printf '#!/bin/bash\nexec ddp-run $HOW "$@"\n' >"$WORK/job"
	HOW='' batch -N2 -n2 -t 1 job "${TRAIN[@]}" -c state --stop-before 55
	has "$(mc scontrol show job "$job")" 'ExitCode=3:0'
	has "$out" "^ddp-run: step $job.0 stopped on request: time; checkpoint of step [0-9]+$"
	same "$(grep -cE 'started again|failed' <<<"$out")" 0
	[ ! -e "$WORK/.ddp" ]
	job=$(HOW=--requeue mc sbatch --parsable --requeue -o requeued.out -N2 -n2 -t 1 job "${TRAIN[@]}" -c state --stop-before 55)
	within 120 grep -q "^ddp-run: job $job is requeued$" "$WORK/requeued.out"
	mc scancel "$job"
	has "$(<"$WORK/requeued.out")" "^ddp-run: step $job.0 stopped on request: time"
}

# victim ATTEMPT: prints the process id and the node of rank 2 in this attempt.
victim() { ranks | awk -v attempt="$1" '$2 == 2 && $3 == attempt { print $1, $4; found = 1 } END { exit !found }'; }

has_newer() { find "$WORK/state" -name 'checkpoint-*.safetensors' -newer "$TOP/started" 2>/dev/null | grep -q .; }

# lose_in ATTEMPT: waits until this attempt has written a checkpoint. Then kills rank 2, and slurmstepd and slurmd of its node.
lose_in()
{
	local pid node
	within 300 victim "$1" >/dev/null
	touch "$TOP/started"
	within 300 has_newer
	read -r pid node < <(victim "$1")
	kill -9 "$(<"$MINICLUSTER_DIR/slurmd-$node.pid")" "$(ps -o ppid= "$pid" | tr -d ' ')" "$pid"
	echo "$node" >>"$TOP/lost"
}

# This is the last test, because a job that has lost a node stays in state completing for minutes.
@test "--virtual-ranks under ddp-run: two of four nodes are lost one after the other, and the weights are the same" {
	[ "$(id -u)" -eq 0 ] || skip "to kill a slurmd needs root"
	TRAIN=(ddp-train mnist --samples 960 -e 4 -b 4 --seed 3 --virtual-ranks 12 -q)
	mc srun -N1 -n1 --ddp "${TRAIN[@]}" -m undisturbed
	printf '#!/bin/bash\nddp-run --hang 20 --min-nodes 2 "$@"\necho "ddp-run: $?"\n' >"$WORK/job"
	mc sbatch -Q --no-kill -N4 -o job.out job "${TRAIN[@]}" -c state --checkpoint-steps 2 -m model
	lose_in 0
	lose_in 1
	within 300 grep -q '^ddp-run: 0$' "$WORK/job.out" || { cat "$WORK/job.out" >&2; return 1; }
	for node in $(<"$TOP/lost"); do
		has "$(<"$WORK/job.out")" "node $node does not answer"
	done
	same "$(sed -n 's/.*"next_ranks": \([0-9]\).*/\1/p' "$WORK"/.ddp/failed-*/report.json | sort -r)" $'3\n2'
	cmp "$WORK/undisturbed" "$WORK/model"
}
