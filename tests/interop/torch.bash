# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Functions for the tests with PyTorch. Extends ../cluster/lib.bash.

# The system's python3, for which Debian's python3-torch is installed, even if PATH has another one
# first.
PYTHON=${DDP_PYTHON:-/usr/bin/python3}
export PYTHON

no_torch() { echo "$PYTHON has no PyTorch (Debian: python3-torch); name another with DDP_PYTHON" >&2; }

# ready_up: starts ready.py, a Python process that has imported PyTorch. It runs scripts outside of
# jobs.
ready_up()
{
	# PyTorch leaves files in TMPDIR.
	export PYTHONDONTWRITEBYTECODE=1 READY=$BATS_FILE_TMPDIR/ready TMPDIR=$BATS_FILE_TMPDIR
	"$PYTHON" -W ignore "$BATS_TEST_DIRNAME/ready.py" serve "$READY" 3>&- &
	echo $! >"$READY.pid"
	until [ -S "$READY" ]; do
		kill -0 $! 2>/dev/null || { no_torch; return 1; }
		sleep 0.1
	done
}

ready_down() { kill "$(<"$READY.pid")"; }

# python SCRIPT ARG...: runs a script of this directory in ready.py.
python() { "$PYTHON" "$BATS_TEST_DIRNAME/ready.py" run "$READY" "$BATS_TEST_DIRNAME/$1" "${@:2}"; }

# torch_up OPTION...: calls cluster_up, and copies the scripts of this directory to $PY, where the
# jobs' user can read them.
torch_up()
{
	local status=0
	# PyTorch's store uses libuv by default, which Debian's build lacks since 2.4.
	"$PYTHON" -c '
import sys, torch.distributed as d
try:
    d.TCPStore("127.0.0.1", 0, 1, True)
except Exception:
    sys.exit(77)' 2>/dev/null || status=$?
	case $status in
	0) ;;
	77) export USE_LIBUV=0 ;;
	*) no_torch; return 1 ;;
	esac
	cluster_up "$@" || return 1
	# On two cores, while other tests run, several imports of PyTorch take more than two
	# minutes.
	export MC_SECONDS=400
	PY=$TOP/py
	mkdir -m 755 "$PY" "$TOP/tmp"
	chmod 1777 "$TOP/tmp"
	install -m 644 "$BATS_TEST_DIRNAME"/*.py "$PY"
	# torchrun and Python's multiprocessing leave files in TMPDIR.
	export PY TMPDIR=$TOP/tmp PYTHONDONTWRITEBYTECODE=1
	# All nodes are this machine, and its name may not resolve.
	export GLOO_SOCKET_IFNAME=lo
	# Without these options torchrun 1.13 fails on Python 3.11. Rank 9 does not exist.
	export PET_REDIRECTS=9:1 PET_TEE=9:1
}

# Skips the test if PyTorch has no libuv, because torchrun's store cannot be used then.
torchrun_works() { [ -z "${USE_LIBUV-}" ] || skip "this PyTorch is built without libuv, which torchrun needs"; }

# step SRUN_OPTION... SCRIPT: runs a script with srun. Sets $output to its sorted lines. $TOP/err
# has its stderr.
step()
{
	local status=0
	output=$(mc srun --kill-on-bad-exit=1 "$@" 2>"$TOP/err") || status=$?
	output=$(sort <<<"$output")
	[ "$status" -eq 0 ] && return 0
	printf 'exit status %s, stdout:\n%s\n' "$status" "$output" >&2
	sed 's/^/stderr: /' "$TOP/err" >&2
	return "$status"
}
