# SPDX-License-Identifier: Apache-2.0
# Variables that identify a task, rank 0's address and port, and the variables for frameworks, in steps of a real Slurm.
# tests/unit has the rules. exec.bats compares the environment of more layouts with that of ddp-exec.
# shellcheck disable=SC2001,SC2016,SC2154

load lib

setup_file()
{
	cluster_up --nodes 4 --cpus 4 --gpus 2 --shards 0
	# Each node gets its own address in 127.0.0.0/8. All these addresses belong to this host.
	sed -i 's/^\(NodeName=n\([2-4]\) .*NodeAddr=127\.0\.0\.\)1 /\1\2 /' "$MINICLUSTER_DIR/slurm.conf"
	"$minicluster" run scontrol reconfigure
}
teardown_file() { cluster_down; }
teardown() { other_cluster_down; }

plugin_messages() { grep '^ddp:' "$TOP/err"; }

# value NAME LINES: prints the value of NAME if it is the same in all lines, and otherwise all values.
value() { sed -n "s/.* $1=\([^ ]*\).*/\1/p" <<<"$2" | sort -u; }

# layout TASKS SIZE ADDRESS COMMAND...: runs srun --ddp, to which the program is added. Checks the tasks, each in the form
# "RANK@NODE:LOCAL_RANK/LOCAL_WORLD_SIZE:NODE_RANK/NODES", and that each has this WORLD_SIZE and MASTER_ADDR.
layout()
{
	local want="$1 of $2 at $3"
	shift 3
	try mc "$@" "$SHOW" LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK GROUP_WORLD_SIZE WORLD_SIZE MASTER_ADDR
	same "$(sed 's/ [A-Z_]*=/ /g' <<<"$out" | sort -n | awk '
		{ printf "%s:%s/%s:%s/%s ", $1, $2, $3, $4, $5; if (shared && shared != $6 " at " $7) print "?"; shared = $6 " at " $7 }
		END { print "of " shared }')" "$want"
}

# --- Layouts --------------------------------------------------------------------------

# bats test_tags=release
@test "block, cyclic and uneven plane distribution, one task a node, more tasks than CPUs: one warning, for the uneven one" {
	layout "0@n1:0/2:0/2 1@n1:1/2:0/2 2@n2:0/2:1/2 3@n2:1/2:1/2" 4 127.0.0.1 srun -w 'n[1-2]' -N2 --ntasks-per-node=2 --ddp
	same "$err" ""
	layout "0@n2:0/2:0/2 1@n3:0/2:1/2 2@n2:1/2:0/2 3@n3:1/2:1/2" 4 127.0.0.2 srun -w 'n[2-3]' -N2 --ntasks-per-node=2 -m cyclic --ddp
	layout "0@n1:0/4:0/2 1@n1:1/4:0/2 2@n2:0/2:1/2 3@n2:1/2:1/2 4@n1:2/4:0/2 5@n1:3/4:0/2" 6 127.0.0.1 \
		srun -w 'n[1-2]' -N2 -n6 -m plane=2 --ddp
	same "$err" "ddp: the nodes have different numbers of tasks (4,2). The variables are right, but code that computes a node as rank / LOCAL_WORLD_SIZE is wrong."
	layout "0@n1:0/1:0/4 1@n2:0/1:1/4 2@n3:0/1:2/4 3@n4:0/1:3/4" 4 127.0.0.1 srun -N4 -n4 --ddp
	layout "0@n3:0/6:0/1 1@n3:1/6:0/1 2@n3:2/6:0/1 3@n3:3/6:0/1 4@n3:4/6:0/1 5@n3:5/6:0/1" 6 127.0.0.3 srun -w n3 -n6 -O --ddp
}

# bats test_tags=release
@test "-m arbitrary: node rank 0 and MASTER_ADDR are those of rank 0's node, the last of the list" {
	printf '%s\n' n3 n2 n1 n1 n2 n3 | as_user tee "$WORK/hosts" >/dev/null
	SLURM_HOSTFILE=$WORK/hosts layout "0@n3:0/2:0/3 1@n2:0/2:1/3 2@n1:0/2:2/3 3@n1:1/2:2/3 4@n2:1/2:1/3 5@n3:1/2:0/3" 6 127.0.0.3 \
		srun -n6 -m arbitrary --ddp
	same "$err" ""
}

