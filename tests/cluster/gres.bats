# SPDX-License-Identifier: Apache-2.0
# GPUs and shards, as Slurm really gives them to tasks.
# shellcheck disable=SC2154

load lib

setup_file() { cluster_up --nodes 2 --cpus 8 --gpus 4 --shards 16; }
teardown_file() { cluster_down; }

setup() { need_gpus; }
teardown() { other_cluster_down; }

names="LOCAL_RANK DDP_DEVICE DDP_SHARE CUDA_VISIBLE_DEVICES"

# What the tasks were told, without the channels of Slurm's own.
told() { grep '^ddp:' "$TOP/err"; }

# crowd NODE RANKS GPUS: the line about NCCL where ranks share a GPU.
crowd()
{
	local several=''
	[[ $3 != *,* ]] || several=', more than one on a GPU'
	printf 'ddp: %s: %s ranks on GPU%s %s%s: NCCL refuses that ("Duplicate GPU detected"), so PyTorch needs the backend gloo, or NCCL 2.30 or later with NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_NVLS_ENABLE=0; ddp-train and libddp do without' \
		"$1" "$2" "${several:+s}" "$3" "$several"
}

lost="ddp: each task sees its own device alone, so NVLink and CUDA peer-to-peer between tasks of a node can be lost"

# --- Whole GPUs -----------------------------------------------------------------------

# bats test_tags=release
@test "gpu:2 for two tasks a node: each its own device, both visible" {
	got=$(show "$names" -N2 --ntasks-per-node=2 --gres=gpu:2 --ddp)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0,1
1@n1 LOCAL_RANK=1 DDP_DEVICE=1 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0,1
2@n2 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0,1
3@n2 LOCAL_RANK=1 DDP_DEVICE=1 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0,1"
	same "$(told)" ""
}

@test "--gpus=2 and --gpus-per-node=2 are the same request" {
	want="0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0,1
1@n1 LOCAL_RANK=1 DDP_DEVICE=1 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0,1"
	same "$(show "$names" -N1 -w n1 -n2 --gpus=2 --ddp)" "$want"
	same "$(show "$names" -N1 -w n1 -n2 --gpus-per-node=2 --ddp)" "$want"
}

@test "more GPUs than tasks: each task the one of its number" {
	got=$(show "$names" -N1 -w n1 -n2 --gres=gpu:4 --ddp)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0,1,2,3
1@n1 LOCAL_RANK=1 DDP_DEVICE=1 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0,1,2,3"
	same "$(told)" "ddp: n1: 2 tasks for 4 GPUs; --ntasks-per-node=4 uses all"
}

@test "more GPUs than tasks on two nodes: one warning" {
	show LOCAL_RANK -N2 --ntasks-per-node=2 --gres=gpu:4 --ddp
	same "$(told)" "ddp: n1: 2 tasks for 4 GPUs; --ntasks-per-node=4 uses all"
	# What it advises.
	show LOCAL_RANK -N2 --ntasks-per-node=4 --gres=gpu:4 --ddp
	same "$(told)" ''
}

@test "one task for several GPUs: a line of --ddp-verbose alone" {
	show LOCAL_RANK -N2 --ntasks-per-node=1 --gres=gpu:4 --ddp
	same "$(told)" ''
	show LOCAL_RANK -N2 --ntasks-per-node=1 --gres=gpu:4 --ddp --ddp-verbose
	same "$(told | grep 'for 4 GPUs')" "ddp: n1: 1 task for 4 GPUs; --ntasks-per-node=4 uses all, unless the task starts a process for each, like torchrun"
}

@test "few CPUs for each rank with a GPU: --ddp-verbose recommends --cpus-per-task" {
	cpus=$(getconf _NPROCESSORS_ONLN)
	((cpus > 1)) || skip "this host has one CPU"
	advised=$((cpus < 8 ? cpus : 8))
	show LOCAL_RANK -N1 -w n1 -n1 --gres=gpu:1 -c1 --ddp --ddp-verbose
	same "$(told | grep 'for each rank')" "ddp: n1: 1 CPU for each rank with a GPU, of $cpus on the node; --cpus-per-task=$advised gives its data loaders more, if they are free"
	show LOCAL_RANK -N1 -w n1 -n1 --gres=gpu:1 -c4 --ddp --ddp-verbose
	has_not "$(told)" 'for each rank'
	show LOCAL_RANK -N1 -w n1 -n1 -c1 --ddp --ddp-verbose
	has_not "$(told)" 'for each rank'
}

