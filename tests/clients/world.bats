# SPDX-License-Identifier: Apache-2.0
# A step with --ddp that is refused on one node does not train in pieces, and does not disturb another step, under the launchers
# and frameworks of the newest PyTorch. tests/cluster/world.bats has the rules themselves.
#
# shellcheck disable=SC2154 # rc, out and err come from try

load pytorch

setup_file()
{
	pytorch_up --nodes 3 --cpus 4 --gpus 0 --conf MpiParams=
	PORT=$(($(sed -n 's/^base=//p' "$MINICLUSTER_DIR/cluster") + 50))
	export PORT HF_HUB_OFFLINE=1 JAX_PLATFORMS=cpu PYTHONWARNINGS=ignore
}
teardown_file() { cluster_down; }

teardown()
{
	stop_listening
	end_jobs
	rm -rf "${WORK:?}"/* "$WORK"/.ddp
}

# refused ARGUMENT...: runs srun with these arguments. The step must fail, and no rank may train.
refused()
{
	try mc srun "$@"
	[ "$rc" -ne 0 ]
	has_not "$out" TRAINED
	has "$err" "ddp: "
}

nodes=(-N2 -w n1,n2 --ntasks-per-node=1)

@test "a directory that others may write: torchrun, accelerate and a program that tests for RANK do not train" {
	as_user mkdir "$WORK/open"
	as_user chmod 2775 "$WORK/open"
	for command in "torchrun --nproc_per_node=1" "accelerate launch --cpu --num_processes 1" python3; do
		# srun refuses the option, and its variable only when the step exists.
		# shellcheck disable=SC2086 # words
		refused "${nodes[@]}" --ddp --ddp-rdzv="$WORK/open" $command "$PY/tr.py"
		SLURM_DDP_RDZV=$WORK/open refused "${nodes[@]}" --ddp-verbose --ddp $command "$PY/tr.py"
	done
}

@test "a port that is in use on rank 0's node: torchrun, accelerate and a program that tests for RANK do not train" {
	listen "$PORT"
	for command in "torchrun --nproc_per_node=1" "accelerate launch --cpu --num_processes 1" python3; do
		# shellcheck disable=SC2086 # words
		refused "${nodes[@]}" --ddp --ddp-port="$PORT" $command "$PY/tr.py"
		has "$err" "port $PORT of n1, where rank 0 runs, is in use"
	done
}

@test "a second step with the same MASTER_PORT is refused, and the first one sums right" {
	export MASTER_PORT=$PORT
	background_as_is mc srun "${nodes[@]}" --ddp python3 "$PY/tr.py" >"$TOP/first" 2>"$TOP/first.err"
	first=$!
	within 60 grep -qs "@slurm-ddp/$PORT" /proc/net/unix
	# Once while the first step imports PyTorch, then while it trains.
	for when in before after; do
		[ "$when" = before ] || within 60 grep -q epoch "$TOP/first.err"
		refused -N2 -w n1,n3 --ntasks-per-node=1 --overlap --ddp python3 "$PY/tr.py" --value 1000
		has "$err" "port $PORT of n1, where rank 0 runs, is used by another --ddp step"
	done
	wait "$first"
	same "$(grep -v '^weights ' "$TOP/first" | sort)" "TRAINED rank 0 of 2 sum 3
TRAINED rank 1 of 2 sum 3"
}

@test "torchrun in a script, in a wrapper and for one node: no task trains a separate world" {
	for command in "bash -c 'torchrun --nproc_per_node=2 $PY/tr.py'" "nice torchrun --nproc_per_node=2 $PY/tr.py"; do
		try mc bash -c "srun -N2 -w n1,n2 --ntasks-per-node=2 --kill-on-bad-exit=1 --ddp $command"
		[ "$rc" -ne 0 ]
		has_not "$out" TRAINED
		has "$err$out" "(torchrun needs|write) --ntasks-per-node=1"
	done
	refused "${nodes[@]}" --ddp torchrun --nnodes=1 --nproc_per_node=2 "$PY/tr.py"
	PET_NNODES=1 refused "${nodes[@]}" --ddp torchrun --nproc_per_node=2 "$PY/tr.py"
	PET_NODE_RANK=0 try mc srun "${nodes[@]}" --ddp torchrun --nproc_per_node=1 "$PY/tr.py"
	same "$rc:$(grep -c 'TRAINED rank . of 2 sum 3' <<<"$out")" 0:2
}

@test "a heterogeneous step is refused" {
	refused -n2 -w n2 python3 "$PY/tr.py" : -n1 -w n1 --ddp python3 "$PY/tr.py"
}

# Starts slurmd of n2 with an empty plugstack.conf.
without_plugin()
{
	need_root
	: >"$TOP/empty"
	slurmd_n2 "mount --bind '$TOP/empty' '$MINICLUSTER_DIR/plugstack.conf'"
}

@test "a node without the plugin: no rank trains, and the error of each framework shows why" {
	without_plugin
	reason="-1 \(ddp.so is not loaded on this node\)"
	for command in "python3 $PY/tr.py" "torchrun --nproc_per_node=1 $PY/tr.py" "torchrun --standalone --nproc_per_node=1 $PY/tr.py" \
		"accelerate launch --cpu --num_processes 1 $PY/tr.py" "python3 $PY/clients.py accelerate" "python3 $PY/clients.py lightning"; do
		# Two tasks on each node, where the launcher would otherwise be refused.
		tasks=1
		[[ $command != *standalone* ]] || tasks=2
		# shellcheck disable=SC2086 # words
		try mc srun -N2 -w n1,n2 --ntasks-per-node=$tasks --kill-on-bad-exit=1 --ddp --ddp-launcher=allow $command
		echo "# $command: status $rc" >&2
		[ "$rc" -ne 0 ]
		has_not "$out" "TRAINED|^rank . of"
		has "$err$out" "$reason"
	done
	slurmd_n2 true
}
