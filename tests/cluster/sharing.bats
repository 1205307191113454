# SPDX-License-Identifier: Apache-2.0
# ddp-info's report about ranks that share a GPU: without a driver, with a stub driver (driver.c), and with MPS.
#
# shellcheck disable=SC2016 # variables in single quotes are expanded by the task's shell
# shellcheck disable=SC2154 # rc, out and err come from try

load lib

setup_file()
{
	cluster_up --nodes 2 --cpus 8 --gpus 2 --shards 16
	install_runtime
	# Programs must not find this host's own driver: a library without functions does not count as a driver.
	mkdir -m 755 "$TOP/driver" "$TOP/none"
	cc -shared -o "$TOP/none/libcuda.so.1" -x c /dev/null
	export LD_LIBRARY_PATH=$TOP/none:$LD_LIBRARY_PATH
	for library in libcuda.so.1 libnvidia-ml.so.1; do
		cc -shared -fPIC -Wall -Werror -o "$TOP/driver/$library" "$DDP_SRCDIR/tests/cluster/driver.c"
	done
	# Engines that use host memory as GPU memory, for --device and ddp-train.
	make -C "$DDP_BUILDDIR/tests/runtime" host/ddp_gpu.la host/ddp_nccl.la >"$TOP/make.log" 2>&1
	mkdir -m 755 "$TOP/modules"
	install -m 755 "$DDP_MODULES"/ddp_*.so "$TOP/modules"
	install -m 755 "$DDP_BUILDDIR"/tests/runtime/host/.libs/ddp_*.so "$TOP/modules"
	if make -C "$DDP_BUILDDIR/tests/emulated" libemulated.la >>"$TOP/make.log" 2>&1; then
		make -C "$DDP_BUILDDIR/tests/train" emulated_cuda.la >>"$TOP/make.log" 2>&1
		install -m 755 "$DDP_BUILDDIR/tests/train/.libs/emulated_cuda.so" "$TOP/modules/ddp_cuda.so"
	else
		rm -f "$TOP/modules/ddp_cuda.so"
	fi
	# Ranks must not find this host's own MPS daemon.
	export CUDA_MPS_PIPE_DIRECTORY=$TOP/mps
}

teardown_file() { cluster_down; }

setup() { need_gpus; }

