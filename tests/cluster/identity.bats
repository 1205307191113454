# SPDX-License-Identifier: Apache-2.0
# Variables that identify a task (RANK, WORLD_SIZE, LOCAL_RANK, NODE_RANK, torchrun's and libddp's), for every layout of a step.
# shellcheck disable=SC2001,SC2016,SC2086,SC2154

load lib

setup_file() { cluster_up --nodes 4 --cpus 4 --gpus 2 --shards 0; }
teardown_file() { cluster_down; }
teardown() { other_cluster_down; }

names="WORLD_SIZE RANK LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK GROUP_RANK GROUP_WORLD_SIZE"

# Reads rows "rank node world local-rank local-world node-rank nodes", and prints the lines that show prints for $names.
rows()
{
	while read -r rank node world local local_world node_rank nodes; do
		echo "$rank@$node WORLD_SIZE=$world RANK=$rank LOCAL_RANK=$local" \
			"LOCAL_WORLD_SIZE=$local_world NODE_RANK=$node_rank GROUP_RANK=$node_rank" \
			"GROUP_WORLD_SIZE=$nodes"
	done
}

plugin_messages() { grep '^ddp:' "$TOP/err"; }

uneven="the variables are right, but code that computes a node as rank / LOCAL_WORLD_SIZE is wrong"

# --- Distributions --------------------------------------------------------------------

# bats test_tags=release
@test "default distribution: block-wise ranks, no message" {
	got=$(show "$names" -w 'n[1-2]' -N2 --ntasks-per-node=2 --ddp)
	same "$got" "$(rows <<-END
		0 n1 4 0 2 0 2
		1 n1 4 1 2 0 2
		2 n2 4 0 2 1 2
		3 n2 4 1 2 1 2
	END
	)"
	same "$(plugin_messages)" ""
}

# bats test_tags=release
@test "-m cyclic: consecutive ranks are on different nodes" {
	got=$(show "$names" -w 'n[1-2]' -N2 --ntasks-per-node=2 -m cyclic --ddp)
	same "$got" "$(rows <<-END
		0 n1 4 0 2 0 2
		1 n2 4 0 2 1 2
		2 n1 4 1 2 0 2
		3 n2 4 1 2 1 2
	END
	)"
}

@test "-m plane=2: pairs of ranks alternate between nodes" {
	got=$(show "$names" -w 'n[1-2]' -N2 -n8 -m plane=2 --ddp)
	same "$got" "$(rows <<-END
		0 n1 8 0 4 0 2
		1 n1 8 1 4 0 2
		2 n2 8 0 4 1 2
		3 n2 8 1 4 1 2
		4 n1 8 2 4 0 2
		5 n1 8 3 4 0 2
		6 n2 8 2 4 1 2
		7 n2 8 3 4 1 2
	END
	)"
}

@test "-m arbitrary: ranks follow SLURM_HOSTFILE, rank 0 on the last node of the list" {
	printf '%s\n' n3 n1 n1 n2 n2 n3 | as_user tee "$WORK/hosts" >/dev/null
	got=$(SLURM_HOSTFILE=$WORK/hosts show "$names" -n6 -m arbitrary --ddp)
	same "$got" "$(rows <<-END
		0 n3 6 0 2 0 3
		1 n1 6 0 2 1 3
		2 n1 6 1 2 1 3
		3 n2 6 0 2 2 3
		4 n2 6 1 2 2 3
		5 n3 6 1 2 0 3
	END
	)"
	same "$(plugin_messages)" ""
}

