# SPDX-License-Identifier: Apache-2.0
# All ways to start a --ddp step: srun, sbatch, salloc, environment variables, and from within another step. Commands that would
# train something else than intended, or wait for ever, are refused or get a line that says what to write.
# shellcheck disable=SC2016,SC2030,SC2031,SC2154

load lib

setup_file()
{
	cluster_up --nodes 2 --cpus 8 --gpus 0
	install -m 755 "$DDP_BUILDDIR/runtime/launch/ddp-exec" "$TOP"
	export PATH=$TOP:$PATH
}
teardown_file() { cluster_down; }
teardown()
{
	end_jobs
	chmod -R u+w "$WORK"
	rm -rf "${WORK:?}"/* "$WORK/.ddp"
	other_cluster_down
}

# script NAME <TEXT: creates an executable file that belongs to the user.
script()
{
	as_user tee "$WORK/$1" >/dev/null
	as_user chmod +x "$WORK/$1"
}

# tasks TEXT: prints the lines that show has printed, without messages.
tasks() { grep '^[0-9]*@' <<<"$1" | sort -n; }

ranks="0@n1 RANK=0 WORLD_SIZE=2
1@n2 RANK=1 WORLD_SIZE=2"
no_ranks="0@n1 RANK=UNSET WORLD_SIZE=UNSET
1@n2 RANK=UNSET WORLD_SIZE=UNSET"

# Matches the plugin's variables in the output of env, except for variables that a user's shell may have.
ours='^(RANK|WORLD_SIZE|LOCAL_RANK|MASTER_ADDR|MASTER_PORT|PET_[A-Z_]*|SLURM_DDP_STEP|DDP_(RANK|SIZE|JOB|OURS|RENDEZVOUS|INIT_METHOD))='

# --- sbatch and salloc ----------------------------------------------------------------

# bats test_tags=release
@test "#SBATCH --ddp applies to every srun of the script, whose own options have priority, and sets nothing in the script itself" {
	script a.job <<-END
		#!/bin/bash
		#SBATCH -N2 -n2 --ddp --ddp-port=4444 --ddp-master-suffix=-ib --ddp-rdzv=shared
		env | grep -E '$ours'
		echo first
		srun $SHOW MASTER_ADDR MASTER_PORT DDP_RENDEZVOUS
		srun --ddp-port=5555 $SHOW MASTER_ADDR MASTER_PORT DDP_RENDEZVOUS
		srun --no-ddp $SHOW RANK WORLD_SIZE
	END
	SLURM_DDP_STEP=v1 batch --ddp-master-suffix=-opa a.job
	where="DDP_RENDEZVOUS=$WORK/shared/.ddp/[^ ]*-$job"
	same "$(head -n 1 <<<"$out")" first
	has "$out" "^1@n2 MASTER_ADDR=n1-opa MASTER_PORT=4444 $where\.0\.0-"
	has "$out" "^1@n2 MASTER_ADDR=n1-opa MASTER_PORT=5555 $where\.1\.0-"
	same "$(tail -n 2 <<<"$out" | sort)" "$no_ranks"
}

@test "SLURM_DDP=1 works like --ddp for sbatch and srun, and one srun of a job can have --ddp" {
	SLURM_DDP=1 batch -N2 -n2 --wrap "srun $SHOW RANK WORLD_SIZE"
	same "$(sort <<<"$out")" "$ranks"
	same "$(SLURM_DDP=1 show "RANK WORLD_SIZE" -N2 -n2)" "$ranks"
	same "$(SLURM_DDP=1 show "RANK WORLD_SIZE" -N2 -n2 --no-ddp)" "$no_ranks"
	batch -N2 -n2 --wrap "srun $SHOW RANK WORLD_SIZE; srun --ddp $SHOW RANK WORLD_SIZE"
	same "$(head -n 2 <<<"$out" | sort)" "$no_ranks"
	same "$(tail -n 2 <<<"$out" | sort)" "$ranks"
}

@test "concurrent steps of a job have different DDP_JOB, ports and directories, which are removed" {
	script several.job <<-END
		#!/bin/bash
		#SBATCH -N2 -n6 --ntasks-per-node=3 --ddp
		for i in 1 2 3; do
			srun --exact -N2 -n2 --ntasks-per-node=1 ./hold several &
		done
		wait
	END
	# Waits until all six tasks run, so that the steps overlap.
	script hold <<-'END'
		#!/bin/bash
		mkdir -p "$1"
		: >"$1/$SLURM_STEP_ID.$SLURM_PROCID"
		for ((i = 0; i < 600; i++)); do
			files=("$1"/*)
			[ "${#files[@]}" -lt 6 ] || break
			sleep 0.05
		done
		[ -d "$DDP_RENDEZVOUS" ] && echo "$RANK $WORLD_SIZE $DDP_JOB $MASTER_PORT $DDP_RENDEZVOUS"
	END
	batch several.job
	same "$(cut -d ' ' -f 1,2 <<<"$out" | sort | uniq -c | sed 's/^ *//')" "3 0 2
3 1 2"
	for field in 3 4 5; do
		same "$(cut -d ' ' -f $field <<<"$out" | sort -u | wc -l)" 3
	done
	[ ! -e "$WORK/.ddp" ]
}

