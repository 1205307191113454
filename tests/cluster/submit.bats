# SPDX-License-Identifier: Apache-2.0
# All ways to start a --ddp step: srun, sbatch, salloc, environment variables, and from within another step.
# shellcheck disable=SC2001,SC2016,SC2030,SC2031,SC2086,SC2154

load lib

setup_file() { cluster_up --nodes 2 --cpus 8 --gpus 0; }
teardown_file() { cluster_down; }
teardown() { other_cluster_down; }

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
ours='^(RANK|WORLD_SIZE|LOCAL_RANK|MASTER_ADDR|MASTER_PORT|PET_[A-Z_]*|SLURM_DDP_STEP|DDP_(RANK|SIZE|JOB|OURS|RENDEZVOUS|INIT_METHOD|ERROR))='

# --- sbatch ---------------------------------------------------------------------------

# bats test_tags=release
@test "#SBATCH --ddp applies to every srun in the script, and sets nothing in the script itself" {
	script a.job <<-END
		#!/bin/bash
		#SBATCH -N2 -n2 --ddp
		env | grep -E '$ours'
		echo first
		srun $SHOW RANK WORLD_SIZE
		echo second
		srun $SHOW RANK WORLD_SIZE
	END
	batch a.job
	has_not "$out" "$ours"
	same "$(sed -n '1,/second/p' <<<"$out" | grep '@' | sort)" "$ranks"
	same "$(sed '1,/second/d' <<<"$out" | sort)" "$ranks"
}

@test "sbatch --ddp on the command line applies to the script's srun" {
	batch -N2 -n2 --ddp --wrap "srun $SHOW RANK WORLD_SIZE"
	same "$(sort <<<"$out")" "$ranks"
}

@test "without sbatch --ddp nothing is set, and one srun of the script can have --ddp" {
	batch -N2 -n2 --wrap "srun $SHOW RANK WORLD_SIZE; echo; srun --ddp $SHOW RANK WORLD_SIZE"
	same "$(sed '/^$/,$d' <<<"$out" | sort)" "$no_ranks"
	same "$(sed '1,/^$/d' <<<"$out" | sort)" "$ranks"
}

@test "srun --no-ddp excludes one step of a --ddp job, without a message" {
	batch -N2 -n2 --ddp --ddp-port=4444 \
		--wrap "srun --no-ddp $SHOW RANK WORLD_SIZE; echo; srun $SHOW RANK WORLD_SIZE"
	same "$(sed '/^$/,$d' <<<"$out" | sort)" "$no_ranks"
	same "$(sed '1,/^$/d' <<<"$out" | sort)" "$ranks"
}

@test "SLURM_DDP=1 works like --ddp for sbatch and srun; --ddp and --no-ddp have priority over it" {
	SLURM_DDP=1 batch -N2 -n2 --wrap "srun $SHOW RANK WORLD_SIZE"
	same "$(sort <<<"$out")" "$ranks"
	same "$(SLURM_DDP=1 show "RANK WORLD_SIZE" -N2 -n2)" "$ranks"
	same "$(SLURM_DDP=yes show "RANK WORLD_SIZE" -N2 -n2)" "$ranks"
	same "$(SLURM_DDP=0 show "RANK WORLD_SIZE" -N2 -n2)" "$no_ranks"
	same "$(SLURM_DDP=1 show "RANK WORLD_SIZE" -N2 -n2 --no-ddp)" "$no_ranks"
	same "$(SLURM_DDP=0 show "RANK WORLD_SIZE" -N2 -n2 --ddp)" "$ranks"
}

