# SPDX-License-Identifier: Apache-2.0
# Each framework in README.md's table "Frameworks", unmodified and in the table's version, trains
# one step on two nodes with two ranks each (clients.py), started by the table's command. Other
# tests check ddp-run's reports from dumps of PyTorch's flight recorder, in which one rank does not
# arrive in a collective (recorder.py).
#
# "contrib/check clients" installs the frameworks. DDP_CLIENTS names a Python that has them.
# DDP_COMPOSER names a Python that has Composer, which needs an older PyTorch.

DDP_PYTHON=$DDP_CLIENTS
load ../cluster/lib
load ../interop/torch

setup_file()
{
	export PATH=${DDP_CLIENTS%/*}:$PATH
	torch_up --nodes 2 --cpus 4 || return 1
	install -m 644 "$BATS_TEST_DIRNAME"/{clients,recorder}.py "$PY"
	install -m 755 "$DDP_BUILDDIR/runtime/run/ddp-run" "$TOP/ddp-run"
	# Offline, on CPUs, with one thread, without warnings.
	export HF_HUB_OFFLINE=1 JAX_PLATFORMS=cpu DS_ACCELERATOR=cpu OMP_NUM_THREADS=1 PYTHONWARNINGS=ignore
	# DeepSpeed compiles C++ code when it is first used.
	export MC_SECONDS=300
}
teardown_file() { cluster_down; }
teardown() { find "$WORK" -mindepth 1 -delete; }

# has_package NAME: skips the test if Python has no package NAME.
has_package()
{
	local version
	version=$("$PYTHON" -c 'import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))' "$1" 2>/dev/null) ||
		skip "pip has no $1 in $PYTHON"
	echo "# $1 $version" >&3
}

four="rank 0 of 4 on n1: w -2.5
rank 1 of 4 on n1: w -2.5
rank 2 of 4 on n2: w -2.5
rank 3 of 4 on n2: w -2.5"

# trains ARGUMENT...: runs srun with these arguments. The four ranks must train one step.
trains()
{
	step "$@"
	same "$(grep '^rank ' <<<"$output")" "$four"
}

# client PACKAGE NAME: checks that function NAME of clients.py trains with PACKAGE, with two tasks
# on each of two nodes.
client()
{
	has_package "$1"
	trains -N2 --ntasks-per-node=2 --ddp python3 "$PY/clients.py" "$2"
}

@test "PyTorch: DistributedDataParallel" { client torch pytorch; }
@test "PyTorch: FSDP2, with a checkpoint of torch.distributed.checkpoint" { client torch fsdp; }

@test "torchrun" {
	has_package torch
	trains -N2 --ntasks-per-node=1 --ddp torchrun --nproc-per-node=2 "$PY/clients.py" pytorch
}

@test "Lightning" { client lightning lightning; }
@test "Lightning under ddp-run: after a rank is killed, the training continues from Lightning's checkpoint" {
	has_package lightning
	try mc "$TOP/ddp-run" -N2 --ntasks-per-node=2 python3 "$PY/clients.py" lightning_again
	[ "$rc" -eq 0 ] || { tail -n 60 "$TOP/err" >&2; return 1; }
	same "$(grep ': w ' <<<"$out" | sort)" "${four//-2.5/-12.5}"
	# two epochs before rank 1 is killed, three after that
	same "$(grep -c '^rank 0 begins epoch [01]$' <<<"$out")" 2
	same "$(grep '^rank 3 begins epoch' <<<"$out" | sort | uniq -c | awk '{ print $1, $NF }' | tail -n 2)" $'1 3\n1 4'
	has "$err" '^rank 1 on n1, pid [0-9]+, failed first: killed by SIGKILL$'
}

@test "Accelerate" { client accelerate accelerate; }

# Without GPUs, accelerate ignores the requested number and starts one process per machine.
@test "accelerate launch" {
	has_package accelerate
	# shellcheck disable=SC2016 # expanded by the task's shell
	step -N2 --ntasks-per-node=1 --ddp sh -c 'exec accelerate launch --cpu --num_processes 2 --num_machines $GROUP_WORLD_SIZE \
		--machine_rank $GROUP_RANK --main_process_ip $MASTER_ADDR --main_process_port $MASTER_PORT "$0" accelerate' \
		"$PY/clients.py"
	same "$(grep '^rank ' <<<"$output")" "rank 0 of 2 on n1: w -1.5
rank 1 of 2 on n2: w -1.5"
}

@test "Transformers: Trainer" { client transformers transformers; }
@test "DeepSpeed" { client deepspeed deepspeed; }
@test "JAX" { client jax jax; }
@test "Flax" { client flax flax; }

@test "JAX: two steps of one job at once" {
	has_package jax
	output=$(mc salloc -Q -N2 --ntasks-per-node=4 sh -c '
		for n in 1 2; do
			srun --overlap -N2 -n4 --ntasks-per-node=2 --ddp python3 "$0" jax & all="$all $!"
		done
		for n in $all; do wait $n || exit; done' "$PY/clients.py" 2>"$TOP/err") || { cat "$TOP/err" >&2; return 1; }
	same "$(grep '^rank ' <<<"$output" | sort)" "$(sort <<<"$four"$'\n'"$four")"
}

@test "Composer" {
	[ "${DDP_COMPOSER:-}" ] || skip "DDP_COMPOSER names no Python that has it"
	PYTHON=$DDP_COMPOSER PATH=${DDP_COMPOSER%/*}:$PATH
	client mosaicml composer
}

@test "Ignite" { client pytorch-ignite ignite; }

@test "submitit" {
	has_package submitit
	mc python3 "$PY/clients.py" submitit >"$TOP/out" 2>"$TOP/err" || { cat "$TOP/err" >&2; return 1; }
	output=$(<"$TOP/out")
	same "$(grep '^rank ' <<<"$output" | sort)" "$four"
}

@test "mpi4py" {
	has_package mpi4py
	# Both nodes are this machine, so Open MPI would use shared memory.
	OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=lo trains -N2 --ntasks-per-node=2 --mpi=pmix --ddp python3 "$PY/clients.py" mpi4py
}

# recorded CASE: runs recorder.py CASE under ddp-run.
recorded()
{
	has_package torch
	"$PYTHON" -c 'import torch; torch._C._distributed_c10d._dump_fr_trace_file' 2>/dev/null ||
		skip "this PyTorch has no flight recorder that writes a file without NCCL"
	PATH=$TOP:$PATH
	run_once --hang 3 -N2 -n3 python3 "$PY/recorder.py" "$1"
	same "$(field kind flight_recorder_dumps)" "hang 3"
}

@test "PyTorch's flight recorder: a hang, and which rank did not arrive in which collective" {
	recorded all
	said="did not arrive in #5 gloo:all_reduce 100 Float: rank 2"
	same "$(field first.rank first.state first.why)" "2 S it $said"
	same "$(field collectives)" "$said"
	same "$(field ranks.0.collective ranks.0.waits ranks.0.missing)" "#5 gloo:all_reduce 100 Float True False"
	same "$(field ranks.2.collective ranks.2.waits ranks.2.missing)" "#4 gloo:barrier False True"
	has "$text" "^rank 2 on n2, pid [0-9]+: it $said\$"
	has "$text" "^collectives: $said\$"
}

@test "PyTorch's flight recorder: a rank that did not arrive in a collective of a group of two" {
	recorded pair
	said="did not arrive in #2 gloo:all_reduce 1000 Float of group pair: rank 1"
	same "$(field first.rank first.why)" "1 it $said"
	same "$(field collectives ranks.2.missing)" "$said False"
}
