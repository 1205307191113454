# SPDX-License-Identifier: Apache-2.0
# The rendezvous directory: where srun creates it, which directories srun refuses, and that everything is removed again.
#
# shellcheck disable=SC2016 # variables in single quotes are expanded by the task's shell
# shellcheck disable=SC2154 # rc, out and err come from try

load lib

# If the working directory is unusable, srun uses the home directory. Only one test has a home directory.
export USER_HOME=/nonexistent

setup_file()
{
	cluster_up --nodes 2
	cp "$MINICLUSTER_DIR/plugstack.conf" "$TOP/optional"
}

teardown_file() { cluster_down; }

setup() { cp "$TOP/optional" "$MINICLUSTER_DIR/plugstack.conf"; }

teardown()
{
	end_jobs
	rm -rf "${WORK:?}"/* "$WORK"/.ddp "$TOP"/other
}

site() { echo "optional $TOP/ddp.so $*" >"$MINICLUSTER_DIR/plugstack.conf"; }
no_step() { ! mc squeue -h -s -o %i | grep -qx "$1"; }
missing() { [ ! -e "$1" ] && [ ! -L "$1" ]; }
empty() { same "$(ls -A "$1")" ""; }

# Creates directories that belong to the user.
own_dir() { as_user mkdir -p "$@"; }

# hidden_from_nodes CHANGE DIRECTORY COMMAND...: runs the shell command CHANGE in a new mount namespace, and there COMMAND in
# DIRECTORY, as the user on the cluster. The nodes do not see what CHANGE has mounted.
hidden_from_nodes()
{
	local change=$1 dir=$2
	shift 2
	unshare -m sh -c "$change"' && cd "$0" && HOME=$USER_HOME exec setpriv --reuid=nobody \
		--regid=nogroup --clear-groups timeout -k 5 120 "$@"' "$dir" "$minicluster" run "$@"
}

# begin_step SRUN_OPTION...: starts a step in the background. Sets $step to the step's id, $srun to srun's process id, and $rdzv
# to the rendezvous directory.
begin_step()
{
	rm -f "$WORK"/started
	# shellcheck disable=SC2016
	background env --default-signal=INT -C "$WORK" "$minicluster" run srun "$@" --ddp sh -c \
		'echo "$SLURM_JOB_ID.$SLURM_STEP_ID $DDP_RENDEZVOUS" >started.new; mv started.new started; exec sleep 600' \
		>"$TOP/step.out" 2>"$TOP/step.err"
	within 60 test -s "$WORK/started"
	read -r step rdzv <"$WORK/started"
	srun=$(sed -n 's/.*;pid=\([0-9]*\);.*/\1/p' "$rdzv/step")
	same "$srun" "$!"
}

# Kills srun as the loss of its host does, and also srun's child, which would report the death to Slurm.
kill_srun() { kill -9 "$srun" $(pgrep -P "$srun" -x srun); }

# leftover NONCE [SED_OPTION...]: creates the files that a killed srun leaves in $WORK/.ddp after its step has ended. Prints the
# directory's path. The options of sed change the record in the directory.
leftover()
{
	local record dir nonce=$1
	shift
	[ -s "$TOP/record" ] || mc srun --ddp sh -c 'cat "$DDP_RENDEZVOUS/step"' >"$TOP/record"
	record=$(sed -E -e "s/;nonce=[^;]*/;nonce=$nonce/" -e 's/;pid=[0-9]*/;pid=4194304/' "$@" "$TOP/record")
	[[ $record =~ \;cluster=([^;]*)\;job=([0-9]+) ]]
	dir=$WORK/.ddp/${BASH_REMATCH[1]}-${BASH_REMATCH[2]}.0.0-$nonce
	as_user mkdir -p -m 700 "$WORK/.ddp" "$dir"
	as_user tee "$dir/step" <<<"$record" >/dev/null
	echo "$dir"
}