@test "plugin options of sbatch apply to the script's sruns, whose own options have priority" {
	script b.job <<-END
		#!/bin/bash
		#SBATCH -N2 -n2 --ddp --ddp-port=4444 --ddp-master-suffix=-ib --ddp-rdzv=shared
		srun $SHOW MASTER_ADDR MASTER_PORT DDP_RENDEZVOUS
		echo
		srun --ddp-port=5555 $SHOW MASTER_ADDR MASTER_PORT DDP_RENDEZVOUS
	END
	batch --ddp-master-suffix=-opa b.job
	where="DDP_RENDEZVOUS=$WORK/shared/.ddp/[^ ]*-$job"
	has "$out" "^1@n2 MASTER_ADDR=n1-opa MASTER_PORT=4444 $where\.0\.0-"
	has "$out" "^1@n2 MASTER_ADDR=n1-opa MASTER_PORT=5555 $where\.1\.0-"
}

@test "job array: each array task is a separate world" {
	batch -a 1-3 -N2 -n2 --ddp -o 'array.%a' --wrap "srun $SHOW RANK WORLD_SIZE DDP_JOB MASTER_PORT DDP_RENDEZVOUS"
	for i in 1 2 3; do
		same "$(sed 's/ DDP_JOB.*//' "$WORK/array.$i" | sort)" "$ranks"
		same "$(sed 's/.* DDP_JOB/DDP_JOB/' "$WORK/array.$i" | sort -u | wc -l)" 1
	done
	same "$(cat "$WORK"/array.[123] | sed 's/.* DDP_JOB=\([^ ]*\) .*/\1/' | sort -u | wc -l)" 3
	same "$(cat "$WORK"/array.[123] | sed 's/.* DDP_RENDEZVOUS=//' | sort -u | wc -l)" 3
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

# --- salloc and terminals -------------------------------------------------------------

@test "salloc --ddp applies to every srun in its shell, and sets nothing in the shell itself" {
	got=$(mc salloc -Q -N2 -n2 --ddp --ddp-port=4444 bash -c '
		env
		srun "$0" RANK WORLD_SIZE
		srun --no-ddp "$0" RANK WORLD_SIZE >&2' "$SHOW" 2>"$TOP/err")
	has_not "$got" "$ours"
	same "$(tasks "$got")" "$ranks"
	same "$(tasks "$(<"$TOP/err")")" "$no_ranks"
}

@test "srun --pty --ddp: the interactive task is a rank" {
	# script(1) runs $SHELL, or else the user's login shell. SHELL may be unset in CI, and nobody has no login shell.
	got=$(cd "$WORK" && SHELL=/bin/bash as_user timeout -k 5 120 script -qec \
		"$minicluster run srun --pty -N1 -w n1 -n1 --ddp bash -c 'test -t 0 && $SHOW RANK WORLD_SIZE'" \
		/dev/null </dev/null | tr -d '\r')
	has "$got" '0@n1 RANK=0 WORLD_SIZE=1$'
}

# bats test_tags=release
@test "salloc --ddp with use_interactive_step: its shell is no rank, the tasks of its srun are" {
	other_cluster --nodes 2 --gpus 0 --conf LaunchParameters=use_interactive_step
	script typed <<-END
		test -n "\$SLURM_NODEID" && echo "shell on \$SLURMD_NODENAME, rank \${RANK-none} \${SLURM_DDP_STEP-none}"
		srun $SHOW RANK WORLD_SIZE
		exit
	END
	# Slurm starts the interactive step as "srun ... $SHELL". SHELL may be unset in CI.
	got=$(cd "$WORK" && SHELL=/bin/bash as_user timeout -k 5 120 \
		script -qec "$minicluster run salloc -Q -N2 -n2 --ddp" \
		/dev/null <"$WORK/typed" | tr -d '\r')
	has "$got" 'shell on n1, rank none none$'
	has "$got" '0@n1 RANK=0 WORLD_SIZE=2$'
	has "$got" '1@n2 RANK=1 WORLD_SIZE=2$'
}

# --- Nested steps ---------------------------------------------------------------------

inner_names="RANK WORLD_SIZE LOCAL_WORLD_SIZE DDP_JOB MASTER_PORT PET_NNODES TORCHELASTIC_RUN_ID SLURM_DDP_STEP"

@test "srun --ddp in a task of a --ddp step: a separate world, and no inherited value counts as the user's" {
	script outer <<-END
		#!/bin/bash
		[ "\$SLURM_PROCID" = 0 ] || exit 0
		echo "outer \$MASTER_PORT \$DDP_JOB \$DDP_RENDEZVOUS"
		srun --overlap -N1 -w n1 -n3 --ntasks-per-node=3 --ddp $SHOW $inner_names DDP_RENDEZVOUS 2>inner.err
	END
	got=$(mc salloc -Q -N2 -n6 --ntasks-per-node=3 srun --overlap -N2 -n2 --ntasks-per-node=1 --ddp ./outer)
	read -r _ port job directory <<<"$(grep outer <<<"$got")"
	has "$job" '\.0$'
	inner=$(tasks "$got")
	same "$(sed 's/ MASTER_PORT.*//' <<<"$inner")" "0@n1 RANK=0 WORLD_SIZE=3 LOCAL_WORLD_SIZE=3 DDP_JOB=${job%.0}.1
1@n1 RANK=1 WORLD_SIZE=3 LOCAL_WORLD_SIZE=3 DDP_JOB=${job%.0}.1
2@n1 RANK=2 WORLD_SIZE=3 LOCAL_WORLD_SIZE=3 DDP_JOB=${job%.0}.1"
	rest=$(sed 's/.* MASTER_PORT/MASTER_PORT/' <<<"$inner" | sort -u)
	has "$rest" "^MASTER_PORT=[0-9]+ PET_NNODES=UNSET TORCHELASTIC_RUN_ID=${job%.0}.1 SLURM_DDP_STEP=UNSET DDP_RENDEZVOUS=/"
	same "$(wc -l <<<"$rest")" 1
	has_not "$rest" "MASTER_PORT=$port "
	has_not "$rest" "DDP_RENDEZVOUS=$directory\$"
	same "$(<"$WORK/inner.err")" ""
}

@test "variables that the user set for the outer step apply to the inner step too" {
	script outer <<-END
		#!/bin/bash
		srun --overlap -n1 --ddp $SHOW MASTER_ADDR MASTER_PORT OMP_NUM_THREADS
	END
	got=$(MASTER_ADDR=my.host OMP_NUM_THREADS=3 mc salloc -Q -N1 -w n1 -n1 srun --overlap --ddp ./outer)
	has "$got" "^0@n1 MASTER_ADDR=my\.host MASTER_PORT=[0-9]+ OMP_NUM_THREADS=3$"
}

@test "srun without --ddp in a --ddp step keeps the inherited variables" {
	script outer <<-END
		#!/bin/bash
		echo "\$RANK \$WORLD_SIZE \$DDP_JOB"
		srun --overlap -n2 $SHOW RANK WORLD_SIZE DDP_JOB SLURM_DDP_STEP 2>&1
	END
	got=$(mc salloc -Q -N1 -w n1 -n2 srun --overlap -n1 --ddp ./outer)
	read -r rank size job <<<"$(head -n 1 <<<"$got")"
	same "$rank $size" "0 1"
	same "$(tasks "$got")" "0@n1 RANK=0 WORLD_SIZE=1 DDP_JOB=$job SLURM_DDP_STEP=UNSET
1@n1 RANK=0 WORLD_SIZE=1 DDP_JOB=$job SLURM_DDP_STEP=UNSET"
}

@test "sbatch in a task of a --ddp step: the new job's step has its own world and endpoint" {
	script outer <<-END
		#!/bin/bash
		[ "\$SLURM_PROCID" = 0 ] || exit 0
		echo "\$MASTER_PORT \$DDP_JOB"
		sbatch --parsable -N1 -w n2 -n2 --ntasks-per-node=2 -o new.out \
			--wrap "env | grep ^SLURM_DDP_STEP; srun --ddp $SHOW $inner_names"
	END
	got=$(mc srun -N2 -n2 --ddp ./outer)
	read -r port old <<<"$(head -n 1 <<<"$got")"
	job=$(tail -n 1 <<<"$got")
	within 60 gone "$job"
	out=$(<"$WORK/new.out")
	has "$old" '^mini.*\.0$'
	has_not "$out" '^SLURM_DDP_STEP|replaced'
	same "$(sed 's/ MASTER_PORT.*//' <<<"$out" | sort)" "0@n2 RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 DDP_JOB=${old%%.*}.$job.0
1@n2 RANK=1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 DDP_JOB=${old%%.*}.$job.0"
	rest=$(sed 's/.* MASTER_PORT/MASTER_PORT/' <<<"$out" | sort -u)
	has "$rest" "^MASTER_PORT=[0-9]+ PET_NNODES=UNSET TORCHELASTIC_RUN_ID=UNSET SLURM_DDP_STEP=UNSET$"
	same "$(wc -l <<<"$rest")" 1
}

@test "a step that starts the daemons of an MPI launcher gets no variables" {
	for name in orted prted hydra_bstrap_proxy; do
		as_user cp "$SHOW" "$WORK/$name"
		try mc srun -N1 -w n1 -n2 --ddp "./$name" RANK WORLD_SIZE MASTER_PORT DDP_JOB SLURM_DDP_STEP
		same "$(sort <<<"$out")" "0@n1 RANK=UNSET WORLD_SIZE=UNSET MASTER_PORT=UNSET DDP_JOB=UNSET SLURM_DDP_STEP=UNSET
1@n1 RANK=UNSET WORLD_SIZE=UNSET MASTER_PORT=UNSET DDP_JOB=UNSET SLURM_DDP_STEP=UNSET"
		has_not "$err" ddp:
	done
	as_user cp "$SHOW" "$WORK/orted-not"
	has "$(mc srun -N1 -w n1 -n1 --ddp ./orted-not RANK)" RANK=0
}

@test "mpirun in a --ddp job: the plugin sets nothing for its ranks" {
	type mpirun >/dev/null 2>&1 || skip "no mpirun here"
	batch -N2 -n2 --ddp --wrap "mpirun -n 2 $SHOW RANK WORLD_SIZE"
	has "$out" '^[0-9]*@n[12] RANK=UNSET WORLD_SIZE=UNSET$'
	has_not "$out" 'RANK=[0-9]'
}

# --- Wrong values ---------------------------------------------------------------------

# refused COMMAND OPTION LINE: checks that COMMAND fails, and that LINE is the plugin's only message.
refused()
{
	local command=$1 option=$2 line=$3
	case $command in
	sbatch) try mc sbatch -n1 --ddp "$option" --wrap true ;;
	*) try mc "$command" -n1 --ddp "$option" true ;;
	esac
	if [ "$rc" -eq 0 ]; then
		echo "$command $option was not refused" >&2
		return 1
	fi
	same "$(grep 'ddp: ' <<<"$err")" "$command: error: ddp: $line"
}