@test "a step on some nodes of its job, with --preserve-env, and on one component of a heterogeneous job" {
	layout "0@n2:0/1:0/2 1@n4:0/1:1/2" 2 127.0.0.2 salloc -Q -N4 -n8 srun -N2 -n2 -w 'n[2,4]' --ddp
	layout "0@n1:0/1:0/1" 1 127.0.0.1 salloc -Q -w 'n[1-2]' -N2 -n6 srun -N1 -n1 --preserve-env --ddp
	layout "0@n2:0/2:0/1 1@n2:1/2:0/1" 2 127.0.0.2 salloc -Q -w n3 -n1 : -w n2 -n2 srun --het-group=1 --ddp
}

# bats test_tags=release
@test "stepmgr, Slurm 24.05 and later: MASTER_ADDR is that of rank 0's node" {
	slurm_at_least 24.05 || skip "this Slurm has none"
	other_cluster --nodes 3 --gpus 0 --conf SlurmctldParameters=enable_stepmgr --conf PrologFlags=contain
	layout "0@n2:0/1:0/2 1@n3:0/1:1/2" 2 n2.x salloc -Q -N3 --stepmgr srun -Q -N2 -w n2,n3 --ddp --ddp-master-suffix=.x
}

# bats test_tags=release
@test "tasks ordered by topology, Slurm 26.05 and later: node rank 0 and MASTER_ADDR are those of rank 0's node" {
	slurm_at_least 26.05 || skip "this Slurm lays tasks out in the order of the nodes' names"
	other_cluster --nodes 4 --gpus 0
	echo TopologyPlugin=topology/tree >>"$MINICLUSTER_DIR/slurm.conf"
	printf 'SwitchName=s0 Switches=s1,s2\nSwitchName=s1 Nodes=n[3-4]\nSwitchName=s2 Nodes=n[1-2]\n' \
		>"$MINICLUSTER_DIR/topology.conf"
	"$minicluster" run scontrol reconfigure
	within 30 sh -c '[ "$("$0" run sinfo -h -o "%t %D")" = "idle 4" ]' "$minicluster"
	got=$(show "NODE_RANK MASTER_ADDR" -N4 --ddp --ddp-master-suffix=.x)
	same "$(head -n 1 <<<"$got")" "0@n3 NODE_RANK=0 MASTER_ADDR=n3.x"
	same "$(cut -d ' ' -f 2 <<<"$got" | sort)" $'NODE_RANK=0\nNODE_RANK=1\nNODE_RANK=2\nNODE_RANK=3'
}

# bats test_tags=release
@test "NodeAddr changed by scontrol only: MASTER_ADDR is the address in slurm.conf, which srun uses too" {
	"$minicluster" run scontrol update nodename=n2 nodeaddr=127.0.0.9
	got=$(show MASTER_ADDR -w 'n[2-3]' -N2 -n2 --ddp)
	"$minicluster" run scontrol update nodename=n2 nodeaddr=127.0.0.2
	same "$(value MASTER_ADDR "$got")" 127.0.0.2
}

# --- Ports and numbers of a step ------------------------------------------------------

# bats test_tags=release
@test "ports reserved by Slurm: the first is MASTER_PORT, the second is in NCCL_RAS_ADDR; ports= in plugstack.conf is ignored" {
	plugin_arguments ports=32000-32100
	got=$(show "MASTER_PORT NCCL_RAS_ADDR SLURM_STEP_RESV_PORTS" -N2 -n2 --ddp)
	first=$(value SLURM_STEP_RESV_PORTS "$got" | grep -o '^[0-9]*')
	has "$first" '^[1-9][0-9]+$'
	same "$(value MASTER_PORT "$got")" "$first"
	same "$(value NCCL_RAS_ADDR "$got")" "localhost:$((first + 1))"
}