names=(RANK MASTER_ADDR DDP_INIT_METHOD DDP_INIT_FILE DDP_RENDEZVOUS)

# without_directory TASK...: what show prints of these variables in these tasks, each RANK@NODE, if there is no directory.
without_directory()
{
	local task
	for task; do
		echo "$task RANK=${task%@*} MASTER_ADDR=127.0.0.1 DDP_INIT_METHOD=UNSET DDP_INIT_FILE=UNSET DDP_RENDEZVOUS=UNSET"
	done
}

# --- Contents and removal ----------------------------------------------------------------

@test "every node sees a private directory of the user with the step's record" {
	try mc srun -N2 -l --ddp sh -c 'cd "$DDP_RENDEZVOUS" && [ "${PWD#"$SLURM_SUBMIT_DIR/.ddp/"}" != "$PWD" ] &&
		stat -c "%a %u %F" .. . step && ls -A | tr "\n" " " && cut -c1-3 step'
	same "$rc" 0
	uid=$(as_user id -u)
	for rank in 0 1; do
		same "$(sed -n "s/^$rank: //p" <<<"$out")" "700 $uid directory
700 $uid directory
600 $uid regular file
step v2;"
	done
	same "$err" ""
	empty "$WORK"
}

@test "the directory's name has cluster, job, step, attempt and a nonce, and differs between steps" {
	try mc sbatch -W -o job.out --wrap 'for i in 1 2; do
		srun --ddp sh -c '\''echo "$DDP_JOB $DDP_ATTEMPT ${DDP_RENDEZVOUS##*/}"'\''; done'
	same "$rc" 0
	sed -E -n 's/^(.*)\.([0-9]+)\.([0-9]+) ([0-9]+) \1-\2\.\3\.\4-[0-9a-f]{16}$/step \3/p' "$WORK/job.out" >"$TOP/steps"
	same "$(cat "$TOP/steps")" "step 0
step 1"
	same "$(not_waiting <"$WORK/job.out" | sed 's/.*-//' | sort -u | wc -l)" 2
	missing "$WORK/.ddp"
}

@test "files that the job put into the directory are removed, targets of its links are not" {
	own_dir "$WORK/outside"
	as_user touch "$WORK/outside/precious"
	try mc srun --ddp sh -c 'cd "$DDP_RENDEZVOUS" && mkdir -p a/b/c/d/e/f/g/h "with blank" && touch a/b/c/d/file .hidden "with blank/x" &&
		ln -s "$SLURM_SUBMIT_DIR/outside" link && ln -s "$SLURM_SUBMIT_DIR/outside" a/b/link && ln -s /nonexistent dangling && mkfifo a/fifo'
	same "$rc" 0
	same "$err" ""
	same "$(cd "$WORK" && find . -mindepth 1 | sort)" "./outside
./outside/precious"
	# The same applies to a link in place of the directory.
	try mc srun --ddp sh -c 'mv "$DDP_RENDEZVOUS" moved && ln -s "$SLURM_SUBMIT_DIR/outside" "$DDP_RENDEZVOUS"'
	same "$rc:$(ls "$WORK/outside")" 0:precious
}

@test "srun without --ddp, with --no-ddp or with SLURM_DDP=0 creates no directory and sets no variables" {
	own_dir "$WORK/d"
	try mc srun sh -c 'ls -A; env | grep -E "^(DDP_|SLURM_DDP_STEP)" | grep -vE "^DDP_(SRCDIR|BUILDDIR|PLUGIN|SEED|ROUNDS|LONG|SHORT|TEST_DELAY|MPI_TYPE)="'
	same "$rc" 1
	same "$out" d
	same "$(count_lines "$err" ddp:)" 0
	empty "$WORK/d"
	rmdir "$WORK/d"
	try mc env SLURM_DDP=1 srun --no-ddp sh -c 'ls -A; echo "${RANK-UNSET}"'
	same "$rc:$out:$err" "0:UNSET:"
	try mc env SLURM_DDP=0 srun sh -c 'ls -A; echo "${RANK-UNSET}"'
	same "$rc:$out:$err" "0:UNSET:"
}

