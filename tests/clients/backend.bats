# SPDX-License-Identifier: Apache-2.0
# The backend "ddp" of torch.distributed with the newest PyTorch: backend.py compares it with gloo, under each program that
# starts ranks.
#
# shellcheck disable=SC2154 # rc, out and err come from try

load pytorch

setup_file()
{
	pytorch_up --nodes 2 --gpus 0
	install_runtime
	export PYTHONPATH=$INST/share/slurm-ddp/python PYTHONWARNINGS=ignore
}
teardown_file() { cluster_down; }
teardown() { rm -rf "${WORK:?}"/* "$WORK"/.ddp; }

# lines RANKS NAME...: what backend.py prints if all ranks have passed these tests, sorted.
lines()
{
	local rank name
	for ((rank = 0; rank < $1; rank++)); do
		for name in "${@:2}"; do echo "rank $rank of $1: $name"; done
	done | sort
}

@test "srun --ddp, two ranks on each of two nodes: collectives, sub-groups and DDP give gloo's results" {
	step -N2 --ntasks-per-node=2 --ddp python3 "$PY/backend.py" all_reduce others unsupported subgroups ddp
	same "$output" "$(lines 4 all_reduce others unsupported subgroups ddp)"
}

@test "ddp-exec: DDP with its options, ZeRO, FSDP2 and checkpoints give gloo's results" {
	step -N2 --ntasks-per-node=1 ddp-exec python3 "$PY/backend.py" ddp_options sync_batch_norm fsdp
	same "$output" "$(lines 2 ddp_options sync_batch_norm fsdp)"
}

@test "torch.multiprocessing.spawn, and no file is left" {
	step -n1 python3 "$PY/backend.py" spawn 2 subgroups
	same "$output" "$(lines 2 subgroups)"
	same "$(find "$TMPDIR" -name 'group-*')" ''
}

@test "a rank is killed, exits early or raises an exception: the other rank's error says so; a fork and an exit without destroy_process_group()" {
	step -N2 --ntasks-per-node=1 --ddp python3 "$PY/backend.py" each fail=killed:1 fail=exit:1 fail=raised:1 fail_async fork+leave
	has "$output" '^rank 0: killed: .*DistBackendError: .*rank 1 on n2'
	has "$output" '^rank 0: exit: .*DistBackendError: .*rank 1 on n2.* has left with ddp_destroy'
	has "$output" '^rank 0: raised: .*DistBackendError: .*rank 1 on n2 aborted: ValueError: no more data$'
	# The mismatch of the calls, or rank 0's end.
	has "$output" '^rank 1: async: .*rank 0 '
	has "$(<"$TOP/err")" 'ValueError: no more data$'
	same "$(grep ' of 2: ' <<<"$output" | grep -v fail_async)" "$(lines 2 fork 'fork, in a child' leave)"
}

@test "a PyTorch in which DistributedDataParallel could hang is refused" {
	try mc srun -n1 --ddp python3 -c 'import torch; torch.__version__ = "2.6.0+cu124"
import slurm_ddp; torch.distributed.init_process_group("ddp")'
	same "$rc" 1
	has "$err" 'RuntimeError: the backend ddp needs PyTorch 2\.7 or later, and this is 2\.6\.0\+cu124; use "gloo"$'
}

@test "rank 0 killed: no directory of a rendezvous is left" {
	try mc srun -N2 --ntasks-per-node=1 --ddp env -u DDP_RENDEZVOUS python3 "$PY/backend.py" fail=killed:0
	has "$out" '^rank 1: .*DistBackendError: .*rank 0 on n1'
	try mc srun -n1 python3 "$PY/backend.py" spawn 2 fail=killed:0
	has "$out" '^rank 0: fails'
	same "$(find "$TMPDIR" "$WORK" -name 'group-*')" ''
}

