# SPDX-License-Identifier: Apache-2.0
# PyTorch on two nodes of a Slurm without the plugin: with ddp-exec alone, and with ddp-exec under
# ddp-run.

load ../cluster/lib
load torch

setup_file()
{
	torch_up --plugstack none --nodes 2 --gpus 0 --conf KillWait=5
	install -m 755 "$DDP_BUILDDIR"/runtime/run/ddp-run "$DDP_BUILDDIR"/runtime/launch/ddp-exec "$TOP"
	install -m 644 "$DDP_SRCDIR/job-templates/torch-ddp.py" "$PY"
}

teardown_file() { cluster_down; }
teardown() { rm -rf "${WORK:?}"/* "$WORK"/.ddp; }

@test "env://, two ranks on each of two nodes" {
	step -N2 --ntasks-per-node=2 "$TOP/ddp-exec" "$PYTHON" "$PY/checks.py"
	same "$output" "rank 0 of 4 on n1: sum 10, local rank 0
rank 1 of 4 on n1: sum 10, local rank 1
rank 2 of 4 on n2: sum 10, local rank 0
rank 3 of 4 on n2: sum 10, local rank 1"
}

@test "a DDP training continues after a rank is killed" {
	mc salloc -Q --no-kill -N2 -n2 "$TOP/ddp-run" "$PYTHON" -u "$PY/torch-ddp.py" --epochs 96 --checkpoint "$WORK/model.pt" --resume \
		>"$TOP/train.out" 2>"$TOP/err" &
	run=$!
	within 300 grep -q '^epoch 3: ' "$TOP/train.out"
	read -r _ pid < <(cat "$WORK"/.ddp/failed-*/task-1)
	kill -9 "$pid"
	wait "$run"
	has "$(<"$TOP/train.out")" '^ok world=2 sum=1$'
	has "$(<"$TOP/err")" "^rank 1 on n2, pid $pid, failed first: killed by SIGKILL\$"
	has "$(<"$TOP/err")" '^next: started again'
}