@test "a directory that the job itself deleted is no error" {
	own_dir "$WORK/d"
	try mc_in "$WORK/d" srun --ddp sh -c 'rm -rf "$SLURM_SUBMIT_DIR"'
	same "$rc" 0
	same "$(count_lines "$err" ddp:)" 0
	empty "$WORK"
}

# --- Location ----------------------------------------------------------------------------

@test "--ddp-rdzv with %j, %s, %u and %n: missing directories are created and removed" {
	user=$(as_user id -un)
	try mc srun -w n2 -N1 --ddp --ddp-rdzv="$WORK/a/%u/%j-%s/%n" sh -c 'echo "$SLURM_JOB_ID $DDP_RENDEZVOUS"; stat -c %a a a/*/*'
	same "$rc" 0
	read -r job dir <<<"$out"
	same "${dir%/*}" "$WORK/a/$user/$job-0/n2/.ddp"
	same "$(tail -n +2 <<<"$out" | sort -u)" 700
	empty "$WORK"
}

@test "--ddp-rdzv: existing directories, and new ones with files in them, are kept" {
	own_dir "$WORK/there/mine"
	try mc srun --ddp --ddp-rdzv=there/new true
	same "$rc:$err" "0:"
	same "$(cd "$WORK" && find . -mindepth 1)" "./there
./there/mine"
	try mc srun --ddp --ddp-rdzv=there/new sh -c 'touch there/new/file'
	same "$rc:$err" "0:"
	same "$(ls -A "$WORK/there/new")" file
}

@test "srun --jobid from outside the job has the cluster's name in DDP_JOB" {
	mc salloc -Q -N1 --no-shell
	job=$(mc squeue -h -o %i)
	try mc env -u SLURM_CLUSTER_NAME srun --jobid="$job" --ddp "$SHOW" DDP_JOB
	same "$rc:$err" "0:"
	same "${out#*@n? }" "DDP_JOB=$(sed -n s/^ClusterName=//p "$MINICLUSTER_DIR/slurm.conf").$job.0"
}

@test "srun --uid by root: %u, the default directory and its checks are those of the user" {
	need_root
	uid() { try in_work "$minicluster" run srun --uid=nobody -N1 -n1 --ddp "$@" "$SHOW" DDP_RENDEZVOUS; }
	uid --ddp-rdzv="$WORK/%u"
	has "$out" "DDP_RENDEZVOUS=$WORK/nobody/\.ddp/"
	own_dir "$WORK/d"
	uid --ddp-rdzv="$WORK/d"
	same "$rc:$err" "0:"
	has "$out" "DDP_RENDEZVOUS=$WORK/d/\.ddp/"
	uid
	has "$out" "DDP_RENDEZVOUS=$WORK/\.ddp/"
	empty "$WORK/d"
}

in_work() { (cd "$WORK" && "$@"); }

@test "rdzv= in plugstack.conf, SLURM_DDP_RDZV and --ddp-rdzv set the directory; the last has priority" {
	site "rdzv=$WORK/site-%u"
	try mc srun --ddp "$SHOW" DDP_RENDEZVOUS
	has "$out" "DDP_RENDEZVOUS=$WORK/site-$(as_user id -un)/\.ddp/"
	try mc env SLURM_DDP_RDZV="$WORK/env" srun --ddp "$SHOW" DDP_RENDEZVOUS
	has "$out" "DDP_RENDEZVOUS=$WORK/env/\.ddp/"
	try mc env SLURM_DDP_RDZV="$WORK/env" srun --ddp --ddp-rdzv=line "$SHOW" DDP_RENDEZVOUS
	has "$out" "DDP_RENDEZVOUS=$WORK/line/\.ddp/"
	empty "$WORK"
}

