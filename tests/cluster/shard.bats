# SPDX-License-Identifier: Apache-2.0
# Ranks that share GPUs under a real Slurm: their shares, warnings and limits, several jobs on one GPU, and ddp-train.
#
# gres.bats tests the other ways to request GPUs, and steps with shards of several GPUs, which Slurm 22.05 does not support.
# sharing.bats tests ddp-info's report.
#
# shellcheck disable=SC2086,SC2154 # requests are split into words; rc, out and err come from try

load lib

setup_file()
{
	cluster_up --nodes 2 --cpus 8 --gpus 4 --shards 32 --plugin-args gpu_memory=40G
	install_runtime
	export XDG_CACHE_HOME=$WORK/.cache
	# Ranks must not find this host's own MPS daemon.
	export CUDA_MPS_PIPE_DIRECTORY=$TOP/mps
}

teardown_file() { cluster_down; }

setup() { need_gpus; }

teardown()
{
	stop_listening
	end_jobs
	rm -rf "$TOP/mps" "${WORK:?}"/* "$WORK"/.ddp
}

# Prints the number of warnings that NCCL refuses several ranks on one GPU.
nccl_warnings() { grep -c 'Duplicate GPU detected' "$TOP/err" || true; }

# expected_shares NUMERATOR DENOMINATOR RANKS GPUS: prints "RANK DEVICE SHARE" of each rank, computed without the plugin. Ranks
# are assigned to GPUs in turn, and the step has NUMERATOR/DENOMINATOR of each GPU.
expected_shares()
{
	awk -v num="$1" -v den="$2" -v ranks="$3" -v gpus="$4" 'BEGIN {
		for (r = 0; r < ranks; r++)
			on[r % gpus]++
		for (r = 0; r < ranks; r++) {
			share = int(num * 1000000 / (den * on[r % gpus])) / 1000000
			print r, r % gpus, share
		}
	}'
}

# Converts the output of show into the form of expected_shares.
as_expected() { sed -E 's/^([0-9]+)@n1 DDP_DEVICE=([0-9]+) DDP_SHARE=([0-9.]+)$/\1 \2 \3/'; }

@test "1 to 8 ranks on 1 to 4 whole GPUs: devices in turn, equal shares of each, a warning if ranks share one" {
	local gpus ranks
	cat >"$WORK/all" <<-'END'
		for gpus in 1 2 3 4; do
			for ranks in 1 2 3 4 5 6 7 8; do
				srun --overlap -n $ranks --gres=gpu:$gpus --ddp "$SHOW" DDP_DEVICE DDP_SHARE \
					>got-$gpus-$ranks 2>err-$gpus-$ranks
			done
		done
	END
	mc salloc -Q -N1 -w n1 -n8 --gres=gpu:4 bash all
	for gpus in 1 2 3 4; do
		for ranks in 1 2 3 4 5 6 7 8; do
			same "$(sort -n "$WORK/got-$gpus-$ranks" | as_expected)" "$(expected_shares 1 1 $ranks $gpus)"
			cp "$WORK/err-$gpus-$ranks" "$TOP/err"
			same "$(nccl_warnings)" "$((ranks > gpus))"
		done
	done
}

@test "1 to 8 ranks on 1, 3 and 8 of a GPU's 8 shards: equal shares, also with more ranks than shards" {
	local shards ranks
	cat >"$WORK/all" <<-'END'
		for shards in 1 3 8; do
			for ranks in 1 2 3 5 8; do
				srun --overlap -n $ranks --gres=shard:$shards --ddp "$SHOW" DDP_DEVICE DDP_SHARE \
					>got-$shards-$ranks 2>err-$shards-$ranks
			done
		done
	END
	mc salloc -Q -N1 -w n1 -n8 --gres=shard:8 bash all
	for shards in 1 3 8; do
		for ranks in 1 2 3 5 8; do
			same "$(sort -n "$WORK/got-$shards-$ranks" | as_expected)" "$(expected_shares $shards 8 $ranks 1)"
			cp "$WORK/err-$shards-$ranks" "$TOP/err"
			same "$(nccl_warnings)" "$((ranks > 1))"
		done
	done
}

@test "the NCCL warning names node, ranks, GPU and remedy, once a step and on one line" {
	show RANK -N2 --ntasks-per-node=3 --gres=shard:4 --ddp >"$TOP/out"
	same "$(<"$TOP/err")" 'ddp: n1: 3 ranks on GPU 0: NCCL refuses that ("Duplicate GPU detected"), so PyTorch needs the backend gloo, or NCCL 2.30 or later with NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_NVLS_ENABLE=0; ddp-train and libddp do without'
	same "$(wc -l <"$TOP/out")" 6
}

@test "the NCCL warning comes from the node whose ranks share a GPU, be it the first or the second" {
	show RANK -N2 -n4 --gres=gpu:2 --ddp >"$TOP/out"
	has "$(<"$TOP/err")" '^ddp: n1: 3 ranks on GPUs 0,1, more than one on a GPU: NCCL'
	same "$(nccl_warnings)" 1
	printf 'n1\nn2\nn2\nn2\n' >"$WORK/hosts"
	try mc env SLURM_HOSTFILE="$WORK/hosts" srun --distribution=arbitrary -n4 --gres=gpu:2 --ddp "$SHOW" RANK
	has "$err" '^ddp: n2: 3 ranks on GPUs 0,1, more than one on a GPU: NCCL'
	same "$(nccl_warnings)" 1
}

@test "no NCCL warning for one rank on each GPU, for one rank on a part, and with NCCL_MULTI_RANK_GPU_ENABLE=1" {
	show RANK -N2 --ntasks-per-node=2 --gres=gpu:2 --ddp >/dev/null
	same "$(nccl_warnings)" 0
	show RANK -N2 --ntasks-per-node=1 --gres=shard:1 --ddp >/dev/null
	same "$(nccl_warnings)" 0
	NCCL_MULTI_RANK_GPU_ENABLE=1 show RANK -N1 -n2 --gres=shard:1 --ddp >/dev/null
	same "$(nccl_warnings)" 0
}

# Starts a job with three shards for two ranks. The ranks write their variables to held-RANK and wait for the file "go".
hold()
{
	cat >"$WORK/hold" <<-END
		srun --ddp bash -c '"$SHOW" DDP_SHARE CUDA_VISIBLE_DEVICES XLA_PYTHON_CLIENT_MEM_FRACTION >held-\$RANK.part
			mv held-\$RANK.part held-\$RANK; until [ -e go ]; do sleep 0.05; done' 2>held-err
	END
	sed -i '1i #!/bin/bash' "$WORK/hold"
	other=$(mc sbatch --parsable -N1 -w n1 -n2 --gres=shard:3 -o held-out "$WORK/hold")
	within 60 test -e "$WORK/held-0"
	within 60 test -e "$WORK/held-1"
}

@test "two concurrent jobs on one GPU: each has its own shares, and together they do not exceed the GPU" {
	hold
	same "$(show "DDP_SHARE CUDA_VISIBLE_DEVICES XLA_PYTHON_CLIENT_MEM_FRACTION" -N1 -w n1 -n3 --gres=shard:5 --ddp)" \
		"0@n1 DDP_SHARE=0.208333 CUDA_VISIBLE_DEVICES=0 XLA_PYTHON_CLIENT_MEM_FRACTION=0.208333
1@n1 DDP_SHARE=0.208333 CUDA_VISIBLE_DEVICES=0 XLA_PYTHON_CLIENT_MEM_FRACTION=0.208333
2@n1 DDP_SHARE=0.208333 CUDA_VISIBLE_DEVICES=0 XLA_PYTHON_CLIENT_MEM_FRACTION=0.208333"
	# The first job is still running, with the same shares.
	same "$(mc squeue -h -j "$other" -o %T)" RUNNING
	touch "$WORK/go"
	within 60 gone "$other"
	same "$(cat "$WORK/held-0" "$WORK/held-1")" \
		"0@n1 DDP_SHARE=0.1875 CUDA_VISIBLE_DEVICES=0 XLA_PYTHON_CLIENT_MEM_FRACTION=0.1875
1@n1 DDP_SHARE=0.1875 CUDA_VISIBLE_DEVICES=0 XLA_PYTHON_CLIENT_MEM_FRACTION=0.1875"
}

@test "two concurrent jobs of two users on one GPU: the shares follow each job's shards" {
	hold
	try as_other_user "$minicluster" run srun -D / -N1 -w n1 -n1 --gres=shard:4 --ddp "$SHOW" DDP_SHARE CUDA_VISIBLE_DEVICES
	same "$out" "0@n1 DDP_SHARE=0.5 CUDA_VISIBLE_DEVICES=0"
	same "$(mc squeue -h -j "$other" -o %T)" RUNNING
	touch "$WORK/go"
	within 60 gone "$other"
}

# Creates an MPS daemon's socket in a directory that only the user can read.
listen()
{
	as_user mkdir -m 700 "$WORK/mps"
	mps_listen "$WORK/mps/control" background
}

mps_names="DDP_SHARE CUDA_MPS_ACTIVE_THREAD_PERCENTAGE CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"

@test "MPS: limits of threads and memory follow the share, rounded down, and the user's values are kept" {
	listen
	export CUDA_MPS_PIPE_DIRECTORY=$WORK/mps
	same "$(show "$mps_names" -N1 -w n1 -n3 --gres=shard:8 --ddp)" \
		"0@n1 DDP_SHARE=0.333333 CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=33 CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=13653M
1@n1 DDP_SHARE=0.333333 CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=33 CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=13653M
2@n1 DDP_SHARE=0.333333 CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=33 CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=13653M"
	export CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=70 CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1G
	same "$(show "$mps_names" -N1 -w n1 -n1 --gres=shard:2 --ddp)" \
		"0@n1 DDP_SHARE=0.25 CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=70 CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1G"
}

@test "no MPS limits for a whole GPU, with a dead daemon's socket, and with a directory that the user cannot read" {
	local no_limits="CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=UNSET CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=UNSET"
	listen
	export CUDA_MPS_PIPE_DIRECTORY=$WORK/mps
	same "$(show "$mps_names" -N1 -w n1 -n1 --gres=gpu:1 --ddp)" "0@n1 DDP_SHARE=1 $no_limits"
	stop_listening
	same "$(show "$mps_names" -N1 -w n1 -n1 --gres=shard:2 --ddp)" "0@n1 DDP_SHARE=0.25 $no_limits"
	# Root can read this directory, so the plugin must check as the user.
	[ "$(id -u)" -eq 0 ] || return 0
	mkdir -m 700 "$TOP/mps"
	mkfifo "$TOP/mps/control"
	export CUDA_MPS_PIPE_DIRECTORY=$TOP/mps
	same "$(show "$mps_names" -N1 -w n1 -n1 --gres=shard:2 --ddp)" "0@n1 DDP_SHARE=0.25 $no_limits"
	chmod 755 "$TOP/mps"
	has "$(show "$mps_names" -N1 -w n1 -n1 --gres=shard:2 --ddp)" 'CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25'
}

@test "ddp-train on shards without a CUDA driver: trains on CPUs with one warning" {
	[ ! -e /dev/nvidiactl ] || skip "this machine has GPUs"
	try mc srun -N1 -w n1 -n4 --gres=shard:8 --ddp ddp-train mnist --samples 400 -e 1 -b 20
	same "$rc" 0
	has "$out" '^4 ranks on 1 node, cpu: '
	same "$(wc -l <<<"$err")" 1
	has "$err" '^ddp-train: warning: computing on CPUs: rank 0 on n1: no driver for GPUs'
	has "$out" '^epoch 1: train loss '
}

@test "ddp-shard.job trains unchanged, and stops on SIGUSR1 with a checkpoint" {
	install -m 644 "$DDP_SRCDIR/job-templates/ddp-shard.job" "$WORK"
	job=$(mc sbatch --parsable ddp-shard.job)
	within 300 grep -q '^epoch 1 step ' "$WORK/ddp-shard-$job.out"
	has "$(<"$WORK/ddp-shard-$job.out")" '^2 ranks on 2 nodes, '
	mc scancel --signal=USR1 "$job"
	within 120 gone "$job"
	has "$(<"$WORK/ddp-shard-$job.out")" '^stopped by SIGUSR1 at step [0-9]+ of epoch [12]'
	compgen -G "$WORK/ddp-shard-checkpoints/*.safetensors"
	[ -s "$WORK/ddp-shard-$job.html" ]
}
