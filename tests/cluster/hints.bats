# SPDX-License-Identifier: Apache-2.0
# Commands that would train something else than intended, or wait for ever: --ddp refuses them or prints a line that says what to write.
# shellcheck disable=SC2016,SC2154

load lib

setup_file() { cluster_up --nodes 2 --cpus 8 --gpus 4 --shards 0; }
teardown_file() { cluster_down; }
teardown()
{
	end_jobs
	chmod -R u+w "$WORK"
	rm -rf "${WORK:?}"/* "$WORK/.ddp"
}

# script NAME <TEXT: creates an executable file that belongs to the user.
script()
{
	as_user tee "$WORK/$1" >/dev/null
	as_user chmod +x "$WORK/$1"
}

# --- Programs of the tasks ------------------------------------------------------------

@test "one task on nodes with several GPUs gets one warning, torchrun, accelerate launch and deepspeed get none" {
	need_gpus
	try mc srun -N2 --ntasks-per-node=1 --gres=gpu:4 --ddp true
	same "$rc:$err" "0:ddp: n1: 1 task for 4 GPUs; --ntasks-per-node=4 uses all, unless the task starts a process for each, like torchrun"
	for program in "torchrun train.py" "accelerate launch --num_machines 2 train.py" "deepspeed train.py"; do
		script "${program%% *}" <<<'#!/bin/sh'
		# shellcheck disable=SC2086
		try mc srun -N1 -n1 --gres=gpu:4 --ddp ./$program
		same "$rc:$err" "0:"
	done
}

@test "srun as the program is refused, also by ddp-exec, and --ddp-launcher=allow starts it" {
	install -m 755 "$DDP_BUILDDIR/runtime/launch/ddp-exec" "$WORK"
	for start in "srun -w n1 -n2 --ddp" "srun -w n1 -n2 ./ddp-exec"; do
		# shellcheck disable=SC2086
		try mc $start srun --overlap -n1 touch ran
		[ "$rc" -ne 0 ]
		same "$(grep -c 'error: ddp: each task\|^ddp-exec: usage error: each task' <<<"$err")" 1
		has "$err" 'write --ddp after the inner srun; --ddp-launcher=allow permits it$'
		[ ! -e "$WORK/ran" ]
	done
	try mc srun -w n1 -n1 --ddp --ddp-launcher=allow srun --overlap -n1 echo ran
	same "$rc:$out:$err" "0:ran:"
}

@test "mpirun as the program is refused in several tasks; in one task it gets a line and no variables" {
	install -m 755 "$DDP_BUILDDIR/runtime/launch/ddp-exec" "$WORK"
	as_user cp "$SHOW" "$WORK/mpirun"
	for start in "srun -w n1 -n2 --ddp" "srun -w n1 -n2 ./ddp-exec"; do
		# shellcheck disable=SC2086
		try mc $start ./mpirun RANK
		[ "$rc" -ne 0 ]
		same "$out:$(grep -c 'each of the 2 tasks would start ranks by mpirun.*srun --mpi=pmix --ddp' <<<"$err")" ":1"
	done
	try mc srun -w n1 -n1 --ddp ./mpirun RANK
	same "$rc:$out" "0:0@n1 RANK=UNSET"
	same "$err" "ddp: mpirun starts ranks, and --ddp does not set them up. Write srun --mpi=pmix --ddp python3 train.py, with a task for each rank."
}

@test "mpirun in a script with #SBATCH --ddp starts its daemons by srun without a message" {
	as_user cp "$SHOW" "$WORK/orted"
	script mpirun <<<$'#!/bin/sh\nsrun -N2 -n2 ./orted RANK WORLD_SIZE SLURM_DDP_STEP'
	batch -N2 -n2 --ddp --wrap ./mpirun
	same "$(sort <<<"$out")" "0@n1 RANK=UNSET WORLD_SIZE=UNSET SLURM_DDP_STEP=UNSET
1@n2 RANK=UNSET WORLD_SIZE=UNSET SLURM_DDP_STEP=UNSET"
}

@test "srun in a task without --overlap: rank 0 prints why it waits; no line in jobs that a task submits" {
	script inner <<-'END'
		#!/bin/bash
		timeout 2 srun -n1 true
		srun --overlap -n1 true
		SLURM_OVERLAP=1 srun -n1 true
		[ "$SLURM_PROCID" = 0 ] || exit 0
		sbatch -Q -n1 -o batch.out --wrap 'srun echo ran'
		salloc -Q -n1 srun true
	END
	try mc srun -w n1 -n2 --ddp ./inner
	same "$(grep ddp: <<<"$err" | sed 's/step [0-9]*\.0/step J.0/')" \
		"ddp: this srun runs in a task of step J.0, and waits until CPUs of the job are free. The step keeps its CPUs until it ends. Write srun --overlap to share them."
	within 60 no_jobs
	same "$(<"$WORK/batch.out")" ran
}

# --- Options and variables ------------------------------------------------------------

@test "SLURM_DDP=abc refuses the step" {
	SLURM_DDP=abc try mc srun -w n1 -n2 touch ran
	[ "$rc" -ne 0 ]
	same "$(grep ddp: <<<"$err")" "srun: error: ddp: SLURM_DDP=abc is neither 1 nor 0"
	[ ! -e "$WORK/ran" ]
}

@test "#SBATCH --ddp does not apply to jobs that the job submits, which can have their own --ddp" {
	script submit <<-END
		#!/bin/bash
		sbatch -Q -W -n1 -o inner1.out --wrap 'srun $SHOW RANK MASTER_PORT'
		sbatch -Q -W -n1 --ddp --ddp-port=5555 -o inner2.out --wrap 'srun $SHOW RANK MASTER_PORT'
		salloc -Q -n1 srun $SHOW RANK MASTER_PORT
		srun $SHOW RANK MASTER_PORT
	END
	batch -w n1 -n1 --ddp --ddp-port=4444 submit
	same "$out" "0@n1 RANK=UNSET MASTER_PORT=UNSET
0@n1 RANK=0 MASTER_PORT=4444"
	same "$(<"$WORK/inner1.out")" "0@n1 RANK=UNSET MASTER_PORT=UNSET"
	same "$(<"$WORK/inner2.out")" "0@n1 RANK=0 MASTER_PORT=5555"
}

@test "a read-only working directory with a .ddp of an earlier step: the rendezvous is in the home directory" {
	as_user mkdir -m 700 "$WORK/home" "$WORK/data" "$WORK/data/.ddp"
	as_user chmod 500 "$WORK/data/.ddp" "$WORK/data"
	USER_HOME=$WORK/home try mc_in "$WORK/data" srun -w n1 -n1 --ddp "$SHOW" DDP_RENDEZVOUS
	same "$rc:$err" "0:"
	has "$out" "DDP_RENDEZVOUS=$WORK/home/\.ddp/"
}

@test "a MASTER_PORT of the user that is reserved for root is refused" {
	[ "$(</proc/sys/net/ipv4/ip_unprivileged_port_start)" -gt 80 ] || skip "users can listen on port 80 here"
	MASTER_PORT=80 try mc srun -w n1 -n1 --ddp touch ran
	[ "$rc" -ne 0 ]
	same "$(grep ddp: <<<"$err")" \
		"slurmstepd-n1: error: ddp: usage error: port 80 is for root only. Unset MASTER_PORT, and a free port is chosen."
	[ ! -e "$WORK/ran" ]
}

@test "--ddp-verbose: each node reports that the user's MASTER_ADDR does not resolve, and the value is kept" {
	MASTER_ADDR=no.such.host.invalid try mc srun -N2 --ntasks-per-node=2 --ddp --ddp-verbose "$SHOW" MASTER_ADDR
	same "$(grep -c ' MASTER_ADDR=no\.such\.host\.invalid$' <<<"$out")" 4
	same "$(sed -n 's/^ddp: MASTER_ADDR=no\.such\.host\.invalid of your environment does not resolve on \(n[12]\) (.*)\. Unset MASTER_ADDR.*/\1/p' <<<"$err" | sort | xargs)" \
		"n1 n2"
	MASTER_ADDR=127.0.0.1 try mc srun -w n1 -n1 --ddp --ddp-verbose true
	has_not "$err" 'does not resolve'
}