# bats test_tags=release
@test "-m arbitrary, one task a node: node ranks follow the ranks, in torchrun's variables and ours" {
	printf '%s\n' n4 n2 n3 n1 | as_user tee "$WORK/hosts" >/dev/null
	got=$(SLURM_HOSTFILE=$WORK/hosts show "PET_NODE_RANK NODE_RANK DDP_NODE_RANK SLURM_NODEID" -n4 -m arbitrary --ddp)
	same "$got" "0@n4 PET_NODE_RANK=0 NODE_RANK=0 DDP_NODE_RANK=0 SLURM_NODEID=3
1@n2 PET_NODE_RANK=1 NODE_RANK=1 DDP_NODE_RANK=1 SLURM_NODEID=1
2@n3 PET_NODE_RANK=2 NODE_RANK=2 DDP_NODE_RANK=2 SLURM_NODEID=2
3@n1 PET_NODE_RANK=3 NODE_RANK=3 DDP_NODE_RANK=3 SLURM_NODEID=0"
}

# bats test_tags=release
@test "stepmgr, Slurm 24.05 and later: MASTER_ADDR is that of rank 0's node" {
	slurm_at_least 24.05 || skip "this Slurm has none"
	other_cluster --nodes 3 --gpus 0 --conf SlurmctldParameters=enable_stepmgr --conf PrologFlags=contain
	try mc salloc -Q -N3 --stepmgr srun -Q -N2 -w n2,n3 --ddp "$SHOW" RANK NODE_RANK WORLD_SIZE MASTER_ADDR DDP_ERROR
	same "$rc:$(sort -n <<<"$out")" "0:0@n2 RANK=0 NODE_RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 DDP_ERROR=UNSET
1@n3 RANK=1 NODE_RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 DDP_ERROR=UNSET"
}

# bats test_tags=release
@test "tasks ordered by topology, Slurm 26.05 and later: node ranks follow the ranks" {
	slurm_at_least 26.05 || skip "this Slurm lays tasks out in the order of the nodes' names"
	other_cluster --nodes 4 --gpus 0
	echo TopologyPlugin=topology/tree >>"$MINICLUSTER_DIR/slurm.conf"
	printf 'SwitchName=s0 Switches=s1,s2\nSwitchName=s1 Nodes=n[3-4]\nSwitchName=s2 Nodes=n[1-2]\n' \
		>"$MINICLUSTER_DIR/topology.conf"
	"$minicluster" run scontrol reconfigure
	within 30 sh -c '[ "$("$0" run sinfo -h -o "%t %D")" = "idle 4" ]' "$minicluster"
	got=$(show "PET_NODE_RANK NODE_RANK DDP_NODE_RANK SLURM_NODEID" -N4 --ddp)
	same "$got" "0@n3 PET_NODE_RANK=0 NODE_RANK=0 DDP_NODE_RANK=0 SLURM_NODEID=2
1@n4 PET_NODE_RANK=1 NODE_RANK=1 DDP_NODE_RANK=1 SLURM_NODEID=3
2@n1 PET_NODE_RANK=2 NODE_RANK=2 DDP_NODE_RANK=2 SLURM_NODEID=0
3@n2 PET_NODE_RANK=3 NODE_RANK=3 DDP_NODE_RANK=3 SLURM_NODEID=1"
}

# The job and each component list their nodes in a different order.
# bats test_tags=release
@test "heterogeneous step with -m arbitrary in both components: node ranks follow the ranks" {
	printf '%s\n' n2 n1 | as_user tee "$WORK/hosts" >/dev/null
	printf '%s\n' n4 n3 | as_user tee "$WORK/hosts2" >/dev/null
	got=$(mc salloc -Q -N4 -n4 sh -c 'srun --ddp -m arbitrary -w n2,n1 -n2 "$@" : -m arbitrary -w n4,n3 -n2 "$@"' \
		- "$SHOW" NODE_RANK GROUP_RANK SLURM_NODEID 2>"$TOP/err" | sort -n)
	same "$got" "0@n2 NODE_RANK=0 GROUP_RANK=0 SLURM_NODEID=1
1@n1 NODE_RANK=1 GROUP_RANK=1 SLURM_NODEID=0
2@n4 NODE_RANK=2 GROUP_RANK=2 SLURM_NODEID=3
3@n3 NODE_RANK=3 GROUP_RANK=3 SLURM_NODEID=2"
}

