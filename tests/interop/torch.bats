# SPDX-License-Identifier: Apache-2.0
# Unmodified PyTorch scripts on a real Slurm: gloo, two nodes, four ranks.
#
# shellcheck disable=SC2030,SC2031 # each test sets its own output

load ../cluster/lib
load torch

setup_file() { torch_up --nodes 2 --gpus 2 --shards 8; }
teardown_file() { cluster_down; }
teardown()
{
	networks_down
	tidy
}

four_local="rank 0 of 4 on n1: sum 10, local rank 0
rank 1 of 4 on n1: sum 10, local rank 1
rank 2 of 4 on n2: sum 10, local rank 0
rank 3 of 4 on n2: sum 10, local rank 1"

@test "env://" {
	step -N2 --ntasks-per-node=2 --ddp "$PYTHON" "$PY/checks.py"
	same "$output" "$four_local"
}

@test "env:// on shards: two ranks on the GPU of each of two nodes" {
	need_gpus
	step -N2 --ntasks-per-node=2 --gres=shard:4 --ddp "$PYTHON" "$PY/checks.py"
	same "$output" "$(sed 's/local rank 1/local rank 0/' <<<"$four_local")"
	has "$(<"$TOP/err")" '^ddp: n1: 2 ranks on GPU 0: .*NCCL .*"Duplicate GPU detected".* gloo'
}

@test "env:// with inherited RANK, WORLD_SIZE, LOCAL_RANK and TORCHELASTIC_USE_AGENT_STORE of an outer world" {
	RANK=3 WORLD_SIZE=9 LOCAL_RANK=7 TORCHELASTIC_USE_AGENT_STORE=True TORCHELASTIC_RESTART_COUNT=0 \
		step -N2 --ntasks-per-node=1 --ddp "$PYTHON" "$PY/checks.py"
	same "$output" "rank 0 of 2 on n1: sum 3, local rank 0
rank 1 of 2 on n2: sum 3, local rank 0"
}

@test "env:// with rank 0 alone on the second node: MASTER_ADDR is the second node's" {
	printf '%s\n' n2 n1 n1 n1 >"$TOP/hosts"
	SLURM_HOSTFILE=$TOP/hosts step -n4 -m arbitrary --ddp "$PYTHON" "$PY/checks.py"
	same "$output" "rank 0 of 4 on n2: sum 10, local rank 0
rank 1 of 4 on n1: sum 10, local rank 0
rank 2 of 4 on n1: sum 10, local rank 1
rank 3 of 4 on n1: sum 10, local rank 2"
	# The nodes share an address, so the test adds a suffix by which the names differ.
	SLURM_HOSTFILE=$TOP/hosts \
		step -n4 -m arbitrary --ddp --ddp-master-suffix=-ib printenv MASTER_ADDR
	same "$output" "n2-ib
n2-ib
n2-ib
n2-ib"
}

@test "env:// in a step inside a step: MASTER_ADDR is the inner step's" {
	# The outer step's variables describe another node, so they must not be used.
	mc salloc -Q -N2 --ntasks-per-node=2 srun --overlap -N1 -n1 -w n1 \
		srun --overlap -N1 -n2 -w n2 --ddp --ddp-master-suffix=-ib \
		printenv MASTER_ADDR >"$TOP/inner" 2>"$TOP/err"
	same "$(cat "$TOP/inner")" "n2-ib
n2-ib"
}

# templates.bats tests file://, torchrun and mp.spawn.

# Creates a network namespace for each node, with an address, connected to the other's.
networks_up()
{
	local node
	NET=ddp$$
	ip netns add "$NET-n1" 2>"$TOP/why" || { unset NET; skip "no network namespaces here: $(<"$TOP/why")"; }
	ip netns add "$NET-n2"
	ip link add "$NET" netns "$NET-n1" type veth peer name "$NET" netns "$NET-n2"
	for node in 1 2; do
		ip -n "$NET-n$node" addr add "10.213.8.$node/24" dev "$NET"
		ip -n "$NET-n$node" link set "$NET" up
		ip -n "$NET-n$node" link set lo up
		echo "10.213.8.$node n$node.net"
	done >"$TOP/etc-hosts"
	echo "127.0.0.1 localhost $(uname -n)" >>"$TOP/etc-hosts"
}

networks_down()
{
	[ -n "${NET-}" ] || return 0
	ip netns del "$NET-n1" && ip netns del "$NET-n2"
}

# torchrun's store listens on the node with node rank 0. Agents can connect only if MASTER_ADDR is
# that node.
@test "torchrun with rank 0 on the second node, and a network for each node" {
	need_root
	torchrun_works
	networks_up
	printf '%s\n' n2 n1 >"$TOP/hosts"
	cat >"$TOP/inside" <<-END
		#!/bin/sh
		mount --bind "$TOP/etc-hosts" /etc/hosts || exit
		exec nsenter --net="/run/netns/$NET-\$SLURMD_NODENAME" env GLOO_SOCKET_IFNAME=$NET "\$@"
	END
	chmod 755 "$TOP/inside"
	# only root can enter a network namespace
	output=$(cd "$TOP" && SLURM_HOSTFILE=$TOP/hosts timeout -k 5 "$MC_SECONDS" "$minicluster" run \
		srun --kill-on-bad-exit=1 -n2 -m arbitrary --ddp --ddp-master-suffix=.net unshare -m "$TOP/inside" \
		torchrun --nproc_per_node=2 "$PY/checks.py" 2>"$TOP/err") || { cat "$TOP/err" >&2; false; }
	same "$(sort <<<"$output")" "rank 0 of 4 on n2: sum 10, local rank 0
rank 1 of 4 on n2: sum 10, local rank 1
rank 2 of 4 on n1: sum 10, local rank 0
rank 3 of 4 on n1: sum 10, local rank 1"
}

@test "torch.distributed.launch passes --local_rank" {
	torchrun_works
	step -N2 --ntasks-per-node=1 --ddp \
		"$PYTHON" -W ignore -m torch.distributed.launch --nproc_per_node=2 "$PY/checks.py"
	same "$output" "rank 0 of 4 on n1: sum 10, local rank 0, argument 0
rank 1 of 4 on n1: sum 10, local rank 1, argument 1
rank 2 of 4 on n2: sum 10, local rank 0, argument 0
rank 3 of 4 on n2: sum 10, local rank 1, argument 1"
}

# refused: the step must fail, and no rank may have trained.
refused()
{
	if step "$@"; then
		echo "the step succeeded: $output" >&2
		return 1
	fi
	has_not "$output" 'rank [0-9]+ of'
}

@test "a plan that srun cannot make: no rank trains alone, and the reason is printed" {
	SLURM_DDP_RDZV=/proc/none refused -N2 --ntasks-per-node=1 --ddp "$PYTHON" "$PY/checks.py"
	has "$(cat "$TOP/err")" 'ddp: .*/proc/none'
}

@test "a problem on one node: its rank does not train alone, and the reason is printed" {
	# slurmctld listens on this port
	port=$(mc scontrol show config | awk '$1 == "SlurmctldPort" { print $3 }')
	MASTER_PORT=$port refused -N2 --ntasks-per-node=1 --ddp "$PYTHON" "$PY/checks.py"
	has "$(cat "$TOP/err")" "ddp: .*port $port of n1.*is in use"
}