@test "more tasks than GPUs: in turn, with a part of each, told once a node" {
	got=$(show "$names" -N2 --ntasks-per-node=3 --gres=gpu:2 --ddp)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.5 CUDA_VISIBLE_DEVICES=0,1
1@n1 LOCAL_RANK=1 DDP_DEVICE=1 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0,1
2@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.5 CUDA_VISIBLE_DEVICES=0,1
3@n2 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.5 CUDA_VISIBLE_DEVICES=0,1
4@n2 LOCAL_RANK=1 DDP_DEVICE=1 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0,1
5@n2 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.5 CUDA_VISIBLE_DEVICES=0,1"
	same "$(told | sort)" "$(crowd n1 3 0,1)
ddp: n1: 3 tasks on 2 devices, which they share in turn
ddp: n2: 3 tasks on 2 devices, which they share in turn"
}

@test "gpu:2 without --ntasks-per-node: Slurm packs 3 and 1, each node for itself" {
	got=$(show "LOCAL_RANK DDP_DEVICE DDP_SHARE" -N2 -n4 --gres=gpu:2 --ddp)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.5
1@n1 LOCAL_RANK=1 DDP_DEVICE=1 DDP_SHARE=1
2@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.5
3@n2 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1"
}

@test "no GRES at all: no device, no share, LOCAL_RANK is the local task" {
	got=$(show "$names DDP_LOCAL_RANK XLA_PYTHON_CLIENT_MEM_FRACTION" -N1 -w n1 -n2 --ddp)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=UNSET DDP_SHARE=UNSET CUDA_VISIBLE_DEVICES=UNSET DDP_LOCAL_RANK=0 XLA_PYTHON_CLIENT_MEM_FRACTION=UNSET
1@n1 LOCAL_RANK=1 DDP_DEVICE=UNSET DDP_SHARE=UNSET CUDA_VISIBLE_DEVICES=UNSET DDP_LOCAL_RANK=1 XLA_PYTHON_CLIENT_MEM_FRACTION=UNSET"
	same "$(told)" ""
}

@test "ddp-info: GPUs that no task uses, and few CPUs" {
	install_runtime
	try mc srun -N2 --ntasks-per-node=2 --gres=gpu:4 --ddp ddp-info --no-test
	same "$rc" 0
	same "$(grep -c '^warning: .*--ntasks-per-node' <<<"$out")" 1
	has "$out" '^warning: n1: 2 tasks for 4 GPUs; --ntasks-per-node=4 uses all$'
	# The same without --ddp.
	try mc srun -N2 --ntasks-per-node=2 --gres=gpu:4 ddp-info --no-test
	has "$out" '^warning: n1: 2 tasks for 4 GPUs; --ntasks-per-node=4 uses all$'
	try mc srun -N2 --ntasks-per-node=1 --gres=gpu:4 --ddp ddp-info --no-test --strict
	same "$rc" 0
	has "$out" '^advice: n1: 1 task for 4 GPUs; --ntasks-per-node=4 uses all, unless the task starts a process for each, like torchrun$'
	try mc srun -N2 --ntasks-per-node=2 --gpus-per-task=2 --ddp ddp-info --no-test
	has_not "$out" ' for [0-9]+ GPUs'
	try mc srun -N1 -w n1 -n4 --gres=gpu:4 --ddp ddp-info --no-test
	has_not "$out" ' for [0-9]+ GPUs'
	cpus=$(getconf _NPROCESSORS_ONLN)
	((cpus > 1)) || return 0
	try mc srun -N1 -w n1 -n1 --gres=gpu:1 -c1 --ddp ddp-info --no-test
	has "$out" "^advice: n1: 1 CPU for each rank with a GPU, of $cpus on the node; --cpus-per-task=$((cpus < 8 ? cpus : 8)) gives its data loaders more, if they are free$"
}

# --- Whole GPUs, bound ----------------------------------------------------------------

