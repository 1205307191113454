# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Shared by the tests with PyTorch; extends ../cluster/lib.bash.

# The system's python3, which has Debian's python3-torch, even if another one is first in PATH.
PYTHON=${DDP_PYTHON:-/usr/bin/python3}
export PYTHON

no_torch() { echo "$PYTHON has no PyTorch (Debian: python3-torch); name another with DDP_PYTHON" >&2; }

# ready_up: starts ready.py, a Python process with PyTorch imported, for scripts that do not run in
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

# python SCRIPT ARG...: runs a script of this directory by ready.py.
python() { "$PYTHON" "$BATS_TEST_DIRNAME/ready.py" run "$READY" "$BATS_TEST_DIRNAME/$1" "${@:2}"; }

# torch_up OPTION...: cluster_up, and copies the scripts of this directory to $PY, where the jobs'
# user can read them.
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
	# all nodes are this machine, whose name may not resolve
	export GLOO_SOCKET_IFNAME=lo
	# since 2.4, Debian's build lacks libuv, which PyTorch's store uses by default
	has_libuv || export USE_LIBUV=0
	# torchrun 1.13 fails on Python 3.11 unless these are given; rank 9 does not exist.
	export PET_REDIRECTS=9:1 PET_TEE=9:1
}

has_libuv() { "$PYTHON" -c 'import torch.distributed as d; d.TCPStore("127.0.0.1", 0, 1, True)' 2>/dev/null; }

# torchrun's store cannot be used without libuv.
torchrun_works() { [ -z "${USE_LIBUV-}" ] || skip "this PyTorch is built without libuv, which torchrun needs"; }

# Runs srun with a script. $output has its sorted lines, $TOP/err its stderr.
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

# A step leaves nothing in the working directory.
tidy()
{
	same "$(ls -A "$WORK")" ""
}