teardown()
{
	stop_listening
	end_jobs
	rm -rf "$TOP/mps" "${WORK:?}"/* "$WORK/.ddp"
}

# info SRUN_OPTION...: runs ddp-info with the stub driver.
info()
{
	LD_LIBRARY_PATH=$TOP/driver:$LD_LIBRARY_PATH try mc srun "$@" --ddp ddp-info --no-test
	same "$rc" 0
}

# Creates an MPS daemon's socket that all users may open.
listen()
{
	mkdir -m 755 "$TOP/mps"
	mps_listen "$TOP/mps/control" background_as_is
}

# warnings prints ddp-info's warnings, except those that this host has few CPUs.
warnings() { grep '^warning: ' <<<"$out" | grep -vE ' share [0-9]+ CPUs?' || true; }

gpu0=GPU-a0a0a0a0-a0a0-a0a0-a0a0-a0a0a0a0a0a0
gpu1=GPU-a1a1a1a1-a1a1-a1a1-a1a1-a1a1a1a1a1a1

@test "without a driver: ranks that share a GPU are found by Slurm's index of it" {
	try mc srun -N2 --ntasks-per-node=2 --gres=shard:4 --ddp ddp-info --no-test
	same "$rc" 0
	has "$out" '^rank  node  local +pid  CPUs +device  share  shared by  MPS  between nodes +endpoint reached$'
	has "$out" '^ +0  n1 +0/2 .* 0 +0\.25  0-1 +no '
	has "$out" '^ +3  n2 +1/2 .* 0 +0\.25  2-3 +no .* -$'
	try mc srun -N1 -w n1 -n3 --gres=gpu:2 --ddp ddp-info --no-test
	has "$out" '^ +2 .* 0\.5  0,2 +no( |$)'
	# With --gpu-bind, each rank's GPU has index 0, although the GPUs differ.
	try mc srun -N1 -w n1 -n2 --gres=gpu:2 --gpu-bind=single:1 --ddp ddp-info --no-test
	has_not "$out" 'shared by'
}

@test "with a driver: the GPU's UUID, and the share" {
	info -N1 -w n1 -n4 --gres=shard:4
	has "$out" "$gpu0 +0\.125  0-3 +no\$"
	same "$(warnings)" ""
}

@test "one rank on a part of a GPU: its share" {
	info -N1 -w n1 -n1 --gres=shard:2
	has "$out" "$gpu0 +0\.25 +no\$"
}

@test "whole GPUs, one rank on each: no columns about sharing" {
	info -N1 -w n1 -n2 --gres=gpu:2
	has_not "$out" 'shared by|MPS'
}

@test "whole GPUs, two ranks on each: shares of one half" {
	info -N1 -w n1 -n4 --gres=gpu:2
	has "$out" "$gpu0 +0\.5  0,2 +no\$"
	has "$out" "$gpu1 +0\.5  1,3 +no\$"
}

@test "two jobs on one GPU: each job lists its own ranks and shares only" {
	cat >"$WORK/job" <<-END
		#!/bin/bash
		#SBATCH -N1 -w n1 -n2 --gres=shard:2
		export LD_LIBRARY_PATH=$TOP/driver:$LD_LIBRARY_PATH
		srun --ddp bash -c '>here-\$SLURM_PROCID; until [ -e go ]; do sleep 0.1; done; ddp-info --no-test'
	END
	other=$(mc sbatch --parsable -o other "$WORK/job")
	within 60 test -e "$WORK/here-1"
	info -N1 -w n1 -n2 --gres=shard:4
	touch "$WORK/go"
	within 60 gone "$other"
	has "$out" "$gpu0 +0\.25  0-1 +no\$"
	has "$(<"$WORK/other")" "$gpu0 +0\.125  0-1 +no\$"
}

@test "MPS: the report has the thread limit that the plugin sets" {
	listen
	info -N1 -w n1 -n4 --gres=shard:8
	has "$out" "$gpu0 +0\.25  0-3 +25 % of threads\$"
	same "$(warnings)" ""
}

@test "MPS with a memory limit: the report has both limits" {
	listen
	CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=16G,1=1G info -N1 -w n1 -n4 --gres=shard:8
	has "$out" "$gpu0 +0\.25  0-3 +25 % of threads, 16G of memory\$"
}

@test "MPS with a dead daemon's socket: a warning, and sharing by time-slicing" {
	listen
	stop_listening
	info -N1 -w n1 -n4 --gres=shard:8
	has "$out" "$gpu0 +0\.25  0-3 +no\$"
	has "$(warnings)" "^warning: the MPS daemon of $TOP/mps on n1 has ended, but its socket is still there, so programs run without MPS: "
}

@test "MPS daemons of other users, with and without access, are ignored" {
	[ "$(id -u)" -eq 0 ] || skip "a second user needs root"
	listen
	chmod 600 "$TOP/mps/control" # root's, and the user has no access
	info -N1 -w n1 -n4 --gres=shard:8
	has "$out" "$gpu0 +0\.25  0-3 +no\$"
	has_not "$(warnings)" 'is gone'
	chmod 666 "$TOP/mps/control"
	chown daemon "$TOP/mps/control" # another user's, and the user has access
	info -N1 -w n1 -n4 --gres=shard:8
	has "$out" "$gpu0 +0\.25  0-3 +no\$"
}

@test "MPS daemon that does not serve this GPU: a warning, as the driver reports no MPS" {
	listen
	DRIVER_MPS=0 info -N1 -w n1 -n4 --gres=shard:8
	has "$out" "$gpu0 +0\.25  0-3 +no\$"
	has "$(warnings)" "^warning: an MPS daemon runs in $TOP/mps on n1, but the driver reports that rank 0 does not use it"
}

@test "GPUs in exclusive mode that ranks share without MPS: a warning" {
	DRIVER_MODE=3 info -N1 -w n1 -n2 --gres=shard:2
	has "$(warnings)" "^warning: $gpu0 on n1 is in exclusive mode without MPS, but ranks 0-1 share it: "
}

@test "shares larger than the free memory, and too small for a CUDA context: a warning each" {
	DRIVER_HELD=60 info -N1 -w n1 -n4 --gres=shard:4
	has "$(warnings)" "^warning: ranks 0-3 may use 32\.0 GiB of $gpu0 on n1, but only 4\.0 GiB are free: "
	cat >"$WORK/little" <<-'END'
		#!/bin/bash
		[ "$SLURM_PROCID" != 2 ] || export DDP_SHARE=0.005
		exec ddp-info --no-test
	END
	chmod 755 "$WORK/little"
	LD_LIBRARY_PATH=$TOP/driver:$LD_LIBRARY_PATH try mc srun -N1 -w n1 -n4 --gres=shard:4 --ddp "$WORK/little"
	has "$(warnings)" "^warning: rank 2's share of $gpu0 on n1 is 328 MiB, but a CUDA context needs 512 MiB; "
}

@test "shares set by the user that add up to more than the GPU: a warning" {
	cat >"$WORK/greedy" <<-'END'
		#!/bin/bash
		DDP_SHARE=0.5 exec ddp-info --no-test
	END
	chmod 755 "$WORK/greedy"
	try mc srun -N1 -w n1 -n4 --gres=shard:4 --ddp "$WORK/greedy"
	has "$(warnings)" '^warning: the shares of ranks 0-3 on GPU 0 of n1 add up to 2 of the GPU; '
}

@test "an error of the CUDA driver is reported with its text" {
	DRIVER_STATUS=805 info -N1 -w n1 -n2 --gres=shard:2
	has "$(warnings)" '^warning: rank 0 on n1 cannot use device 0; the CUDA driver reports: MPS client failed to connect \(805\)$'
}

@test "--json has the mode, ranks, shares and limits of the shared GPU" {
	listen
	LD_LIBRARY_PATH=$TOP/driver:$LD_LIBRARY_PATH try mc srun -N1 -w n1 -n4 --gres=shard:8 --ddp \
		ddp-info --no-test --json
	same "$rc" 0
	same "$(/usr/bin/python3 -c '
import json, sys
(one,) = (d := json.load(sys.stdin))["sharing"]
print(one["mode"], one["ranks"], one["uuid"], one["share_sum"], one["mps_threads"], one["enforced"])
print({(rank["memory_total"], rank["memory_share"]) for rank in d["ranks"]}, d["ranks"][0]["memory_context"])
' <<<"$out")" "MPS [0, 1, 2, 3] $gpu0 1 25 ['threads']
{(68719476736, 17179869184)} 536870912"
}

# --- All-reduce in GPU memory ---------------------------------------------------------

# device SRUN_OPTION...: runs ddp-info --device. Each node has one GPU, whose memory is host memory.
device()
{
	DDP_MODULES=$TOP/modules LD_LIBRARY_PATH=$TOP/driver:$LD_LIBRARY_PATH try mc srun "$@" --ddp \
		bash -c 'DDP_HOST_GPU=$SLURM_NODEID exec ddp-info --device --max-bytes 64K'
}

exact() { sed '1,/^in GPU memory, .*:$/d' <<<"$out" | grep -c 'GB/s  exact$'; }

@test "--device: all-reduce of ranks on one GPU is staged and exact, on one and two nodes and without shared memory" {
	device -N1 -n4 --gres=shard:4
	same "$rc" 0
	has "$out" '^in GPU memory, staged through host memory, 4 ranks share GPU 0 on '
	same "$(exact)" 5
	has_not "$out" WRONG
	device -N2 --ntasks-per-node=2 --gres=shard:4
	same "$rc" 0
	same "$(exact)" 5
	has_not "$out" WRONG
	DDP_LOCAL=off device -N1 -n2 --gres=shard:2
	same "$rc" 0
	same "$(exact)" 5
}

@test "--device fails if the engine is missing, and if the rank has no device" {
	LD_LIBRARY_PATH=$TOP/driver:$LD_LIBRARY_PATH DDP_MODULES=/nonexistent \
		try mc srun -N1 -n2 --gres=shard:2 --ddp ddp-info --device
	[ "$rc" -ne 0 ]
	has "$out" "$gpu0 +0\.125  0-1 +no\$"
	has "$err" 'no engine nccl: .*/nonexistent/ddp_nccl.so'
	try mc srun -N1 -n2 --ddp ddp-info --device
	[ "$rc" -ne 0 ]
	has "$err" 'no device is visible to this rank; ask Slurm for one'
}

