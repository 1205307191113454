# SPDX-License-Identifier: Apache-2.0
# Devices and shares that the plugin sets, for the GPUs and shards that a real Slurm assigns to tasks.
# shellcheck disable=SC2154

load lib

setup_file() { cluster_up --nodes 2 --cpus 8 --gpus 4 --shards 16; }
teardown_file() { cluster_down; }

setup() { need_gpus; }
teardown() { other_cluster_down; }

names="LOCAL_RANK DDP_DEVICE DDP_SHARE CUDA_VISIBLE_DEVICES"

# Prints the plugin's messages, from everything that srun printed.
plugin_messages() { grep '^ddp:' "$TOP/err"; }

# nccl_warning NODE RANKS GPUS: prints the warning that NCCL refuses several ranks on one GPU.
nccl_warning()
{
	local several=''
	[[ $3 != *,* ]] || several=', more than one on a GPU'
	printf 'ddp: %s: %s ranks on GPU%s %s%s: NCCL refuses that ("Duplicate GPU detected"), so PyTorch needs the backend gloo, or NCCL 2.30 or later with NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_NVLS_ENABLE=0; ddp-train and libddp do without' \
		"$1" "$2" "${several:+s}" "$3" "$several"
}

no_peer_to_peer="ddp: each task sees its own device alone, so NVLink and CUDA peer-to-peer between tasks of a node can be lost"

# --- Whole GPUs -----------------------------------------------------------------------

# bats test_tags=release
@test "--gres=gpu:2 for two tasks a node: each task has its own device and sees both" {
	got=$(show "$names" -N2 --ntasks-per-node=2 --gres=gpu:2 --ddp)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0,1
1@n1 LOCAL_RANK=1 DDP_DEVICE=1 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0,1
2@n2 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0,1
3@n2 LOCAL_RANK=1 DDP_DEVICE=1 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0,1"
	same "$(plugin_messages)" ""
}

@test "--gpus=2 and --gpus-per-node=2 give the same devices" {
	want="0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0,1
1@n1 LOCAL_RANK=1 DDP_DEVICE=1 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0,1"
	same "$(show "$names" -N1 -w n1 -n2 --gpus=2 --ddp)" "$want"
	same "$(show "$names" -N1 -w n1 -n2 --gpus-per-node=2 --ddp)" "$want"
}

@test "more GPUs than tasks: LOCAL_RANK selects the device, one warning counts both" {
	got=$(show "$names" -N1 -w n1 -n2 --gres=gpu:4 --ddp)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0,1,2,3
1@n1 LOCAL_RANK=1 DDP_DEVICE=1 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0,1,2,3"
	same "$(plugin_messages)" "ddp: n1: 2 tasks for 4 GPUs; --ntasks-per-node=4 uses all"
}

@test "more GPUs than tasks on two nodes: one warning, none with the advised --ntasks-per-node" {
	show LOCAL_RANK -N2 --ntasks-per-node=2 --gres=gpu:4 --ddp
	same "$(plugin_messages)" "ddp: n1: 2 tasks for 4 GPUs; --ntasks-per-node=4 uses all"
	show LOCAL_RANK -N2 --ntasks-per-node=4 --gres=gpu:4 --ddp
	same "$(plugin_messages)" ''
}

@test "one task for several GPUs: only --ddp-verbose mentions it" {
	show LOCAL_RANK -N2 --ntasks-per-node=1 --gres=gpu:4 --ddp
	same "$(plugin_messages)" ''
	show LOCAL_RANK -N2 --ntasks-per-node=1 --gres=gpu:4 --ddp --ddp-verbose
	same "$(plugin_messages | grep 'for 4 GPUs')" "ddp: n1: 1 task for 4 GPUs; --ntasks-per-node=4 uses all, unless the task starts a process for each, like torchrun"
}

@test "few CPUs for each rank with a GPU: --ddp-verbose recommends --cpus-per-task" {
	cpus=$(getconf _NPROCESSORS_ONLN)
	((cpus > 1)) || skip "this host has one CPU"
	advised=$((cpus < 8 ? cpus : 8))
	show LOCAL_RANK -N1 -w n1 -n1 --gres=gpu:1 -c1 --ddp --ddp-verbose
	same "$(plugin_messages | grep 'for each rank')" "ddp: n1: 1 CPU for each rank with a GPU, of $cpus on the node; --cpus-per-task=$advised gives its data loaders more, if they are free"
	show LOCAL_RANK -N1 -w n1 -n1 --gres=gpu:1 -c4 --ddp --ddp-verbose
	has_not "$(plugin_messages)" 'for each rank'
	show LOCAL_RANK -N1 -w n1 -n1 -c1 --ddp --ddp-verbose
	has_not "$(plugin_messages)" 'for each rank'
}