@test "salloc --ddp applies to every srun in its shell, and sets nothing in the shell itself" {
	got=$(mc salloc -Q -N2 -n2 --ddp --ddp-port=4444 bash -c '
		env
		srun "$SHOW" RANK WORLD_SIZE
		srun --no-ddp "$SHOW" RANK WORLD_SIZE >&2' 2>"$TOP/err")
	has_not "$got" "$ours"
	same "$(tasks "$got")" "$ranks"
	same "$(tasks "$(<"$TOP/err")")" "$no_ranks"
}

# terminal COMMAND...: runs a minicluster command in a terminal. script(1) runs $SHELL, or else the user's login shell. SHELL may be
# unset in CI, and nobody has no login shell.
terminal()
{
	(cd "$WORK" && SHELL=/bin/bash as_user timeout -k 5 120 script -qec "$minicluster run $*" /dev/null | tr -d '\r')
}

@test "srun --pty --ddp: the interactive task is a rank" {
	has "$(terminal srun --pty -w n1 -n1 --ddp bash -c "'test -t 0 && $SHOW RANK WORLD_SIZE'" </dev/null)" '0@n1 RANK=0 WORLD_SIZE=1$'
}

# bats test_tags=release
@test "salloc --ddp with use_interactive_step: its shell is no rank, the tasks of its srun are" {
	other_cluster --nodes 2 --gpus 0 --conf LaunchParameters=use_interactive_step
	script typed <<-END
		test -n "\$SLURM_NODEID" && echo "shell on \$SLURMD_NODENAME, rank \${RANK-none} \${SLURM_DDP_STEP-none}"
		srun $SHOW RANK WORLD_SIZE </dev/null
		exit
	END
	got=$(terminal salloc -Q -N2 -n2 --ddp <"$WORK/typed")
	has "$got" 'shell on n1, rank none none$'
	has "$got" '0@n1 RANK=0 WORLD_SIZE=2$'
	has "$got" '1@n2 RANK=1 WORLD_SIZE=2$'
}

@test "salloc --ddp with use_interactive_step, on a node without the plugin: no task of its srun trains alone" {
	need_root
	other_cluster --nodes 2 --gpus 0 --conf LaunchParameters=use_interactive_step
	: >"$TOP/empty"
	slurmd_n2 "mount --bind '$TOP/empty' '$MINICLUSTER_DIR/plugstack.conf'"
	printf '%s\n' "srun $SHOW RANK MASTER_PORT </dev/null" exit >"$WORK/typed"
	got=$(terminal salloc -Q -w n2 --ddp <"$WORK/typed")
	has "$got" '0@n2 RANK=-1 \(ddp.so is not loaded on this node\) MASTER_PORT=-1 \(ddp.so is not loaded on this node\)$'
}

# --- From within a step ---------------------------------------------------------------

@test "in a task: srun --ddp and sbatch start separate worlds without an inherited value, srun without --ddp keeps all values" {
	names="RANK WORLD_SIZE DDP_JOB MASTER_PORT PET_NNODES SLURM_DDP_STEP"
	script outer <<-END
		#!/bin/bash
		[ "\$SLURM_PROCID" = 0 ] || exit 0
		echo "outer \$MASTER_PORT \$DDP_JOB"
		srun --overlap -N1 -w n1 -n2 --ntasks-per-node=2 --ddp $SHOW $names
		srun --overlap -N1 -w n1 -n1 $SHOW $names
		sbatch --parsable -N1 -w n2 -n2 --ntasks-per-node=2 -o new.out --wrap "srun --ddp $SHOW $names"
	END
	try mc salloc -Q -N2 -n4 --ntasks-per-node=2 srun --overlap -N2 -n2 --ntasks-per-node=1 --ddp ./outer
	has_not "$err" ddp:
	read -r _ port step <<<"$(grep outer <<<"$out")"
	job=$(tail -n 1 <<<"$out")
	has "$step" '^mini[0-9]+\.[0-9]+\.0$'
	has "$out" "^0@n1 RANK=0 WORLD_SIZE=2 DDP_JOB=${step%.0}.1 MASTER_PORT=[0-9]+ PET_NNODES=-1 [^=]*=1\) SLURM_DDP_STEP=UNSET$"
	has "$out" "^1@n1 RANK=1 WORLD_SIZE=2 DDP_JOB=${step%.0}.1 MASTER_PORT=[0-9]+ PET_NNODES=-1 [^=]*=1\) SLURM_DDP_STEP=UNSET$"
	has "$out" "^0@n1 RANK=0 WORLD_SIZE=2 DDP_JOB=$step MASTER_PORT=$port PET_NNODES=2 SLURM_DDP_STEP=UNSET$"
	same "$(grep -c "MASTER_PORT=$port " <<<"$out")" 1
	within 60 gone "$job"
	same "$(sed 's/ MASTER_PORT=[0-9]*//' "$WORK/new.out" | sort)" "0@n2 RANK=0 WORLD_SIZE=2 DDP_JOB=${step%%.*}.$job.0 PET_NNODES=-1 (torchrun needs --ntasks-per-node=1) SLURM_DDP_STEP=UNSET
1@n2 RANK=1 WORLD_SIZE=2 DDP_JOB=${step%%.*}.$job.0 PET_NNODES=-1 (torchrun needs --ntasks-per-node=1) SLURM_DDP_STEP=UNSET"
}

@test "a step that starts the daemons of an MPI launcher gets no variables, nor do the ranks of mpirun" {
	as_user cp "$SHOW" "$WORK/orted"
	try mc srun -w n1 -n1 --ddp ./orted RANK MASTER_PORT DDP_JOB SLURM_DDP_STEP
	same "$out:$err" "0@n1 RANK=UNSET MASTER_PORT=UNSET DDP_JOB=UNSET SLURM_DDP_STEP=UNSET:"
	type mpirun >/dev/null 2>&1 || skip "no mpirun here"
	batch -N2 -n2 --ddp --wrap "mpirun -n 2 $SHOW RANK WORLD_SIZE"
	has "$out" '^[0-9]*@n[12] RANK=UNSET WORLD_SIZE=UNSET$'
	has_not "$out" 'RANK=[0-9]'
}

# --- Refusals and messages ------------------------------------------------------------

@test "srun, sbatch and salloc refuse a wrong value of an option or environment variable in one line with the remedy" {
	for command in "srun true" "sbatch --wrap=true" "salloc true"; do
		try mc "${command% *}" -n1 --ddp --ddp-port=9000-8000 "${command#* }"
		[ "$rc" -ne 0 ]
		same "$(grep ddp: <<<"$err")" "${command% *}: error: ddp: --ddp-port=9000-8000 is not a port or a range of ports. Write P or LO-HI, with numbers from 1 to 65535."
		SLURM_DDP_PORT=x try mc "${command% *}" -n1 --ddp "${command#* }"
		[ "$rc" -ne 0 ]
		same "$(grep ddp: <<<"$err")" "${command% *}: error: ddp: SLURM_DDP_PORT=x is not a port or a range of ports. Write P or LO-HI, with numbers from 1 to 65535."
	done
	same "$(mc squeue -h)" ""
	touch "$WORK/file"
	try mc srun --ddp --ddp-rdzv=file/below touch ran
	[ "$rc" -ne 0 ]
	has "$err" "error: ddp: cannot open .*/file: Not a directory\. Choose another directory with --ddp-rdzv=DIR\.$"
	SLURM_DDP=maybe try mc srun -n1 "$SHOW" RANK
	has "$err" "^srun: error: ddp: SLURM_DDP=maybe is neither 1 nor 0"
	[ ! -e "$WORK/ran" ]
}

@test "a plugin option without --ddp has no effect, with a message" {
	try mc srun -w n1 -n1 --ddp-port=4444 "$SHOW" RANK MASTER_PORT
	same "$rc:$out:$err" "0:0@n1 RANK=UNSET MASTER_PORT=UNSET:ddp: --ddp-port does nothing without --ddp"
	batch -n1 --ddp-verbose --wrap "srun true"
	same "$out" "ddp: --ddp-verbose does nothing without --ddp"
}

@test "torchrun in several tasks of a node is refused before it runs; --ddp-launcher=allow runs it; a shell gets a message" {
	printf '#!/bin/sh\ntouch ran; exec %s PET_NNODES PET_NODE_RANK\n' "$SHOW" | script torchrun
	try mc srun -N1 -n2 --ddp ./torchrun
	same "$rc:$out" "1:"
	has "$err" 'srun: error: ddp: torchrun.*--ntasks-per-node=1.*--ddp-launcher=allow'
	try mc srun -N2 -n2 --ddp nice -n 5 ./torchrun --standalone train.py
	same "$rc:$out" "1:"
	has "$err" 'srun: error: ddp: with torchrun --standalone each of the 2 tasks'
	[ ! -e "$WORK/ran" ]
	try mc srun -N1 -n2 --ddp --ddp-launcher=allow ./torchrun
	same "$rc:$(wc -l <<<"$out"):$err" "0:2:"
	try mc srun -N2 -n2 --ddp --ddp-launcher=allow ./torchrun --standalone
	same "$rc:$(sort <<<"$out"):$err" "0:0@n1 PET_NNODES=UNSET PET_NODE_RANK=UNSET
1@n2 PET_NNODES=UNSET PET_NODE_RANK=UNSET:"
	try mc srun -n2 --ddp bash <<<'exit 0'
	same "$rc:$(grep -c '^ddp: bash is a rank\. .* start each program by its own srun\.$' <<<"$err")" 0:1
}

@test "--ddp-verbose: each variable of rank 0 once, with its reason and without secrets, and a line for each other rank" {
	MASTER_ADDR=my.host try mc srun -N2 -n2 --ddp --ddp-verb "$SHOW" DDP_JOB MASTER_PORT
	id=$(sed -n 's/^0@n1 DDP_JOB=\([^ ]*\) .*/\1/p' <<<"$out")
	port=$(sed -n 's/^0@n1 .* MASTER_PORT=//p' <<<"$out")
	for line in "set RANK=0 (SLURM_PROCID)" "set WORLD_SIZE=2 (SLURM_STEP_NUM_TASKS)" "kept MASTER_ADDR=my.host (yours)" \
		"set MASTER_PORT=$port (reserved by Slurm)" "set DDP_JOB=$id (cluster.job.step)" "set PET_NNODES=2 (one task on each node)"; do
		grep -qxF "ddp: rank 0 on n1: $line" <<<"$err" || has "$err" "$line"
	done
	same "$(grep -v 'ddp: rank 0 on n1: \|my.host of your environment does not resolve' <<<"$err" | grep ddp:)" \
		"ddp: rank 1 of 2 on n2: local 0 of 1, LOCAL_RANK=0, device -, share -"
	# Two values that admit a process to the job must not be printed: the nonce and NCCL's magic number.
	has "$err" "ddp: rank 0 on n1: set DDP_RENDEZVOUS=$WORK/\.ddp/[^ ]*-\* \(made for this step\)"
	has "$err" 'ddp: rank 0 on n1: set NCCL_SOCKET_MAGIC \(random number of this step\)$'
	has_not "$err" '[0-9a-f]{16}'
	same "$(sed -n 's/^ddp: rank 0 on n1: [a-z]* \([A-Z_]*\).*/\1/p' <<<"$err" | sort | uniq -d)" ""
	SLURM_DDP_VERBOSE=1 try mc srun -n1 --ddp --ddp-port=4444 true
	has "$err" '^ddp: rank 0 on n[12]: set MASTER_PORT=4444 \(--ddp-port\)$'
}

@test "srun, sbatch and salloc list each plugin option in --help" {
	for command in srun sbatch salloc; do
		try mc $command --help
		for option in --ddp --no-ddp --ddp-rdzv=DIR '--ddp-port=P\|LO-HI' --ddp-master-suffix=S \
			'--ddp-local-rank=auto\|task\|device' '--ddp-share=auto\|off\|torch' '--ddp-launcher=refuse\|allow' --ddp-verbose; do
			has "$out$err" "^ +$option( |$)"
		done
	done
}

# --- Programs of the tasks ------------------------------------------------------------

@test "srun as the program is refused, also by ddp-exec, and --ddp-launcher=allow starts it" {
	for start in "srun -w n1 -n2 --ddp" "srun -w n1 -n2 ddp-exec"; do
		# shellcheck disable=SC2086
		try mc $start srun --overlap -n1 touch ran
		[ "$rc" -ne 0 ]
		same "$(grep -c 'error: ddp: each task\|^ddp-exec: usage error: each task' <<<"$err")" 1
		has "$err" 'write --ddp after the inner srun\. Use --ddp-launcher=allow to start it anyway\.$'
		[ ! -e "$WORK/ran" ]
	done
	try mc srun -w n1 -n1 --ddp --ddp-launcher=allow srun --overlap -n1 echo ran
	same "$rc:$out:$err" "0:ran:"
}

@test "mpirun as the program is refused in several tasks; in one task it gets a line and no variables" {
	as_user cp "$SHOW" "$WORK/mpirun"
	for start in "srun -w n1 -n2 --ddp" "srun -w n1 -n2 ddp-exec"; do
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
