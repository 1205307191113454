# SPDX-License-Identifier: Apache-2.0
# How ddp-run reports errors (fails.py), ranks that do not exit, and hangs (bars.py, recorder.py) of programs with the newest PyTorch.
#
# shellcheck disable=SC2154 # rc, out and err come from try

load pytorch

setup_file() { pytorch_up --nodes 2 --gpus 0; }
teardown_file() { cluster_down; }
teardown() { end_jobs; rm -rf "${WORK:?}"/* "$WORK"/.ddp "$TOP/none"; }

# report "OPTION..." SCRIPT CASE: runs the script with one attempt on two ranks, which must fail, and sets $text to the report.
report()
{
	remove_attempts
	# shellcheck disable=SC2086 # words
	run_once $1 -N2 --ntasks-per-node=1 python3 "$PY/$2" "$3"
}

# --- Errors -----------------------------------------------------------------------------

@test "an uncaught exception is reported with its text, and the rank that lost the connection as follower" {
	local case message
	while read -r case message; do
		report '' fails.py "$case"
		same "$case: $(field first.rank first.message)" "$case: 1 $message"
		has "$text" '^as a result: rank 0: '
	done <<-'END'
		exception ValueError: the loss is not finite
		loader ValueError: sample 0 is broken
		group ValueError: the loss is not finite
	END
}

@test "a rank that leaves with status 0 is named, although the other's exception follows a progress bar" {
	report '' fails.py bar
	same "$(field first.rank first.how)" "1 exit"
	has "$text" '^as a result: rank 0: '
}

@test "a rank that cannot reach another server is named, and not the rank that Slurm ended" {
	report '' fails.py refused
	same "$(field first.rank first.message)" "1 urllib.error.URLError: <urlopen error [Errno 111] Connection refused>"
	has "$text" '^as a result: rank 0: killed by SIGTERM, ended with the step$'
}

@test "an interrupt" {
	report '' fails.py interrupt
	same "$(field first.rank first.signal first.message)" "1 SIGINT KeyboardInterrupt"
}

# --- --exit-limit -----------------------------------------------------------------------

# ends CASE: the attempt ends, and the report names rank 1 and its exception.
ends()
{
	report '--exit-limit 4' fails.py "$1"
	same "$1: $(field kind first.rank first.how first.message)" "$1: exit 1 raised ValueError: the loss is not finite"
	has "$text" '^rank 1 on n2, pid [0-9]+, failed first: did not exit after an exception$'
	has "$err" '^ddp-run: rank 1 of step .* has not exited [0-9]+ s after an exception, so ddp-run ends the step$'
}

@test "a thread keeps a rank from exiting after an exception, or its main thread has ended" {
	ends printer
	ends main_ended
}

# without_debugger COMMAND...: runs it with debuggers that fail.
without_debugger()
{
	local name
	mkdir -p "$TOP/none"
	for name in gdb py-spy; do
		printf '#!/bin/sh\nexit 1\n' >"$TOP/none/$name"
		chmod 755 "$TOP/none/$name"
	done
	PATH=$TOP/none:$PATH "$@"
}

unseen='^ddp-run: rank 1 of step .* has not exited [0-9]* s after an exception, and no debugger shows whether it still works\.'

@test "without a debugger, a rank that printed an uncaught exception and then nothing for --exit-limit has failed" {
	without_debugger ends thread
	has_not "$err" "$unseen"
	without_debugger ends late
	same "$(count_lines "$err" "$unseen")" 1
}

@test "a program that logs exceptions and continues is not ended" {
	try mc ddp-run --exit-limit 2 -N2 --ntasks-per-node=1 python3 "$PY/fails.py" log
	same "$rc" 0
	same "$(count_lines "$err" '^ValueError: the loss is not finite')" 4
	has_not "$err" '^ddp-run:'
	try mc ddp-run --exit-limit 4 -N2 --ntasks-per-node=1 python3 "$PY/fails.py" upload
	same "$rc" 0
	same "$(count_lines "$err" '^ddp-run: rank 1 of step .* after an exception, and ranks still print\.')" 1
	same "$(count_lines "$err" '^ddp-run:')" 1
	without_debugger try mc ddp-run --exit-limit 4 -N2 --ntasks-per-node=1 python3 "$PY/fails.py" hook
	same "$rc" 0
	same "$(count_lines "$err" "$unseen")" 1
	same "$(count_lines "$err" '^ddp-run:')" 1
}

# --- --hang -----------------------------------------------------------------------------

@test "a progress bar and dots are output; a hang behind them is detected" {
	local case
	for case in tqdm dots; do
		try mc ddp-run --restarts 0 --hang 8 -N2 --ntasks-per-node=1 python3 "$PY/bars.py" "$case" 16
		same "$case: $rc" "$case: 0"
		same "$(count_lines "$err" '^ddp-run: rank 0 of step .* writes bytes that srun does not pass on')" 1
		report '--hang 6' bars.py "$case"
		same "$case: $(field kind)" "$case: hang"
	done
}

@test "a hang, while a child, or threads that poll the store, write" {
	local case
	for case in child store; do
		report '--hang 6' bars.py "$case"
		same "$case: $(field kind)" "$case: hang"
		has_not "$err" 'without a newline'
	done
}

@test "a rank that sleeps while another one waits for it is named, with its line" {
	report '--hang 6' fails.py load_samples
	same "$(field kind first.rank)" "hang 1"
	has "$text" '^rank 1 on n2, pid [0-9]+: it is not in a collective, and others wait for it'
	! command -v py-spy >/dev/null || has "$text" ': load_samples \(.*fails.py:[0-9]+\)$'
}

@test "ranks that wait in different lines: both lines are named" {
	command -v py-spy >/dev/null || skip "gdb shows no line: py-spy is not installed"
	report '--hang 6' fails.py receive
	has "$text" '^rank 1 on n2, pid [0-9]+: it waits in recv \(.*distributed_c10d.py:[0-9]+\), and rank 0 in main \(.*fails.py:[0-9]+\)$'
}

@test "a hang, while a thread keeps a rank from exiting after an exception" {
	report '--hang 6 --exit-limit 0' fails.py thread
	same "$(field kind first.rank first.message)" "hang 1 ValueError: the loss is not finite"
	has "$text" '^rank 1 on n2, pid [0-9]+: it has not exited after an exception$'
}

@test "a hang, with PyTorch's flight recorder: the rank that did not arrive is named, with its collective" {
	run_once --hang 6 -N2 -n3 python3 "$PY/recorder.py"
	said="did not arrive in #5 gloo:all_reduce 100 Float: rank 2"
	same "$(field kind first.rank first.state first.why flight_recorder_dumps)" "hang 2 S it $said 3"
	same "$(field collectives)" "$said"
	same "$(field ranks.0.collective ranks.0.waits ranks.0.missing)" "#5 gloo:all_reduce 100 Float True False"
	same "$(field ranks.2.collective ranks.2.waits ranks.2.missing)" "#4 gloo:barrier False True"
	has "$text" "^rank 2 on n[12], pid [0-9]+: it $said\$"
	has "$text" "^collectives: $said\$"
}