@test "srun, sbatch and salloc refuse a wrong option value with one line that has the remedy" {
	for command in srun sbatch salloc; do
		refused $command --ddp-port=foo \
			"--ddp-port=foo is not a port or a range of ports; write P or LO-HI, 1 to 65535"
		refused $command --ddp-port=9000-8000 \
			"--ddp-port=9000-8000 is not a port or a range of ports; write P or LO-HI, 1 to 65535"
		refused $command --ddp-local-rank=node "--ddp-local-rank=node: choose one of auto|task|device"
		refused $command --ddp-share=all "--ddp-share=all: choose one of auto|off|torch"
		refused $command '--ddp-rdzv=/a?b' \
			"--ddp-rdzv=/a?b: '?' cannot be part of a rendezvous URL; choose another directory"
		refused $command --ddp-master-suffix=a/b \
			"--ddp-master-suffix=a/b: a host name has letters, digits, '.', '-' and '_' only"
	done
	same "$(mc squeue -h)" ""
}

@test "sbatch refuses a wrong option value in #SBATCH" {
	script wrong.job <<-'END'
		#!/bin/bash
		#SBATCH --ddp --ddp-port=foo
		true
	END
	try mc sbatch wrong.job
	[ "$rc" -ne 0 ]
	has "$err" '^sbatch: error: ddp: --ddp-port=foo is not a port'
}