@test "--ddp-rdzv and SLURM_DDP_RDZV with characters that a URL cannot contain are refused in one line" {
	# tests/unit/test_template.c has more paths.
	for path in 'a?b' ''; do
		try mc srun --ddp --ddp-rdzv="$path" touch ran
		same "$rc:$out" "255:"
		same "$(count_lines "$err" ddp:)" 1
		has "$err" "^srun: error: ddp: --ddp-rdzv"
		try mc sbatch --ddp-rdzv="$path" --wrap 'touch ran'
		same "$rc:$out" "255:"
		same "$(count_lines "$err" ddp:)" 1
	done
	# With --ddp, srun refuses the variable like the option. With SLURM_DDP=1 the step is created, and its tasks exit.
	try mc env SLURM_DDP_RDZV='a?b' srun --ddp touch ran
	same "$rc:$out" "255:"
	same "$(count_lines "$err" ddp:)" 1
	try mc env SLURM_DDP=1 SLURM_DDP_RDZV='a?b' srun touch ran
	same "$rc:$out" "1:"
	same "$(count_lines "$err" ddp:)" 1
	empty "$WORK"
}

@test "a working directory whose name a URL cannot contain: the directory is created, the URLs are unset" {
	own_dir "$WORK/a?b"
	try mc_in "$WORK/a?b" srun -n2 --ddp "$SHOW" RANK DDP_INIT_METHOD DDP_INIT_FILE DDP_RENDEZVOUS
	same "$rc" 0
	same "$(sort <<<"$out" | sed 's/.*@n. //; s|/[^/]*-[0-9a-f]\{16\}$||')" \
		"RANK=0 DDP_INIT_METHOD=UNSET DDP_INIT_FILE=UNSET DDP_RENDEZVOUS=$WORK/a?b/.ddp
RANK=1 DDP_INIT_METHOD=UNSET DDP_INIT_FILE=UNSET DDP_RENDEZVOUS=$WORK/a?b/.ddp"
	same "$(count_lines "$err" ddp:)" 1
	has "$err" "ddp: .*which a URL cannot contain, so DDP_INIT_METHOD stays unset"
	# A relative --ddp-rdzv is refused in this working directory for the same reason.
	try mc_in "$WORK/a?b" srun --ddp --ddp-rdzv=x touch ran
	same "$rc" 1
	same "$(grep -c 'error: ddp:' <<<"$err")" 1
	empty "$WORK/a?b"
}

@test "blanks, semicolons, equals signs, quotes and other letters in the path reach the task unchanged" {
	name="a b;c=d 'e' \"f\" ü,\\"
	own_dir "$WORK/$name"
	try mc_in "$WORK/$name" srun -N2 --ddp sh -c 'test -f "$DDP_RENDEZVOUS/step" && test "file://$DDP_RENDEZVOUS/store" = "$DDP_INIT_FILE" && echo "${DDP_RENDEZVOUS%/.ddp/*}"'
	same "$rc:$err" "0:"
	same "$out" "$WORK/$name
$WORK/$name"
	empty "$WORK/$name"
}

# --- Refused directories -----------------------------------------------------------------

# refused BASE MESSAGE: checks that BASE is refused for this reason. If BASE is only the default, one warning is printed and
# env:// works. If the command line, the environment or plugstack.conf names BASE, no task gets a rank.
refused()
{
	local base=$1 message=$2
	try mc_in "$base" srun -N2 --ddp "$SHOW" "${names[@]}"
	same "$rc:$(sort <<<"$out")" "0:$(without_directory 0@n1 1@n2)"
	same "$(count_lines "$err" ddp:)" 1
	has "$err" "ddp: .*no rendezvous directory: $message"

	try mc srun -N2 --ddp --ddp-rdzv="$base" touch ran
	same "$rc:$out" "255:"
	same "$(count_lines "$err" ddp:)" 1
	has "$err" "^srun: error: ddp: $message"

	try mc env SLURM_DDP_RDZV="$base" srun -N2 --ddp touch ran
	same "$rc:$out" "1:"
	same "$(count_lines "$err" ddp:)" 1
	has "$err" "error: ddp: $message"
	missing "$WORK/ran"
	setup
}

