#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# PyTorch under ddp-run, with and without torchrun between ddp-run and the ranks. A rank is killed,
# and the result must be that of a training without a failure.

load ../cluster/lib
load torch

setup_file()
{
	torch_up --nodes 3 --gpus 0 --conf KillWait=5
	install -m 755 "$DDP_BUILDDIR/runtime/run/ddp-run" "$TOP/ddp-run"
	mkdir -m 755 "$WORK/job-templates"
	cp "$DDP_SRCDIR"/job-templates/{elastic.job,torch-ddp.py} "$WORK/job-templates"
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
	end_jobs
	rm -rf "$WORK"/*.out "$WORK"/*.pt "$WORK/.ddp" "$WORK/leave.py"
	same "$(ls -A "$WORK")" job-templates
}

# kill_once RANK CHILD: waits for the third epoch, and then kills the task of that rank in step 0.
# If CHILD is 1, kills the task's child instead.
kill_once()
{
	local rank=$1 child=$2 task pid
	within 300 grep -q '^epoch 3: ' "$WORK/train.out"
	task=$(echo "$WORK"/.ddp/failed-*.0/"task-$rank")
	read -r _ pid <"$task"
	[ "$child" -eq 0 ] || pid=$(pgrep -P "$pid" | head -n 1)
	kill -9 "$pid"
	echo "$pid" >"$TOP/killed"
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

@test "elastic.job with PyTorch: a rank is killed, and the result is that of an undisturbed training" {
	mc sbatch -Q --parsable --nodes=3 -o train.out job-templates/elastic.job "$PYTHON" -u job-templates/torch-ddp.py --epochs 96 --resume
	kill_once 1 0
	within 300 grep -q '^ok world=2 sum=1$' "$WORK/train.out"
	same_as_undisturbed
	has "$(<"$WORK/train.out")" '^rank 1 on n2, pid '"$(<"$TOP/killed")"', failed first: killed by SIGKILL$'
	same "$(grep -c '^epoch 0: ' "$WORK/train.out")" 1
	has_not "$(<"$WORK/train.out")" '^(srun: error: )?ddp: '
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
	kill_once 1 1
	wait $! || rc=$?
	same "$rc" 0
	same_as_undisturbed
	same "$(grep -cE '^(srun: error: )?ddp: ' "$TOP/err")" 1
	has "$(<"$TOP/err")" "^ddp: if a rank fails, $line"
}

@test "torchrun under ddp-run: one line says that it is not needed, and ddp-run restarts the step" {
	started_again 'torch.distributed.run ends, and ddp-run starts the whole step again \(--restarts 3\); '
	has "$(<"$TOP/err")" '^next: started again'
}

@test "torchrun --max-restarts under ddp-run: one line says who restarts what, and torchrun restarts its ranks" {
	started_again '.*\(--max-restarts 1\).*\(--restarts 3\)' --max_restarts=1
	has_not "$(<"$TOP/err")" '^next: '
}

@test "torchrun whose tasks would form separate worlds: ddp-run is refused with srun's error, printed once" {
	try mc salloc -Q -N1 -n2 "$TOP/ddp-run" "$PYTHON" -m torch.distributed.run job-templates/torch-ddp.py
	same "$rc" 1
	same "$(grep -c 'torchrun starts all ranks of its node' <<<"$err")" 1
	has_not "$err" '^(next|ddp-run): '
}
