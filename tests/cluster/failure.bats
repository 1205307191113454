# SPDX-License-Identifier: Apache-2.0
# Errors as the user sees them: the message and the exit status. No file, process or port may remain.
#
# shellcheck disable=SC2016 # variables in single quotes are expanded by the task's shell
# shellcheck disable=SC2154 # rc, out and err come from try

load lib

setup_file()
{
	# With KillWait, a task has time to handle SIGTERM on a busy host.
	cluster_up --nodes 2 --conf KillWait=20
	cp "$MINICLUSTER_DIR/plugstack.conf" "$TOP/optional"
}

teardown_file() { cluster_down; }

setup() { cp "$TOP/optional" "$MINICLUSTER_DIR/plugstack.conf"; }

teardown()
{
	other_cluster_down
	end_jobs
	rm -rf "${WORK:?}"/* "$WORK"/.ddp
}

missing() { [ ! -e "$1" ]; }
nodes_are_idle() { same "$(mc sinfo -h -N -o '%N %t %E' | sort)" "n1 idle none
n2 idle none"; }

# --- Failing tasks -----------------------------------------------------------------------

@test "srun has the task's exit status or Slurm's message about a missing program, and the directory is removed" {
	try mc srun -N2 --ddp sh -c 'exit $((RANK + 3))'
	same "$rc" 4
	has_not "$err" ddp:
	missing "$WORK/.ddp"
	try mc srun -N2 --ddp ./no-such-program
	same "$rc" 2
	has "$err" "no-such-program: No such file or directory"
	has_not "$err" ddp:
	missing "$WORK/.ddp"
}

@test "the last lines of a rank that fails arrive, although srun ends the step" {
	# Each second line waits for the acknowledgement of the first. Without the plugin's pause, srun lost it in 16 of 20 runs.
	for _ in 1 2 3 4 5; do
		try mc srun -N2 -n2 --ddp --kill-on-bad-exit=1 sh -c '[ $RANK -eq 0 ] || exec sleep 60; sleep 0.2
			echo "terminate called" >&2; echo "what(): out of memory" >&2; kill -ABRT $$'
		has "$err" '^what\(\): out of memory$'
	done
}

@test "srun ended by timeout: the step ends, and the directory is removed" {
	try mc sbatch -W -o job.out --wrap 'timeout -s TERM 1 srun --ddp sleep 600; echo "status $?"; ls -A'
	same "$rc" 0
	has "$(cat "$WORK/job.out")" "^status 124$"
	within 60 missing "$WORK/.ddp"
}

@test "a requeued job has a new directory and attempt number, and that of the first attempt is removed" {
	# Does not use sbatch -W, which polls at growing intervals.
	try mc sbatch --requeue -o job.out --wrap 'srun --ddp sh -c '\''
		touch "$DDP_RENDEZVOUS/of.$DDP_ATTEMPT"
		{ echo "$DDP_JOB $DDP_ATTEMPT $DDP_RENDEZVOUS"; (cd "$DDP_RENDEZVOUS" && echo of.*); } >>attempts
		if [ "$DDP_ATTEMPT" = 0 ]; then scontrol requeue "$SLURM_JOB_ID"; exec sleep 600; fi'\'''
	same "$rc" 0
	job=$(sed -n 's/^Submitted batch job //p' <<<"$out")
	within 180 no_jobs
	same "$(sed -E "s|^[^ ]*\.$job\.0 ([01]) $WORK/\.ddp/[^ ]*-$job\.0\.([01])-[0-9a-f]{16}|\1 \2|" "$WORK/attempts")" "0 0
of.0
1 1
of.1"
	within 60 missing "$WORK/.ddp"
}

# --- slurmctld does not answer -----------------------------------------------------------

# Installs a SPANK plugin that stops srun between the creation of the step and ddp.so's query to slurmctld. In this time the test
# can stop slurmctld. In a task, the plugin sets SLURM_PROCID to the value of WRONG_RANK.
build_hold_plugin()
{
	spank_plugin hold <<-'C'
		#include <slurm/spank.h>
		#include <fcntl.h>
		#include <stdlib.h>
		#include <unistd.h>
		SPANK_PLUGIN(hold, 1);
		int slurm_spank_local_user_init(spank_t spank, int argc, char **argv)
		{
		    const char *at = getenv("HOLD_AT"), *until = getenv("HOLD_UNTIL");
		    int fd;
		    (void)spank, (void)argc, (void)argv;
		    if (!at || !until || (fd = open(at, O_CREAT | O_WRONLY, 0600)) < 0)
		        return 0;
		    close(fd);
		    for (int i = 0; i < 1200 && access(until, F_OK) < 0; i++)
		        usleep(50000);
		    return 0;
		}
		int slurm_spank_task_init(spank_t spank, int argc, char **argv)
		{
		    char rank[16];
		    (void)argc, (void)argv;
		    if (spank_getenv(spank, "WRONG_RANK", rank, sizeof(rank)) == ESPANK_SUCCESS)
		        spank_setenv(spank, "SLURM_PROCID", rank, 1);
		    return 0;
		}
	C
	# Two queries of srun take less time than the step's credential is valid, 10 s.
	sed 's/^MessageTimeout=.*/MessageTimeout=3/' "$MINICLUSTER_DIR/slurm.conf" >"$TOP/impatient.conf"
}