@test "a .ddp that is a symbolic link is refused, and nothing is created in its target" {
	own_dir "$WORK/d" "$WORK/elsewhere"
	as_user ln -s ../elsewhere "$WORK/d/.ddp"
	refused "$WORK/d" "$WORK/d/\.ddp is a symbolic link"
	empty "$WORK/elsewhere"
	[ -L "$WORK/d/.ddp" ]
}

# refuses BASE MESSAGE: checks that srun refuses BASE on the command line for this reason.
refuses()
{
	try mc srun -N2 --ddp --ddp-rdzv="$1" touch ran
	same "$rc:$out:$(grep -c 'error: ddp:' <<<"$err")" "${3-255}::1"
	has "$err" "error: ddp: $2"
}

@test "a .ddp that is a file, belongs to another user or is writable for everybody is refused and kept" {
	own_dir "$WORK/file" "$WORK/open/.ddp" "$WORK/theirs"
	as_user touch "$WORK/file/.ddp"
	refuses "$WORK/file" "cannot open $WORK/file/\.ddp: Not a directory"
	[ -f "$WORK/file/.ddp" ]
	chmod 777 "$WORK/open/.ddp"
	refuses "$WORK/open" "$WORK/open/\.ddp is writable for everybody"
	empty "$WORK/open/.ddp"
	need_root
	install -d -o daemon -m 777 "$WORK/theirs/.ddp"
	refuses "$WORK/theirs" "$WORK/theirs/\.ddp belongs to user $(id -u daemon)"
	empty "$WORK/theirs/.ddp"
}

# tests/runtime/test_file.c has more owners and modes of directories in a path.
@test "a base directory that another user could exchange, or created first, is refused; a link of root is followed" {
	need_root
	install -d -m 1777 "$TOP/other"
	install -d -o daemon "$TOP/other/theirs"
	install -d -o nobody "$TOP/other/theirs/d"
	refuses "$TOP/other/theirs/d" "$TOP/other/theirs belongs to user $(id -u daemon)"
	# As with rdzv=/scratch/%u, the example of spank-ddp(8), when another user has created the directory first.
	install -d -o daemon -m 777 "$TOP/other/$(as_user id -un)"
	refuses "$TOP/other/%u" "$TOP/other/$(as_user id -un) belongs to user $(id -u daemon)" 1
	empty "$TOP/other/$(as_user id -un)"
	# As with a link /home -> /gpfs/home, the link and its target belong to root.
	ln -s "$WORK" "$TOP/other/home"
	try mc srun -N2 --ddp --ddp-rdzv="$TOP/other/home" "$SHOW" DDP_INIT_FILE
	same "$(count_lines "$out" "DDP_INIT_FILE=file://$TOP/other/home/.ddp/")" 2
	empty "$WORK"
}

@test "an unusable working directory, by default: the home directory is used" {
	own_dir "$WORK/d" "$WORK/home"
	chmod 2775 "$WORK/d"
	USER_HOME=$WORK/home try mc_in "$WORK/d" srun -N2 --ddp "$SHOW" DDP_INIT_FILE
	same "$rc:$err" "0:"
	same "$(count_lines "$out" "DDP_INIT_FILE=file://$WORK/home/\.ddp/.*")" 2
	empty "$WORK/home"
	empty "$WORK/d"
	try mc_in "$WORK/d" srun -N2 --ddp "$SHOW" DDP_INIT_FILE
	has "$err" "^ddp: .*no rendezvous directory: $WORK/d is writable for group"
}