# bats test_tags=release
@test "--gpus-per-task=1: each task sees one device, which is its number 0; told once" {
	got=$(show "$names DDP_LOCAL_RANK" -N2 --ntasks-per-node=2 --gpus-per-task=1 --ddp)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0 DDP_LOCAL_RANK=0
1@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=1 DDP_LOCAL_RANK=1
2@n2 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0 DDP_LOCAL_RANK=0
3@n2 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=1 DDP_LOCAL_RANK=1"
	same "$(told)" "$lost; --gpus-per-node=2 --gpu-bind=none keeps them"
}

@test "what that line advises gives each task its device and all of them to see" {
	got=$(show "$names" -N1 -w n1 -n2 --gpus-per-node=2 --gpu-bind=none --ddp)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0,1
1@n1 LOCAL_RANK=1 DDP_DEVICE=1 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0,1"
	same "$(told)" ""
}

@test "--gpus-per-task=2 on 4 GPUs: two devices each, the first is the one to use" {
	got=$(show "$names" -N1 -w n1 -n2 --gpus-per-task=2 --ddp)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0,1
1@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=2,3"
	has "$(told)" "--gpus-per-node=4 --gpu-bind=none keeps them"
}

# srun alone does not tell its tasks of --gpus-per-task; a job of sbatch or salloc has it.
# bats test_tags=release
@test "--gpus-per-task=2 of the job, a step without its binding: the first of each task's pair" {
	got=$(mc salloc -Q -N1 -w n1 -n2 --gpus-per-task=2 \
		srun --gpu-bind=none --ddp "$SHOW" LOCAL_RANK DDP_DEVICE DDP_SHARE CUDA_VISIBLE_DEVICES | sort)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0,1,2,3
1@n1 LOCAL_RANK=1 DDP_DEVICE=2 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0,1,2,3"
}

@test "--gpus-per-task=1 for one task a node: nothing is lost, nothing is told" {
	got=$(show "$names" -N2 -n2 --gpus-per-task=1 --ddp)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0
1@n2 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0"
	same "$(told)" ""
}

@test "--gpu-bind=single:1: one device each, also from --ntasks-per-gpu" {
	want="0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0
1@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=1"
	same "$(show "$names" -N1 -w n1 -n2 --gres=gpu:2 --gpu-bind=single:1 --ddp)" "$want"
	same "$(told)" "$lost; --gpus-per-node=2 --gpu-bind=none keeps them"
	same "$(show "$names" -N1 -w n1 -n2 --gpus=2 --ntasks-per-gpu=1 --ddp)" "$want"
}

@test "--gpu-bind=single:1 with three tasks on two GPUs: the third shares the first" {
	got=$(show "$names" -N1 -w n1 -n3 --gres=gpu:2 --gpu-bind=single:1 --ddp)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.5 CUDA_VISIBLE_DEVICES=0
1@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=1
2@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.5 CUDA_VISIBLE_DEVICES=0"
}

@test "--gpu-bind=single:2: two tasks on each GPU" {
	got=$(show "$names" -N1 -w n1 -n4 --gres=gpu:2 --gpu-bind=single:2 --ddp)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.5 CUDA_VISIBLE_DEVICES=0
1@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.5 CUDA_VISIBLE_DEVICES=0
2@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.5 CUDA_VISIBLE_DEVICES=1
3@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.5 CUDA_VISIBLE_DEVICES=1"
}

# The nodes have no affinity of CPUs and GPUs, so each is equally close.
@test "--gpu-bind=closest where all are close binds nothing" {
	got=$(show "$names" -N1 -w n1 -n2 --gres=gpu:2 --gpu-bind=closest --ddp)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0,1
1@n1 LOCAL_RANK=1 DDP_DEVICE=1 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0,1"
	same "$(told)" ""
}

@test "--gpu-bind=map_gpu: shares follow the map" {
	got=$(show "$names" -N1 -w n1 -n4 --gres=gpu:4 --gpu-bind=map_gpu:3,2,1,0 --ddp)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=3
1@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=2
2@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=1
3@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0"
	got=$(show "$names" -N1 -w n1 -n4 --gres=gpu:2 --gpu-bind=map_gpu:1,0,0,0 --ddp)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=1
1@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.333333 CUDA_VISIBLE_DEVICES=0
2@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.333333 CUDA_VISIBLE_DEVICES=0
3@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.333333 CUDA_VISIBLE_DEVICES=0"
}