@test "a wrong value in an environment variable: an error for a --ddp step, and DDP_ERROR instead of a rank" {
	try env SLURM_DDP_PORT=foo "$BASH" -c ':'
	SLURM_DDP_PORT=foo try mc srun -N1 -w n1 -n1 --ddp "$SHOW" RANK DDP_ERROR
	line="SLURM_DDP_PORT=foo is not a port or a range of ports; write P or LO-HI, 1 to 65535"
	same "$(grep ddp: <<<"$err")" "srun: error: ddp: $line"
	[ -z "$out" ] || same "$out" "0@n1 RANK=UNSET DDP_ERROR=$line"
	SLURM_DDP=maybe try mc srun -N1 -w n1 -n1 "$SHOW" RANK DDP_ERROR
	has "$err" "^srun: error: ddp: SLURM_DDP=maybe is neither 1 nor 0"
}

@test "without --ddp a wrong value in an environment variable is ignored" {
	SLURM_DDP_PORT=foo try mc srun -N1 -w n1 -n1 "$SHOW" RANK DDP_ERROR SLURM_DDP_STEP
	same "$rc $out" "0 0@n1 RANK=UNSET DDP_ERROR=UNSET SLURM_DDP_STEP=UNSET"
	has_not "$err" ddp:
	SLURM_DDP_PORT=foo try mc sbatch -n1 -o /dev/null --wrap true
	same "$rc" 0
	has_not "$err" ddp:
}