@test "a working directory without write permission is refused" {
	mkdir "$TOP/other"
	chmod 555 "$TOP/other"
	refused "$TOP/other" "cannot (make $TOP/other/\.ddp|write in $TOP/other): Permission denied"
	empty "$TOP/other"
}

@test "two users in one sticky directory: refused without %u, different directories with %u" {
	need_root
	install -d -m 1777 "$TOP/other"
	try mc srun --ddp --ddp-rdzv="$TOP/other" sh -c "touch '$WORK/started'; within() { :; }; until [ -e '$WORK/end' ]; do sleep 0.05; done" &
	first=$!
	within 60 test -e "$WORK/started"
	# -D, because the second user may not have access to the working directory
	try as_other_user "$minicluster" run srun -D / --ddp --ddp-rdzv="$TOP/other" true
	same "$rc" 255
	has "$err" "ddp: $TOP/other/\.ddp belongs to user $(as_user id -u)\. .*%u"
	try as_other_user "$minicluster" run srun -D / --ddp --ddp-rdzv="$TOP/other/%u" "$SHOW" DDP_RENDEZVOUS
	same "$rc:$err" "0:"
	has "$out" "DDP_RENDEZVOUS=$TOP/other/daemon/\.ddp/"
	as_user touch "$WORK/end"
	wait "$first"
	empty "$TOP/other"
}

# --- Storage that fails or is not shared -------------------------------------------------

@test "a full file system: a warning if it is the default, an error if it was named; no file remains" {
	need_root
	own_dir "$WORK/d"
	full="mount -t tmpfs -o size=64k,mode=755,uid=$(id -u nobody) none '$WORK/d' && { head -c 1M /dev/zero >'$WORK/d/big' 2>/dev/null; :; }"
	try hidden_from_nodes "$full" "$WORK/d" srun -N2 --ddp "$SHOW" "${names[@]}"
	same "$rc:$(sort <<<"$out")" "0:$(without_directory 0@n1 1@n2)"
	same "$(count_lines "$err" ddp:)" 1
	has "$err" "ddp: .*no rendezvous directory: cannot write in $WORK/d/\.ddp/.*: No space left on device"
	try hidden_from_nodes "$full" "$WORK" sh -c 'srun -N2 --ddp --ddp-rdzv=d/new/er touch ran; ls -A d'
	same "$out:$(grep -c 'error: ddp: .*No space left on device' <<<"$err")" big:1
	missing "$WORK/ran"
}

@test "a file system without free inodes: an error, and no file remains" {
	need_root
	for n in 1 2 3; do
		own_dir "$WORK/d"
		# shellcheck disable=SC2016
		try hidden_from_nodes "mount -t tmpfs -o nr_inodes=$((n + 1)),mode=755,uid=$(id -u nobody) none '$WORK/d'" "$WORK" \
			sh -c 'srun --ddp --ddp-rdzv=d/new "$0" RANK; ls -A d' "$SHOW"
		same "$out" ""
		has "$err" "ddp: cannot .*: No space left on device"
	done
}

@test "submit host and nodes share no file system, default directory: one warning a node, env:// works" {
	need_root
	own_dir "$WORK/d"
	try hidden_from_nodes "mount -t tmpfs -o mode=755,uid=$(id -u nobody) none '$WORK/d'" "$WORK/d" srun -N2 --ntasks-per-node=2 --ddp "$SHOW" "${names[@]}"
	same "$rc:$(sort <<<"$out")" "0:$(without_directory 0@n1 1@n1 2@n2 3@n2)"
	same "$(sed -E "s|^ddp: .*no rendezvous directory: node (n.) does not see $WORK/d/\.ddp/[^ ]*, which srun made on $(hostname) .*|\1|" <<<"$err" | sort)" "n1
n2"
}

# --- Interrupted steps ---------------------------------------------------------------------

# Sends SIGINT. Succeeds if srun has ended. Repeated by within(), since srun ignores a second SIGINT that comes too late or while the
# first one is pending.
interrupted() { ! kill -INT "$srun" 2>/dev/null; }

