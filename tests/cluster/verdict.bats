# SPDX-License-Identifier: Apache-2.0
# What tasks of an attempt of ddp-run are told, what they leave when it fails, and what the report makes of that.
#
# shellcheck disable=SC2016 # what stands in single quotes is for the task's shell
# shellcheck disable=SC2154 # rc, out and err come from try

load lib

setup_file()
{
	cluster_up --nodes 2
	install_runtime
}

teardown_file() { cluster_down; }

teardown()
{
	end_jobs
	rm -rf "${WORK:?}"/* "$WORK"/.ddp
}

# An srun as ddp-run starts it: what the plugin tells ddp-run goes to $WORK/told.
attempt()
{
	mc sh -c '{ SLURM_DDP_RESTART=1 SLURM_DDP_RESTARTS_MAX=3 SLURM_DDP_RUN_ID=run SLURM_DDP_RUN_FD=9 srun --ddp "$@" 9>&1 >out; } |
		cat >told; cat out' sh "$@"
}

# --- variables -------------------------------------------------------------------------

@test "an attempt: tasks and ddp-run are told the same, and no step inside it takes that for its own" {
	names="DDP_RESTART TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RUN_ID TORCHELASTIC_ERROR_FILE DDP_HEARTBEAT"
	given="SLURM_DDP_RESTART SLURM_DDP_RESTARTS_MAX SLURM_DDP_RUN_ID SLURM_DDP_RUN_FD"
	# shellcheck disable=SC2086 # names are words
	out=$(attempt -N2 -n2 "$SHOW" $names $given | sort -n)
	job=$(sed -n 's/^job //p' "$WORK/told")
	step=$(sed -n 's/^step //p' "$WORK/told")
	failed=$(sed -n 's/^failed //p' "$WORK/told")
	rendezvous=$(sed -n 's/^rendezvous //p' "$WORK/told")
	same "$failed" "$WORK/.ddp/failed-$job.$step"
	has "$rendezvous" "^$WORK/.ddp/[^/]*-$job\.$step\.0-[0-9a-f]{16}$"
	for rank in 0 1; do
		echo "$rank@n$((rank + 1)) DDP_RESTART=1 TORCHELASTIC_RESTART_COUNT=1 TORCHELASTIC_MAX_RESTARTS=3 TORCHELASTIC_RUN_ID=run TORCHELASTIC_ERROR_FILE=$failed/error-$rank.json DDP_HEARTBEAT=$rendezvous/beat-$rank SLURM_DDP_RESTART=UNSET SLURM_DDP_RESTARTS_MAX=UNSET SLURM_DDP_RUN_ID=UNSET SLURM_DDP_RUN_FD=UNSET"
	done >"$TOP/wanted"
	same "$out" "$(<"$TOP/wanted")"
	# Who the tasks were outlives the step; its own directory does not.
	same "$(ls "$failed")" "task-0
task-1"
	has "$(cat "$failed"/task-0)" '^n1 [0-9]+$'
	has "$(cat "$failed"/task-1)" '^n2 [0-9]+$'
	[ ! -e "$rendezvous" ]

	# Inside: a step of its own without ddp-run.
	# shellcheck disable=SC2086
	out=$(attempt -N1 -n1 sh -c "srun --overlap -N1 -n1 --ddp $SHOW $names")
	has "$out" "^0@n1 DDP_RESTART=UNSET TORCHELASTIC_RESTART_COUNT=UNSET TORCHELASTIC_MAX_RESTARTS=UNSET TORCHELASTIC_RUN_ID=UNSET TORCHELASTIC_ERROR_FILE=UNSET DDP_HEARTBEAT=UNSET$"
}

@test "what is no number is refused, and names who sets it" {
	try mc env SLURM_DDP_RESTART=x srun --ddp true
	has "$err" 'ddp: SLURM_DDP_RESTART=x is no number; ddp-run sets it: unset it$'
}