@test "different numbers of tasks on nodes: correct variables, one warning" {
	got=$(show "$names" -w 'n[1-2]' -N2 -n4 --ddp)
	same "$got" "$(rows <<-END
		0 n1 4 0 3 0 2
		1 n1 4 1 3 0 2
		2 n1 4 2 3 0 2
		3 n2 4 0 1 1 2
	END
	)"
	same "$(plugin_messages)" "ddp: the nodes have different numbers of tasks (3,1): $uneven"
}

@test "four nodes, one task on each: NODE_RANK equals RANK" {
	got=$(show "$names" -N4 -n4 --ddp)
	same "$got" "$(rows <<-END
		0 n1 4 0 1 0 4
		1 n2 4 0 1 1 4
		2 n3 4 0 1 2 4
		3 n4 4 0 1 3 4
	END
	)"
}

@test "a step on two of four nodes: WORLD_SIZE and NODE_RANK count the step's nodes only" {
	got=$(mc salloc -Q -N4 -n8 srun -N2 -n2 -w 'n[2,4]' --ddp "$SHOW" $names | sort)
	same "$got" "$(rows <<-END
		0 n2 2 0 1 0 2
		1 n4 2 0 1 1 2
	END
	)"
}

@test "--overcommit, more tasks than CPUs: correct variables" {
	got=$(show "$names" -N1 -w n1 -n6 -O --ddp)
	same "$got" "$(rows <<-END
		0 n1 6 0 6 0 1
		1 n1 6 1 6 0 1
		2 n1 6 2 6 0 1
		3 n1 6 3 6 0 1
		4 n1 6 4 6 0 1
		5 n1 6 5 6 0 1
	END
	)"
}

@test "a step with one task: WORLD_SIZE is 1" {
	got=$(show "$names" -N1 -w n1 -n1 --ddp)
	same "$got" "$(rows <<<"0 n1 1 0 1 0 1")"
}

@test "torchrun's ROLE variables and the DDP variables have the same values" {
	got=$(show "ROLE_RANK ROLE_WORLD_SIZE ROLE_NAME DDP_RANK DDP_SIZE DDP_LOCAL_RANK DDP_LOCAL_SIZE DDP_NODE_RANK" \
		-w 'n[1-2]' -N2 -n3 -m cyclic --ddp)
	same "$got" "0@n1 ROLE_RANK=0 ROLE_WORLD_SIZE=3 ROLE_NAME=default DDP_RANK=0 DDP_SIZE=3 DDP_LOCAL_RANK=0 DDP_LOCAL_SIZE=2 DDP_NODE_RANK=0
1@n2 ROLE_RANK=1 ROLE_WORLD_SIZE=3 ROLE_NAME=default DDP_RANK=1 DDP_SIZE=3 DDP_LOCAL_RANK=0 DDP_LOCAL_SIZE=1 DDP_NODE_RANK=1
2@n1 ROLE_RANK=2 ROLE_WORLD_SIZE=3 ROLE_NAME=default DDP_RANK=2 DDP_SIZE=3 DDP_LOCAL_RANK=1 DDP_LOCAL_SIZE=2 DDP_NODE_RANK=0"
}

# --- Heterogeneous --------------------------------------------------------------------

# The variables of $names, and variables that must be the same on all ranks.
het_names="$names MASTER_ADDR MASTER_PORT DDP_JOB DDP_RENDEZVOUS DDP_ERROR"