@test "Ctrl-C twice removes the directory" {
	begin_step -N2
	within 60 interrupted
	wait $! || status=$?
	[ "${status-0}" -ne 0 ]
	grep -q 'interrupt (one more within 1 sec to abort)' "$TOP/step.err"
	within 60 missing "$WORK/.ddp"
}

# --- Leftovers of killed sruns -------------------------------------------------------------

@test "after srun was killed, the next --ddp step removes its directory once its step has ended" {
	mc salloc -Q -N1 --no-shell
	job=$(mc squeue -h -o %i)
	begin_step --jobid="$job" --overlap -n1
	kill_srun
	within 60 missing "/proc/$srun"
	# The tasks are still running, so their directory is kept.
	try mc srun --jobid="$job" --overlap -n1 --ddp true
	same "$rc:$err" "0:"
	[ -s "$rdzv/step" ]
	mc scancel "$step"
	within 60 no_step "$step"
	# A step without --ddp removes no leftovers.
	try mc srun --jobid="$job" --overlap -n1 true
	same "$rc:$err" "0:"
	[ -s "$rdzv/step" ]
	try mc srun --jobid="$job" --overlap -n1 --ddp true
	same "$rc:$err" "0:"
	missing "$WORK/.ddp"
}

# running: starts a process, and sets $pid and $began like those of an srun in a record.
running()
{
	sleep 600 3>&- &
	pid=$! began=$(awk '{ print $22 }' "/proc/$!/stat")
}

@test "leftovers that are removed: their srun or job is gone, or they are of another host or without a record, and a day old" {
	background /usr/bin/python3 -c 'import os, time
pid = os.fork() or os._exit(0)
print(pid, flush=True)
time.sleep(600)' >"$TOP/zombie"
	within 60 test -s "$TOP/zombie"
	pid=$(cat "$TOP/zombie")
	within 60 grep -q '^State:.Z' "/proc/$pid/status"
	leftover 0123456789abcde0 -e "s/;pid=4194304/;pid=$pid/" -e "s/;began=[0-9]*/;began=$(awk '{ print $22 }' "/proc/$pid/stat")/"
	leftover 0123456789abcde1 -e 's/;job=[0-9]*/;job=987654/'
	# A process with the same id but another start time is not srun.
	running
	leftover 0123456789abcde2 -e "s/;pid=4194304/;pid=$pid/" -e "s/;began=[0-9]*/;began=1/"
	as_user touch -d '25 hours ago' "$(leftover 0123456789abcde3 -e 's/;from=[^;]*/;from=elsewhere/')"
	dir=$(leftover 0123456789abcde4)
	as_user rm "$dir/step"
	as_user touch -d '25 hours ago' "$dir"
	for _ in 1 2; do
		try mc srun --ddp true
		same "$rc:$err" "0:"
	done
	missing "$WORK/.ddp"
}

