# SPDX-License-Identifier: Apache-2.0
# Compares libddp's rules with PyTorch's. Needs no Slurm.

load torch

setup_file()
{
	export ORACLE=${DDP_BUILDDIR:?}/tests/interop/oracle
	ready_up
}

teardown_file() { ready_down; }

compare()
{
	run python compare.py "$1"
	echo "$output"
	[ "$status" -eq 0 ]
	[ "${2:-}" = optional ] || grep -qE '^[0-9]{2,} questions' <<<"$output"
}

@test "sampler: DistributedSampler, index for index" { compare sampler; }

@test "buckets: _compute_bucket_assignment_by_size" { compare buckets; }

@test "loss scaling: GradScaler's kernels, if PyTorch has them for CPUs" {
	compare scaler optional
	grep -q '^not compared' <<<"$output" && skip "$(grep '^not compared' <<<"$output")"
	return 0
}

@test "clipping: clip_grad_norm_" { compare clip; }

@test "evaluation: cross_entropy, argmax, topk" { compare evaluation; }

@test "SyncBatchNorm: BatchNorm over the whole batch" { compare moments; }
