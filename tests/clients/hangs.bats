# SPDX-License-Identifier: Apache-2.0
# What ddp-run --hang takes for progress, with programs that use the newest PyTorch (hangs.py).
#
# shellcheck disable=SC2154 # rc, out and err come from try

load pytorch

setup_file() { pytorch_up --nodes 2 --gpus 0; }
teardown_file() { cluster_down; }
teardown() { end_jobs; rm -rf "${WORK:?}"/* "$WORK"/.ddp; }

@test "a progress bar and dots are output" {
	local case
	for case in tqdm lightning dots; do
		try mc ddp-run --restarts 0 --hang 12 -N2 --ntasks-per-node=1 python3 "$PY/hangs.py" "$case" 20
		same "$case: $rc" "$case: 0"
		same "$(count_lines "$err" '^ddp-run: rank 0 of step .* writes bytes that srun does not pass on')" 1
	done
}

# hangs TIME CASE: ddp-run --hang TIME ends the program hangs.py CASE.
hangs()
{
	remove_attempts
	run_once --hang "$1" -N2 --ntasks-per-node=1 python3 "$PY/hangs.py" "$2"
	same "$2: $(field kind)" "$2: hang"
}

@test "a hang behind a progress bar and dots" {
	local case
	for case in tqdm lightning dots; do
		hangs 12 "$case"
	done
}

@test "a hang, while a child, threads that poll the store, or an event loop write" {
	local case
	for case in child store asyncio; do
		hangs 10 "$case"
		has_not "$err" 'without a newline'
	done
}

@test "a rank that sleeps while another one waits for it is named, with its line" {
	run_once --hang 12 -N2 --ntasks-per-node=1 python3 "$PY/awaited.py" sleep
	same "$(field kind first.rank)" "hang 1"
	has "$text" '^rank 1 on n2, pid [0-9]+: it is not in a collective, and others wait for it'
	! command -v py-spy >/dev/null || has "$text" ': load_samples \(.*awaited.py:[0-9]+\)$'
}

@test "ranks that wait in different lines: both lines are named" {
	command -v py-spy >/dev/null || skip "gdb shows no line: py-spy is not installed"
	run_once --hang 12 -N2 --ntasks-per-node=1 python3 "$PY/awaited.py" other
	has "$text" '^rank 1 on n2, pid [0-9]+: it waits in recv \(.*distributed_c10d.py:[0-9]+\), and rank 0 in main \(.*awaited.py:[0-9]+\)$'
}

@test "a hang, while a thread keeps a rank from exiting after an exception" {
	run_once --hang 12 --exit-limit 0 -N2 --ntasks-per-node=1 python3 "$PY/awaited.py" thread
	same "$(field kind first.rank first.message)" "hang 1 ValueError: the loss is not finite"
	has "$text" '^rank 1 on n2, pid [0-9]+: it has not exited after an exception$'
}

@test "a hang, with PyTorch's flight recorder: the rank that did not arrive is named, with its collective" {
	run_once --hang 10 -N2 -n3 python3 "$PY/recorder.py" all
	same "$(field kind first.rank flight_recorder_dumps)" "hang 2 3"
	has "$text" '^rank 2 on n[12], pid [0-9]+: it did not arrive in #[0-9]+ gloo:all_reduce'
}
