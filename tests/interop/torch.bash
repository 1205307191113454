# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What the tests with PyTorch share, on top of ../cluster/lib.bash.

# The system's own, whatever comes first in PATH: that one has Debian's python3-torch.
PYTHON=${DDP_PYTHON:-/usr/bin/python3}
export PYTHON

# cluster_up, and the scripts of this directory in $PY, where the jobs' user can read them.
torch_up()
{
	"$PYTHON" -c 'import torch.distributed' 2>/dev/null || {
		echo "$PYTHON has no PyTorch (Debian: python3-torch); name another with DDP_PYTHON" >&2
		return 1
	}
	cluster_up "$@" || return 1
	PY=$TOP/py
	mkdir -m 755 "$PY" "$TOP/tmp"
	chmod 1777 "$TOP/tmp"
	install -m 644 "$BATS_TEST_DIRNAME"/*.py "$PY"
	# torchrun and Python's multiprocessing leave files in TMPDIR.
	export PY TMPDIR=$TOP/tmp PYTHONDONTWRITEBYTECODE=1
	# All nodes are this machine, whose name need not resolve.
	export GLOO_SOCKET_IFNAME=lo
	# torchrun 1.13 fails on Python 3.11 unless these are given; rank 9 does not exist.
	export PET_REDIRECTS=9:1 PET_TEE=9:1
}

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