@test "--gpu-bind=mask_gpu: tasks may meet on a GPU, so no share is promised" {
	got=$(show "$names" -N1 -w n1 -n2 --gres=gpu:2 --gpu-bind=mask_gpu:0x3,0x1 --ddp)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=UNSET CUDA_VISIBLE_DEVICES=0,1
1@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=UNSET CUDA_VISIBLE_DEVICES=0"
	has "$(told)" "how many tasks this --gpu-bind puts on one GPU is not known, DDP_SHARE stays unset"
}

# --- Shards ---------------------------------------------------------------------------

# bats test_tags=release
@test "shard:2 of 4 for one task: half a GPU" {
	got=$(show "$names" -N1 -w n1 -n1 --gres=shard:2 --ddp)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.5 CUDA_VISIBLE_DEVICES=0"
}

@test "shard:4 of 4 for four tasks: a quarter of one GPU each" {
	got=$(show "$names" -N1 -w n1 -n4 --gres=shard:4 --ddp)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.25 CUDA_VISIBLE_DEVICES=0
1@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.25 CUDA_VISIBLE_DEVICES=0
2@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.25 CUDA_VISIBLE_DEVICES=0
3@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.25 CUDA_VISIBLE_DEVICES=0"
	same "$(told)" "$(crowd n1 4 0)"
}

@test "shard:1 for two tasks: Slurm lets fewer shards than tasks through" {
	got=$(show "$names" -N1 -w n1 -n2 --gres=shard:1 --ddp)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.125 CUDA_VISIBLE_DEVICES=0
1@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.125 CUDA_VISIBLE_DEVICES=0"
}

@test "shard:2 on two nodes with 3 and 1 tasks: each node divides its own" {
	got=$(show "DDP_DEVICE DDP_SHARE" -N2 -n4 --gres=shard:2 --ddp)
	same "$got" "0@n1 DDP_DEVICE=0 DDP_SHARE=0.166666
1@n1 DDP_DEVICE=0 DDP_SHARE=0.166666
2@n1 DDP_DEVICE=0 DDP_SHARE=0.166666
3@n2 DDP_DEVICE=0 DDP_SHARE=0.5"
}

@test "a step's part of the job's shards is what counts" {
	got=$(mc salloc -Q -N1 -n2 --gres=shard:4 srun --overlap --gres=shard:1 -n2 --ddp \
		"$SHOW" DDP_SHARE | sort)
	same "$got" "0@n1 DDP_SHARE=0.125
1@n1 DDP_SHARE=0.125"
}

# Slurm gives tasks of a bound shard step no device at all. With --gpu-bind=none, slurmstepd
# 22.05.8 itself crashes on such a step, with the plugin or without.
@test "a shard step with --gpu-bind gets back the device that Slurm erased" {
	want="0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.25 CUDA_VISIBLE_DEVICES=0
1@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.25 CUDA_VISIBLE_DEVICES=0"
	same "$(show "$names" -N1 -w n1 -n2 --gres=shard:2 --gpu-bind=closest --ddp)" "$want"
	same "$(show "$names" -N1 -w n1 -n2 --gres=shard:2 --gpu-bind=single:1 --ddp)" "$want"
	same "$(told)" "$(crowd n1 2 0)"
}

@test "128 shards on 2 GPUs, -N2 -n2: shard:64 is the whole GPU, shard:32 half of it" {
	other_cluster --nodes 2 --gpus 2 --shards 128
	got=$(show "$names" -N2 -n2 --gres=shard:64 --ddp)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0
1@n2 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0"
	got=$(show "DDP_SHARE XLA_PYTHON_CLIENT_MEM_FRACTION" -N2 -n2 --gres=shard:32 --ddp)
	same "$got" "0@n1 DDP_SHARE=0.5 XLA_PYTHON_CLIENT_MEM_FRACTION=0.5
1@n2 DDP_SHARE=0.5 XLA_PYTHON_CLIENT_MEM_FRACTION=0.5"
}

@test "shards_per_gpu in plugstack.conf says nothing where Slurm's own numbers do" {
	plugin_arguments shards_per_gpu=100
	same "$(show DDP_SHARE -N1 -w n1 -n1 --gres=shard:2 --ddp)" "0@n1 DDP_SHARE=0.5"
}

# --- Options and variables ------------------------------------------------------------