has_begun_or_ended() { [ -e "$WORK/ran" ] || grep -q ddp: "$TOP/err" || [ -s "$TOP/rc" ]; }

# without_slurmctld COMMAND...: runs srun. From the creation of the step until its tasks have run or were refused, slurmctld is stopped.
without_slurmctld()
{
	local ctld
	ctld=$(cat "$MINICLUSTER_DIR/slurmctld.pid")
	rm -f "$TOP/stopped" "$TOP/rc" "$WORK/held" "$WORK/ran"
	(
		rc=0
		mc env SLURM_CONF="$TOP/impatient.conf" HOLD_AT="$WORK/held" HOLD_UNTIL="$TOP/stopped" \
			"$@" >"$TOP/out" 2>"$TOP/err" || rc=$?
		echo "$rc" >"$TOP/rc"
	) 3>&- &
	within 60 test -e "$WORK/held" || return 1
	kill -STOP "$ctld"
	touch "$TOP/stopped"
	within 60 has_begun_or_ended || { kill -CONT "$ctld"; return 1; }
	kill -CONT "$ctld"
	within 60 test -s "$TOP/rc" || return 1
	rc=$(<"$TOP/rc") out=$(<"$TOP/out") err=$(not_waiting <"$TOP/err")
}

@test "slurmctld does not answer: a step on one node works, with the node's address from srun" {
	need_root
	build_hold_plugin
	echo "optional $TOP/hold.so" | cat - "$TOP/optional" >"$MINICLUSTER_DIR/plugstack.conf"
	# The directory of a step that has ended is kept, since slurmctld cannot be asked.
	mc srun --ddp sh -c 'cp -r "$DDP_RENDEZVOUS" "${DDP_RENDEZVOUS%-*}-0123456789abcdef"'
	without_slurmctld srun -w n1 --ddp sh -c 'touch ran; echo "${RANK-UNSET} ${MASTER_ADDR-UNSET} ${DDP_ERROR-UNSET}"; ls -A .ddp | wc -l'
	same "$rc" 0
	same "$out" "0 127.0.0.1 UNSET
2"
	has_not "$err" ddp:
	same "$(find "$WORK/.ddp" -mindepth 1 -maxdepth 1 | sed 's/.*-//')" 0123456789abcdef
}

@test "slurmctld does not answer: a step with -m arbitrary is refused" {
	need_root
	build_hold_plugin
	echo "optional $TOP/hold.so" | cat - "$TOP/optional" >"$MINICLUSTER_DIR/plugstack.conf"
	without_slurmctld srun -n2 -m arbitrary -w n2,n1 --ddp sh -c 'touch ran'
	same "$rc:$out" "1:"
	same "$(count_lines "$err" ddp:)" 1
	has "$err" "^srun: error: ddp: slurmctld does not say which node runs rank 0 of step [0-9]*\.0. Start the step again.$"
	missing "$WORK/.ddp"
}

# --- Inconsistent data --------------------------------------------------------------------