@test "more tasks than GPUs: tasks share the GPUs in turn, with one warning for each node" {
	got=$(show "$names" -N2 --ntasks-per-node=3 --gres=gpu:2 --ddp)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.5 CUDA_VISIBLE_DEVICES=0,1
1@n1 LOCAL_RANK=1 DDP_DEVICE=1 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0,1
2@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.5 CUDA_VISIBLE_DEVICES=0,1
3@n2 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.5 CUDA_VISIBLE_DEVICES=0,1
4@n2 LOCAL_RANK=1 DDP_DEVICE=1 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0,1
5@n2 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.5 CUDA_VISIBLE_DEVICES=0,1"
	same "$(plugin_messages | sort)" "$(nccl_warning n1 3 0,1)
ddp: n1: 3 tasks on 2 devices, which they share in turn
ddp: n2: 3 tasks on 2 devices, which they share in turn"
}

@test "--gres=gpu:2 without --ntasks-per-node: with 3 tasks on one node and 1 on the other, each node computes its own shares" {
	got=$(show "LOCAL_RANK DDP_DEVICE DDP_SHARE" -N2 -n4 --gres=gpu:2 --ddp)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.5
1@n1 LOCAL_RANK=1 DDP_DEVICE=1 DDP_SHARE=1
2@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.5
3@n2 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1"
}

@test "without GRES: no device, no share, and LOCAL_RANK is SLURM_LOCALID" {
	got=$(show "$names DDP_LOCAL_RANK XLA_PYTHON_CLIENT_MEM_FRACTION" -N1 -w n1 -n2 --ddp)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=UNSET DDP_SHARE=UNSET CUDA_VISIBLE_DEVICES=UNSET DDP_LOCAL_RANK=0 XLA_PYTHON_CLIENT_MEM_FRACTION=UNSET
1@n1 LOCAL_RANK=1 DDP_DEVICE=UNSET DDP_SHARE=UNSET CUDA_VISIBLE_DEVICES=UNSET DDP_LOCAL_RANK=1 XLA_PYTHON_CLIENT_MEM_FRACTION=UNSET"
	same "$(plugin_messages)" ""
}