# expect_shared LINES EXPECTED MASTER_ADDR: checks that the ranks have the EXPECTED identity, and that each shared variable is the
# same on all ranks.
expect_shared()
{
	local shared
	shared=$(sed 's/.* MASTER_ADDR=/MASTER_ADDR=/' <<<"$1" | sort -u)
	same "$(sed 's/ MASTER_ADDR=.*//' <<<"$1")" "$2"
	has "$shared" "^MASTER_ADDR=$3 MASTER_PORT=[1-9][0-9]+ DDP_JOB=mini[0-9]+\.[0-9]+\.0 DDP_RENDEZVOUS=$WORK/\.ddp/mini[0-9.-]+-[0-9a-f]{16} DDP_ERROR=UNSET\$"
	same "$(wc -l <<<"$shared")" 1
}

@test "heterogeneous step in a plain allocation, rank 0 on n2: one world" {
	got=$(mc salloc -Q -w 'n[1-2]' -N2 --ntasks-per-node=2 \
		srun --ddp --ddp-master-suffix=.fast -n2 -w n2 "$SHOW" $het_names : \
		-n1 -w n1 "$SHOW" $het_names 2>"$TOP/err" | sort -n)
	expect_shared "$got" "$(rows <<-END
		0 n2 3 0 2 0 2
		1 n2 3 1 2 0 2
		2 n1 3 0 1 1 2
	END
	)" n2.fast
	same "$(plugin_messages)" "ddp: the nodes have different numbers of tasks (1,2): $uneven"
}

@test "heterogeneous srun that allocates its own job: one world" {
	got=$(mc srun --ddp --ddp-master-suffix=.fast -w n3 -n1 "$SHOW" $het_names : \
		-w n1 -n1 "$SHOW" $het_names 2>"$TOP/err" | sort -n)
	expect_shared "$got" "$(rows <<-END
		0 n3 2 0 1 0 2
		1 n1 2 0 1 1 2
	END
	)" n3.fast
}

@test "heterogeneous salloc, two components, rank 0 on n3: one world, no message" {
	got=$(mc salloc -Q -w n3 -n1 : -w n1 -n1 srun --het-group=0,1 --ddp \
		--ddp-master-suffix=.fast "$SHOW" $het_names 2>"$TOP/err" | sort -n)
	expect_shared "$got" "$(rows <<-END
		0 n3 2 0 1 0 2
		1 n1 2 0 1 1 2
	END
	)" n3.fast
	same "$(plugin_messages)" ""
}

@test "heterogeneous salloc, three components: one world" {
	got=$(mc salloc -Q -w n4 -n1 : -w n1 -n2 : -w n2 -n1 srun --het-group=0-2 --ddp \
		--ddp-master-suffix=.fast "$SHOW" $het_names 2>"$TOP/err" | sort -n)
	expect_shared "$got" "$(rows <<-END
		0 n4 4 0 1 0 3
		1 n1 4 0 2 1 3
		2 n1 4 1 2 1 3
		3 n2 4 0 1 2 3
	END
	)" n4.fast
}

# bats test_tags=release
@test "heterogeneous sbatch: #SBATCH --ddp of the first component applies to all" {
	as_user tee "$WORK/het.job" >/dev/null <<-END
		#!/bin/bash
		#SBATCH --ddp --ddp-master-suffix=.fast -w n2 -n1
		#SBATCH hetjob
		#SBATCH -w n1 -n2
		srun --het-group=0,1 $SHOW $het_names
	END
	batch het.job
	expect_shared "$(sort -n <<<"$out" | grep -v ^ddp:)" "$(rows <<-END
		0 n2 3 0 1 0 2
		1 n1 3 0 2 1 2
		2 n1 3 1 2 1 2
	END
	)" n2.fast
}