@test "a plugin option without --ddp has no effect, with a message" {
	try mc srun -N1 -w n1 -n1 --ddp-port=4444 "$SHOW" RANK MASTER_PORT
	same "$rc $out" "0 0@n1 RANK=UNSET MASTER_PORT=UNSET"
	same "$(grep ddp: <<<"$err")" "ddp: --ddp-port does nothing without --ddp"
	batch -n1 --ddp-verbose --wrap "srun true"
	same "$out" "ddp: --ddp-verbose does nothing without --ddp"
}

# --- Launchers ------------------------------------------------------------------------

# Creates a torchrun that records that it ran, and prints variables.
fake_torchrun()
{
	as_user tee "$WORK/torchrun" >/dev/null <<-END
		#!/bin/bash
		echo ran >>ran
		exec "$SHOW" PET_NNODES PET_NODE_RANK
	END
	as_user chmod +x "$WORK/torchrun"
}

@test "torchrun in several tasks of a node, or with --standalone on several, is refused before it runs; --ddp-launcher=allow runs it" {
	fake_torchrun
	for arguments in "-N2 --ntasks-per-node=2 ./torchrun" "-N1 -n2 ./torchrun" "-N2 -n2 ./torchrun --standalone"; do
	# shellcheck disable=SC2086
		try mc srun --ddp $arguments
		same "$rc:$out" "1:"
		same "$(grep -c 'srun: error: ddp: torchrun' <<<"$err")" 1
		has "$err" '--ntasks-per-node=1.*--ddp-launcher=allow'
		[ ! -e "$WORK/ran" ]
	done
	try mc srun -N2 -n2 --ddp --ddp-launcher=allow ./torchrun --standalone
	same "$rc:$(sort <<<"$out"):$err" "0:0@n1 PET_NNODES=UNSET PET_NODE_RANK=UNSET
1@n2 PET_NNODES=UNSET PET_NODE_RANK=UNSET:"
	try mc env SLURM_DDP_LAUNCHER=allow srun -N1 -n2 --ddp ./torchrun
	same "$rc:$(wc -l <<<"$out"):$err" "0:2:"
	try mc srun -N2 -n2 --ddp ./torchrun train.py
	same "$rc:$(sort <<<"$out"):$err" "0:0@n1 PET_NNODES=2 PET_NODE_RANK=0
1@n2 PET_NNODES=2 PET_NODE_RANK=1:"
	rm "$WORK/torchrun" "$WORK/ran"
}