@test "leftovers that are kept: their srun runs, they are not a day old, or they are not this user's, cluster's or release's" {
	running
	leftover 0123456789abcde0 -e "s/;pid=4194304/;pid=$pid/" -e "s/;began=[0-9]*/;began=$began/"
	as_user touch -d '23 hours ago' "$(leftover 0123456789abcde1 -e 's/;from=[^;]*/;from=elsewhere/')"
	dir=$(leftover 0123456789abcde2)
	as_user rm "$dir/step"
	# Of another cluster, by name and by record.
	leftover 0123456789abcde3 -e 's/;cluster=[^;]*/;cluster=other/'
	as_user sed -i 's/;cluster=[^;]*/;cluster=other/' "$(leftover 0123456789abcde4)/step"
	leftover 0123456789abcde5 -e 's/^v2;/v1;/'
	leftover 0123456789abcde6 -e 's/;job=[0-9]*/&x/'
	own_dir "$WORK/precious"
	as_user ln -s ../precious "${dir%-*}-0123456789abcde7"
	# Names that are not those of a step.
	cluster=${dir##*/}
	cluster=${cluster%%-*}
	own_dir "$WORK/.ddp/"{"$cluster-1.0.0-xyz","$cluster",mine}
	as_user touch -d '25 hours ago' "$WORK"/.ddp/{*-0123456789abcde[34567],*-xyz,"$cluster",mine} "$WORK/precious"
	if [ "$(id -u)" -eq 0 ]; then
		theirs=$(leftover 0123456789abcde8)
		chown -R daemon "$theirs"
		chmod -R o+rwX "$theirs"
		touch -d '25 hours ago' "$theirs"
	fi
	kept=$(ls -A "$WORK/.ddp")
	for _ in 1 2; do
		try mc srun --ddp true
		same "$rc:$err" "0:"
	done
	same "$(ls -A "$WORK/.ddp")" "$kept"
	[ -d "$WORK/precious" ]
}

@test "each step queries slurmctld for at most four leftovers" {
	for i in 1 2 3 4 5 6; do
		leftover "0123456789abcde$i" -e "s/;job=[0-9]*/;job=98765$i/"
	done
	mc srun --ddp true
	same "$(find "$WORK/.ddp" -mindepth 1 -maxdepth 1 | wc -l)" 2
	mc srun --ddp true
	missing "$WORK/.ddp"
}

# --- Concurrent steps ----------------------------------------------------------------------

@test "eight concurrent sruns in one directory, twice: none fails, and no directory of a step remains" {
	for _ in 1 2; do
		for i in 1 2 3 4 5 6 7 8; do
			base=()
			((i % 2)) || base=("--ddp-rdzv=new/er")
			mc srun -Q -n1 --ddp "${base[@]}" "$SHOW" RANK DDP_INIT_FILE >"$TOP/out.$i" 2>"$TOP/err.$i" 3>&- &
		done
		for pid in $(jobs -p); do
			wait "$pid"
		done
		same "$(cat "$TOP"/err.[1-8])" ""
		same "$(cat "$TOP"/out.[1-8] | grep -c "^0@n. RANK=0 DDP_INIT_FILE=file://$WORK/")" 8
		missing "$WORK/.ddp"
		# The base may remain, but empty: only the srun that created it removes it.
		same "$(find "$WORK" -mindepth 1 -not -path "$WORK/new" -not -path "$WORK/new/er")" ""
	done
}

@test "another process that removes empty directories at the same time makes no srun fail" {
	# This script replaces other sruns. It removes empty directories thousands of times a second.
	cat >"$TOP/other.py" <<'PY'
import itertools, os, sys, time
names = [os.path.join(sys.argv[1], name) for name in (".ddp", "new/er/.ddp", "new/er", "new")]
for name in itertools.cycle(names):
    if not os.path.isdir(sys.argv[1]):
        break
    try:
        os.rmdir(name)
    except OSError:
        pass
    time.sleep(0.00001)
PY
	background /usr/bin/python3 "$TOP/other.py" "$WORK"
	other=$!
	for i in 1 2 3 4 5 6; do
		for base in "" "--ddp-rdzv=new/er"; do
			# shellcheck disable=SC2086
			try mc srun -Q -n1 --ddp $base "$SHOW" RANK DDP_INIT_FILE
			same "$rc:$err" "0:"
			has "$out" "^0@n. RANK=0 DDP_INIT_FILE=file://$WORK/"
		done
	done
	kill -0 "$other"
}

@test "if a directory cannot be created, its new parents are removed" {
	long=$(printf 'x%.0s' {1..300})
	try mc srun --ddp --ddp-rdzv="new/er/$long/more" touch ran
	same "$rc" 1
	same "$(grep -c 'error: ddp:' <<<"$err")" 1
	has "$err" "error: ddp: cannot make $WORK/new/er/x.*: File name too long"
	empty "$WORK"
}
