# SPDX-License-Identifier: Apache-2.0
# A training with the newest PyTorch (tr.py) on two nodes, under each program that starts its ranks.
#
# shellcheck disable=SC2154 # rc, out and err come from try

load pytorch

setup_file() { pytorch_up --nodes 2 --gpus 0; }
teardown_file() { cluster_down; }
teardown() { rm -rf "${WORK:?}"/* "$WORK"/.ddp; }

# undisturbed: runs two ranks under srun --ddp, once for all tests. Sets $output to their sorted output.
undisturbed()
{
	if [ ! -s "$TOP/undisturbed" ]; then
		step -N2 --ntasks-per-node=1 --ddp python3 "$PY/tr.py"
		echo "$output" >"$TOP/undisturbed"
	fi
	output=$(<"$TOP/undisturbed")
}

@test "srun --ddp" {
	undisturbed
	same "$(grep -v '^weights ' <<<"$output")" "TRAINED rank 0 of 2 sum 3
TRAINED rank 1 of 2 sum 3"
}

@test "srun ddp-exec" {
	undisturbed
	expected=$output
	step -N2 --ntasks-per-node=1 ddp-exec python3 "$PY/tr.py"
	same "$output" "$expected"
}

@test "ddp-run: a rank raises an exception, and the next attempt resumes from the checkpoint, with the same weights" {
	undisturbed
	try mc ddp-run -N2 --ntasks-per-node=1 python3 "$PY/tr.py" --checkpoint model.pt --fail 1
	same "$rc" 0
	same "$(sort <<<"$out")" "$(sort <<<"$output
rank 0 resumes with epoch 1
rank 1 resumes with epoch 1")"
	has "$err" '^rank 1 on n2, pid [0-9]+, failed first: '
	has "$err" '^    \[rank1\]: RuntimeError: rank 1 fails in epoch 1$'
	has "$err" '^next: started again'
}

@test "srun --ddp torchrun: two ranks on each node" {
	step -N2 --ntasks-per-node=1 --ddp torchrun --nproc_per_node=2 "$PY/tr.py"
	same "$(grep -v '^weights ' <<<"$output")" "TRAINED rank 0 of 4 sum 10
TRAINED rank 1 of 4 sum 10
TRAINED rank 2 of 4 sum 10
TRAINED rank 3 of 4 sum 10"
}