@test "a directory that is replaced before the tasks start is refused, as one of another step" {
	build_hold_plugin
	echo "optional $TOP/hold.so" | cat "$TOP/optional" - >"$MINICLUSTER_DIR/plugstack.conf"
	mc env HOLD_AT="$WORK/held" HOLD_UNTIL="$WORK/go" srun --ddp --ddp-rdzv=. "$SHOW" RANK >"$TOP/out" 2>"$TOP/err" 3>&- &
	within 60 test -e "$WORK/held"
	sed -i 's/;nonce=[0-9a-f]*/;nonce=00112233445566ff/' "$WORK"/.ddp/*/step
	touch "$WORK/go"
	wait $! || true
	has_not "$(<"$TOP/out")" 'RANK=[0-9]'
	has "$(<"$TOP/err")" "error: ddp: .*node n. does not see $WORK/\./\.ddp/[^ ]*, .*another step's"
}

@test "a task whose variables contradict each other is refused" {
	build_hold_plugin
	echo "optional $TOP/hold.so" | cat - "$TOP/optional" >"$MINICLUSTER_DIR/plugstack.conf"
	try mc env WRONG_RANK=4 srun -w n1 -n2 --ddp "$SHOW" RANK WORLD_SIZE
	has_not "$out" '=[0-9]'
	has "$err" "^slurmstepd-n1: error: ddp: SLURM_PROCID=4 is not below SLURM_STEP_NUM_TASKS=2"
}

# --- Tasks with private file systems ---------------------------------------------------------

# Installs a SPANK plugin that mounts a private file system at $PRIVATE for each task, like job_container/tmpfs.
install_private_plugin()
{
	spank_plugin private <<-'C'
		#define _GNU_SOURCE
		#include <sched.h>
		#include <slurm/spank.h>
		#include <stdlib.h>
		#include <string.h>
		#include <sys/mount.h>
		SPANK_PLUGIN(private, 1);
		int slurm_spank_task_init_privileged(spank_t spank, int argc, char **argv)
		{
		    char path[4096];
		    (void)argc, (void)argv;
		    if (spank_getenv(spank, "PRIVATE", path, sizeof(path)) != ESPANK_SUCCESS)
		        return 0;
		    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		        return -1;
		    return mount("none", path, "tmpfs", 0, "mode=1777");
		}
	C
	echo "required $TOP/private.so" | cat - "$TOP/optional" >"$MINICLUSTER_DIR/plugstack.conf"
}

# bats test_tags=release
@test "a directory that nodes see and their tasks do not: one warning, its variables are unset, and the step runs" {
	need_root
	install_private_plugin
	as_user mkdir "$WORK/own"
	for option in "" "--ddp-rdzv=$WORK/own"; do
		# shellcheck disable=SC2086 # no word or one
		PRIVATE=$WORK/own try mc_in "$WORK/own" srun -D / -N2 --ntasks-per-node=2 --ddp $option "$SHOW" \
			RANK DDP_RENDEZVOUS DDP_INIT_METHOD
		same "$rc" 0
		same "$(sort -n <<<"$out")" "0@n1 RANK=0 DDP_RENDEZVOUS=UNSET DDP_INIT_METHOD=UNSET
1@n1 RANK=1 DDP_RENDEZVOUS=UNSET DDP_INIT_METHOD=UNSET
2@n2 RANK=2 DDP_RENDEZVOUS=UNSET DDP_INIT_METHOD=UNSET
3@n2 RANK=3 DDP_RENDEZVOUS=UNSET DDP_INIT_METHOD=UNSET"
		same "$(count_lines "$err" "^ddp: DDP_INIT_METHOD stays unset (env:// works), because there is no rendezvous directory: tasks on node n1 do not see $WORK/own/\.ddp/[^ ]*, because they have other mounts than the node (No such file or directory). Give a directory that tasks see with --ddp-rdzv=DIR\.$")" 1
	done
	# If the tasks see the directory, it is used and there is no message.
	PRIVATE=$WORK/own try mc srun -N2 --ddp --ddp-rdzv="$WORK" sh -c '[ -d "$DDP_RENDEZVOUS" ]'
	same "$rc:$err" 0:
}

# container DIRECTORY: gives each job on n2 its own DIRECTORY, until slurmd of n2 is restarted.
container()
{
	local name=JobContainerType=job_container
	! slurm_at_least 26.05 || name=NamespaceType=namespace
	echo "$name/tmpfs" >>"$MINICLUSTER_DIR/slurm.conf"
	printf '%s\n' AutoBasePath=true "BasePath=$TOP/containers Dirs=$1" >"$MINICLUSTER_DIR/job_container.conf"
	slurmd_n2 true
}

# in_container DIRECTORY ARGUMENT...: runs a step on n2. This can fail on Slurm 26.05, which sometimes does not mount the
# directory of a job that starts while another job ends.
in_container()
{
	try mc_in "$1" srun -D / -w n2 -n2 --ddp "${@:2}"
	[ "$rc" -eq 0 ]
}

# bats test_tags=release
@test "job_container/tmpfs or namespace/tmpfs, Slurm 23.02 and later: one warning, variables unset, and the step runs" {
	need_root
	slurm_at_least 23.02 || skip "this Slurm gives jobs no directory but /tmp"
	other_cluster --nodes 2 --gpus 0 --conf PrologFlags=contain
	as_user mkdir "$WORK/own"
	container "$WORK/own"
	within 60 in_container "$WORK/own" "$SHOW" RANK DDP_RENDEZVOUS DDP_INIT_METHOD
	same "$(sort -n <<<"$out")" "0@n2 RANK=0 DDP_RENDEZVOUS=UNSET DDP_INIT_METHOD=UNSET
1@n2 RANK=1 DDP_RENDEZVOUS=UNSET DDP_INIT_METHOD=UNSET"
	same "$(count_lines "$err" "^ddp: .*no rendezvous directory: tasks on node n2 do not see $WORK/own/\.ddp/[^ ]*, because they have other mounts than the node ")" 1
	within 60 in_container "$WORK" --ddp-rdzv="$WORK" sh -c '[ -d "$DDP_RENDEZVOUS" ]'
	has_not "$err" ddp:
}

# --- One node differs ------------------------------------------------------------------------

@test "a directory that one of two nodes does not see: it warns, or the step ends if the directory was named" {
	need_root
	as_user mkdir "$WORK/half"
	slurmd_n2 "mount -t tmpfs -o mode=755,uid=$(as_user id -u) none '$WORK/half'"
	message="node n2 does not see $WORK/half/\.ddp/[^ ]*, which srun made on $(hostname) \(No such file or directory\)\. Give a directory that all nodes share with --ddp-rdzv=DIR\."

	try mc_in "$WORK/half" srun -N2 --ddp "$SHOW" RANK WORLD_SIZE DDP_INIT_METHOD
	same "$rc" 0
	has "$out" "^0@n1 RANK=0 WORLD_SIZE=2 DDP_INIT_METHOD=file://$WORK/half/.*$"
	has "$out" "^1@n2 RANK=1 WORLD_SIZE=2 DDP_INIT_METHOD=UNSET$"
	same "$(count_lines "$err" ddp:)" 1
	has "$err" "^ddp: DDP_INIT_METHOD stays unset, because there is no rendezvous directory: $message$"

	# SLURMD_NODENAME is set as if srun ran in a batch script on n1. Rank 0 takes ten minutes.
	try mc env SLURMD_NODENAME=n1 srun -N2 --ddp --ddp-rdzv="$WORK/half" sh -c 'touch ran.$RANK; exec sleep 600'
	same "$rc" 137
	same "$(count_lines "$err" ddp:)" 1
	has "$err" "^slurmstepd-n2: error: ddp: $message$"
	missing "$WORK/ran.1"
	slurmd_n2 true
	nodes_are_idle
	try mc_in "$WORK/half" srun -N2 --ddp "$SHOW" DDP_INIT_FILE
	same "$rc:$err" "0:"
	same "$(count_lines "$out" "DDP_INIT_FILE=file://$WORK/half/")" 2
}

# --- Unusual environments --------------------------------------------------------------------

@test "a user without a home directory, or without HOME, USER and PWD, can use --ddp" {
	try mc env -u HOME -u USER -u LOGNAME -u PWD srun -N2 --ddp "$SHOW" RANK
	same "$rc:$err" "0:"
	same "$(sort <<<"$out")" "0@n1 RANK=0
1@n2 RANK=1"
	try mc env HOME=/nonexistent srun -N2 --ddp --ddp-rdzv="$WORK/%u" "$SHOW" RANK
	same "$rc:$err" "0:"
	same "$(ls -A "$WORK")" ""
}

@test "directories have mode 700 and files 600 with any umask" {
	for mask in 000 077; do
			try mc sh -c 'umask "$1"; exec srun --ddp --ddp-rdzv=new/er sh -c "cd \"\$DDP_RENDEZVOUS\" && stat -c %a ../../.. ../.. .. . step"' - "$mask"
		same "$rc:$err" "0:"
		same "$out" "700
700
700
700
600"
	done
}

@test "a limit of 32 open files is enough for srun and the tasks" {
	try mc prlimit --nofile=32:32 srun -N2 --ddp "$SHOW" RANK
	same "$rc" 0
	has_not "$err" ddp:
	same "$(sort <<<"$out")" "0@n1 RANK=0
1@n2 RANK=1"
	missing "$WORK/.ddp"
}

# long_directory N: creates a working directory whose path has N characters, and prints the path.
long_directory()
{
	local piece path=$WORK
	piece=$(printf 'x%.0s' {1..200})
	(
		cd "$WORK" || exit
		while ((${#path} + 1 < $1)); do
			piece=${piece:0:$1 - ${#path} - 1}
			as_user mkdir -p "$piece" && cd -- "$piece" || exit
			path+=/$piece
		done
		echo "$path"
	)
}

@test "long paths are used as far as they fit, and are one warning beyond" {
	for n in 1000 3500; do
		dir=$(long_directory $n)
		same "${#dir}" "$n"
		try mc_in "$dir" srun --ddp sh -c 'test -s "$DDP_RENDEZVOUS/step" && echo "${#DDP_RENDEZVOUS} ${DDP_INIT_FILE%%/*}"; echo "${RANK-UNSET} ${DDP_ERROR-UNSET}"'
		same "$rc" 0
		printf '%s: %s %s\n' "$n" "$out" "$err" >>"$TOP/long"
		same "$(tail -n 1 <<<"$out")" "0 UNSET"
		if [[ $err ]]; then
			same "$(count_lines "$err" ddp:)" 1
			same "$(wc -l <<<"$out")" 1
		fi
		same "$(ls -A "$dir")" ""
	done
	cat "$TOP/long"
}

# --- After all tests ---------------------------------------------------------------------------
