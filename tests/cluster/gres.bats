# SPDX-License-Identifier: Apache-2.0
# Devices, shares, warnings and limits that the plugin sets, for the GPUs and shards that a real Slurm assigns to tasks, and
# ddp-info's report about them with a stub driver (driver.c). tests/unit/test_devices.c has more requests, and
# tests/runtime/test_info.c more reports.
# shellcheck disable=SC2001,SC2016,SC2154

load lib

setup_file()
{
	cluster_up --nodes 2 --cpus 8 --gpus 4 --shards 32
	# Ranks must not find this host's own MPS daemon.
	export CUDA_MPS_PIPE_DIRECTORY=$TOP/mps
	install_runtime
	# Programs must not find this host's own driver: a library without functions does not count as a driver.
	mkdir -m 755 "$TOP/driver" "$TOP/none" "$TOP/modules"
	cc -shared -o "$TOP/none/libcuda.so.1" -x c /dev/null
	export LD_LIBRARY_PATH=$TOP/none:$LD_LIBRARY_PATH
	for library in libcuda.so.1 libnvidia-ml.so.1; do
		cc -shared -fPIC -Wall -Werror -o "$TOP/driver/$library" "$DDP_SRCDIR/tests/cluster/driver.c"
	done
	# Engines that use host memory as GPU memory, for --device.
	make -C "$DDP_BUILDDIR/tests/runtime" host/ddp_gpu.la host/ddp_nccl.la >"$TOP/make.log" 2>&1
	install -m 755 "$DDP_BUILDDIR"/tests/runtime/host/.libs/ddp_*.so "$TOP/modules"
}
teardown_file() { cluster_down; }

