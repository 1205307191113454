# SPDX-License-Identifier: Apache-2.0
# ddp-train's networks, initial weights, optimizers and schedules, compared with PyTorch's. Needs no
# Slurm.

load torch

setup_file()
{
	export NETWORK=${DDP_BUILDDIR:?}/tests/interop/network
	# The program must be a single rank, even if the caller's environment describes another one.
	unset "${!SLURM_@}" RANK WORLD_SIZE TORCHELASTIC_RUN_ID
	ready_up
}

teardown_file() { ready_down; }

setup() { cd "$BATS_TEST_TMPDIR" || return 1; }

compare()
{
	run python train-model.py "$@"
	echo "$output"
	[ "$status" -eq 0 ]
}

@test "networks: names, shapes and order of parameters" { compare list; }

@test "initial weights: within one ulp of the largest, and loaded with strict=True" { compare init; }

@test "a state_dict: read into a model and written from it, bit by bit" { compare copy; }

@test "a state_dict of another network is refused, with file and tensor" { compare refusals; }

@test "optimizers: fifty steps, on vectors" {
	grep -qw avx2 /proc/cpuinfo || skip "this CPU has no AVX2"
	compare optim avx2
}

@test "optimizers: fifty steps, plain" { compare optim plain; }

@test "schedules" { compare schedule; }