@test "--ddp-local-rank=task: LOCAL_RANK is the task, DDP_DEVICE stays right" {
	got=$(show "$names" -N1 -w n1 -n2 --gpus-per-task=1 --ddp --ddp-local-rank=task)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0
1@n1 LOCAL_RANK=1 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=1"
	got=$(show "LOCAL_RANK DDP_DEVICE" -N1 -w n1 -n3 --gres=gpu:2 --ddp --ddp-local-rank=task)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0
1@n1 LOCAL_RANK=1 DDP_DEVICE=1
2@n1 LOCAL_RANK=2 DDP_DEVICE=0"
}

@test "--ddp-local-rank=device: LOCAL_RANK is DDP_DEVICE, or the task without one" {
	got=$(mc salloc -Q -N1 -w n1 -n2 --gpus-per-task=2 srun --gpu-bind=none --ddp \
		--ddp-local-rank=device "$SHOW" LOCAL_RANK DDP_DEVICE DDP_LOCAL_RANK | sort)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_LOCAL_RANK=0
1@n1 LOCAL_RANK=2 DDP_DEVICE=2 DDP_LOCAL_RANK=1"
	got=$(SLURM_DDP_LOCAL_RANK=device show "LOCAL_RANK DDP_DEVICE" -N1 -w n1 -n2 --ddp)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=UNSET
1@n1 LOCAL_RANK=1 DDP_DEVICE=UNSET"
}

share_names="DDP_SHARE XLA_PYTHON_CLIENT_MEM_FRACTION PYTORCH_CUDA_ALLOC_CONF CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"

@test "a shared GPU is told to JAX; to PyTorch only with --ddp-share=torch; off: to nobody" {
	shard="-N1 -w n1 -n1 --gres=shard:1 --ddp"
	# shellcheck disable=SC2086
	got=$(show "$share_names" $shard)
	same "$got" "0@n1 DDP_SHARE=0.25 XLA_PYTHON_CLIENT_MEM_FRACTION=0.25 PYTORCH_CUDA_ALLOC_CONF=UNSET CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=UNSET"
	# shellcheck disable=SC2086
	got=$(show "$share_names" $shard --ddp-share=torch)
	same "$got" "0@n1 DDP_SHARE=0.25 XLA_PYTHON_CLIENT_MEM_FRACTION=0.25 PYTORCH_CUDA_ALLOC_CONF=per_process_memory_fraction:0.25 CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=UNSET"
	# shellcheck disable=SC2086
	got=$(show "$share_names" $shard --ddp-share=off)
	same "$got" "0@n1 DDP_SHARE=UNSET XLA_PYTHON_CLIENT_MEM_FRACTION=UNSET PYTORCH_CUDA_ALLOC_CONF=UNSET CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=UNSET"
}

@test "a whole GPU sets no framework's limit, even with --ddp-share=torch" {
	got=$(show "$share_names" -N1 -w n1 -n1 --gres=gpu:1 --ddp --ddp-share=torch)
	same "$got" "0@n1 DDP_SHARE=1 XLA_PYTHON_CLIENT_MEM_FRACTION=UNSET PYTORCH_CUDA_ALLOC_CONF=UNSET CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=UNSET"
}

@test "limits of the user's own win" {
	got=$(XLA_PYTHON_CLIENT_MEM_FRACTION=.9 PYTORCH_CUDA_ALLOC_CONF=backend:native \
		show "$share_names" -N1 -w n1 -n1 --gres=shard:1 --ddp --ddp-share=torch)
	same "$got" "0@n1 DDP_SHARE=0.25 XLA_PYTHON_CLIENT_MEM_FRACTION=.9 PYTORCH_CUDA_ALLOC_CONF=backend:native CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=UNSET"
}

@test "where an MPS daemon serves the node, its limit follows the share" {
	as_user mkdir -p "$WORK/mps"
	as_user mkfifo "$WORK/mps/control"
	got=$(CUDA_MPS_PIPE_DIRECTORY=$WORK/mps show "$share_names" -N1 -w n1 -n3 --gres=shard:4 --ddp)
	row="DDP_SHARE=0.333333 XLA_PYTHON_CLIENT_MEM_FRACTION=0.333333 PYTORCH_CUDA_ALLOC_CONF=UNSET CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=33"
	same "$got" "0@n1 $row
1@n1 $row
2@n1 $row"
}

