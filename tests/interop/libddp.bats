# SPDX-License-Identifier: Apache-2.0
# libddp's and ddp-train's rules and files, compared with PyTorch's, and read and written by other programs. Needs no Slurm.

load torch

setup_file()
{
	local seed=${DDP_SEED-} programs=${DDP_BUILDDIR:?}/tests/interop
	# The programs must be single ranks, even if the caller's environment describes another one.
	unset "${!SLURM_@}" "${!DDP_@}" RANK WORLD_SIZE TORCHELASTIC_RUN_ID
	export ORACLE=$programs/oracle NETWORK=$programs/network TENSORS=$programs/tensors DDP_SEED=$seed
	ready_up || return 1
	state write "$BATS_FILE_TMPDIR"
}

teardown_file() { ready_down; }

setup() { cd "$BATS_TEST_TMPDIR" && net=$BATS_FILE_TMPDIR/net.st odd=$BATS_FILE_TMPDIR/odd.st; }

state() { python state.py "$@"; }

# compare SCRIPT SUBJECT...: runs compare.py or train-model.py.
compare()
{
	run python "$@"
	echo "$output"
	[ "$status" -eq 0 ]
}

# --- Rules ------------------------------------------------------------------------------

@test "sampler: DistributedSampler, index for index" {
	compare compare.py sampler
	grep -qE '^[0-9]{2,} questions' <<<"$output"
}

@test "buckets: _compute_bucket_assignment_by_size" {
	compare compare.py buckets
	grep -qE '^[0-9]{2,} questions' <<<"$output"
}

@test "clipping: clip_grad_norm_" { compare compare.py clip; }

@test "SyncBatchNorm: BatchNorm over the whole batch" { compare compare.py moments; }

@test "initial weights: within one ulp of the largest, and loaded with strict=True" { compare train-model.py init; }

@test "a state_dict: read into a model and written from it, bit by bit" { compare train-model.py copy; }

@test "a state_dict of another network is refused, with file and tensor" { compare train-model.py refusals; }

@test "optimizers: fifty steps, on vectors" {
	grep -qw avx2 /proc/cpuinfo || skip "this CPU has no AVX2"
	compare train-model.py optim avx2
}

@test "optimizers: fifty steps, plain" { compare train-model.py optim plain; }

# --- Files ------------------------------------------------------------------------------

# optional PACKAGE COMMAND...: like state. If Python has no PACKAGE, skips the test.
optional()
{
	local status=0
	state "${@:2}" || status=$?
	[ "$status" -ne 77 ] || skip "$PYTHON has no package $1"
	return "$status"
}

@test "a state_dict from Python: listed as PyTorch sees it" {
	diff <("$TENSORS" list "$net") <(state list "$net")
	[ "$("$TENSORS" list "$net" | wc -l)" -eq 13 ]
}

@test "a state_dict from Python: read, written, and loaded with strict=True" {
	"$TENSORS" copy "$net" copy.st
	state same "$net" copy.st
	state strict copy.st
}

@test "every type, scalars, empty tensors, odd names" {
	"$TENSORS" copy "$odd" copy.st
	state same "$odd" copy.st
}

@test "libddp's files equal those of a writer in Python, byte by byte" {
	"$TENSORS" copy "$net" copy.st
	cmp "$net" copy.st
	"$TENSORS" copy "$odd" copy.st
	cmp "$odd" copy.st
}

@test "the package safetensors reads libddp's files, and libddp reads its files" {
	"$TENSORS" copy "$odd" copy.st
	optional safetensors package copy.st package.st
	"$TENSORS" copy package.st again.st
	state same "$odd" again.st
}

@test "a checkpoint: loaded with strict=True, checksum verified by Python" {
	"$TENSORS" save "$net" checkpoints 12
	state strict checkpoints/checkpoint-0000000012.safetensors
	state same "$net" checkpoints/checkpoint-0000000012.safetensors
	"$TENSORS" save "$odd" odd 7
	state checksum odd/checkpoint-0000000007.safetensors 7
}

@test "a checkpoint that Python wrote is loaded" {
	mkdir checkpoints
	cp "$odd" checkpoints/checkpoint-0000000003.safetensors
	[ "$("$TENSORS" load "$odd" checkpoints resumed.st)" = "step 3" ]
	state same "$odd" resumed.st
}

@test "a checkpoint of another network is refused, with the names of the tensors" {
	"$TENSORS" save "$net" checkpoints 1
	run "$TENSORS" load "$odd" checkpoints resumed.st
	[ "$status" -gt 64 ]
	[[ $output == *"not expected: "*"conv1.weight"* ]]
}

@test "event files: read by Python, checksums verified" {
	"$TENSORS" events events
	state events events
}

@test "event files: TensorBoard's own reader" {
	"$TENSORS" events events
	optional tensorboard tensorboard events
}
