# SPDX-License-Identifier: Apache-2.0
# Ranks that share GPUs, as Slurm really shares them: how much each may use, what it is told, and ddp-train on it.
#
# gres.bats has every way to ask for GPUs, also for shards of several in one step, which Slurm 22.05 does not give;
# sharing.bats has what ddp-info says.
#
# shellcheck disable=SC2086,SC2154 # requests are words; rc, out and err come from try

load lib

setup_file()
{
	cluster_up --nodes 2 --cpus 8 --gpus 4 --shards 32 --plugin-args gpu_memory=40G
	install_runtime
	export XDG_CACHE_HOME=$WORK/.cache
	# A daemon of the machine's own would be found.
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

# What the tasks were told about NCCL.
told() { grep -c 'Duplicate GPU detected' "$TOP/err" || true; }

# dealt NUMERATOR DENOMINATOR RANKS GPUS: "RANK DEVICE SHARE" of ranks that are dealt out to GPUs in turn, of
# each of which the step has a part; computed without the plugin.
dealt()
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

# The same of what "show" printed.
as_dealt() { sed -E 's/^([0-9]+)@n1 DDP_DEVICE=([0-9]+) DDP_SHARE=([0-9.]+)$/\1 \2 \3/'; }

@test "1 to 8 ranks on 1 to 4 whole GPUs" {
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
			same "$(sort -n "$WORK/got-$gpus-$ranks" | as_dealt)" "$(dealt 1 1 $ranks $gpus)"
			cp "$WORK/err-$gpus-$ranks" "$TOP/err"
			same "$(told)" "$((ranks > gpus))"
		done
	done
}

@test "1 to 8 ranks on 1 to 8 of the 8 shards of a GPU, more of them than shards too" {
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
			same "$(sort -n "$WORK/got-$shards-$ranks" | as_dealt)" "$(dealt $shards 8 $ranks 1)"
			cp "$WORK/err-$shards-$ranks" "$TOP/err"
			same "$(told)" "$((ranks > 1))"
		done
	done
}

@test "the line about NCCL: where, how many, what to do; once a step, and on one line" {
	show RANK -N2 --ntasks-per-node=3 --gres=shard:4 --ddp >"$TOP/out"
	same "$(<"$TOP/err")" 'ddp: n1: 3 ranks on GPU 0: NCCL refuses that ("Duplicate GPU detected"), so PyTorch needs the backend gloo, or NCCL 2.30 or later with NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_NVLS_ENABLE=0; ddp-train and libddp do without'
	same "$(wc -l <"$TOP/out")" 6
}

@test "the line about NCCL comes from the node that shares, wherever it is" {
	show RANK -N2 -n4 --gres=gpu:2 --ddp >"$TOP/out"
	has "$(<"$TOP/err")" '^ddp: n1: 3 ranks on GPUs 0,1, more than one on a GPU: NCCL'
	same "$(told)" 1
	printf 'n1\nn2\nn2\nn2\n' >"$WORK/hosts"
	try mc env SLURM_HOSTFILE="$WORK/hosts" srun --distribution=arbitrary -n4 --gres=gpu:2 --ddp "$SHOW" RANK
	has "$err" '^ddp: n2: 3 ranks on GPUs 0,1, more than one on a GPU: NCCL'
	same "$(told)" 1
}

@test "no line about NCCL: a GPU each, one rank on a part, and for who has NCCL's switch" {
	show RANK -N2 --ntasks-per-node=2 --gres=gpu:2 --ddp >/dev/null
	same "$(told)" 0
	show RANK -N2 --ntasks-per-node=1 --gres=shard:1 --ddp >/dev/null
	same "$(told)" 0
	NCCL_MULTI_RANK_GPU_ENABLE=1 show RANK -N1 -n2 --gres=shard:1 --ddp >/dev/null
	same "$(told)" 0
}

# A job of three shards for two ranks that says what it has, and waits until it may end.
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

@test "two jobs on one GPU at a time: each has its own part, and all of them are not more than the GPU" {
	hold
	same "$(show "DDP_SHARE CUDA_VISIBLE_DEVICES XLA_PYTHON_CLIENT_MEM_FRACTION" -N1 -w n1 -n3 --gres=shard:5 --ddp)" \
		"0@n1 DDP_SHARE=0.208333 CUDA_VISIBLE_DEVICES=0 XLA_PYTHON_CLIENT_MEM_FRACTION=0.208333
1@n1 DDP_SHARE=0.208333 CUDA_VISIBLE_DEVICES=0 XLA_PYTHON_CLIENT_MEM_FRACTION=0.208333
2@n1 DDP_SHARE=0.208333 CUDA_VISIBLE_DEVICES=0 XLA_PYTHON_CLIENT_MEM_FRACTION=0.208333"
	# The other has not ended meanwhile, and has what it had.
	same "$(mc squeue -h -j "$other" -o %T)" RUNNING
	touch "$WORK/go"
	within 60 gone "$other"
	same "$(cat "$WORK/held-0" "$WORK/held-1")" \
		"0@n1 DDP_SHARE=0.1875 CUDA_VISIBLE_DEVICES=0 XLA_PYTHON_CLIENT_MEM_FRACTION=0.1875
1@n1 DDP_SHARE=0.1875 CUDA_VISIBLE_DEVICES=0 XLA_PYTHON_CLIENT_MEM_FRACTION=0.1875"
}

@test "two users' jobs on one GPU at a time" {
	hold
	try as_other_user "$minicluster" run srun -D / -N1 -w n1 -n1 --gres=shard:4 --ddp "$SHOW" DDP_SHARE CUDA_VISIBLE_DEVICES
	same "$out" "0@n1 DDP_SHARE=0.5 CUDA_VISIBLE_DEVICES=0"
	same "$(mc squeue -h -j "$other" -o %T)" RUNNING
	touch "$WORK/go"
	within 60 gone "$other"
}

# The daemon's socket in a directory of the user's alone: who looks as root sees it too, who looks as another user
# does not.
listen()
{
	as_user mkdir -m 700 "$WORK/mps"
	mps_listen "$WORK/mps/control" background
}

mps_names="DDP_SHARE CUDA_MPS_ACTIVE_THREAD_PERCENTAGE CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"

@test "MPS: threads and memory follow the share, rounded down; the user's own stay" {
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

@test "MPS: nothing of it on a whole GPU, under a daemon that is gone, or under one that only root can see" {
	local nothing="CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=UNSET CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=UNSET"
	listen
	export CUDA_MPS_PIPE_DIRECTORY=$WORK/mps
	same "$(show "$mps_names" -N1 -w n1 -n1 --gres=gpu:1 --ddp)" "0@n1 DDP_SHARE=1 $nothing"
	stop_listening
	same "$(show "$mps_names" -N1 -w n1 -n1 --gres=shard:2 --ddp)" "0@n1 DDP_SHARE=0.25 $nothing"
	# The plugin must not look with root's eyes.
	[ "$(id -u)" -eq 0 ] || return 0
	mkdir -m 700 "$TOP/mps"
	mkfifo "$TOP/mps/control"
	export CUDA_MPS_PIPE_DIRECTORY=$TOP/mps
	same "$(show "$mps_names" -N1 -w n1 -n1 --gres=shard:2 --ddp)" "0@n1 DDP_SHARE=0.25 $nothing"
	chmod 755 "$TOP/mps"
	has "$(show "$mps_names" -N1 -w n1 -n1 --gres=shard:2 --ddp)" 'CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25'
}

@test "ddp-train on shards: on CPUs where no driver is, which it says in one line; nothing of NCCL" {
	[ ! -e /dev/nvidiactl ] || skip "this machine has GPUs"
	try mc srun -N1 -w n1 -n4 --gres=shard:8 --ddp ddp-train mnist --samples 400 -e 1 -b 20
	same "$rc" 0
	has "$out" '^4 ranks on 1 node, cpu: '
	same "$(wc -l <<<"$err")" 1
	has "$err" '^ddp-train: warning: computing on CPUs: rank 0 on n1: no driver for GPUs'
	has "$out" '^epoch 1: train loss '
}

@test "ddp-shard.job trains as it is" {
	install -m 644 "$DDP_SRCDIR/job-templates/ddp-shard.job" "$WORK"
	job=$(mc sbatch --parsable ddp-shard.job)
	within 90 grep -q '^epoch 1 step ' "$WORK/ddp-shard-$job.out"
	has "$(<"$WORK/ddp-shard-$job.out")" '^2 ranks on 2 nodes, '
	mc scancel --signal=USR1 "$job"
	within 60 gone "$job"
	has "$(<"$WORK/ddp-shard-$job.out")" '^stopped by SIGUSR1 at step [0-9]+ of epoch 1'
	compgen -G "$WORK/ddp-shard-checkpoints/*.safetensors"
	[ -s "$WORK/ddp-shard-$job.html" ]
}
