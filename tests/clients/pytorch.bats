# SPDX-License-Identifier: Apache-2.0
# A training with the newest PyTorch (tr.py) on two nodes, under each program that starts its ranks, and commands and nodes with
# which no rank may train. tests/scenarios has more launchers, and faults. tests/cluster/world.bats has the rules themselves.
#
# shellcheck disable=SC2154 # rc, out and err come from try

load pytorch

setup_file()
{
	pytorch_up --nodes 2 --cpus 4 --gpus 0
	export HF_HUB_OFFLINE=1 PYTHONWARNINGS=ignore
}
teardown_file() { cluster_down; }
teardown() { rm -rf "${WORK:?}"/* "$WORK"/.ddp; }

@test "srun --ddp, and srun ddp-exec with the same weights" {
	step -N2 --ntasks-per-node=1 --ddp python3 "$PY/tr.py"
	same "$(grep -v '^weights ' <<<"$output")" "TRAINED rank 0 of 2 sum 3
TRAINED rank 1 of 2 sum 3"
	expected=$output
	step -N2 --ntasks-per-node=1 ddp-exec python3 "$PY/tr.py"
	same "$output" "$expected"
}

@test "torchrun in a script, in a wrapper and for one node: no task trains a separate world" {
	for command in "bash -c 'torchrun --nproc_per_node=2 $PY/tr.py'" "nice torchrun --nproc_per_node=2 $PY/tr.py"; do
		try mc bash -c "srun -N1 --ntasks-per-node=2 --kill-on-bad-exit=1 --ddp $command"
		[ "$rc" -ne 0 ]
		has_not "$out" TRAINED
		has "$err$out" "(torchrun needs|[Ww]rite) --ntasks-per-node=1"
	done
	try mc srun -N2 --ntasks-per-node=1 --ddp torchrun --nnodes=1 --nproc_per_node=2 "$PY/tr.py"
	[ "$rc" -ne 0 ]
	has_not "$out" TRAINED
	has "$err" 'ddp: '
	PET_NNODES=1 try mc srun -N2 --ntasks-per-node=1 --ddp torchrun --nproc_per_node=2 "$PY/tr.py"
	[ "$rc" -ne 0 ]
	has_not "$out" TRAINED
	has "$err" 'ddp: '
	PET_NODE_RANK=0 try mc srun -N2 --ntasks-per-node=1 --ddp torchrun --nproc_per_node=1 "$PY/tr.py"
	same "$rc:$(grep -c 'TRAINED rank . of 2 sum 3' <<<"$out")" 0:2
}

# This is the last test, because n2 stays without the plugin.
@test "a node without the plugin: no rank trains, and the error of each framework shows why" {
	need_root
	: >"$TOP/empty"
	slurmd_n2 "mount --bind '$TOP/empty' '$MINICLUSTER_DIR/plugstack.conf'"
	for command in "python3 $PY/tr.py" "torchrun --standalone --nproc_per_node=1 $PY/tr.py" "python3 $PY/clients.py lightning"; do
		# Two tasks on each node, where the launcher would otherwise be refused.
		tasks=1
		[[ $command != *standalone* ]] || tasks=2
		# shellcheck disable=SC2086 # words
		try mc srun -N2 --ntasks-per-node=$tasks --kill-on-bad-exit=1 --ddp --ddp-launcher=allow $command
		echo "# $command: status $rc" >&2
		[ "$rc" -ne 0 ]
		has_not "$out" "TRAINED|^rank . of"
		has "$err$out" "-1 \(ddp.so is not loaded on this node\)"
	done
}
