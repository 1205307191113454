# SPDX-License-Identifier: Apache-2.0
# ddp-run --exit-limit: ranks that print an exception and do not exit, with the newest PyTorch (exits.py).
#
# shellcheck disable=SC2154 # rc, out and err come from try

load pytorch

setup_file() { pytorch_up --nodes 2 --gpus 0; }
teardown_file() { cluster_down; }
teardown() { end_jobs; rm -rf "${WORK:?}"/* "$WORK"/.ddp "$TOP/none"; }

# ends CASE: the attempt ends, and the report names rank 1 and its exception.
ends()
{
	remove_attempts
	run_once --exit-limit 4 -N2 --ntasks-per-node=1 python3 "$PY/exits.py" "$1"
	same "$1: $(field kind first.rank first.how first.message)" "$1: exit 1 raised ValueError: the loss is not finite"
	has "$text" '^rank 1 on n2, pid [0-9]+, failed first: did not exit after an exception$'
	has "$err" '^ddp-run: rank 1 of step .* has not exited [0-9]+ s after an exception: ending the step$'
}

@test "a thread, a destructor or workers keep a rank from exiting after an exception, or its main thread has ended" {
	local case
	for case in thread printer destructor loader main_ended; do
		ends "$case"
	done
}

@test "without a debugger, a rank that printed an uncaught exception and nothing else has failed" {
	local name
	mkdir "$TOP/none"
	for name in gdb py-spy; do
		printf '#!/bin/sh\nexit 127\n' >"$TOP/none/$name"
		chmod 755 "$TOP/none/$name"
	done
	PATH=$TOP/none:$PATH ends thread
}

@test "a program that logs exceptions and continues is not ended" {
	try mc ddp-run --exit-limit 2 -N2 --ntasks-per-node=1 python3 "$PY/exits.py" log
	same "$rc" 0
	same "$(count_lines "$err" '^ValueError: the loss is not finite')" 9
	has_not "$err" '^ddp-run:'
}
