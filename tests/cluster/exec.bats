# SPDX-License-Identifier: Apache-2.0
# Without the plugin, ddp-exec sets the same environment as srun --ddp, for every layout of a step. A step of ddp-exec runs as one
# world, or not at all: if ddp-exec fails for any task, the step ends.
# shellcheck disable=SC2016,SC2154

load lib

setup_file()
{
	cluster_up --nodes 4 --cpus 4 --gpus 2 --shards 4
	install -m 755 "$DDP_BUILDDIR/runtime/launch/ddp-exec" "$TOP/ddp-exec"
	cat >"$TOP/envs" <<-'END'
		#!/bin/sh
		env | sed "s/^/$SLURM_PROCID@$SLURMD_NODENAME /"
	END
	cat >"$TOP/start" <<-'END'
		#!/bin/sh
		# start RANK COMMAND...: rank RANK starts a missing program, the others start COMMAND.
		rank=$1
		shift
		[ "$SLURM_PROCID" -ne "$rank" ] || set -- ./missing
		exec "$EXEC" "$@"
	END
	chmod 755 "$TOP/envs" "$TOP/start"
	export EXEC=$TOP/ddp-exec ENVS=$TOP/envs
}
teardown_file() { cluster_down; }
teardown()
{
	stop_listening
	end_jobs
	rm -rf "${WORK:?}"/* "$WORK"/.ddp
}

# Variables that differ between any two steps. In variables named _SLURM_SPANK_OPTION_x, Slurm passes options of the plugin.
step_variables='_SLURM_SPANK_OPTION_[a-z_]+|SLURM_(JOB_(START|END)_TIME|JOB_SLUID|JOB_?ID(_(HET|PACK)_GROUP_[0-9]+)?|STEP_?ID|TASK_PID|STEP_LAUNCHER_PORT|SRUN_COMM_PORT|STEP_RESV_PORTS)|_|OLDPWD|ddp|exec'

# Prints the variables that ddp-exec cannot set, according to its manual page.
limits()
{
	# Up to Slurm 22.05 a task can get the end time of the job only from slurmctld.
	slurm_at_least 23.02 || printf 'DDP_END_TIME|'
}

# normalize FILE PATTERN: prints the environments of all tasks without the variables that match PATTERN. Values that differ
# between steps are replaced by placeholders.
normalize()
{
	local port ras job rendezvous magic
	port=$(sed -n 's/^0@[^ ]* MASTER_PORT=//p' "$1")
	ras=$(sed -n 's/^0@[^ ]* NCCL_RAS_ADDR=localhost://p' "$1")
	job=$(sed -n 's/^0@[^ ]* DDP_JOB=//p' "$1")
	rendezvous=$(sed -n 's/^0@[^ ]* DDP_RENDEZVOUS=//p' "$1")
	magic=$(sed -n 's/^0@[^ ]* NCCL_SOCKET_MAGIC=//p' "$1")
	ras=${ras:-none}
	[ -n "$port" ] && [ -n "$job" ] && [ -n "$rendezvous" ] && [ -n "$magic" ] || return 1
	grep '^[0-9]*@' "$1" | grep -vE "^[^ ]* ($step_variables|BATS_[A-Z_]*|$2)=" |
		sed "s|$rendezvous|RENDEZVOUS|g; s/$job/JOB/g; s/$magic/MAGIC/g; s/:$ras\b/:RAS/g; s/$port\b/PORT/g; s/ DDP_END_TIME=[0-9]*$/ DDP_END_TIME=TIME/" | sort
}

# same_environment COMMAND [EXCEPT]: runs the shell command twice: with the option --ddp in $ddp, and with ddp-exec in $exec. The
# tasks' environments must be the same, except for variables that match EXCEPT. Without EXCEPT the messages must be the same too.
same_environment()
{
	local except
	except="$(limits)${2:-none}"
	# ddp-exec has the same options as the plugin.
	mc env ddp="--ddp --ddp-master-suffix=.fast" exec= sh -c "$1" >"$TOP/plugin" 2>"$TOP/plugin.err"
	mc env ddp= exec="$EXEC --ddp-master-suffix=.fast" sh -c "$1" >"$TOP/exec" 2>"$TOP/err"
	normalize "$TOP/plugin" "$except" >"$TOP/plugin.env"
	normalize "$TOP/exec" "$except" >"$TOP/exec.env"
	diff -U0 "$TOP/plugin.env" "$TOP/exec.env"
	grep -q ' DDP_RANK=' "$TOP/exec.env"
	[ -n "${2-}" ] || same "$(grep '^ddp' "$TOP/err" | sort)" "$(grep '^ddp' "$TOP/plugin.err" | sort)"
}

# --- Layouts --------------------------------------------------------------------------

# bats test_tags=release
@test "same environment on two nodes: block, cyclic, uneven and plane distribution" {
	same_environment 'srun -J x -w "n[1-2]" -N2 --ntasks-per-node=2 $ddp $exec $ENVS'
	same_environment 'srun -J x -w "n[1-2]" -N2 -n4 -m cyclic $ddp $exec $ENVS'
	same_environment 'srun -J x -w "n[1-2]" -N2 -n4 $ddp $exec $ENVS'
	same_environment 'srun -J x -w "n[1-2]" -N2 -n8 -m plane=2 $ddp $exec $ENVS'
}

# bats test_tags=release
@test "same environment for one task, for one task on each node, and for more tasks than CPUs" {
	same_environment 'srun -J x -w n1 -n1 $ddp $exec $ENVS'
	same_environment 'srun -J x -N4 -n4 $ddp $exec $ENVS'
	same_environment 'srun -J x -w n1 -N1 -n6 -O $ddp $exec $ENVS'
}

# bats test_tags=release
@test "same environment with -m arbitrary: rank 0 on the last node, node ranks that follow the ranks" {
	printf '%s\n' n3 n1 n1 n2 n2 n3 | as_user tee "$WORK/hosts" >/dev/null
	same_environment 'SLURM_HOSTFILE=hosts srun -J x -n6 -m arbitrary $ddp $exec $ENVS'
	printf '%s\n' n4 n2 n3 n1 | as_user tee "$WORK/hosts" >/dev/null
	same_environment 'SLURM_HOSTFILE=hosts srun -J x -n4 -m arbitrary $ddp $exec $ENVS'
}

# --- Devices ----------------------------------------------------------------------------

# bats test_tags=release
@test "same environment with GPUs: --gres, --gpus-per-task, --gpu-bind, and torchrun" {
	need_gpus
	same_environment 'srun -J x -w "n[1-2]" -N2 --ntasks-per-node=2 --gres=gpu:2 $ddp $exec $ENVS'
	same_environment 'srun -J x -w "n[1-2]" -N2 -n2 --gres=gpu:2 $ddp $exec $ENVS'
	same_environment 'srun -J x -w n1 -n2 --gpus-per-task=1 $ddp $exec $ENVS'
	same_environment 'srun -J x -w n1 -n2 --gres=gpu:2 --gpu-bind=single:1 $ddp $exec $ENVS'
	same_environment 'srun -J x -w n1 -n4 --gres=gpu:2 --gpu-bind=single:2 $ddp $exec $ENVS'
	same_environment 'srun -J x -w n1 -n1 --gres=gpu:2 --gpu-bind=single:1 $ddp $exec $ENVS'
	same_environment 'srun -J x -w n1 -n3 --gres=gpu:2 --gpu-bind=map_gpu:1,1,0 $ddp $exec $ENVS'
	cp "$ENVS" "$TOP/torchrun"
	same_environment 'srun -J x -w n1 -n1 -c4 $ddp $exec $TOP/torchrun --nproc_per_node=2'
}

# ddp-exec cannot set these variables: they depend on the number of shards of a GPU, which no variable of a task has.
shares='DDP_SHARE|DDP_OURS|XLA_PYTHON_CLIENT_MEM_FRACTION|CUPY_GPU_MEMORY_LIMIT|TF_FORCE_GPU_ALLOW_GROWTH|FLAGS_fraction_of_gpu_memory_to_use'

# bats test_tags=release
@test "same environment with shards, except for the share" {
	need_gpus
	same_environment 'srun -J x -w n1 -n2 --gres=shard:2 $ddp $exec $ENVS' "$shares"
	same_environment 'srun -J x -w "n[1-2]" -N2 -n4 --gres=shard:1 $ddp $exec $ENVS' "$shares"
}

# bats test_tags=release
@test "same environment with shards and --gpu-bind, except for the share and the devices that Slurm erased" {
	need_gpus
	same_environment 'srun -J x -w n1 -n2 --gres=shard:2 --gpu-bind=single:1 $ddp $exec $ENVS' \
		"$shares|CUDA_VISIBLE_DEVICES|DDP_DEVICE|LOCAL_RANK"
}

# --- Jobs -------------------------------------------------------------------------------

# bats test_tags=release
@test "same environment in salloc: on some nodes, with --overlap, with --preserve-env, and by job name" {
	same_environment 'salloc -Q -N4 -n8 srun -N2 -n2 -w "n[2,4]" $ddp $exec $ENVS'
	same_environment 'salloc -Q -w n1 -N1 -n4 srun -n1 --overlap $ddp $exec $ENVS'
	same_environment 'salloc -Q -w "n[1-2]" -N2 -n6 srun -N1 -n1 --preserve-env $ddp $exec $ENVS'
	same_environment 'salloc -Q -J interactive -w "n[1-2]" -N2 --ntasks-per-node=2 srun $ddp $exec $ENVS'
	same_environment 'salloc -Q -J bash -w n1 -n1 srun $ddp $exec $ENVS'
}

# bats test_tags=release
@test "same environment in a batch job, and on one component of a heterogeneous job" {
	same_environment 'cd '"$WORK"'; printf "#!/bin/sh\nsrun -N2 -n3 %s %s %s\n" "$ddp" "$exec" $ENVS >one.job; sbatch -J x -Q -W -w "n[1-2]" -N2 -n3 -o one.out one.job; cat one.out'
	# Slurm 22.05 sets this variable to cyclic or block in steps with the same layout.
	same_environment 'salloc -Q -w n3 -n1 : -w n1 -n2 srun --het-group=1 $ddp $exec $ENVS' SLURM_DISTRIBUTION
}

# bats test_tags=release
@test "same environment with the user's own values, and with --export=NONE" {
	same_environment 'MASTER_ADDR=there MASTER_PORT=2222 OMP_NUM_THREADS=3 RANK=5 srun -J x -w n1 -n2 $ddp $exec $ENVS'
	same_environment 'srun -J x -w n1 -n2 --export=NONE $ddp $exec $ENVS'
}

# --- ddp-exec itself ----------------------------------------------------------------------

# tasks SRUN_OPTION... PROGRAM [ARGUMENT...]: runs a step.
tasks() { try mc srun -J x "$@"; }

@test "--print lists the variables with their reasons, starts no program and leaves no file" {
	tasks -w 'n[1-2]' -N2 --ntasks-per-node=2 "$EXEC" --print touch ran
	same "$rc" 0
	has "$out" '^ddp: rank 0 on n1: set RANK=0 \(SLURM_PROCID\)$'
	has "$out" '^ddp: rank 0 on n1: set MASTER_PORT=[0-9]+ \(reserved by Slurm\)$'
	has "$out" "^ddp: rank 0 on n1: set DDP_RENDEZVOUS=$WORK/\.ddp/mini[0-9]+-[0-9]+\.0\.0-\* \("
	has "$out" '^ddp: rank 3 of 4 on n2: local 1 of 2, LOCAL_RANK=1, device -, share -$'
	same "$(ls -A "$WORK")" ""
}

@test "the program's exit status, arguments, input and signals pass through" {
	tasks -w n1 -n1 "$EXEC" sh -c 'exit 7'
	same "$rc" 7
	try mc sh -c 'echo text | srun -J x -w n1 -n2 "$0" -- sh -c '\''[ "$RANK" -ne 0 ] || cat; echo "$1"'\'' - "two words"' "$EXEC"
	same "$(sort <<<"$out")" $'text\ntwo words\ntwo words'
	tasks -w n1 -n2 "$EXEC" sh -c '[ $RANK -eq 1 ] || exit 0; trap "echo trapped; exit 3" TERM; kill -TERM $SLURM_TASK_PID; while :; do sleep 0.1; done'
	same "$rc:$out" 3:trapped
	# The program replaces ddp-exec, so its process is the one that Slurm started as the task.
	tasks -w n1 -n1 "$EXEC" sh -c '[ $$ -eq $SLURM_TASK_PID ] && cat /proc/$$/comm'
	same "$out" sh
}

@test "exit status 127 for a missing program, 126 for one that is not executable" {
	tasks -w n1 -n2 "$EXEC" not-there
	same "$rc:$(grep -c '^ddp-exec: n1: cannot start not-there: No such file or directory$' <<<"$err")" 127:2
	tasks -w n1 -n1 "$EXEC" /etc/passwd
	same "$rc" 126
	has "$err" '^ddp-exec: n1: cannot start /etc/passwd: Permission denied$'
}

@test "outside Slurm: one rank, and an error if SLURM_NTASKS is greater" {
	try as_user "$EXEC" sh -c 'echo $RANK $WORLD_SIZE $LOCAL_RANK $MASTER_ADDR ${DDP_RENDEZVOUS-none}'
	same "$rc:$out:$err" "0:0 1 0 localhost none:"
	SLURM_NTASKS=4 try as_user "$EXEC" true
	same "$rc" 2
	has "$err" '^ddp-exec: usage error: SLURM_NTASKS is 4, but srun did not start this process, .*\. Write srun ddp-exec, or unset SLURM_NTASKS\.$'
	try mc salloc -Q -w n1 -n2 "$EXEC" true
	same "$rc" 2
	has "$err" '^ddp-exec: usage error: SLURM_NTASKS is 2, '
}

@test "use in a batch script without srun, and wrong options, are refused in one line" {
	batch -w n1 -n2 --wrap "$EXEC true; echo \$?"
	same "$out" "ddp-exec: usage error: this is the script or shell of job $job, not a task. Write srun ddp-exec, with srun's options before ddp-exec.
2"
	tasks -w n1 -n2 "$EXEC" --ddp-share=most true
	same "$rc:$(grep -c '^ddp-exec: usage error: --ddp-share=most is not valid. Choose one of ' <<<"$err")" 2:1
	tasks -w n1 -n2 "$EXEC" -N2 true
	same "$rc:$(grep -c '^ddp-exec: usage error: -N2 is not an option of ddp-exec' <<<"$err")" 2:1
	tasks -w n1 -n2 "$EXEC" --ddp true
	same "$rc:$err" "0:"
	tasks -w n1 -n2 "$EXEC"
	same "$rc:$(grep -c '^ddp-exec: usage error: no program is given' <<<"$err")" 2:1
}

@test "under srun --ddp, and under ddp-exec, it changes no variable" {
	tasks -w n1 -n2 --ddp sh -c 'env | sort >before.$RANK; '"$EXEC"' sh -c "env | sort >after.\$RANK"; diff before.$RANK after.$RANK | grep -v " _="'
	has_not "$out" '^[<>]'
	tasks -w n1 -n2 "$EXEC" sh -c 'echo $MASTER_PORT; '"$EXEC"' sh -c "echo \$MASTER_PORT"'
	same "$rc:$(sort -u <<<"$out" | wc -l)" 0:1
}

@test "files of killed tasks do not disturb a later step with the same id" {
	local pids
	# Rank 0 waits for rank 1, but rank 1 never starts ddp-exec.
	background "$minicluster" run salloc -Q -w n1 -n2 srun -J x --chdir="$WORK" sh -c '[ $SLURM_PROCID -eq 1 ] && sleep 1000; exec '"$EXEC"' true'
	within 60 sh -c 'ls "$0"/.ddp/exec-*/*.ranks/hello' "$WORK"
	mapfile -t pids < <(pgrep -f "^$EXEC true")
	same "${#pids[@]}" 1
	old=$(basename "$WORK"/.ddp/exec-*)
	kill -9 "${pids[@]}"
	end_jobs
	# A new step has the same job and step id, as can happen after slurmctld lost its state.
	id=${old#exec-} id=${id%%.*}
	tasks -w n1 -n2 sh -c 'SLURM_JOB_ID=$0 '"$EXEC"' sh -c "echo \$DDP_JOB"' "$id"
	same "$rc:$(sort -u <<<"$out" | cut -d . -f 2)" "0:$id"
	same "$(find "$WORK/.ddp" -name 'exec-*')" ""
}

# bats test_tags=release
@test "the next step removes directories of ended jobs, not those of running jobs" {
	tasks -w n1 -n2 "$EXEC" true
	same "$rc" 0
	old=$(ls "$WORK/.ddp")
	has "$old" "^mini[0-9]+-[0-9]+\.0\.0-[0-9a-f]{16}$"
	within 60 no_jobs
	try mc salloc -Q -w n1 -n2 sh -c 'srun -n2 "$0" true; srun -n2 "$0" true' "$EXEC"
	same "$rc:$err" "0:"
	same "$(find "$WORK/.ddp" -mindepth 1 -maxdepth 1 | sed 's/.*\(\.[0-9]*\)\.0-.*/\1/' | sort)" $'.0\n.1'
	has_not "$(ls "$WORK/.ddp")" "$old"
}

@test "the directory of a failed rendezvous is removed after a day" {
	as_user mkdir -p -m 700 "$WORK/.ddp/exec-4711.0.0-0123abcd/0123456789abcdef.ranks" "$WORK/.ddp/exec-4712.0.0-0123abcd"
	as_user touch -d '25 hours ago' "$WORK/.ddp/exec-4711.0.0-0123abcd"
	tasks -w n1 -n2 "$EXEC" true
	same "$rc:$(find "$WORK/.ddp" -name 'exec-*')" "0:$WORK/.ddp/exec-4712.0.0-0123abcd"
}

# bats test_tags=release
@test "the directory of a running step is kept if squeue does not list the step" {
	need_root
	"$minicluster" run scontrol update partition=main hidden=yes
	mc srun -w n1 -n1 --overlap "$EXEC" sh -c 'touch first; until [ -e second ]; do sleep 0.1; done; ls -d "$DDP_RENDEZVOUS"' >"$WORK/out" 3>&- &
	within 60 test -e "$WORK/first"
	tasks -w n2 -n1 "$EXEC" true
	same "$rc" 0
	tasks -w n2 -n1 env SQUEUE_STATES=PENDING SQUEUE_PARTITION=main "$EXEC" true
	same "$rc" 0
	"$minicluster" run scontrol update partition=main hidden=no
	touch "$WORK/second"
	wait $!
	has "$(<"$WORK/out")" '/\.ddp/mini'
}

# not_shared: runs a step whose tasks have different working directories, so that no directory is shared.
not_shared()
{
	try mc env DDP_TIMEOUT=3 "$@" srun -J x --chdir=/ -w 'n[1-2]' ${layout--N2} -n2 sh -c 'mkdir -p -m 700 "$0.$SLURM_PROCID" && cd "$0.$SLURM_PROCID" &&
		exec "$1" sh -c "echo \$RANK \$MASTER_ADDR \${DDP_RENDEZVOUS-none}"' "$WORK/own" "$EXEC"
	rm -rf "$WORK"/own.?
}

@test "without a shared directory env:// works; if rank 0's address is unknown, an error names the reason" {
	not_shared MASTER_ADDR=localhost
	same "$rc:$(sort <<<"$out")" $'0:0 localhost none\n1 localhost none'
	has "$err" '^ddp: DDP_INIT_METHOD stays unset .*no rendezvous directory: (rank|.*did not arrive in 3 s)'
	not_shared ONE=1
	same "$rc" 1
	has "$err" "^ddp-exec: n1, the name of rank 0's node, does not resolve here\. Set MASTER_ADDR, or give a directory that all nodes share with --ddp-rdzv=DIR, or .*\. The tasks could not meet: ."
	printf '%s\n' n2 n1 | as_user tee "$WORK/hosts" >/dev/null
	layout= not_shared SLURM_HOSTFILE="$WORK/hosts" SLURM_DISTRIBUTION=arbitrary
	same "$rc" 1
	has "$err" "^ddp-exec: the node of rank 0 is unknown, because "
}

@test "messages of the plugin are those of ddp-exec" {
	as_user cp /bin/true "$WORK/torchrun"
	# Rank 0 prints the message, even if it is later than rank 1, and srun ends all tasks once one has ended.
	tasks -w n1 -n2 --kill-on-bad-exit=1 sh -c 'touch here.$SLURM_PROCID; until [ -e here.0 ] && [ -e here.1 ]; do sleep 0.1; done
		[ $SLURM_PROCID -eq 1 ] || sleep 0.3; exec "$0" ./torchrun train.py' "$EXEC"
	[ "$rc" -ne 0 ]
	has "$err" '^ddp-exec: usage error: torchrun starts all ranks of its node, .* \(python3 train\.py\)\. Use --ddp-launcher=allow to start it anyway\.$'
	RANK=5 tasks -w n1 -n1 "$EXEC" true
	same "$rc:$err" "0:ddp: RANK=5 of your environment is replaced in each task"
}

@test "an error of all tasks of a node is printed once" {
	MASTER_PORT=x tasks -w n1 -n3 "$EXEC" true
	same "$rc:$(grep -c '^ddp-exec: usage error: MASTER_PORT=x of your environment is not a port ' <<<"$err")" 1:1
	tasks -w n1 -n3 "$EXEC" --ddp-rdzv=/proc/none true
	same "$rc:$(grep -c '^ddp-exec: cannot make /proc/none: ' <<<"$err")" 1:1
}

@test "a computed port that is in use is skipped" {
	listen 61998
	for step in 1 2 3 4 5 6; do
		tasks -w n1 -n2 "$EXEC" --ddp-port=61996-61999 printenv MASTER_PORT
		same "$rc:$err:$out" "0::61996
61996"
	done
	stop_listening
}

# --- One world -------------------------------------------------------------------------

# within_s SECONDS: checks that the last command took less time.
within_s() { [ "$took" -lt "$1" ] || { echo "took $took s" >&2; return 1; }; }

# timed COMMAND...: sets $took.
timed()
{
	local begin=$SECONDS
	"$@"
	took=$((SECONDS - begin))
}

# forbid COMMAND: makes this command of Slurm fail in the steps of this test.
forbid()
{
	mkdir "$WORK/bin"
	printf '#!/bin/sh\necho "$0: no answer" >&2\nexit 1\n' >"$WORK/bin/$1"
	chmod 755 "$WORK/bin/$1"
}

# bats test_tags=release
@test "a program that is missing for one rank ends the programs of the other ranks" {
	for rank in 0 1 2; do
		timed tasks -w 'n[1-2]' -N2 -n3 "$TOP/start" "$rank" sleep 100
		[ "$rc" -ne 0 ]
		within_s 30
		same "$(grep -c '^ddp-exec: n[12]: cannot start \./missing: No such file or directory$' <<<"$err")" 1
	done
}

# bats test_tags=release
@test "a program that is missing for all ranks ends no step, and the exit status is 127" {
	timed tasks -w 'n[1-2]' -N2 -n4 "$EXEC" ./missing
	same "$rc:$(grep -c '^ddp-exec: n[12]: cannot start \./missing: No such file or directory$' <<<"$err")" 127:4
	has_not "$err" 'CANCELLED|Killed|Terminated'
	within_s 10
}

@test "without a shared directory, a missing program of one rank ends the programs of the other ranks" {
	timed try mc env DDP_TIMEOUT=2 MASTER_ADDR=there srun -J x --chdir=/ -w 'n[1-2]' -N2 -n2 \
		sh -c 'mkdir -p -m 700 "$0.$SLURM_PROCID" && cd "$0.$SLURM_PROCID" && exec "$@"' "$WORK/own" "$TOP/start" 1 sleep 100
	[ "$rc" -ne 0 ]
	has "$err" '^ddp-exec: n2: cannot start \./missing: '
	within_s 30
}

@test "without a shared directory, a port in use on rank 0's node ends the programs of the other ranks" {
	listen 61998
	timed try mc env DDP_TIMEOUT=2 MASTER_ADDR=localhost srun -J x --chdir=/ -w n1 -n2 \
		sh -c 'mkdir -p -m 700 "$0.$SLURM_PROCID" && cd "$0.$SLURM_PROCID" && exec "$@"' "$WORK/own" "$EXEC" --ddp-port=61998 sleep 100
	[ "$rc" -ne 0 ]
	has "$err" '^ddp-exec: port 61998 of n1, where rank 0 runs, is in use by a process of user [0-9]+\.'
	within_s 30
}

@test "a rank that does not see the rendezvous directory ends the step" {
	# Rank 0 waits for a port that a step of the plugin seems to have, and the directory is removed meanwhile.
	claim 61999
	(
		until rm -r "$WORK"/.ddp/mini*; do sleep 0.05; done 2>"$TOP/rm.err"
		kill "$listener"
	) 3>&- &
	timed tasks -w 'n[1-2]' -N2 -n2 "$EXEC" --ddp-port=61999 sleep 100
	[ "$rc" -ne 0 ]
	has "$err" "^ddp-exec: node n2 does not see $WORK/\.ddp/mini[^ ]*, which rank 0 made on n1 \(.*\)\. Give .*--ddp-rdzv=DIR\.$"
	within_s 30
}

@test "if scancel fails, one line names the command that ends the step" {
	forbid scancel
	tasks -w 'n[1-2]' -N2 -n2 sh -c 'PATH=$0/bin:$PATH exec "$@"' "$WORK" "$TOP/start" 1 sleep 5
	same "$rc" 127
	has "$err" "^ddp-exec: cannot end step [0-9]+\.0 \($WORK/bin/scancel: no answer\), so its other tasks continue\. Type scancel [0-9]+\.0\.$"
}

@test "with --kill-on-bad-exit a refusal of rank 0 leaves no file" {
	# Rank 0 removes its files slowly.
	cc -shared -fPIC -o "$TOP/slow.so" -x c - <<-'END'
		#include <fcntl.h>
		#include <sys/syscall.h>
		#include <unistd.h>
		int unlinkat(int at, const char *path, int flags)
		{
			usleep(200000);
			return (int)syscall(SYS_unlinkat, at, path, flags);
		}
	END
	chmod 755 "$TOP/slow.so"
	listen 61998
	tasks -w 'n[1-2]' -N2 -n4 --kill-on-bad-exit=1 env LD_PRELOAD="$TOP/slow.so" "$EXEC" --ddp-port=61998 touch ran
	[ "$rc" -ne 0 ]
	same "$(grep -c '^ddp-exec: port 61998 of n1, where rank 0 runs, is in use by' <<<"$err"):$(ls -A "$WORK")" 1:
}

@test "on a full disk no rank waits for rank 0" {
	need_root
	mkdir "$WORK/full"
	mount -t tmpfs -o size=64k,uid="$(id -u nobody)",mode=755 none "$WORK/full"
	dd if=/dev/zero of="$WORK/full/file" bs=4k 2>"$TOP/dd.err" || true
	timed tasks -w 'n[1-2]' -N2 -n2 "$EXEC" --ddp-rdzv="$WORK/full" touch ran
	umount "$WORK/full"
	same "$rc" 1
	same "$(grep -c '^ddp-exec: .*: No space left on device$' <<<"$err")" 2
	[ ! -e "$WORK/ran" ]
	within_s 30
}

# --- Ports ----------------------------------------------------------------------------------

# claim PORT: claims the port as the plugin does, without a listener.
claim()
{
	/usr/bin/python3 -c 'import socket, signal, sys; s = socket.socket(socket.AF_UNIX); s.bind("\0slurm-ddp/" + sys.argv[1]); signal.pause()' "$1" 3>&- &
	listener=$!
	within 60 grep -q "@slurm-ddp/$1" /proc/net/unix
}

# bats test_tags=release
@test "a port of a running step of srun --ddp or ddp-exec is refused by the other, also if no process listens on it" {
	running='touch runs; until [ -e end ]; do sleep 0.1; done'
	mc srun -J x -w n1 -n2 --ddp --ddp-port=61999 sh -c "$running" 3>&- &
	within 60 test -e "$WORK/runs"
	tasks -w n1 -n2 --overlap "$EXEC" --ddp-port=61999 touch ran
	touch "$WORK/end"
	wait $!
	same "$rc" 1
	same "$(grep '^ddp-exec' <<<"$err")" \
		"ddp-exec: port 61999 of n1, where rank 0 runs, is used by another --ddp step. Start the step again, or choose a port with --ddp-port=LO-HI."
	rm "$WORK"/{runs,end}
	mc srun -J x -w n1 -n2 "$EXEC" --ddp-port=61999 sh -c "$running" 3>&- &
	within 60 test -e "$WORK/runs"
	tasks -w n1 -n2 --overlap --ddp --ddp-port=61999 touch ran
	touch "$WORK/end"
	wait $!
	[ "$rc" -ne 0 ]
	has "$err" 'port 61999 of n1, where rank 0 runs, is used by another --ddp step\.'
	[ ! -e "$WORK/ran" ]
}

# --- Jobs -------------------------------------------------------------------------------------

is_in_state() { [ "$(queue -j "$id" -o %T)" = "$1" ]; }

# bats test_tags=release
@test "a heterogeneous step of several components is refused, a step in one component is not" {
	tasks -w n3 -n1 "$EXEC" touch ran : -w n1 -n1 "$EXEC" touch ran
	same "$rc:$(grep '^ddp-exec' <<<"$err")" \
		"2:ddp-exec: usage error: ddp-exec cannot be used in a heterogeneous step, which has several components. Start the program in one component, with --het-group=N."
	try mc salloc -Q -w n3 -n1 : -w n1 -n2 srun --het-group=0,1 "$EXEC" touch ran
	same "$rc:$(grep -c '^ddp-exec: .* with --het-group=N\.$' <<<"$err")" 2:1
	[ ! -e "$WORK/ran" ]
	# All nodes of a component, and one of its nodes.
	for nodes in '-N2 -n2' '-N1 -n2 -O'; do
		# shellcheck disable=SC2086 # options are words
		try mc salloc -Q -w n3 -n1 : -w 'n[1-2]' -N2 -n2 srun --het-group=1 $nodes "$EXEC" sh -c 'echo $RANK $WORLD_SIZE $DDP_JOB $SLURM_JOB_ID_HET_GROUP_1'
		same "$rc:$(sort <<<"$out" | sed -E 's/mini[0-9]+\.([0-9]+)\.0 \1$/component/')" $'0:0 2 component\n1 2 component'
	done
}

# bats test_tags=release
@test "DDP_ATTEMPT is the job's number of restarts, not that of the job that submitted it" {
	SLURM_RESTART_COUNT=3 batch -w n1 -n2 --wrap "srun $EXEC printenv DDP_ATTEMPT DDP_RENDEZVOUS"
	same "$(grep -c '^0$' <<<"$out"):$(grep -c '/\.ddp/mini[0-9]*-[0-9]*\.0\.0-' <<<"$out")" 2:2
	cat >"$WORK/job" <<-'END'
		#!/bin/bash
		srun "$1" sh -c 'echo attempt $DDP_ATTEMPT >>"attempt.$RANK"'
		[ "${SLURM_RESTART_COUNT:-0}" -ne 0 ] || { touch ready; sleep 100; }
	END
	id=$(mc sbatch --parsable --requeue -w n1 -n2 -o job.out "$WORK/job" "$EXEC")
	within 60 test -e "$WORK/ready"
	mc scontrol requeue "$id"
	within 60 is_in_state PENDING
	# slurmd rejects credentials that are issued in the second in which it revoked the old ones.
	"$minicluster" run scontrol update jobid="$id" starttime=now+2
	within 120 sh -c '[ "$(cat "$0"/attempt.? | wc -l)" -eq 4 ]' "$WORK"
	same "$(cat "$WORK"/attempt.?)" $'attempt 0\nattempt 1\nattempt 0\nattempt 1'
}

@test "the directory of a running step is kept if a parallel step seems to be of a later attempt" {
	forbid squeue
	cat >"$WORK/steps" <<-'END'
		#!/bin/sh
		srun -n1 --overlap "$1" sh -c 'touch runs; until [ -e end ]; do sleep 0.1; done; ls "$DDP_RENDEZVOUS"' >first &
		until [ -e runs ]; do sleep 0.1; done
		SLURM_RESTART_COUNT=1 srun -n1 --overlap sh -c 'PATH=$PWD/bin:$PATH exec "$@"' - "$1" printenv DDP_ATTEMPT
		touch end
		wait
	END
	chmod 755 "$WORK/steps"
	try mc salloc -Q -w n1 -n2 ./steps "$EXEC"
	same "$rc:$out:$(<"$WORK/first")" 0:1:step
}

# bats test_tags=release
@test "srun --jobid from outside: the cluster's name, and a directory that a later step removes" {
	id=$(mc sbatch --parsable -w n1 -n2 -o job.out --wrap 'sleep 100')
	within 60 is_in_state RUNNING
	try mc env -u SLURM_CLUSTER_NAME srun --jobid="$id" -n2 --overlap "$EXEC" printenv DDP_JOB
	same "$rc:$(sort -u <<<"$out" | sed 's/^mini[0-9]*/mini/')" "0:mini.$id.0"
	mc scancel "$id"
	within 60 gone "$id"
	tasks -w n1 -n1 "$EXEC" true
	same "$rc:$(find "$WORK/.ddp" -name "*-$id.0.0-*")" 0:
}

# --- Options ----------------------------------------------------------------------------------

# bats test_tags=release
@test "%n in --ddp-rdzv is rank 0's node; if the node is unknown, that is the error" {
	tasks -w 'n[1-2]' -N2 -n2 "$EXEC" --ddp-rdzv="$WORK/at-%n-%j" sh -c 'echo "$DDP_RENDEZVOUS"'
	same "$rc:$err:$(sort -u <<<"$out" | sed 's/-[0-9]*\/\.ddp\/.*//')" "0::$WORK/at-n1"
	printf '%s\n' n2 n1 | as_user tee "$WORK/hosts" >/dev/null
	SLURM_HOSTFILE=hosts tasks -n2 -m arbitrary "$EXEC" --ddp-rdzv="$WORK/at-%n" touch ran
	same "$rc" 1
	has "$(grep '^ddp-exec' <<<"$err" | sort -u)" '^ddp-exec: the node of rank 0 is unknown, .* Give a directory that all nodes share with --ddp-rdzv=DIR'
	[ ! -e "$WORK/ran" ]
}

# bats test_tags=release
@test "--gpu-bind=none: the step's GPUs, or an error if Slurm does not name them" {
	need_gpus
	tasks -w n1 -n2 --gres=gpu:1 --gpu-bind=none "$EXEC" printenv CUDA_VISIBLE_DEVICES
	if slurm_at_least 23.11; then
		same "$rc:$out" $'0:0\n0'
	else
		same "$rc:$out" 1:
		same "$(grep '^ddp-exec' <<<"$err")" \
			"ddp-exec: usage error: with --gpu-bind=none this Slurm does not say which GPUs of a node the step has. Remove --gpu-bind=none, and request GPUs with --gpus-per-node=N, so that each task sees all of them."
	fi
	tasks -w n1 -n2 --gres=gpu:1 --gpu-bind=none env CUDA_VISIBLE_DEVICES=1 "$EXEC" printenv CUDA_VISIBLE_DEVICES
	same "$rc:$out" $'0:1\n1'
	tasks -w n1 -n2 --gpus-per-node=2 "$EXEC" printenv CUDA_VISIBLE_DEVICES
	same "$rc:$out" $'0:0,1\n0,1'
}

@test "without a task of Slurm, a terminal shows that the program is a world of one rank" {
	try as_user /usr/bin/python3 -c 'import pty, sys; pty.spawn(sys.argv[1:])' "$EXEC" true
	same "$rc:${out%$'\r'}" "0:ddp: this process is a world of one rank. To start one rank for each task, write srun ddp-exec."
	try as_user /usr/bin/python3 -c 'import pty, sys; pty.spawn(sys.argv[1:])' "$EXEC" --print
	has "$out" 'set RANK=0 '
	has_not "$out" 'world of one rank'
	try as_user env PATH=/nonexistent /usr/bin/python3 -c 'import pty, sys; pty.spawn(sys.argv[1:])' "$EXEC" /bin/true
	same "$rc:$out" 0:
}

# This is the last test, because n2 stays without the plugin.
# bats test_tags=release
@test "srun --ddp ddp-exec on a node that did not load the plugin is refused, and the step ends" {
	need_root
	slurmd_n2 "mount --bind /dev/null '$MINICLUSTER_DIR/plugstack.conf'"
	timed tasks -w 'n[1-2]' -N2 -n4 -m cyclic --ddp "$EXEC" sleep 100
	[ "$rc" -ne 0 ]
	same "$(grep '^ddp-exec' <<<"$err")" \
		"ddp-exec: srun --ddp set RANK=-1 (ddp.so is not loaded on this node). Omit --ddp, because ddp-exec needs no plugin on n2."
	within_s 30
}