# srun calls the plugin for the component that starts first. This is not always the component with rank 0.
@test "heterogeneous srun, five times and with --het-group=1,2: MASTER_ADDR is always that of rank 0's node" {
	for _ in 1 2 3 4 5; do
		got=$(mc srun --ddp --ddp-master-suffix=.fast -w n3 -n1 "$SHOW" $het_names : \
			-w n2 -n1 "$SHOW" $het_names : -w n1 -n1 "$SHOW" $het_names 2>"$TOP/err" | sort -n)
		expect_shared "$got" "$(rows <<-END
			0 n3 3 0 1 0 3
			1 n2 3 0 1 1 3
			2 n1 3 0 1 2 3
		END
		)" n3.fast
	done
	got=$(mc salloc -Q -w n4 -n1 : -w n2 -n1 : -w n1 -n1 srun --het-group=1,2 --ddp \
		--ddp-rdzv="$WORK/job.%j" "$SHOW" RANK MASTER_ADDR DDP_RENDEZVOUS SLURM_JOB_ID 2>"$TOP/err" | sort -n)
	id=$(sed -n 's/.*SLURM_JOB_ID=//p;q' <<<"$got")
	has "$got" "^0@n2 RANK=0 MASTER_ADDR=127.0.0.1 DDP_RENDEZVOUS=$WORK/job\.$id/\.ddp/[^ ]+ SLURM_JOB_ID=$id$"
	has "$got" "^1@n1 RANK=1 MASTER_ADDR=127.0.0.1 DDP_RENDEZVOUS=$WORK/job\.$id/\.ddp/[^ ]+ SLURM_JOB_ID=$id$"
}

@test "a step on one component of a heterogeneous job is a separate world" {
	got=$(mc salloc -Q -w n3 -n1 : -w n1 -n2 srun --het-group=1 --ddp \
		--ddp-master-suffix=.fast "$SHOW" $het_names | sort -n)
	expect_shared "$got" "$(rows <<-END
		0 n1 2 0 2 0 1
		1 n1 2 1 2 0 1
	END
	)" n1.fast
}

# --- Environment passed by srun -------------------------------------------------------

# bats test_tags=release
@test "--export=NONE: the plugin sets all variables" {
	got=$(show "$het_names" -w 'n[1-2]' -N2 -n2 --ddp --ddp-master-suffix=.fast --export=NONE)
	expect_shared "$got" "$(rows <<-END
		0 n1 2 0 1 0 2
		1 n2 2 0 1 1 2
	END
	)" n1.fast
}

@test "--export=ONE: the plugin sets all variables, and of the user's only ONE is passed" {
	got=$(ONE=1 TWO=2 show "$het_names ONE TWO" -N1 -w n1 -n1 --ddp --ddp-master-suffix=.fast --export=ONE)
	has "$got" "^0@n1 WORLD_SIZE=1 RANK=0 .* DDP_ERROR=UNSET ONE=1 TWO=UNSET$"
}

@test "--preserve-env: identity follows the step's size, not the job's" {
	got=$(mc salloc -Q -w 'n[1-2]' -N2 -n6 srun -N1 -n1 --preserve-env --ddp \
		"$SHOW" SLURM_NTASKS SLURM_NNODES $names)
	same "$got" "0@n1 SLURM_NTASKS=6 SLURM_NNODES=2 $(rows <<<"0 n1 1 0 1 0 1" | cut -d ' ' -f 2-)"
}

@test "--multi-prog: one world of several programs" {
	as_user tee "$WORK/programs" >/dev/null <<-END
		0 $SHOW WORLD_SIZE RANK
		1-2 $SHOW LOCAL_WORLD_SIZE RANK
	END
	got=$(mc srun -N1 -w n1 -n3 --ddp --multi-prog programs | sort)
	same "$got" "0@n1 WORLD_SIZE=3 RANK=0
1@n1 LOCAL_WORLD_SIZE=3 RANK=1
2@n1 LOCAL_WORLD_SIZE=3 RANK=2"
}

@test "identity variables in the user's environment are replaced, with one message for each" {
	got=$(RANK=5 WORLD_SIZE=2 DDP_ERROR=old show "RANK WORLD_SIZE DDP_ERROR" -N1 -w n1 -n2 --ddp)
	same "$got" "0@n1 RANK=0 WORLD_SIZE=2 DDP_ERROR=UNSET
1@n1 RANK=1 WORLD_SIZE=2 DDP_ERROR=UNSET"
	same "$(plugin_messages)" "ddp: RANK=5 of your environment is replaced by 0 for this task"
}