@test "ddp-info warns of GPUs that no task uses and of few CPUs, with and without --ddp" {
	install_runtime
	try mc srun -N2 --ntasks-per-node=2 --gres=gpu:4 --ddp ddp-info --no-test
	same "$rc" 0
	same "$(grep -c '^warning: .*--ntasks-per-node' <<<"$out")" 1
	has "$out" '^warning: n1: 2 tasks for 4 GPUs; --ntasks-per-node=4 uses all$'
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
@test "--gpus-per-task=1: each task sees one device, its device 0, with one warning about peer-to-peer access" {
	got=$(show "$names DDP_LOCAL_RANK" -N2 --ntasks-per-node=2 --gpus-per-task=1 --ddp)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0 DDP_LOCAL_RANK=0
1@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=1 DDP_LOCAL_RANK=1
2@n2 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0 DDP_LOCAL_RANK=0
3@n2 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=1 DDP_LOCAL_RANK=1"
	same "$(plugin_messages)" "$no_peer_to_peer; --gpus-per-node=2 --gpu-bind=none keeps them"
}

@test "--gpu-bind=none, as that warning advises: each task has its own device and sees all" {
	got=$(show "$names" -N1 -w n1 -n2 --gpus-per-node=2 --gpu-bind=none --ddp)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0,1
1@n1 LOCAL_RANK=1 DDP_DEVICE=1 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0,1"
	same "$(plugin_messages)" ""
}

@test "--gpus-per-task=2 on 4 GPUs: each task sees two devices and uses the first" {
	got=$(show "$names" -N1 -w n1 -n2 --gpus-per-task=2 --ddp)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0,1
1@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=2,3"
	has "$(plugin_messages)" "--gpus-per-node=4 --gpu-bind=none keeps them"
}

# Only tasks in a job of sbatch or salloc have --gpus-per-task in their environment. Tasks of srun alone do not.
# bats test_tags=release
@test "--gpus-per-task=2 in salloc, with --gpu-bind=none in the step: each task uses the first device of its pair" {
	got=$(mc salloc -Q -N1 -w n1 -n2 --gpus-per-task=2 \
		srun --gpu-bind=none --ddp "$SHOW" LOCAL_RANK DDP_DEVICE DDP_SHARE CUDA_VISIBLE_DEVICES | sort)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0,1,2,3
1@n1 LOCAL_RANK=1 DDP_DEVICE=2 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0,1,2,3"
}

@test "--gpus-per-task=1 for one task a node: no warning about peer-to-peer access" {
	got=$(show "$names" -N2 -n2 --gpus-per-task=1 --ddp)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0
1@n2 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0"
	same "$(plugin_messages)" ""
}

@test "--gpu-bind=single:1 and --ntasks-per-gpu=1: one device for each task" {
	want="0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0
1@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=1"
	same "$(show "$names" -N1 -w n1 -n2 --gres=gpu:2 --gpu-bind=single:1 --ddp)" "$want"
	same "$(plugin_messages)" "$no_peer_to_peer; --gpus-per-node=2 --gpu-bind=none keeps them"
	same "$(show "$names" -N1 -w n1 -n2 --gpus=2 --ntasks-per-gpu=1 --ddp)" "$want"
}

@test "--gpu-bind=single:1 with three tasks on two GPUs: the third task shares the first GPU" {
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

# In this cluster GPUs have no CPU affinity, so all GPUs of a node are equally close.
@test "--gpu-bind=closest with equally close GPUs: each task sees all" {
	got=$(show "$names" -N1 -w n1 -n2 --gres=gpu:2 --gpu-bind=closest --ddp)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0,1
1@n1 LOCAL_RANK=1 DDP_DEVICE=1 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0,1"
	same "$(plugin_messages)" ""
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

@test "--gpu-bind=mask_gpu: DDP_SHARE is unset, as tasks may share a GPU" {
	got=$(show "$names" -N1 -w n1 -n2 --gres=gpu:2 --gpu-bind=mask_gpu:0x3,0x1 --ddp)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=UNSET CUDA_VISIBLE_DEVICES=0,1
1@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=UNSET CUDA_VISIBLE_DEVICES=0"
	has "$(plugin_messages)" "how many tasks this --gpu-bind puts on one GPU is not known, DDP_SHARE stays unset"
}

# --- Shards ---------------------------------------------------------------------------

# bats test_tags=release
@test "--gres=shard:2 with 4 shards a GPU: a share of one half" {
	got=$(show "$names" -N1 -w n1 -n1 --gres=shard:2 --ddp)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.5 CUDA_VISIBLE_DEVICES=0"
}

@test "--gres=shard:4 for four tasks: each has a quarter of one GPU" {
	got=$(show "$names" -N1 -w n1 -n4 --gres=shard:4 --ddp)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.25 CUDA_VISIBLE_DEVICES=0
1@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.25 CUDA_VISIBLE_DEVICES=0
2@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.25 CUDA_VISIBLE_DEVICES=0
3@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.25 CUDA_VISIBLE_DEVICES=0"
	same "$(plugin_messages)" "$(nccl_warning n1 4 0)"
}

@test "--gres=shard:1 for two tasks: each has half a shard" {
	got=$(show "$names" -N1 -w n1 -n2 --gres=shard:1 --ddp)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.125 CUDA_VISIBLE_DEVICES=0
1@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.125 CUDA_VISIBLE_DEVICES=0"
}

@test "--gres=shard:2 with 3 tasks on one node and 1 on the other: each node divides its own shards" {
	got=$(show "DDP_DEVICE DDP_SHARE" -N2 -n4 --gres=shard:2 --ddp)
	same "$got" "0@n1 DDP_DEVICE=0 DDP_SHARE=0.166666
1@n1 DDP_DEVICE=0 DDP_SHARE=0.166666
2@n1 DDP_DEVICE=0 DDP_SHARE=0.166666
3@n2 DDP_DEVICE=0 DDP_SHARE=0.5"
}

@test "DDP_SHARE follows the step's shards, not the job's" {
	got=$(mc salloc -Q -N1 -n2 --gres=shard:4 srun --overlap --gres=shard:1 -n2 --ddp \
		"$SHOW" DDP_SHARE | sort)
	same "$got" "0@n1 DDP_SHARE=0.125
1@n1 DDP_SHARE=0.125"
}

# For a shard step with --gpu-bind, Slurm erases CUDA_VISIBLE_DEVICES. --gpu-bind=none is not tested: slurmstepd 22.05.8 crashes
# on such a step, with and without the plugin.
@test "a shard step with --gpu-bind: the plugin restores the CUDA_VISIBLE_DEVICES that Slurm erased" {
	want="0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.25 CUDA_VISIBLE_DEVICES=0
1@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.25 CUDA_VISIBLE_DEVICES=0"
	same "$(show "$names" -N1 -w n1 -n2 --gres=shard:2 --gpu-bind=closest --ddp)" "$want"
	same "$(show "$names" -N1 -w n1 -n2 --gres=shard:2 --gpu-bind=single:1 --ddp)" "$want"
	same "$(plugin_messages)" "$(nccl_warning n1 2 0)"
}

@test "64 shards a GPU, one task a node: --gres=shard:64 is a share of 1, --gres=shard:32 one half" {
	other_cluster --nodes 2 --gpus 2 --shards 128
	got=$(show "$names" -N2 -n2 --gres=shard:64 --ddp)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0
1@n2 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0"
	got=$(show "DDP_SHARE XLA_PYTHON_CLIENT_MEM_FRACTION" -N2 -n2 --gres=shard:32 --ddp)
	same "$got" "0@n1 DDP_SHARE=0.5 XLA_PYTHON_CLIENT_MEM_FRACTION=0.5
1@n2 DDP_SHARE=0.5 XLA_PYTHON_CLIENT_MEM_FRACTION=0.5"
}

@test "shards_per_gpu in plugstack.conf is ignored if Slurm has the number" {
	plugin_arguments shards_per_gpu=100
	same "$(show DDP_SHARE -N1 -w n1 -n1 --gres=shard:2 --ddp)" "0@n1 DDP_SHARE=0.5"
}

# --- Options and variables ------------------------------------------------------------

@test "--ddp-local-rank=task: LOCAL_RANK is SLURM_LOCALID, DDP_DEVICE does not change" {
	got=$(show "$names" -N1 -w n1 -n2 --gpus-per-task=1 --ddp --ddp-local-rank=task)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0
1@n1 LOCAL_RANK=1 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=1"
	got=$(show "LOCAL_RANK DDP_DEVICE" -N1 -w n1 -n3 --gres=gpu:2 --ddp --ddp-local-rank=task)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0
1@n1 LOCAL_RANK=1 DDP_DEVICE=1
2@n1 LOCAL_RANK=2 DDP_DEVICE=0"
}

@test "--ddp-local-rank=device: LOCAL_RANK is DDP_DEVICE, or SLURM_LOCALID without a device" {
	got=$(mc salloc -Q -N1 -w n1 -n2 --gpus-per-task=2 srun --gpu-bind=none --ddp \
		--ddp-local-rank=device "$SHOW" LOCAL_RANK DDP_DEVICE DDP_LOCAL_RANK | sort)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_LOCAL_RANK=0
1@n1 LOCAL_RANK=2 DDP_DEVICE=2 DDP_LOCAL_RANK=1"
	got=$(SLURM_DDP_LOCAL_RANK=device show "LOCAL_RANK DDP_DEVICE" -N1 -w n1 -n2 --ddp)
	same "$got" "0@n1 LOCAL_RANK=0 DDP_DEVICE=UNSET
1@n1 LOCAL_RANK=1 DDP_DEVICE=UNSET"
}

share_names="DDP_SHARE XLA_PYTHON_CLIENT_MEM_FRACTION PYTORCH_CUDA_ALLOC_CONF CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"

@test "memory limit of a shared GPU: set for JAX, for PyTorch with --ddp-share=torch, for neither with --ddp-share=off" {
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

@test "a whole GPU: no memory limit for any framework, even with --ddp-share=torch" {
	got=$(show "$share_names" -N1 -w n1 -n1 --gres=gpu:1 --ddp --ddp-share=torch)
	same "$got" "0@n1 DDP_SHARE=1 XLA_PYTHON_CLIENT_MEM_FRACTION=UNSET PYTORCH_CUDA_ALLOC_CONF=UNSET CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=UNSET"
}

@test "memory limits in the user's environment are kept" {
	got=$(XLA_PYTHON_CLIENT_MEM_FRACTION=.9 PYTORCH_CUDA_ALLOC_CONF=backend:native \
		show "$share_names" -N1 -w n1 -n1 --gres=shard:1 --ddp --ddp-share=torch)
	same "$got" "0@n1 DDP_SHARE=0.25 XLA_PYTHON_CLIENT_MEM_FRACTION=.9 PYTORCH_CUDA_ALLOC_CONF=backend:native CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=UNSET"
}

@test "an MPS daemon on the node: CUDA_MPS_ACTIVE_THREAD_PERCENTAGE follows the share" {
	as_user mkdir -p "$WORK/mps"
	as_user mkfifo "$WORK/mps/control"
	got=$(CUDA_MPS_PIPE_DIRECTORY=$WORK/mps show "$share_names" -N1 -w n1 -n3 --gres=shard:4 --ddp)
	row="DDP_SHARE=0.333333 XLA_PYTHON_CLIENT_MEM_FRACTION=0.333333 PYTORCH_CUDA_ALLOC_CONF=UNSET CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=33"
	same "$got" "0@n1 $row
1@n1 $row
2@n1 $row"
}

# This test needs nodes without GPUs, since Slurm removes the user's CUDA_VISIBLE_DEVICES on nodes with GPUs.
@test "CUDA_VISIBLE_DEVICES with UUIDs or MIG devices is kept, and its devices are counted" {
	other_cluster --nodes 2 --gpus 0
	export CUDA_VISIBLE_DEVICES=GPU-8f2c-01,GPU-8f2c-02
	same "$(show "$names" -N1 -w n1 -n2 --ddp)" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=GPU-8f2c-01,GPU-8f2c-02
1@n1 LOCAL_RANK=1 DDP_DEVICE=1 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=GPU-8f2c-01,GPU-8f2c-02"
	export CUDA_VISIBLE_DEVICES=MIG-9a17-01
	same "$(show "$names" -N1 -w n1 -n2 --ddp)" "0@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.5 CUDA_VISIBLE_DEVICES=MIG-9a17-01
1@n1 LOCAL_RANK=0 DDP_DEVICE=0 DDP_SHARE=0.5 CUDA_VISIBLE_DEVICES=MIG-9a17-01"
}

# Reads the output of show, and prints the largest sum of shares on one GPU, in millionths. The nodes do not constrain devices, so
# CUDA_VISIBLE_DEVICES has the GPUs' own numbers.
largest_sum_of_shares()
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

@test "the shares of one GPU add up to at most 1" {
	while read -r request; do
		# shellcheck disable=SC2086
		got=$(show "$names" -N1 -w n1 $request --ddp)
		most=$(largest_sum_of_shares <<<"$got")
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
	# In this case DDP_SHARE may be unset.
	got=$(show "$names" -N1 -w n1 -n3 --gres=gpu:2 --gpu-bind=mask_gpu:0x2,0x3,0x1 --ddp)
	[ "$(largest_sum_of_shares <<<"$got")" -le 1000000 ]
}

# Needs Slurm 23.11 or later. Another job has three shards of one GPU.
# bats test_tags=release
@test "shards of several GPUs in one step: DDP_SHARE is unset, and one line gives the reason" {
	need_gpus
	slurm_at_least 23.11 || skip "this Slurm gives a job the shards of one GPU alone"
	other_cluster --nodes 1 --cpus 8 --gpus 4 --shards 16 --conf SelectTypeParameters=CR_Core,MULTIPLE_SHARING_GRES_PJ
	mc sbatch -n1 --gres=shard:3 -o /dev/null --wrap 'sleep 100'
	within 60 sh -c '[ "$("$0" run squeue -h -o %T)" = RUNNING ]' "$minicluster"
	got=$(mc srun -n3 --gres=shard:6 --ddp "$SHOW" DDP_DEVICE DDP_SHARE 2>"$TOP/err" | sort)
	same "$got" "0@n1 DDP_DEVICE=0 DDP_SHARE=UNSET
1@n1 DDP_DEVICE=1 DDP_SHARE=UNSET
2@n1 DDP_DEVICE=2 DDP_SHARE=UNSET"
	has "$(<"$TOP/err")" "^ddp: how many of this step's shards on n1 each of its 3 GPUs has is not known, DDP_SHARE stays unset: "
}
