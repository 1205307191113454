# SPDX-License-Identifier: Apache-2.0
# Without the plugin, ddp-exec sets the same environment as srun --ddp, for every layout of a step.
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
	chmod 755 "$TOP/envs"
	export EXEC=$TOP/ddp-exec ENVS=$TOP/envs
}
teardown_file() { cluster_down; }
teardown() { rm -rf "${WORK:?}"/* "$WORK"/.ddp; }

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
	has "$err" '^ddp-exec: usage error: SLURM_NTASKS=4, but srun did not start this process, .*: write srun ddp-exec, or unset SLURM_NTASKS$'
	try mc salloc -Q -w n1 -n2 "$EXEC" true
	same "$rc" 2
	has "$err" '^ddp-exec: usage error: SLURM_NTASKS=2, '
}

@test "use in a batch script without srun, and wrong options, are refused in one line" {
	batch -w n1 -n2 --wrap "$EXEC true; echo \$?"
	same "$out" "ddp-exec: usage error: this is the script or shell of job $job, not a task: write srun ddp-exec, with srun's options before ddp-exec
2"
	tasks -w n1 -n2 "$EXEC" --ddp-share=most true
	same "$rc:$(grep -c '^ddp-exec: usage error: --ddp-share=most: choose one of ' <<<"$err")" 2:1
	tasks -w n1 -n2 "$EXEC" -N2 true
	same "$rc:$(grep -c '^ddp-exec: usage error: there is no option -N2; ' <<<"$err")" 2:1
	tasks -w n1 -n2 "$EXEC" --ddp true
	same "$rc:$err" "0:"
	tasks -w n1 -n2 "$EXEC"
	same "$rc:$(grep -c '^ddp-exec: usage error: no program given' <<<"$err")" 2:1
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
	has "$err" '^ddp: no rendezvous directory: rank|^ddp: no rendezvous directory: .*did not arrive in 3 s'
	not_shared ONE=1
	same "$rc" 1
	has "$err" "^ddp-exec: .*, and n1, the name of rank 0's node, does not resolve here; remedies: increase DDP_TIMEOUT \(seconds\) if a task started late; give a shared directory with --ddp-rdzv=DIR; or set MASTER_ADDR$"
	printf '%s\n' n2 n1 | as_user tee "$WORK/hosts" >/dev/null
	layout= not_shared SLURM_HOSTFILE="$WORK/hosts" SLURM_DISTRIBUTION=arbitrary
	same "$rc" 1
	has "$err" "^ddp-exec: the node of rank 0 is unknown: "
}

@test "messages of the plugin are those of ddp-exec" {
	as_user cp /bin/true "$WORK/torchrun"
	# Rank 0 prints the message, even if it is later than rank 1, and srun ends all tasks once one has ended.
	tasks -w n1 -n2 --kill-on-bad-exit=1 sh -c 'touch here.$SLURM_PROCID; until [ -e here.0 ] && [ -e here.1 ]; do sleep 0.1; done
		[ $SLURM_PROCID -eq 1 ] || sleep 0.3; exec "$0" ./torchrun train.py' "$EXEC"
	[ "$rc" -ne 0 ]
	has "$err" '^ddp-exec: usage error: torchrun starts all ranks of its node: .* \(python3 train\.py\); --ddp-launcher=allow permits it$'
	RANK=5 tasks -w n1 -n1 "$EXEC" true
	same "$rc:$err" "0:ddp: RANK=5 of your environment is replaced in each task"
}

@test "an error of all tasks of a node is printed once" {
	MASTER_PORT=x tasks -w n1 -n3 "$EXEC" true
	same "$rc:$(grep -c '^ddp-exec: usage error: MASTER_PORT=x of your environment is not a port ' <<<"$err")" 1:1
	tasks -w n1 -n3 "$EXEC" --ddp-rdzv=/proc/none true
	same "$rc:$(grep -c '^ddp-exec: cannot make /proc/none: ' <<<"$err")" 1:1
}

@test "a port in use on rank 0's node is an error if it is the only one, and no program starts" {
	listen 61998
	tasks -w n1 -n2 "$EXEC" --ddp-port=61998 touch ran
	stop_listening
	same "$rc" 1
	same "$(grep -c '^ddp-exec: port 61998 of n1, where rank 0 runs, is in use' <<<"$err")" 1
	[ ! -e "$WORK/ran" ]
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