# bats test_tags=release
@test "without --ddp nothing is set, changed or printed" {
	got=$(RANK=5 TORCHELASTIC_USE_AGENT_STORE=True show \
		"RANK WORLD_SIZE MASTER_ADDR DDP_JOB SLURM_DDP_STEP TORCHELASTIC_USE_AGENT_STORE" -N1 -w n1 -n1)
	same "$got" "0@n1 RANK=5 WORLD_SIZE=UNSET MASTER_ADDR=UNSET DDP_JOB=UNSET SLURM_DDP_STEP=UNSET TORCHELASTIC_USE_AGENT_STORE=True"
	same "$(plugin_messages)" ""
}

# --- Defaults for frameworks ----------------------------------------------------------

@test "OMP_NUM_THREADS: the user's value, else -c, else an equal part of the CPUs" {
	same "$(show OMP_NUM_THREADS -N1 -w n1 -n2 -c2 --ddp)" "0@n1 OMP_NUM_THREADS=2
1@n1 OMP_NUM_THREADS=2"
	same "$(show OMP_NUM_THREADS -N1 -w n1 -n3 --ddp)" "0@n1 OMP_NUM_THREADS=1
1@n1 OMP_NUM_THREADS=1
2@n1 OMP_NUM_THREADS=1"
	same "$(OMP_NUM_THREADS=7 show OMP_NUM_THREADS -N1 -w n1 -n1 -c2 --ddp)" "0@n1 OMP_NUM_THREADS=7"
}

@test "OMP_NUM_THREADS is at most the number of CPUs in the task's affinity mask" {
	mask=$(mc srun -N1 -w n1 -n1 --exclusive /usr/bin/python3 -c 'import os; print(len(os.sched_getaffinity(0)))')
	got=$(mc salloc -Q -N1 -w n1 -n4 srun -n1 --overlap --ddp "$SHOW" SLURM_CPUS_ON_NODE OMP_NUM_THREADS)
	cpus=$(sed -n 's/.*SLURM_CPUS_ON_NODE=\([0-9]*\).*/\1/p' <<<"$got")
	same "$got" "0@n1 SLURM_CPUS_ON_NODE=$cpus OMP_NUM_THREADS=$((mask < cpus ? mask : cpus))"
}

@test "OMP_NUM_THREADS of torchrun: its ranks divide the CPUs of the task" {
	printf '#!/bin/sh\nexec "$SHOW" OMP_NUM_THREADS\n' | as_user tee "$WORK/torchrun" >/dev/null
	as_user chmod +x "$WORK/torchrun"
	got=$(mc srun -w n1 -n1 -c4 --ddp ./torchrun train.py; mc srun -w n1 -n1 -c4 --ddp ./torchrun --nproc_per_node=2 train.py)
	rm "$WORK/torchrun"
	same "$got" "0@n1 OMP_NUM_THREADS=4
0@n1 OMP_NUM_THREADS=2"
}

@test "NCCL_RAS_ADDR and NCCL_SOCKET_MAGIC differ between steps, and the user's values are kept" {
	got=$(show "NCCL_RAS_ADDR NCCL_SOCKET_MAGIC" -w 'n[1-2]' -N2 -n2 --ddp)
	has "$got" "^0@n1 NCCL_RAS_ADDR=localhost:[1-9][0-9]+ NCCL_SOCKET_MAGIC=0x[0-9a-f]{16}$"
	same "$(cut -d ' ' -f 2- <<<"$got" | sort -u | wc -l)" 1
	next=$(show "NCCL_RAS_ADDR NCCL_SOCKET_MAGIC" -N1 -n1 --ddp)
	has_not "$next" "$(sed -n 's/.*\(NCCL_SOCKET_MAGIC=.*\)/\1/p;q' <<<"$got")"
	got=$(NCCL_RAS_ADDR=here:1 NCCL_SOCKET_MAGIC=2 show "NCCL_RAS_ADDR NCCL_SOCKET_MAGIC" -N1 -w n1 -n1 --ddp)
	same "$got" "0@n1 NCCL_RAS_ADDR=here:1 NCCL_SOCKET_MAGIC=2"
}

