# SPDX-License-Identifier: Apache-2.0
# ddp-train as a user of a cluster has it: installed, started by srun and sbatch, stopped by Slurm.
#
# shellcheck disable=SC2154 # rc, out and err come from try

load lib

setup_file()
{
	cluster_up --nodes 2
	install_runtime
	# What the user has in a home directory is not looked at.
	export XDG_CACHE_HOME=$WORK/.cache
	setup
	mc srun -N2 -n2 --ddp "${TRAIN[@]}" -q -m "$TOP/work/undisturbed" >"$TOP/undisturbed.log"
	mv "$WORK/undisturbed" "$TOP/model"
}

teardown_file() { cluster_down; }

setup() { TRAIN=(ddp-train mnist --samples 1000 -e 3 -b 16 --conv exact); }

teardown()
{
	end_jobs
	rm -rf "${WORK:?}"/* "$WORK"/.ddp
}

# begin NAME: train in the background, with checkpoints, until the first of them is there.
begin()
{
	background env -C "$WORK" timeout -k 5 100 "$minicluster" run srun -N2 -n2 --ddp \
		--job-name="$1" "${TRAIN[@]}" -q -c state --checkpoint-steps 5 -m model >"$TOP/said" 2>&1
	within 60 has_checkpoint
}

# A whole one: the temporary of a writer has more behind that name.
has_checkpoint() { compgen -G "$WORK/state/checkpoint-*.safetensors" >/dev/null; }

# Those of this cluster: others on this host may train too.
ranks()
{
	local pid
	for pid in $(pgrep -f '^[^ ]*ddp-train mnist'); do
		[ "$(readlink "/proc/$pid/cwd")" != "$WORK" ] || echo "$pid"
	done
}

ended() { [ -z "$(ranks)" ]; }

# The same command again goes on, and ends as if nothing had happened.
goes_on()
{
	try mc srun -N2 -n2 --ddp "${TRAIN[@]}" -c state --checkpoint-steps 5 -m model
	same "$rc" 0
	has "$out" 'resumes from step [0-9]+ of 96'
	cmp "$WORK/model" "$TOP/model"
}

@test "two nodes: a log, a table with both, a page, a model" {
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

@test "one CPU for each rank is one thread, whatever the node has" {
	try mc srun -N2 -n2 -c1 --ddp ddp-train mnist --samples 200 -e 1
	same "$rc" 0
	has "$out" ', 1 thread$'
}

@test "SIGUSR1 from scancel: a checkpoint, exit status 3, and the same bits when it goes on" {
	local pid
	begin usr1
	# A handler's frame would be written over what oneDNN computes: see runtime/train/stop.c.
	for pid in $(ranks); do
		same $((0x$(awk '/^SigCgt/ { print $2 }' "/proc/$pid/status") & 0x4203)) 0
	done
	mc scancel --signal=USR1 --name=usr1
	within 40 ended
	wait || true
	has "$(<"$TOP/said")" 'stopped by SIGUSR1 at step [0-9]+ of epoch [123]'
	has "$(<"$TOP/said")" 'Exited with exit code 3'
	goes_on
}

@test "a rank is killed: the step ends, and the same bits come when it goes on" {
	begin killed
	kill -9 "$(ranks | tail -n 1)"
	within 40 ended
	wait || true
	goes_on
}

@test "a job whose time is nearly over stops by itself" {
	cat >"$WORK/job" <<-'END'
		#!/bin/bash
		srun -N2 -n2 --ddp "$@"
		echo "srun: $?"
	END
	batch -N2 -n2 -t 1 job "${TRAIN[@]}" -e 1000 -c state --stop-before 55
	has "$out" '^stopped .*time'
	has "$out" '^srun: 3$'
	has_checkpoint
}

@test "ddp-run does not restart a training that stopped because the job's time ends, and requeues it with --requeue" {
	printf '#!/bin/bash\nexec ddp-run $HOW "$@"\n' >"$WORK/job"
	HOW='' batch -N2 -n2 -t 1 job "${TRAIN[@]}" -e 1000 -c state --stop-before 55
	has "$(mc scontrol show job "$job")" 'ExitCode=3:0'
	has "$out" "^ddp-run: step $job.0 stopped on request: time; checkpoint of step [0-9]+$"
	same "$(grep -cE 'started again|failed' <<<"$out")" 0
	[ ! -e "$WORK/.ddp" ]
	job=$(HOW=--requeue mc sbatch --parsable --requeue -o requeued.out -N2 -n2 -t 1 job "${TRAIN[@]}" -e 1000 -c state --stop-before 55)
	within 60 grep -q "^ddp-run: job $job is given back to Slurm$" "$WORK/requeued.out"
	mc scancel "$job"
	has "$(<"$WORK/requeued.out")" "^ddp-run: step $job.0 stopped on request: time"
}