@test "DDP_JOB and NCCL_SOCKET_MAGIC: the same on all ranks, others in the job's next step" {
	got=$(mc salloc -Q -N2 -n2 bash -c 'echo "$SLURM_CLUSTER_NAME.$SLURM_JOB_ID"
		for i in 1 2; do srun --ddp "$SHOW" DDP_JOB NCCL_SOCKET_MAGIC; done')
	same "$(value DDP_JOB "$got")" "$(head -n 1 <<<"$got").0
$(head -n 1 <<<"$got").1"
	same "$(value NCCL_SOCKET_MAGIC "$got" | grep -cE '^0x[0-9a-f]{16}$')" 2
	same "$(sed 1d <<<"$got" | cut -d ' ' -f 2- | sort -u | wc -l)" 2
}

# bats test_tags=release
@test "DDP_END_TIME is the job's EndTime" {
	got=$(mc salloc -Q -N1 -w n1 -n1 -t 7 bash -c '
		srun --ddp "$SHOW" DDP_END_TIME
		scontrol -o show job "$SLURM_JOB_ID"')
	end=$(sed -n 's/.* EndTime=\([^ ]*\) .*/\1/p' <<<"$got")
	has "$got" "^0@n1 DDP_END_TIME=$(date -d "$end" +%s)$"
}

# From Slurm 26.05 on, the nodes of a step may be in any order, and srun gets the step's layout from slurmctld.
# bats test_tags=release
@test "without shards, srun --ddp makes one query more than srun up to Slurm 22.05 (the job), and none later" {
	local nodes=2 expected=REQUEST_JOB_INFO_SINGLE
	! slurm_at_least 23.02 || expected=
	! slurm_at_least 26.05 || nodes=1
	mc salloc -Q -N$nodes bash -c '
		queries() { sdiag | sed -nE "s/^\t(REQUEST_[A-Z_]*(INFO|LAYOUT)[A-Z_]*) .* count:([0-9]+) .*/\1 \3/p" | sort; }
		for option in --no-ddp --ddp; do
			queries >before
			srun $option true
			queries | join -a 2 before - | awk "{ n = NF == 3 ? \$3 - \$2 : \$2; while (n-- > 0) print \$1 }" >queries$option
		done'
	same "$(comm -13 "$WORK/queries--no-ddp" "$WORK/queries--ddp")" "$expected"
}

# --- Environment ----------------------------------------------------------------------

# bats test_tags=release
@test "--export=NONE, --export=ONE and --multi-prog: the plugin sets all variables" {
	layout "0@n1:0/1:0/2 1@n2:0/1:1/2" 2 n1.fast srun -w 'n[1-2]' -N2 -n2 --ddp --ddp-master-suffix=.fast --export=NONE
	same "$(ONE=1 TWO=2 show "RANK ONE TWO" -w n1 -n1 --ddp --export=ONE)" "0@n1 RANK=0 ONE=1 TWO=UNSET"
	printf '0 %s WORLD_SIZE RANK\n1-2 %s LOCAL_RANK\n' "$SHOW" "$SHOW" | as_user tee "$WORK/programs" >/dev/null
	same "$(mc srun -w n1 -n3 --ddp --multi-prog programs | sort)" "0@n1 WORLD_SIZE=3 RANK=0
1@n1 LOCAL_RANK=1
2@n1 LOCAL_RANK=2"
}

@test "a task has the same open files with and without --ddp" {
	same "$(mc srun -w n1 -n1 --ddp ls -l /proc/self/fd | wc -l)" "$(mc srun -w n1 -n1 ls -l /proc/self/fd | wc -l)"
}

@test "the user's MASTER_ADDR and MASTER_PORT are kept, RANK is replaced, with one message each, which the value cannot split" {
	got=$(RANK=$'5\nslurmd:' MASTER_ADDR=my.host MASTER_PORT=4321 show "RANK MASTER_ADDR MASTER_PORT PET_RDZV_ENDPOINT" \
		-w 'n[1-2]' -N2 -n2 --ddp --ddp-port=4445 --ddp-master-suffix=-ib)
	same "$got" "0@n1 RANK=0 MASTER_ADDR=my.host MASTER_PORT=4321 PET_RDZV_ENDPOINT=my.host:4321
1@n2 RANK=1 MASTER_ADDR=my.host MASTER_PORT=4321 PET_RDZV_ENDPOINT=my.host:4321"
	same "$(plugin_messages | sort)" 'ddp: MASTER_PORT=4321 of your environment is used, and --ddp-port is not. Unset MASTER_PORT to use --ddp-port.
ddp: RANK=5\x0aslurmd: of your environment is replaced in each task'
	same "$(show "MASTER_ADDR MASTER_PORT NCCL_RAS_ADDR" -w n2 -n1 --ddp --ddp-port=4445 --ddp-master-suffix=-ib)" \
		"0@n2 MASTER_ADDR=n2-ib MASTER_PORT=4445 NCCL_RAS_ADDR=localhost:4446"
}

# bats test_tags=release
@test "without --ddp nothing is set, changed or printed, and an outer step's decisions are removed" {
	got=$(RANK=5 TORCHELASTIC_USE_AGENT_STORE=True SLURM_DDP_STEP=v1 SLURM_DDP_PORT=foo SLURM_DDP_RESTART=x \
		show "RANK WORLD_SIZE MASTER_ADDR DDP_JOB SLURM_DDP_STEP TORCHELASTIC_USE_AGENT_STORE" -N1 -w n1 -n1)
	same "$got" "0@n1 RANK=5 WORLD_SIZE=UNSET MASTER_ADDR=UNSET DDP_JOB=UNSET SLURM_DDP_STEP=UNSET TORCHELASTIC_USE_AGENT_STORE=True"
	same "$(plugin_messages)" ""
}

@test "OMP_NUM_THREADS: -c, or the CPUs in the task's affinity mask; the ranks of torchrun divide the CPUs of the task" {
	same "$(show OMP_NUM_THREADS -w n1 -n1 -c2 --ddp)" "0@n1 OMP_NUM_THREADS=2"
	mask=$(mc srun -N1 -w n1 -n1 --exclusive /usr/bin/python3 -c 'import os; print(len(os.sched_getaffinity(0)))')
	got=$(mc salloc -Q -N1 -w n1 -n4 srun -n1 --overlap --ddp "$SHOW" SLURM_CPUS_ON_NODE OMP_NUM_THREADS)
	cpus=$(value SLURM_CPUS_ON_NODE "$got")
	same "$(value OMP_NUM_THREADS "$got")" $((mask < cpus ? mask : cpus))
	printf '#!/bin/sh\nexec "$SHOW" OMP_NUM_THREADS\n' | as_user tee "$WORK/torchrun" >/dev/null
	as_user chmod +x "$WORK/torchrun"
	same "$(mc srun -w n1 -n1 -c4 --ddp ./torchrun --nproc_per_node=2 train.py)" "0@n1 OMP_NUM_THREADS=$(((mask < 4 ? mask : 4) / 2 ? (mask < 4 ? mask : 4) / 2 : 1))"
}

pet="PET_NNODES PET_NODE_RANK PET_NPROC_PER_NODE PET_MASTER_ADDR PET_MASTER_PORT PET_RDZV_BACKEND PET_RDZV_ENDPOINT PET_RDZV_ID"

# Slurm sets SLURM_NTASKS_PER_NODE, which Lightning reads, only for --ntasks-per-node.
# bats test_tags=release
@test "one task on each node: PET variables for a torchrun without arguments, and TORCHELASTIC_RUN_ID for Lightning" {
	need_gpus
	got=$(show "MASTER_PORT DDP_JOB $pet TORCHELASTIC_RUN_ID" -w 'n[1-2]' -N2 -n2 --gres=gpu:2 --ddp --ddp-master-suffix=.fast)
	port=$(value MASTER_PORT "$got" | head -n 1) id=$(value DDP_JOB "$got" | head -n 1)
	for n in 0 1; do
		echo "$n@n$((n + 1)) MASTER_PORT=$port DDP_JOB=$id PET_NNODES=2 PET_NODE_RANK=$n" \
			"PET_NPROC_PER_NODE=2 PET_MASTER_ADDR=n1.fast PET_MASTER_PORT=$port" \
			"PET_RDZV_BACKEND=static PET_RDZV_ENDPOINT=n1.fast:$port PET_RDZV_ID=$id TORCHELASTIC_RUN_ID=$id"
	done >"$TOP/want"
	same "$got" "$(<"$TOP/want")"
	same "$(show "TORCHELASTIC_RUN_ID PET_NNODES" -w n1 --ntasks-per-node=2 --ddp)" "0@n1 TORCHELASTIC_RUN_ID=UNSET PET_NNODES=-1 (torchrun needs --ntasks-per-node=1)
1@n1 TORCHELASTIC_RUN_ID=UNSET PET_NNODES=-1 (torchrun needs --ntasks-per-node=1)"
}