@test "TORCHELASTIC_RUN_ID is set only if SLURM_NTASKS_PER_NODE is missing" {
	got=$(show "DDP_JOB TORCHELASTIC_RUN_ID" -N1 -w n1 -n2 --ddp)
	id=$(sed -n 's/^0@n1 DDP_JOB=\([^ ]*\).*/\1/p' <<<"$got")
	has "$id" '^mini[0-9]+\.[0-9]+\.0$'
	same "$got" "0@n1 DDP_JOB=$id TORCHELASTIC_RUN_ID=$id
1@n1 DDP_JOB=$id TORCHELASTIC_RUN_ID=$id"
	same "$(show TORCHELASTIC_RUN_ID -N1 -w n1 --ntasks-per-node=2 --ddp)" "0@n1 TORCHELASTIC_RUN_ID=UNSET
1@n1 TORCHELASTIC_RUN_ID=UNSET"
	same "$(TORCHELASTIC_RUN_ID=mine show TORCHELASTIC_RUN_ID -N1 -w n1 -n2 --ddp)" "0@n1 TORCHELASTIC_RUN_ID=mine
1@n1 TORCHELASTIC_RUN_ID=mine"
}

@test "an inherited TORCHELASTIC_USE_AGENT_STORE is removed" {
	got=$(TORCHELASTIC_USE_AGENT_STORE=True show TORCHELASTIC_USE_AGENT_STORE -N1 -w n1 -n2 --ddp)
	same "$got" "0@n1 TORCHELASTIC_USE_AGENT_STORE=UNSET
1@n1 TORCHELASTIC_USE_AGENT_STORE=UNSET"
}

pet="PET_NNODES PET_NODE_RANK PET_NPROC_PER_NODE PET_MASTER_ADDR PET_MASTER_PORT PET_RDZV_BACKEND PET_RDZV_ENDPOINT PET_RDZV_ID"

# bats test_tags=release
@test "one task on each node: PET variables for a torchrun without arguments" {
	need_gpus
	got=$(show "MASTER_PORT DDP_JOB $pet" -w 'n[1-2]' -N2 -n2 --gres=gpu:2 --ddp --ddp-master-suffix=.fast)
	port=$(sed -n 's/^0@n1 MASTER_PORT=\([0-9]*\) .*/\1/p' <<<"$got")
	id=$(sed -n 's/^0@n1 .* DDP_JOB=\([^ ]*\) .*/\1/p' <<<"$got")
	for n in 0 1; do
		echo "$n@n$((n + 1)) MASTER_PORT=$port DDP_JOB=$id PET_NNODES=2 PET_NODE_RANK=$n" \
			"PET_NPROC_PER_NODE=2 PET_MASTER_ADDR=n1.fast PET_MASTER_PORT=$port" \
			"PET_RDZV_BACKEND=static PET_RDZV_ENDPOINT=n1.fast:$port PET_RDZV_ID=$id"
	done >"$TOP/want"
	same "$got" "$(<"$TOP/want")"
}