# --- ddp-train on emulated GPUs --------------------------------------------------------

# train RANKS OPTION...: runs a short training. Its ranks share one emulated GPU or, with --engine cpu, use CPUs.
train()
{
	DDP_MODULES=$TOP/modules try mc srun -N1 -w n1 -n"$1" --gres=shard:4 --ddp \
		ddp-train mnist --samples 52 -b 4 --test-batch 4 -e 1 --seed 3 --amp off --deterministic --engine cuda "${@:2}"
}

need_emulation() { [ -e "$TOP/modules/ddp_cuda.so" ] || skip "built without a C++ compiler"; }

# near LIMIT A B: checks that models A and B differ, but by less than LIMIT relative to A. They differ because the CPU kernels add
# in another order.
near()
{
	/usr/bin/python3 -c '
import array, sys
def values(path):
    data = open(path, "rb").read()
    return array.array("f", data[8 + int.from_bytes(data[:8], "little"):])
a, b = map(values, sys.argv[2:])
apart = (sum((x - y) ** 2 for x, y in zip(a, b)) / sum(x * x for x in a)) ** 0.5
print(f"{sys.argv[3]} is {apart:.1e} from {sys.argv[2]}")
sys.exit(len(a) != len(b) or not 0 < apart < float(sys.argv[1]))' "$@"
}

