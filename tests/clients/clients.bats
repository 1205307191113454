# SPDX-License-Identifier: Apache-2.0
# Each framework in README.md's table "Frameworks", unmodified and in the table's version, trains
# one step on two nodes with two ranks each (clients.py), started by the table's command.
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
	install -m 644 "$BATS_TEST_DIRNAME/clients.py" "$PY"
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

@test "Lightning" { client lightning lightning; }
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