# Slurm takes the variable away on nodes that have GPUs, so this needs nodes without.
@test "devices that the user names by UUID or MIG are counted and kept" {
	other_cluster --nodes 2 --gpus 0
	export CUDA_VISIBLE_DEVICES=GPU-8f2c-01,GPU-8f2c-02
	same "$(show "$names" -N1 -w n1 -n2 --ddp)" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=GPU-8f2c-01,GPU-8f2c-02
1@n1 LOCAL_RANK=1 DDP_DEVICE=1 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=GPU-8f2c-01,GPU-8f2c-02"
	export CUDA_VISIBLE_DEVICES=MIG-9a17-01
	same "$(show "$names" -N1 -w n1 -n2 --ddp)" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.5 CUDA_VISIBLE_DEVICES=MIG-9a17-01
1@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.5 CUDA_VISIBLE_DEVICES=MIG-9a17-01"
}

# Reads what "show" printed; adds up the shares by node and GPU, in millionths. The nodes do not
# constrain devices, so a list has the GPUs' own numbers.
most_shared()
{
	awk '{
		node = $1; sub(/.*@/, "", node)
		for (i = 2; i <= NF; i++) { split($i, word, "="); value[word[1]] = word[2] }
		if (value["DDP_SHARE"] == "UNSET") next
		split(value["CUDA_VISIBLE_DEVICES"], list, ",")
		gpu = node " " list[value["DDP_DEVICE"] + 1]
		sum[gpu] += int(value["DDP_SHARE"] * 1000000 + 0.5)
		if (sum[gpu] > most) most = sum[gpu]
	} END { print most + 0 }'
}

@test "the shares of one GPU never add up to more than 1" {
	while read -r request; do
		# shellcheck disable=SC2086
		got=$(show "$names" -N1 -w n1 $request --ddp)
		most=$(most_shared <<<"$got")
		if [ "$most" -gt 1000000 ] || [ "$most" -lt 700000 ]; then
			printf '%s: %s millionths in\n%s\n' "$request" "$most" "$got" >&2
			return 1
		fi
	done <<-END
		-n7 --gres=gpu:1
		-n7 --gres=gpu:3
		-n5 --gres=gpu:2 --gpu-bind=single:1
		-n7 --gres=gpu:3 --gpu-bind=single:2
		-n5 --gres=gpu:2 --gpu-bind=map_gpu:0,1,1
		-n7 --gres=shard:3
		-n6 --gres=shard:4 --gpu-bind=closest
		-n2 --gpus-per-task=2
		-n2 --gpus-per-task=2 --gpu-bind=none
	END
	# Not known is allowed, more than there is is not.
	got=$(show "$names" -N1 -w n1 -n3 --gres=gpu:2 --gpu-bind=mask_gpu:0x2,0x3,0x1 --ddp)
	[ "$(most_shared <<<"$got")" -le 1000000 ]
}

# From 23.11 on; beside another job that has three shards of one GPU.
# bats test_tags=release
@test "shards of several GPUs in one step: each rank's share is the part of its own GPU" {
	need_gpus
	slurm_at_least 23.11 || skip "this Slurm gives a job the shards of one GPU alone"
	other_cluster --nodes 1 --cpus 8 --gpus 4 --shards 16 --conf SelectTypeParameters=CR_Core,MULTIPLE_SHARING_GRES_PJ
	mc sbatch -n1 --gres=shard:3 -o /dev/null --wrap 'sleep 100'
	within 60 sh -c '[ "$("$0" run squeue -h -o %T)" = RUNNING ]' "$minicluster"
	got=$(show "DDP_DEVICE DDP_SHARE" -n3 --gres=shard:6 --ddp)
	same "$got" "0@n1 DDP_DEVICE=0 DDP_SHARE=0.25
1@n1 DDP_DEVICE=1 DDP_SHARE=1
2@n1 DDP_DEVICE=2 DDP_SHARE=0.25"
	# Of some of the job's shards nobody knows where they are.
	got=$(mc salloc -Q -n2 --gres=shard:6 srun --gres=shard:5 --ddp "$SHOW" DDP_SHARE 2>"$TOP/err" | sort)
	same "$got" "0@n1 DDP_SHARE=UNSET
1@n1 DDP_SHARE=UNSET"
	has "$(<"$TOP/err")" "^ddp: how many of this step's shards on n1 each of its [23] GPUs has is not known, DDP_SHARE stays unset; "
}