@test "PET variables: unset for several tasks a node, no PET_NPROC_PER_NODE without GPUs, the user's values are kept" {
	got=$(show "$pet" -N1 -w n1 -n2 --ddp)
	unset_all=$(sed 's/\(PET_[A-Z_]*\)/\1=UNSET/g' <<<"$pet")
	same "$got" "0@n1 $unset_all
1@n1 $unset_all"
	same "$(show "PET_NNODES PET_NPROC_PER_NODE" -N1 -w n1 -n1 --ddp)" "0@n1 PET_NNODES=1 PET_NPROC_PER_NODE=UNSET"
	got=$(PET_NPROC_PER_NODE=8 PET_RDZV_BACKEND=c10d show "PET_NPROC_PER_NODE PET_RDZV_BACKEND" -N1 -w n1 -n1 --ddp)
	same "$got" "0@n1 PET_NPROC_PER_NODE=8 PET_RDZV_BACKEND=c10d"
}

# --- Job id, attempt, end time --------------------------------------------------------

@test "DDP_JOB is cluster.job.step, so it differs between steps" {
	got=$(mc salloc -Q -N1 -w n1 -n1 bash -c '
		echo "$SLURM_CLUSTER_NAME.$SLURM_JOB_ID"
		srun --ddp "$0" DDP_JOB
		srun --ddp "$0" DDP_JOB' "$SHOW")
	job=$(head -n 1 <<<"$got")
	same "$got" "$job
0@n1 DDP_JOB=$job.0
0@n1 DDP_JOB=$job.1"
}

# bats test_tags=release
@test "DDP_END_TIME is the job's EndTime" {
	got=$(mc salloc -Q -N1 -w n1 -n1 -t 7 bash -c '
		srun --ddp "$0" DDP_END_TIME
		scontrol -o show job "$SLURM_JOB_ID"' "$SHOW")
	end=$(sed -n 's/.* EndTime=\([^ ]*\) .*/\1/p' <<<"$got")
	has "$got" "^0@n1 DDP_END_TIME=$(date -d "$end" +%s)$"
}

# bats test_tags=release
@test "without shards the plugin queries slurmctld for the job once up to Slurm 22.05, and never later" {
	expected=1
	! slurm_at_least 23.02 || expected=0
	got=$(mc salloc -Q -N1 -w n1 -n1 -t 7 bash -c '
		job_queries() { sdiag | sed -n "s/^\tREQUEST_JOB_INFO_SINGLE .* count:\([0-9]*\) .*/\1/p"; }
		scontrol -o show job "$SLURM_JOB_ID" >/dev/null
		before=$(job_queries)
		srun --ddp true
		echo $(($(job_queries) - before))')
	same "$got" "$expected"
}

@test "DDP_ATTEMPT counts requeues, DDP_JOB does not change" {
	as_user tee "$WORK/again.job" >/dev/null <<-END
		#!/bin/bash
		srun --ddp $SHOW DDP_ATTEMPT DDP_JOB >>again.out
		[ "\${SLURM_RESTART_COUNT-0}" -ge 1 ] || exec sleep 100
	END
	as_user touch "$WORK/again.out"
	job=$(mc sbatch --parsable --requeue -N1 -w n1 -n1 -o /dev/null again.job)
	within 60 grep -q DDP_ATTEMPT=0 "$WORK/again.out"
	mc scontrol requeue "$job"
	# Slurm holds a requeued job until its credentials expire, unless the job's starttime is changed. Wait at least 2 s:
	# slurmd rejects credentials that are issued in the second in which it revoked the old ones.
	within 60 is_held "$job"
	"$minicluster" run scontrol update "jobid=$job" starttime=now+2
	within 60 grep -q DDP_ATTEMPT=1 "$WORK/again.out"
	within 60 gone "$job"
	id=$(sed -n 's/.*DDP_JOB=//p;q' "$WORK/again.out")
	has "$id" "\.$job\.0$"
	same "$(<"$WORK/again.out")" "0@n1 DDP_ATTEMPT=0 DDP_JOB=$id
0@n1 DDP_ATTEMPT=1 DDP_JOB=$id"
}

is_held()
{
	[ "$(mc squeue -h -o '%T %r' -j "$1")" = "PENDING BeginTime" ]
}
