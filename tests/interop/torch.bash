# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What the tests with PyTorch share, on top of ../cluster/lib.bash.

# The system's own, whatever comes first in PATH: that one has Debian's python3-torch.
PYTHON=${DDP_PYTHON:-/usr/bin/python3}
export PYTHON

no_torch() { echo "$PYTHON has no PyTorch (Debian: python3-torch); name another with DDP_PYTHON" >&2; }

# ready_up: for scripts that run here and not in jobs, one Python that has imported PyTorch: ready.py.
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

# python SCRIPT ARG...: one of this directory's, by that Python.
python() { "$PYTHON" "$BATS_TEST_DIRNAME/ready.py" run "$READY" "$BATS_TEST_DIRNAME/$1" "${@:2}"; }

# cluster_up, and the scripts of this directory in $PY, where the jobs' user can read them.
torch_up()
{
	"$PYTHON" -c 'import torch.distributed' 2>/dev/null || { no_torch; return 1; }
	cluster_up "$@" || return 1
	# Several imports of PyTorch beside other tests take more than two minutes on two cores.
	export MC_SECONDS=400
	PY=$TOP/py
	mkdir -m 755 "$PY" "$TOP/tmp"
	chmod 1777 "$TOP/tmp"
	install -m 644 "$BATS_TEST_DIRNAME"/*.py "$PY"
	# torchrun and Python's multiprocessing leave files in TMPDIR.
	export PY TMPDIR=$TOP/tmp PYTHONDONTWRITEBYTECODE=1
	# All nodes are this machine, whose name need not resolve.
	export GLOO_SOCKET_IFNAME=lo
	# Debian's of 2.4 and later is built without what its store wants by default.
	has_libuv || export USE_LIBUV=0
	# torchrun 1.13 fails on Python 3.11 unless these are given; rank 9 does not exist.
	export PET_REDIRECTS=9:1 PET_TEE=9:1
}

has_libuv() { "$PYTHON" -c 'import torch.distributed as d; d.TCPStore("127.0.0.1", 0, 1, True)' 2>/dev/null; }

# torchrun's own store takes no other.
torchrun_works() { [ -z "${USE_LIBUV-}" ] || skip "this PyTorch is built without libuv, which torchrun needs"; }

# run srun with a script: $output has its lines, sorted; $TOP/err what went to stderr.
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

# Nothing of a step stays in the working directory.
tidy()
{
	same "$(ls -A "$WORK")" ""
}