@test "ddp-train --virtual-ranks: equal weights for four, two and one ranks on a GPU, nearly equal on CPUs" {
	need_emulation
	local ranks
	for ranks in 4 2 1; do
		train "$ranks" --virtual-ranks 4 -m "on-$ranks"
		same "$rc" 0
		has "$out" 'GPU 0, emulated'
		cmp "$WORK/on-4" "$WORK/on-$ranks"
	done
	train 4 --virtual-ranks 4 --engine cpu -m on-cpus
	same "$rc" 0
	near 1e-3 "$WORK/on-4" "$WORK/on-cpus"
}

@test "ddp-train with four ranks on a GPU: staged sums, weights nearly equal to those of CPUs" {
	need_emulation
	train 4 -m on-gpu
	same "$rc" 0
	has "$out" 'gradients: staged through host memory, 4 ranks share GPU 0 on '
	train 4 --engine cpu -m on-cpus
	same "$rc" 0
	near 1e-3 "$WORK/on-gpu" "$WORK/on-cpus"
}

# recovers OPTION...: kills one of four ranks at a random time after they have met, and later one at a random time after the first
# checkpoint. Each time the same command resumes the run. In the end the weights must be those of a run without failures.
recovers()
{
	local killed pid round
	export MC_SECONDS=300
	train 4 "$@" -e 4 -m undisturbed
	same "$rc" 0
	for round in 1 2; do
		rm "$TOP/out"
		train 4 "$@" -e 4 -c state --checkpoint-steps 1 -m model &
		# The other ranks would wait for a rank that is killed before it has met them.
		within 100 have_met
		[ "$round" -eq 1 ] || within 60 has_checkpoint
		sleep "0.$RANDOM"
		pid=$(ranks | shuf -n 1 | cut -d' ' -f1)
		[ -z "$pid" ] || kill -9 "$pid" || true # the ranks may have ended already
		echo "round $round: killed ${pid:-nobody}"
		killed=$SECONDS
		wait "$!"
		# A rank that hangs would end the command only after $MC_SECONDS.
		[ $((SECONDS - killed)) -lt 100 ]
	done
	train 4 "$@" -e 4 -c state --checkpoint-steps 1 -m model
	same "$rc" 0
	has "$out" '^resumed from the checkpoint of step '
	cmp "$WORK/undisturbed" "$WORK/model"
}

has_checkpoint() { [ -n "$(find "$WORK/state" -name "checkpoint-*.safetensors" 2>/dev/null)" ]; }

have_met() { grep -q '^4 ranks on ' "$TOP/out"; }

@test "ddp-train --virtual-ranks on a shared GPU resumes after a rank is killed, with the same weights" {
	need_emulation
	recovers --virtual-ranks 4
}

@test "ddp-train with staged sums on a shared GPU resumes after a rank is killed, with the same weights" {
	need_emulation
	recovers
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