setup() { need_gpus; }
teardown()
{
	stop_listening
	end_jobs
	other_cluster_down
	rm -rf "$TOP/mps" "${WORK:?}"/* "$WORK/.ddp"
}

# devices TASKS COMMAND...: runs srun --ddp, to which the program is added. Checks the tasks, each in the form
# "RANK@NODE:LOCAL_RANK:DDP_DEVICE:DDP_SHARE:CUDA_VISIBLE_DEVICES", with "-" for an unset variable.
devices()
{
	local want=$1
	shift
	try mc "$@" "$SHOW" LOCAL_RANK DDP_DEVICE DDP_SHARE CUDA_VISIBLE_DEVICES
	same "$(sed 's/ [A-Z_]*=/:/g; s/UNSET/-/g' <<<"$out" | sort -n | xargs)" "$want"
}

# The warning that NCCL refuses several ranks on one GPU.
crowd='NCCL refuses that ("Duplicate GPU detected"). In PyTorch, use the backend gloo, or NCCL 2.30 or later with NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_NVLS_ENABLE=0. ddp-train and libddp need neither.'

# --- Whole GPUs -----------------------------------------------------------------------

# bats test_tags=release
@test "--gres=gpu, --gpus and --gpu-bind=none: each task has its own device and sees all; without GRES nothing is set" {
	devices "0@n1:0:0:1:0,1 1@n1:1:1:1:0,1 2@n2:0:0:1:0,1 3@n2:1:1:1:0,1" srun -N2 --ntasks-per-node=2 --gres=gpu:2 --ddp
	same "$err" ""
	devices "0@n1:0:0:1:0,1 1@n1:1:1:1:0,1" srun -w n1 -n2 --gpus=2 --ddp
	devices "0@n1:0:0:1:0,1 1@n1:1:1:1:0,1" srun -w n1 -n2 --gpus-per-node=2 --gpu-bind=none --ddp
	same "$err" ""
	devices "0@n1:0:-:-:- 1@n1:1:-:-:-" srun -w n1 -n2 --ddp
	same "$err" ""
}

@test "more GPUs than tasks, and a task with few CPUs: a warning, or a line of --ddp-verbose" {
	devices "0@n1:0:0:1:0,1,2,3 1@n1:1:1:1:0,1,2,3 2@n2:0:0:1:0,1,2,3 3@n2:1:1:1:0,1,2,3" \
		srun -N2 --ntasks-per-node=2 --gres=gpu:4 --ddp
	same "$err" "ddp: n1: 2 tasks do not use all 4 GPUs. Use --ntasks-per-node=4."
	try mc srun -N2 --ntasks-per-node=1 --gres=gpu:4 -c1 --ddp --ddp-verbose true
	has "$err" "^ddp: n1: 1 task has 4 GPUs\. Use --ntasks-per-node=4, unless the task starts a process for each GPU, like torchrun\.$"
	cpus=$(getconf _NPROCESSORS_ONLN)
	((cpus == 1)) || has "$err" "^ddp: n1: each rank with a GPU has 1 CPU, of $cpus on the node\. Use --cpus-per-task=$((cpus < 8 ? cpus : 8)) to give "
}

@test "more tasks than GPUs: tasks share the GPUs in turn, each node computes its own shares, and warnings come once" {
	devices "0@n1:0:0:0.5:0,1 1@n1:1:1:1:0,1 2@n1:0:0:0.5:0,1 3@n2:0:0:1:0,1" srun -N2 -n4 --gres=gpu:2 --ddp
	same "$(grep -v 'different numbers of tasks' <<<"$err" | sort)" "ddp: n1: 3 ranks share GPUs 0,1, more than one on a GPU, and $crowd
ddp: n1: 3 tasks share 2 devices in turn. Use --ntasks-per-node=2 to give each task its own device."
	NCCL_MULTI_RANK_GPU_ENABLE=1 try mc srun -N2 --ntasks-per-node=3 --gres=gpu:2 --ddp true
	same "$(sort <<<"$err")" "ddp: n1: 3 tasks share 2 devices in turn. Use --ntasks-per-node=2 to give each task its own device.
ddp: n2: 3 tasks share 2 devices in turn. Use --ntasks-per-node=2 to give each task its own device."
}

# Only tasks in a job of sbatch or salloc have --gpus-per-task in their environment. Tasks of srun alone do not.
# bats test_tags=release
@test "--gpus-per-task: each task sees its own devices and uses the first, with one warning about peer-to-peer access" {
	devices "0@n1:0:0:1:0 1@n1:0:0:1:1 2@n2:0:0:1:0 3@n2:0:0:1:1" srun -N2 --ntasks-per-node=2 --gpus-per-task=1 --ddp
	same "$err" "ddp: each task sees only its own device, so NVLink and CUDA peer-to-peer between tasks of a node can be lost. Use --gpus-per-node=2 --gpu-bind=none to keep them."
	devices "0@n1:0:0:1:0,1 1@n1:0:0:1:2,3" srun -w n1 -n2 --gpus-per-task=2 --ddp
	devices "0@n1:0:0:1:0,1,2,3 1@n1:1:2:1:0,1,2,3" salloc -Q -w n1 -n2 --gpus-per-task=2 srun --gpu-bind=none --ddp
	devices "0@n1:0:0:1:0 1@n2:0:0:1:0" srun -N2 -n2 --gpus-per-task=1 --ddp
	same "$err" ""
}

# bats test_tags=release
@test "--gpu-bind=single, closest, map_gpu and mask_gpu: shares follow the binding, and are unset if they are unknown" {
	devices "0@n1:0:0:0.5:0 1@n1:0:0:1:1 2@n1:0:0:0.5:0" srun -w n1 -n3 --gres=gpu:2 --gpu-bind=single:1 --ddp
	devices "0@n1:0:0:0.5:0 1@n1:0:0:0.5:0 2@n1:0:0:0.5:1 3@n1:0:0:0.5:1" srun -w n1 -n4 --gres=gpu:2 --gpu-bind=single:2 --ddp
	# In this cluster GPUs have no CPU affinity, so all GPUs of a node are equally close.
	devices "0@n1:0:0:1:0,1 1@n1:1:1:1:0,1" srun -w n1 -n2 --gres=gpu:2 --gpu-bind=closest --ddp
	devices "0@n1:0:0:1:1 1@n1:0:0:0.5:0 2@n1:0:0:0.5:0" srun -w n1 -n3 --gres=gpu:2 --gpu-bind=map_gpu:1,0,0 --ddp
	devices "0@n1:0:0:-:0,1 1@n1:0:0:-:0" srun -w n1 -n2 --gres=gpu:2 --gpu-bind=mask_gpu:0x3,0x1 --ddp
	has "$err" "DDP_SHARE stays unset, because it is not known how many tasks this --gpu-bind puts on one GPU"
}

# --- Shards ---------------------------------------------------------------------------

# For a shard step with --gpu-bind, Slurm erases CUDA_VISIBLE_DEVICES. --gpu-bind=none is not tested: slurmstepd 22.05.8 crashes
# on such a step, with and without the plugin.
# bats test_tags=release
@test "--gres=shard: the tasks of each node divide the step's shards, and CUDA_VISIBLE_DEVICES is restored if --gpu-bind erased it" {
	plugin_arguments shards_per_gpu=100 # ignored, since Slurm has the number
	devices "0@n1:0:0:0.25:0" srun -w n1 -n1 --gres=shard:2 --ddp
	same "$err" ""
	devices "0@n1:0:0:0.083333:0 1@n1:0:0:0.083333:0 2@n1:0:0:0.083333:0 3@n2:0:0:0.25:0" srun -N2 -n4 --gres=shard:2 --ddp
	same "$(grep -v 'different numbers of tasks' <<<"$err")" "ddp: n1: 3 ranks share GPU 0, and $crowd"
	devices "0@n1:0:0:0.0625:0 1@n1:0:0:0.0625:0" salloc -Q -N1 -n2 --gres=shard:4 srun --overlap --gres=shard:1 -n2 --ddp
	devices "0@n1:0:0:0.125:0 1@n1:0:0:0.125:0" srun -w n1 -n2 --gres=shard:2 --gpu-bind=single:1 --ddp
}

# Needs Slurm 23.11 or later. Another job has three shards of one GPU.
# bats test_tags=release
@test "shards of several GPUs in one step: DDP_SHARE is unset, and one line gives the reason" {
	slurm_at_least 23.11 || skip "this Slurm gives a job the shards of one GPU alone"
	other_cluster --nodes 1 --cpus 8 --gpus 4 --shards 16 --conf SelectTypeParameters=CR_Core,MULTIPLE_SHARING_GRES_PJ
	mc sbatch -n1 --gres=shard:3 -o /dev/null --wrap 'sleep 100'
	within 60 sh -c '[ "$("$0" run squeue -h -o %T)" = RUNNING ]' "$minicluster"
	got=$(mc srun -n3 --gres=shard:6 --ddp "$SHOW" DDP_DEVICE DDP_SHARE 2>"$TOP/err" | sort)
	same "$got" "0@n1 DDP_DEVICE=0 DDP_SHARE=UNSET
1@n1 DDP_DEVICE=1 DDP_SHARE=UNSET
2@n1 DDP_DEVICE=2 DDP_SHARE=UNSET"
	has "$(<"$TOP/err")" "^ddp: DDP_SHARE stays unset, because Slurm does not say how the step's shards on n1 are divided among 3 GPUs\. "
}

@test "concurrent jobs of two users on one GPU: the shares follow each job's shards" {
	printf '#!/bin/sh\nsrun --ddp bash -c '\''"$SHOW" DDP_SHARE CUDA_VISIBLE_DEVICES >>held; until [ -e go ]; do sleep 0.05; done'\''\n' >"$WORK/hold"
	other=$(mc sbatch --parsable -w n1 -n2 --gres=shard:3 -o /dev/null hold)
	within 60 sh -c '[ "$(wc -l <"$0/held")" -eq 2 ]' "$WORK"
	try as_other_user "$minicluster" run srun -D / -w n1 -n1 --gres=shard:4 --ddp "$SHOW" DDP_SHARE CUDA_VISIBLE_DEVICES
	same "$out" "0@n1 DDP_SHARE=0.5 CUDA_VISIBLE_DEVICES=0"
	same "$(mc squeue -h -j "$other" -o %T)" RUNNING
	same "$(sort "$WORK/held")" "0@n1 DDP_SHARE=0.1875 CUDA_VISIBLE_DEVICES=0
1@n1 DDP_SHARE=0.1875 CUDA_VISIBLE_DEVICES=0"
}

# --- Options and limits ---------------------------------------------------------------

@test "--ddp-local-rank=task: LOCAL_RANK is SLURM_LOCALID; --ddp-local-rank=device: it is DDP_DEVICE" {
	devices "0@n1:0:0:1:0 1@n1:1:0:1:1" srun -w n1 -n2 --gpus-per-task=1 --ddp --ddp-local-rank=task
	devices "0@n1:0:0:1:0,1,2,3 1@n1:2:2:1:0,1,2,3" salloc -Q -w n1 -n2 --gpus-per-task=2 srun --gpu-bind=none --ddp --ddp-local-rank=device
}

limits="DDP_SHARE XLA_PYTHON_CLIENT_MEM_FRACTION PYTORCH_CUDA_ALLOC_CONF CUDA_MPS_ACTIVE_THREAD_PERCENTAGE CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"

@test "memory limit of a shared GPU: set for JAX, for PyTorch with --ddp-share=torch, for neither with --ddp-share=off" {
	none="CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=UNSET CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=UNSET"
	same "$(show "$limits" -w n1 -n1 --gres=shard:2 --ddp)" \
		"0@n1 DDP_SHARE=0.25 XLA_PYTHON_CLIENT_MEM_FRACTION=0.25 PYTORCH_CUDA_ALLOC_CONF=UNSET $none"
	same "$(show "$limits" -w n1 -n1 --gres=shard:2 --ddp --ddp-share=torch)" \
		"0@n1 DDP_SHARE=0.25 XLA_PYTHON_CLIENT_MEM_FRACTION=0.25 PYTORCH_CUDA_ALLOC_CONF=per_process_memory_fraction:0.25 $none"
	same "$(show "$limits" -w n1 -n1 --gres=shard:2 --ddp --ddp-share=off)" \
		"0@n1 DDP_SHARE=UNSET XLA_PYTHON_CLIENT_MEM_FRACTION=UNSET PYTORCH_CUDA_ALLOC_CONF=UNSET $none"
}

@test "MPS limits follow the share; there are none with a dead daemon's socket, or in a directory that the user cannot read" {
	mps="DDP_SHARE CUDA_MPS_ACTIVE_THREAD_PERCENTAGE CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
	plugin_arguments gpu_memory=40G
	export CUDA_MPS_PIPE_DIRECTORY=$WORK/mps
	as_user mkdir -m 700 "$WORK/mps"
	mps_listen "$WORK/mps/control" background
	same "$(show "$mps" -w n1 -n3 --gres=shard:8 --ddp | cut -d ' ' -f 2- | sort -u)" \
		"DDP_SHARE=0.333333 CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=33 CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=13653M"
	stop_listening
	none="0@n1 DDP_SHARE=0.25 CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=UNSET CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=UNSET"
	same "$(show "$mps" -w n1 -n1 --gres=shard:2 --ddp)" "$none"
	# Root can read this directory, so the plugin must check as the user.
	[ "$(id -u)" -eq 0 ] || return 0
	mkdir -m 700 "$TOP/mps"
	mkfifo "$TOP/mps/control"
	export CUDA_MPS_PIPE_DIRECTORY=$TOP/mps
	same "$(show "$mps" -w n1 -n1 --gres=shard:2 --ddp)" "$none"
	chmod 755 "$TOP/mps"
	has "$(show "$mps" -w n1 -n1 --gres=shard:2 --ddp)" 'CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25'
}

# --- ddp-info's report ----------------------------------------------------------------

# info SRUN_OPTION...: runs ddp-info with the stub driver.
info()
{
	LD_LIBRARY_PATH=$TOP/driver:$LD_LIBRARY_PATH try mc srun -N1 -w n1 "$@" --ddp ddp-info --no-test ${JSON-}
	same "$rc" 0
}

gpu0=GPU-a0a0a0a0-a0a0-a0a0-a0a0-a0a0a0a0a0a0
gpu1=GPU-a1a1a1a1-a1a1-a1a1-a1a1-a1a1a1a1a1a1

@test "ddp-info without a driver: ranks that share a GPU are found by Slurm's index of it" {
	try mc srun -N2 --ntasks-per-node=2 --gres=shard:4 --ddp ddp-info --no-test
	same "$rc" 0
	has "$out" '^rank  node  local +pid  CPUs +device  share  shared by  MPS  between nodes +endpoint reached$'
	has "$out" '^ +0  n1 +0/2 .* 0 +0\.25  0-1 +no '
	has "$out" '^ +3  n2 +1/2 .* 0 +0\.25  2-3 +no .* -$'
	# With --gpu-bind, each rank's GPU has index 0, although the GPUs differ.
	try mc srun -N1 -w n1 -n2 --gres=gpu:2 --gpu-bind=single:1 --ddp ddp-info --no-test
	has_not "$out" 'shared by'
}

@test "ddp-info with a driver: the UUIDs and shares of GPUs, and the limits of an MPS daemon, also with --json" {
	info -n4 --gres=gpu:2
	has "$out" "$gpu0 +0\.5  0,2 +no\$"
	has "$out" "$gpu1 +0\.5  1,3 +no\$"
	mkdir -m 755 "$TOP/mps"
	mps_listen "$TOP/mps/control" background_as_is
	CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=16G,1=1G info -n4 --gres=shard:8
	has "$out" "$gpu0 +0\.25  0-3 +25 % of threads, 16G of memory\$"
	JSON=--json info -n4 --gres=shard:8
	same "$(/usr/bin/python3 -c '
import json, sys
(one,) = (d := json.load(sys.stdin))["sharing"]
print(one["mode"], one["ranks"], one["uuid"], one["share_sum"], one["mps_threads"], one["enforced"])
print({(rank["memory_total"], rank["memory_share"]) for rank in d["ranks"]}, d["ranks"][0]["memory_context"])
' <<<"$out")" "MPS [0, 1, 2, 3] $gpu0 1 25 ['threads']
{(68719476736, 17179869184)} 536870912"
	DRIVER_MPS=0 info -n4 --gres=shard:8
	has "$out" "^warning: an MPS daemon runs in $TOP/mps on n1, but the driver reports that rank 0 does not use it"
}

@test "ddp-info warns of the mode, the free memory and an error that the driver reports" {
	DRIVER_MODE=3 info -n2 --gres=shard:2
	has "$out" "^warning: $gpu0 on n1 is in exclusive mode without MPS, but ranks 0-1 share it\. "
	DRIVER_HELD=60 info -n4 --gres=shard:4
	has "$out" "^warning: ranks 0-3 may use 32\.0 GiB of $gpu0 on n1, but only 4\.0 GiB are free\. "
	DRIVER_STATUS=805 info -n2 --gres=shard:2
	has "$out" '^warning: rank 0 on n1 cannot use device 0; the CUDA driver reports: MPS client failed to connect \(805\)$'
}

@test "ddp-info --device: sums of ranks that share a GPU are staged and exact; without an engine or a device it fails" {
	DDP_MODULES=$TOP/modules LD_LIBRARY_PATH=$TOP/driver:$LD_LIBRARY_PATH try mc srun -N2 --ntasks-per-node=2 --gres=shard:4 --ddp \
		sh -c 'DDP_HOST_GPU=$SLURM_NODEID exec ddp-info --device --max-bytes 64K'
	same "$rc" 0
	has "$out" '^in GPU memory, staged through host memory, .* ranks share GPU 0 on '
	same "$(sed '1,/^in GPU memory, .*:$/d' <<<"$out" | grep -c 'GB/s  exact$')" 5
	has_not "$out" WRONG
	LD_LIBRARY_PATH=$TOP/driver:$LD_LIBRARY_PATH DDP_MODULES=/nonexistent try mc srun -N1 -n2 --gres=shard:2 --ddp ddp-info --device
	[ "$rc" -ne 0 ]
	has "$err" 'no engine nccl: .*/nonexistent/ddp_nccl.so'
	try mc srun -N1 -n2 --ddp ddp-info --device
	[ "$rc" -ne 0 ]
	has "$err" 'no device is visible to this rank\. Request one from Slurm'
}

@test "ddp-shard.job reports shares, trains, and runs a program given as argument instead" {
	install -m 644 "$DDP_SRCDIR/job-templates/ddp-shard.job" "$WORK/"
	sed -i "s/--epochs 2/& --samples 400 --deterministic/" "$WORK/ddp-shard.job"
	batch --nodes=1 --gres=shard:4 --ntasks-per-node=4 "$WORK/ddp-shard.job"
	has "$out" "^ +0 .* 0-3 +no( |\$)"
	has "$out" '^finished: '
	batch --nodes=1 --gres=shard:2 --ntasks-per-node=1 "$WORK/ddp-shard.job" printenv DDP_SHARE
	same "$out" 0.25
}
