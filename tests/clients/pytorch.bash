# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Starts a cluster whose jobs find the newest PyTorch as python3, torchrun and accelerate, and ddp-run and ddp-exec, in PATH. A
# .bats file of this directory uses it like this:
#
#     load pytorch
#     setup_file() { pytorch_up --nodes 2; }
#     teardown_file() { cluster_down; }
#
# "contrib/check pytorch" creates the environment in build/pytorch, and runs all such files. DDP_PYTHON names the python3 of
# another environment.

load ../cluster/lib
DDP_PYTHON=${DDP_PYTHON:-$DDP_SRCDIR/build/pytorch/bin/python3}
load ../interop/torch

# pytorch_up OPTION...: calls torch_up with these options.
pytorch_up()
{
	local script
	as_user test -x "$PYTHON" || {
		echo "the jobs' user cannot run $PYTHON: run contrib/check pytorch, which creates it, and mounts it if its directory is private" >&2
		return 1
	}
	torch_up "$@" || return 1
	install -m 755 "$DDP_BUILDDIR"/runtime/{run/ddp-run,launch/ddp-exec} "$TOP"
	install -m 644 "$DDP_BUILDDIR/runtime/run/decode-dumps" "$TOP"
	# pip writes the path at which the environment was created into these scripts.
	for script in torchrun accelerate; do
		sed "1s|.*|#!$PYTHON|" "${PYTHON%/*}/$script" >"$TOP/$script"
		chmod 755 "$TOP/$script"
	done
	export PATH=$TOP:${PYTHON%/*}:$PATH OMP_NUM_THREADS=1
	# torch_up sets these for PyTorch 1.13.
	unset PET_REDIRECTS PET_TEE
}
