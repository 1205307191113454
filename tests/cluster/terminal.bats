#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# ddp-run at a terminal behaves like srun: Ctrl-C, --quiet, --unbuffered, --pty.

load lib

setup_file()
{
	cluster_up --nodes 2 --gpus 0 --conf KillWait=5
	install -m 755 "$DDP_BUILDDIR/runtime/run/ddp-run" "$TOP/ddp-run"
	install -m 644 "$BATS_TEST_DIRNAME/terminal.py" "$TOP/terminal.py"
	DDP_RUN=$TOP/ddp-run
	export DDP_RUN
}

teardown_file() { cluster_down; }

teardown()
{
	end_jobs
	remove_attempts
	same "$(ls -A "$WORK")" ''
}

# at_terminal [PATTERN KEYS]... -- COMMAND...: runs COMMAND under terminal.py. Sets $out to its output and $rc to its exit status.
at_terminal()
{
	local script=()
	while [ "$1" != -- ]; do script+=("$1"); shift; done
	shift
	rc=0
	out=$(cd "$WORK" && as_user "$minicluster" run /usr/bin/python3 "$TOP/terminal.py" 100 "${script[@]}" -- "$@") || rc=$?
}

ctrl_c=$'\x03'

@test "Ctrl-C once: srun lists the tasks, the program continues, and a later failure is still restarted" {
	# shellcheck disable=SC2016
	at_terminal 'up 0' "$ctrl_c" 'srun: interrupt \(one more within 1 sec to abort\)' $'go\n' -- \
		"$DDP_RUN" -N1 -n1 bash -c 'echo "up $DDP_RESTART"; [ "$DDP_RESTART" -eq 1 ] || { read -r line; echo "got $line"; exit 3; }'
	same "$rc" 0
	has "$out" '^got go$'
	has "$out" '^next: started again'
	has "$out" '^up 1$'
}

@test "Ctrl-C once and a successful end: ddp-run prints nothing and leaves no files" {
	# shellcheck disable=SC2016
	at_terminal '(?s)up.*up' "$ctrl_c" 'srun: interrupt' $'go\n' -- "$DDP_RUN" -N2 -n2 bash -c 'echo up; read -r line'
	same "$rc" 0
	has_not "$out" 'ddp-run: '
	[ ! -e "$WORK/.ddp" ]
}

# After the second Ctrl-C srun sends SIGINT and then SIGKILL. The ranks ignore SIGINT, so that the exit status is always that of
# SIGKILL. If the second Ctrl-C comes too late on a busy machine, or the kernel merges both, srun waits for another one, so the tests
# repeat it.
# bats test_tags=release
@test "Ctrl-C twice ends the run with srun's message and exit status, without another attempt" {
	local command wanted='' of
	for command in "salloc -Q -N1 srun --ddp --kill-on-bad-exit=1" "salloc -Q -N1 $DDP_RUN" "$DDP_RUN -N1"; do
		# shellcheck disable=SC2086,SC2016
		at_terminal 'up 0' "$ctrl_c" '*srun: interrupt' "$ctrl_c" -- $command bash -c 'trap "" INT; echo "up $RANK"; while :; do sleep 0.1; done'
		of="$rc $(grep -c '^srun: sending Ctrl-C to StepId=' <<<"$out") $(grep -c '^up' <<<"$out")"
		same "$of" "${wanted:=$of}"
	done
	same "$wanted" '137 1 1'
	has "$out" '^next: stopped, because the program was cancelled'
}

@test "Ctrl-C twice with srun's --quiet ends the run, though srun prints nothing" {
	# shellcheck disable=SC2016
	at_terminal 'up 0' "$ctrl_c" $'*(tick\n){3}' "$ctrl_c" -- salloc -Q -N1 \
		"$DDP_RUN" --quiet bash -c 'trap "" INT; echo "up $RANK"; while :; do echo tick; sleep 0.1; done'
	same "$rc" 137
	has "$out" '^next: stopped, because the program was cancelled'
}

@test "with srun's --unbuffered a progress bar appears byte by byte, before its line ends" {
	# shellcheck disable=SC2016
	at_terminal $'50%\r' $'go\n' -- salloc -Q -N1 \
		"$DDP_RUN" --unbuffered bash -c 'printf "10%%\r50%%\r"; read -r line; printf "99%%\r%s\n" "$line"'
	same "$rc" 0
	same "$out" $'10%\r50%\r99%\rgo'
}

@test "--pty: a shell takes input, --hang does not count its silence, and its exit status is reported" {
	# shellcheck disable=SC2016
	at_terminal ready $'sleep 3; echo $((6 * 7)); tty -s && exit 5\n' -- salloc -Q -N1 \
		"$DDP_RUN" --restarts 0 --hang 1 --pty bash --norc -c 'echo ready; read -r line; eval "$line"'
	same "$rc" 5
	has "$out" $'^42\r$'
	has "$out" '^next: stopped, because the limit of 0 restarts is reached'
	has_not "$out" 'no output and no heartbeat'
}
