#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# PyTorch's torchrun under ddp-run and between nodes, and the Python lines of doc/restarts.md.

load ../cluster/lib
load torch

setup_file()
{
	torch_up --nodes 3 --gpus 0 --conf KillWait=5
	install -m 755 "$DDP_BUILDDIR/runtime/run/ddp-run" "$TOP/ddp-run"
	mkdir -m 755 "$WORK/job-templates"
	cp "$DDP_SRCDIR"/job-templates/torch-ddp.py "$WORK/job-templates"
	# The result of two ranks without a failure.
	mc srun -N2 -n2 --ddp "$PYTHON" -u job-templates/torch-ddp.py --epochs 96 --checkpoint "$TOP/tmp/undisturbed.pt" \
		>"$TOP/undisturbed" 2>"$TOP/err"
	cp -r "$DDP_SRCDIR/runtime/python/slurm_ddp" "$PY"
	PATH=$TOP:$PATH PYTHONPATH=$PY
	export PATH PYTHONPATH
}

teardown_file() { cluster_down; }

teardown()
{
	networks_down
	end_jobs
	rm -rf "$WORK"/*.out "$WORK"/*.pt "$WORK/.ddp" "$WORK/leave.py"
	same "$(ls -A "$WORK")" job-templates
}

# kill_once: waits for the third epoch, and then kills the rank below the task of rank 1 in step 0.
kill_once()
{
	local pid
	within 300 grep -q '^epoch 3: ' "$WORK/train.out"
	read -r _ pid <"$(echo "$WORK"/.ddp/failed-*.0/task-1)"
	kill -9 "$(pgrep -P "$pid" | head -n 1)"
}

# Checks that epochs, losses and weights are bit-equal to those of the training without a failure.
# Epochs that were run twice have two lines.
same_as_undisturbed()
{
	same "$(grep '^epoch' "$WORK/train.out" | sort -u)" "$(grep '^epoch' "$TOP/undisturbed" | sort)"
	"$PYTHON" - "$TOP/tmp/undisturbed.pt" "$WORK/torch-ddp.pt" <<-'END'
		import sys, torch
		one, two = (torch.load(name) for name in sys.argv[1:])
		assert one["epoch"] == two["epoch"] == 95
		for name, tensor in one["model"].items():
		    assert torch.equal(tensor, two["model"][name]), name
	END
}

# python_of NUMBER: prints that block of Python lines of doc/restarts.md.
python_of() { awk -v number="$1" '/^```/ { block += /python/; inside = /python/; next } inside && block == number' "$DDP_SRCDIR/doc/restarts.md"; }

# leave_py NUMBER: prints the block for checkpoints and that block, in a program that counts steps and has a DataLoader worker.
leave_py()
{
	cat <<-'END'
		import os, signal, time
		import torch, torch.distributed as dist, torch.utils.data
		dist.init_process_group("gloo")
		rank, device, steps = dist.get_rank(), "cpu", int(os.environ["STEPS"])
		model = torch.nn.Linear(1, 1)
		optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
	END
	python_of 1
	cat <<-'END'
		print(f"{rank}: begins with {first}")
		write = save
		def save(step):
		    print(f"{rank}: leaves after {step}")
		    write(step)
		def train(step):
		    global batches
		    if step == first:
		        keep = globals().get("keep_worker")
		        batches = iter(torch.utils.data.DataLoader(range(10**8), num_workers=1, worker_init_fn=keep))
		    next(batches)
		    time.sleep(0.02)
		    if rank == 0 and step == 20:
		        print("trains")
	END
	python_of "$1"
	echo 'dist.destroy_process_group()'
}

# leave NUMBER: after SIGTERM, the ranks of leave_py stop after the same step, and the next run continues.
leave()
{
	local rc=0 step
	leave_py "$1" >"$WORK/leave.py"
	STEPS=1000000 mc salloc -Q -N2 "$TOP/ddp-run" --grace 1m "$PYTHON" -u leave.py >"$WORK/train.out" 2>"$TOP/err" 3>&- &
	within 300 grep -q '^trains$' "$WORK/train.out"
	# Slurm's daemon of n1 passes the signal on only while rank 0 exits.
	kill -STOP "$(<"$MINICLUSTER_DIR/slurmd-n1.pid")"
	pkill -TERM -f "^$TOP/ddp-run .*leave.py$"
	within 60 grep -q '^0: leaves' "$WORK/train.out" || true
	kill -CONT "$(<"$MINICLUSTER_DIR/slurmd-n1.pid")"
	wait $! || rc=$?
	same "$rc" 0
	step=$(sed -n 's/^0: leaves after //p' "$WORK/train.out")
	same "$(grep leaves "$WORK/train.out" | sort)" "0: leaves after $step
1: leaves after $step"
	has_not "$(<"$TOP/err")" 'started again'
	STEPS=$((step + 3)) mc srun -N2 --ddp "$PYTHON" -u leave.py >"$WORK/train.out" 2>"$TOP/err"
	has_not "$(<"$TOP/err")" Traceback
	same "$(sort "$WORK/train.out" | grep -v trains)" "0: begins with $((step + 1))
1: begins with $((step + 1))"
}

@test "lines of doc/restarts.md: after SIGTERM all ranks stop after the same step, and continue with the next" { leave 2; }
@test "lines of doc/restarts.md without slurm_ddp" { leave 3; }

# started_again LINE OPTION...: runs torchrun under ddp-run with these options, with a rank on each
# of two nodes. A rank is killed, and the training must still finish. The plugin must print only
# LINE, which says what happens if a rank fails.
started_again()
{
	local line=$1 rc=0
	shift
	torchrun_works
	mc salloc -Q -N2 "$TOP/ddp-run" "$PYTHON" -u -m torch.distributed.run --nproc_per_node=1 "$@" \
		job-templates/torch-ddp.py --epochs 96 --resume >"$WORK/train.out" 2>"$TOP/err" 3>&- &
	kill_once
	wait $! || rc=$?
	same "$rc" 0
	same_as_undisturbed
	same "$(grep -cE '^(srun: error: )?ddp: ' "$TOP/err")" 1
	has "$(<"$TOP/err")" "^ddp: if a rank fails, $line"
}

@test "torchrun under ddp-run: one line says that it is not needed, and ddp-run restarts the step" {
	started_again 'torch.distributed.run ends, and ddp-run starts the whole step again \(--restarts 3\), so '
	has "$(<"$TOP/err")" '^next: started again'
}

@test "torchrun --max-restarts under ddp-run: one line says who restarts what, and torchrun restarts its ranks" {
	started_again '.*\(--max-restarts 1\).*\(--restarts 3\)' --max_restarts=1
	has_not "$(<"$TOP/err")" '^next: '
}

# Creates a network namespace for each node, with an address, connected to the other's.
networks_up()
{
	local node
	NET=ddp$$
	ip netns add "$NET-n1" 2>"$TOP/why" || { unset NET; skip "no network namespaces here: $(<"$TOP/why")"; }
	ip netns add "$NET-n2"
	ip link add "$NET" netns "$NET-n1" type veth peer name "$NET" netns "$NET-n2"
	for node in 1 2; do
		ip -n "$NET-n$node" addr add "10.213.8.$node/24" dev "$NET"
		ip -n "$NET-n$node" link set "$NET" up
		ip -n "$NET-n$node" link set lo up
		echo "10.213.8.$node n$node.net"
	done >"$TOP/etc-hosts"
	echo "127.0.0.1 localhost $(uname -n)" >>"$TOP/etc-hosts"
}

networks_down()
{
	[ -n "${NET-}" ] || return 0
	ip netns del "$NET-n1" && ip netns del "$NET-n2"
}

# torchrun's store listens on the node with node rank 0. Agents can connect only if MASTER_ADDR is
# that node.
@test "torchrun with rank 0 on the second node, and a network for each node" {
	need_root
	torchrun_works
	networks_up
	printf '%s\n' n2 n1 >"$TOP/hosts"
	cat >"$TOP/inside" <<-END
		#!/bin/sh
		mount --bind "$TOP/etc-hosts" /etc/hosts || exit
		exec nsenter --net="/run/netns/$NET-\$SLURMD_NODENAME" env GLOO_SOCKET_IFNAME=$NET "\$@"
	END
	chmod 755 "$TOP/inside"
	# only root can enter a network namespace
	output=$(cd "$TOP" && SLURM_HOSTFILE=$TOP/hosts timeout -k 5 "$MC_SECONDS" "$minicluster" run \
		srun --kill-on-bad-exit=1 -n2 -m arbitrary --ddp --ddp-master-suffix=.net unshare -m "$TOP/inside" \
		torchrun --nproc_per_node=2 "$WORK/job-templates/torch-ddp.py" --backend gloo --epochs 1 2>"$TOP/err") || { cat "$TOP/err" >&2; false; }
	has "$output" '^ok world=4 sum=6$'
}