@test "a shell without arguments as the program gets a message, a shell with a script does not" {
	try mc srun -n2 --ddp bash <<<'exit 0'
	same "$rc:$(grep -c ddp: <<<"$err")" 0:1
	has "$err" 'ddp: bash is a rank, .* start each program by its own srun$'
	try mc srun -n2 --ddp bash -c true
	same "$rc:$err" 0:
}

# --- Messages -------------------------------------------------------------------------

@test "--ddp-verbose, also abbreviated: each variable of rank 0 with its reason, one line for each other rank" {
	try mc srun -N2 -n2 --ddp --ddp-verb "$SHOW" DDP_JOB MASTER_PORT
	id=$(sed -n 's/^0@n1 DDP_JOB=\([^ ]*\) .*/\1/p' <<<"$out")
	port=$(sed -n 's/^0@n1 .* MASTER_PORT=//p' <<<"$out")
	for line in "set RANK=0 (SLURM_PROCID)" "set WORLD_SIZE=2 (SLURM_STEP_NUM_TASKS)" \
		"set MASTER_ADDR=127.0.0.1 (rank 0's node)" "set MASTER_PORT=$port (reserved by Slurm)" \
		"set DDP_JOB=$id (cluster.job.step)" "set PET_NNODES=2 (one task on each node)"; do
		grep -qxF "ddp: rank 0 on n1: $line" <<<"$err" || has "$err" "$line"
	done
	same "$(grep -v 'ddp: rank 0 on n1: ' <<<"$err" | grep ddp:)" \
		"ddp: rank 1 of 2 on n2: local 0 of 1, LOCAL_RANK=0, device -, share -"
	# Two values that admit a process to the job must not be printed: the nonce and NCCL's magic number.
	has "$err" "ddp: rank 0 on n1: set DDP_RENDEZVOUS=$WORK/\.ddp/[^ ]*-\* \(made for this step\)"
	has "$err" 'ddp: rank 0 on n1: set NCCL_SOCKET_MAGIC \(random number of this step\)$'
	has_not "$err" '[0-9a-f]{16}'
	# Each variable has one line.
	same "$(sed -n 's/^ddp: rank 0 on n1: [a-z]* \([A-Z_]*\).*/\1/p' <<<"$err" | sort | uniq -d)" ""
}

@test "--ddp-verbose distinguishes the user's values, and names the source of the port" {
	MASTER_ADDR=my.host SLURM_DDP_VERBOSE=1 try mc srun -N1 -w n1 -n1 --ddp --ddp-port=4444 true
	has "$err" '^ddp: rank 0 on n1: kept MASTER_ADDR=my\.host \(yours\)$'
	has "$err" '^ddp: rank 0 on n1: set MASTER_PORT=4444 \(--ddp-port\)$'
}

@test "without --ddp-verbose a --ddp step prints nothing" {
	try mc srun -N2 -n2 --ddp true
	same "$rc$out" 0
	has_not "$err" ddp:
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

@test "a wrong value in an environment variable, and an unusable --ddp-rdzv, are refused before anything starts" {
	for command in "srun true" "sbatch --wrap=true" "salloc true"; do
	# shellcheck disable=SC2086
		SLURM_DDP_PORT=x try mc ${command% *} --ddp ${command#* }
		has "$err" "error: ddp: SLURM_DDP_PORT=x is not a port or a range of ports; write P or LO-HI, 1 to 65535$"
		[ "$rc" -ne 0 ]
	done
	touch "$WORK/file"
	try mc srun -N1 --ddp --ddp-rdzv=file/below echo ran
	has "$err" "error: ddp: cannot open .*/file: Not a directory; choose another directory with --ddp-rdzv=DIR$"
	same "$out" ""
	[ "$rc" -ne 0 ]
}
