# SPDX-License-Identifier: Apache-2.0
# How ddp-run reports errors of programs with the newest PyTorch (errors.py).
#
# shellcheck disable=SC2154 # rc, out and err come from try

load pytorch

setup_file() { pytorch_up --nodes 2 --gpus 0; }
teardown_file() { cluster_down; }
teardown() { end_jobs; rm -rf "${WORK:?}"/* "$WORK"/.ddp; }

# errors CASE OPTION...: runs errors.py with one attempt, which must fail, and sets $text to the report.
errors()
{
	remove_attempts
	run_once "${@:2}" -N2 --ntasks-per-node=1 python3 "$PY/errors.py" "$1"
}

@test "an uncaught exception is reported with its text, and the rank that lost the connection as follower" {
	local case message
	while read -r case message; do
		errors "$case"
		same "$case: $(field first.rank first.message)" "$case: 1 $message"
		has "$text" '^as a result: rank 0: '
	done <<-'END'
		exception ValueError: the loss is not finite
		ecc RuntimeError: CUDA error: uncorrectable ECC error encountered
		loader ValueError: sample 0 is broken
		nested KeyError: 'later'
		group ValueError: the loss is not finite
		thread ValueError: the loss is not finite
	END
}

@test "an exception whose text is longer than the tail of the output" {
	errors long
	same "$(field first.rank)" 1
	has "$(field first.message)" '^ValueError: x+$'
}

@test "an interrupt and an exit with a text" {
	errors interrupt
	same "$(field first.rank first.signal first.message)" "1 SIGINT KeyboardInterrupt"
	errors system_exit
	same "$(field first.rank first.code first.message)" "1 1 None"
	has "$text" '^    no data$'
}

@test "three attempts that end with different errors: a fourth follows" {
	try mc ddp-run -N2 --ntasks-per-node=1 bash -c '[ "$DDP_RESTART" -eq 3 ] || exec python3 "$0" different' "$PY/errors.py"
	same "$rc" 0
	has "$err" '^  ValueError: reason c$'
}
