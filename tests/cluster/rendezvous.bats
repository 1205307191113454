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

@test ".ddp remains if it contains failure records" {
	try mc srun --ddp sh -c 'mkdir "${DDP_RENDEZVOUS%/*}/failed-$SLURM_JOB_ID.0"; touch "${DDP_RENDEZVOUS%/*}/failed-$SLURM_JOB_ID.0/rank0"'
	same "$rc" 0
	same "$(cd "$WORK/.ddp" && find . -mindepth 1 | sed 's/failed-[0-9]*/failed-N/' | sort)" "./failed-N.0
./failed-N.0/rank0"
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

@test "a working directory deleted before srun starts is Slurm's error, with and without --ddp" {
	# srun 22.05 fails with "getcwd failed" before it calls a plugin.
	for ddp in --ddp --no-ddp; do
		own_dir "$WORK/d"
		try as_user sh -c 'cd "$0" && rmdir "$0" && exec "$@"' "$WORK/d" "$minicluster" run srun $ddp true
		same "$rc" 255
		has "$err" "srun: error: getcwd failed"
		same "$(count_lines "$err" ddp:)" 0
	done
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

@test "--ddp-rdzv with a relative path is relative to the working directory" {
	own_dir "$WORK/there"
	try mc_in "$WORK/there" srun --ddp --ddp-rdzv=x/y "$SHOW" DDP_RENDEZVOUS
	same "$rc" 0
	has "$out" "^0@n. DDP_RENDEZVOUS=$WORK/there/x/y/\.ddp/[^/]*$"
	empty "$WORK/there"
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
	for path in 'a?b' 'a#b' 'a%xb' 'a%' 'a%%j' ''; do
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
	for name in 'a?b' 'a#b' 'a%jb'; do
		own_dir "$WORK/$name"
		try mc_in "$WORK/$name" srun -n2 --ddp "$SHOW" RANK DDP_INIT_METHOD DDP_INIT_FILE DDP_RENDEZVOUS
		same "$rc" 0
		same "$(sort <<<"$out" | sed 's/.*@n. //; s|/[^/]*-[0-9a-f]\{16\}$||')" \
			"RANK=0 DDP_INIT_METHOD=UNSET DDP_INIT_FILE=UNSET DDP_RENDEZVOUS=$WORK/$name/.ddp
RANK=1 DDP_INIT_METHOD=UNSET DDP_INIT_FILE=UNSET DDP_RENDEZVOUS=$WORK/$name/.ddp"
		same "$(count_lines "$err" ddp:)" 1
		has "$err" "ddp: .*which a URL cannot carry: DDP_INIT_METHOD stays unset"
		empty "$WORK/$name"
		# A relative --ddp-rdzv is refused in this working directory for the same reason.
			try mc_in "$WORK/$name" srun --ddp --ddp-rdzv=x touch ran
		same "$rc" 1
		same "$(grep -c 'error: ddp:' <<<"$err")" 1
		setup
		empty "$WORK/$name"
	done
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
	same "$rc" 0
	same "$(sort <<<"$out")" "0@n1 RANK=0 MASTER_ADDR=127.0.0.1 DDP_INIT_METHOD=UNSET DDP_INIT_FILE=UNSET DDP_RENDEZVOUS=UNSET
1@n2 RANK=1 MASTER_ADDR=127.0.0.1 DDP_INIT_METHOD=UNSET DDP_INIT_FILE=UNSET DDP_RENDEZVOUS=UNSET"
	same "$(count_lines "$err" ddp:)" 1
	has "$err" "ddp: no rendezvous directory: $message"

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

@test "a .ddp that is a file is refused and kept" {
	own_dir "$WORK/d"
	as_user touch "$WORK/d/.ddp"
	refused "$WORK/d" "cannot open $WORK/d/\.ddp: Not a directory"
	[ -f "$WORK/d/.ddp" ]
}

@test "a .ddp that belongs to another user is refused" {
	need_root
	own_dir "$WORK/d"
	install -d -o daemon -m 777 "$WORK/d/.ddp"
	refused "$WORK/d" "$WORK/d/\.ddp belongs to user $(id -u daemon)"
	empty "$WORK/d/.ddp"
}

@test "a .ddp that is writable for everybody is refused" {
	own_dir "$WORK/d/.ddp"
	chmod 777 "$WORK/d/.ddp"
	refused "$WORK/d" "$WORK/d/\.ddp is writable for everybody"
	empty "$WORK/d/.ddp"
}

@test "a base directory that is writable for everybody is refused without the sticky bit, accepted with it" {
	own_dir "$WORK/d"
	chmod 777 "$WORK/d"
	refused "$WORK/d" "$WORK/d is writable for everybody and not sticky"
	empty "$WORK/d"
	chmod 1777 "$WORK/d"
	try mc_in "$WORK/d" srun -N2 --ddp "$SHOW" DDP_INIT_FILE
	same "$rc:$err" "0:"
	same "$(count_lines "$out" "DDP_INIT_FILE=file://$WORK/d/.ddp/")" 2
	empty "$WORK/d"
}

@test "a base directory that is a symbolic link of another user is refused, the user's own link is accepted" {
	need_root
	install -d -m 1777 "$TOP/other"
	own_dir "$WORK/d"
	ln -s "$WORK/d" "$TOP/other/theirs"
	chown -h daemon "$TOP/other/theirs"
	try mc srun --ddp --ddp-rdzv="$TOP/other/theirs" touch ran
	same "$rc" 255
	has "$err" "ddp: $TOP/other/theirs is a symbolic link of user $(id -u daemon)"
	as_user ln -s "$WORK/d" "$TOP/other/mine"
	try mc srun --ddp --ddp-rdzv="$TOP/other/mine" "$SHOW" DDP_RENDEZVOUS
	same "$rc:$err" "0:"
	has "$out" "DDP_RENDEZVOUS=$TOP/other/mine/\.ddp/"
	empty "$WORK/d"
}

@test "a base directory below one that another user could exchange or created first is refused, at any level" {
	need_root
	install -d -m 1777 "$TOP/other"
	# As with rdzv=/scratch/%u, the example of spank-ddp(8), when another user has created the directory first.
	install -d -o daemon -m 777 "$TOP/other/$(as_user id -un)"
	try mc srun -N2 --ddp --ddp-rdzv="$TOP/other/%u" touch ran
	same "$rc" 1
	has "$err" "error: ddp: $TOP/other/$(as_user id -un) belongs to user $(id -u daemon)"
	missing "$WORK/ran"
	setup
	empty "$TOP/other/$(as_user id -un)"
	rmdir "$TOP/other/$(as_user id -un)"
	own_dir "$TOP/other/$(as_user id -un)"
	try mc srun -N2 --ddp --ddp-rdzv="$TOP/other/%u" "$SHOW" DDP_INIT_FILE
	same "$(count_lines "$out" "DDP_INIT_FILE=file://$TOP/other/$(as_user id -un)/.ddp/")" 2

	install -d -o daemon "$TOP/other/theirs"
	install -d -o nobody "$TOP/other/theirs/d"
	refused "$TOP/other/theirs/d" "$TOP/other/theirs belongs to user $(id -u daemon)"
	own_dir "$WORK/d" "$WORK/d/e"
	chgrp daemon "$WORK/d"
	chmod 770 "$WORK/d"
	refused "$WORK/d/e" "$WORK/d is writable for group $(id -g daemon) and not sticky"
	chmod 1770 "$WORK/d"
	try mc srun --ddp --ddp-rdzv="$WORK/d/e" true
	same "$rc:$err" "0:"

	# As with a link /home -> /gpfs/home, the link and its target belong to root.
	ln -s "$WORK" "$TOP/other/home"
	try mc srun -N2 --ddp --ddp-rdzv="$TOP/other/home/d/e" "$SHOW" DDP_INIT_FILE
	same "$(count_lines "$out" "DDP_INIT_FILE=file://$TOP/other/home/d/e/.ddp/")" 2
	empty "$WORK/d/e"
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
	has "$err" "^ddp: no rendezvous directory: $WORK/d is writable for group"
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
	has "$err" "ddp: $TOP/other/\.ddp belongs to user $(as_user id -u); .*%u"
	try as_other_user "$minicluster" run srun -D / --ddp --ddp-rdzv="$TOP/other/%u" "$SHOW" DDP_RENDEZVOUS
	same "$rc:$err" "0:"
	has "$out" "DDP_RENDEZVOUS=$TOP/other/daemon/\.ddp/"
	as_user touch "$WORK/end"
	wait "$first"
	empty "$TOP/other"
}

# --- Storage that fails or is not shared -------------------------------------------------

# refused_hidden CHANGE MESSAGE: like refused, for $WORK/d. CHANGE runs in a mount namespace of srun only.
refused_hidden()
{
	local change=$1 message=$2
	own_dir "$WORK/d"
	try hidden_from_nodes "$change" "$WORK/d" srun -N2 --ddp "$SHOW" "${names[@]}"
	same "$rc" 0
	same "$(sort <<<"$out")" "0@n1 RANK=0 MASTER_ADDR=127.0.0.1 DDP_INIT_METHOD=UNSET DDP_INIT_FILE=UNSET DDP_RENDEZVOUS=UNSET
1@n2 RANK=1 MASTER_ADDR=127.0.0.1 DDP_INIT_METHOD=UNSET DDP_INIT_FILE=UNSET DDP_RENDEZVOUS=UNSET"
	same "$(count_lines "$err" ddp:)" 1
	has "$err" "ddp: no rendezvous directory: $message"

	try hidden_from_nodes "$change" "$WORK" srun -N2 --ddp --ddp-rdzv=d touch ran
	[ "$rc" -ne 0 ]
	same "$(grep -c 'error: ddp:' <<<"$err")" 1
	has "$err" "error: ddp: ${message/d/d}"
	missing "$WORK/ran"
	setup
}

@test "a read-only file system: a warning if it is the default, an error if it was named" {
	need_root
	refused_hidden "mount -t tmpfs -o ro,mode=755,uid=$(id -u nobody) none '$WORK/d'" \
		"cannot (make|write in) $WORK/d.*: Read-only file system"
}

@test "a full file system: a warning if it is the default, an error if it was named; no file remains" {
	need_root
	full="mount -t tmpfs -o size=64k,mode=755,uid=$(id -u nobody) none '$WORK/d' && { head -c 1M /dev/zero >'$WORK/d/big' 2>/dev/null; :; }"
	refused_hidden "$full" "cannot write in $WORK/d/\.ddp/.*: No space left on device"
	try hidden_from_nodes "$full" "$WORK" sh -c 'srun --ddp --ddp-rdzv=d/new/er true 2>/dev/null; ls -A d'
	same "$out" big
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
	try hidden_from_nodes "mount -t tmpfs -o mode=755,uid=$(id -u nobody) none '$WORK/d'" "$WORK/d" srun -N1 -n2 -w n2 --ddp "$SHOW" "${names[@]}"
	same "$rc" 0
	same "$(sort <<<"$out")" "0@n2 RANK=0 MASTER_ADDR=127.0.0.1 DDP_INIT_METHOD=UNSET DDP_INIT_FILE=UNSET DDP_RENDEZVOUS=UNSET
1@n2 RANK=1 MASTER_ADDR=127.0.0.1 DDP_INIT_METHOD=UNSET DDP_INIT_FILE=UNSET DDP_RENDEZVOUS=UNSET"
	same "$(count_lines "$err" ddp:)" 1
	has "$err" "ddp: no rendezvous directory: node n2 does not share $WORK/d/\.ddp/[^ ]* with $(hostname), where srun ran"
	# Each node prints a warning for its own tasks.
	try hidden_from_nodes "mount -t tmpfs -o mode=755,uid=$(id -u nobody) none '$WORK/d'" "$WORK/d" srun -N2 --ntasks-per-node=2 --ddp "$SHOW" RANK DDP_INIT_FILE
	same "$rc" 0
	same "$(count_lines "$out" "RANK=[0-3] DDP_INIT_FILE=UNSET$")" 4
	same "$(sed -E 's/^ddp: no rendezvous directory: node (n.) does not share .*/\1/' <<<"$err" | sort)" "n1
n2"
}

@test "submit host and nodes share no file system, named directory: tasks fail, with node, path and submit host in the message" {
	need_root
	own_dir "$WORK/d"
	change="mount -t tmpfs -o mode=755,uid=$(id -u nobody) none '$WORK/d'"
	message="ddp: node n(.) does not share $WORK/d/\.ddp/[^ ]* with $(hostname), where srun ran .*--ddp-rdzv=DIR"
	try hidden_from_nodes "$change" "$WORK" srun -N2 -n4 --ddp --ddp-rdzv="$WORK/d" "$SHOW" RANK
	[ "$rc" -ne 0 ]
	same "$out" ""
	has "$err" "$message"
	missing "$WORK/ran"
	same "$(mc sinfo -h -o %T)" idle
}

@test "a working directory that the nodes do not have: one warning, env:// works" {
	need_root
	own_dir "$WORK/d"
	try hidden_from_nodes "mount -t tmpfs -o mode=755 none '$WORK/d' && install -d -o nobody '$WORK/d/sub'" "$WORK" \
		sh -c 'cd d/sub && exec srun --ddp "$0" RANK MASTER_ADDR DDP_INIT_METHOD' "$SHOW"
	same "$rc" 0
	same "${out#*@n? }" "RANK=0 MASTER_ADDR=127.0.0.1 DDP_INIT_METHOD=UNSET"
	same "$(count_lines "$err" ddp:)" 1
	has "$err" "ddp: no rendezvous directory: node n. does not share $WORK/d/sub/\.ddp/"
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

@test "SIGTERM to srun removes the directory" {
	begin_step -N2
	kill -TERM "$srun"
	wait $! || status=$?
	[ "${status-0}" -ne 0 ]
	within 60 missing "$WORK/.ddp"
}

@test "scancel of the step removes the directory" {
	begin_step -N2
	mc scancel "$step"
	wait $! || status=$?
	[ "${status-0}" -ne 0 ]
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

@test "a leftover of a job that Slurm no longer knows is removed" {
	dir=$(leftover 0123456789abcdef -e 's/;job=[0-9]*/;job=987654/')
	[ -d "$dir" ]
	try mc srun --ddp true
	same "$rc:$err" "0:"
	missing "$WORK/.ddp"
}

@test "a leftover whose srun is a zombie is removed" {
	background /usr/bin/python3 -c 'import os, time
pid = os.fork() or os._exit(0)
print(pid, flush=True)
time.sleep(600)' >"$TOP/zombie"
	within 60 test -s "$TOP/zombie"
	pid=$(cat "$TOP/zombie")
	within 60 grep -q '^State:.Z' "/proc/$pid/status"
	began=$(awk '{ print $22 }' "/proc/$pid/stat")
	dir=$(leftover 0123456789abcdef -e "s/;pid=4194304/;pid=$pid/" -e "s/;began=[0-9]*/;began=$began/")
	grep -q ";pid=$pid;" "$dir/step"
	try mc srun --ddp true
	same "$rc:$err" "0:"
	missing "$WORK/.ddp"
}

@test "a leftover whose srun still runs is kept, even if the step has ended" {
	sleep 600 3>&- &
	began=$(awk '{ print $22 }' "/proc/$!/stat")
	dir=$(leftover 0123456789abcdef -e "s/;pid=4194304/;pid=$!/" -e "s/;began=[0-9]*/;began=$began/")
	try mc srun --ddp true
	same "$rc:$err" "0:"
	[ -s "$dir/step" ]
	# A process with the same id but another start time is not srun.
	as_user sed -i "s/;began=[0-9]*/;began=1/" "$dir/step"
	try mc srun --ddp true
	same "$rc:$err" "0:"
	missing "$WORK/.ddp"
}

@test "a leftover of another host is removed after a day" {
	dir=$(leftover 0123456789abcdef -e 's/;from=[^;]*/;from=elsewhere/')
	try mc srun --ddp true
	same "$rc:$err" "0:"
	[ -s "$dir/step" ]
	as_user touch -d '23 hours ago' "$dir"
	try mc srun --ddp true
	[ -s "$dir/step" ]
	as_user touch -d '25 hours ago' "$dir"
	try mc srun --ddp true
	same "$rc:$err" "0:"
	missing "$WORK/.ddp"
}

@test "a leftover without a record is removed after a day" {
	dir=$(leftover 0123456789abcdef)
	as_user rm "$dir/step"
	try mc srun --ddp true
	same "$rc:$err" "0:"
	[ -d "$dir" ]
	as_user touch -d '25 hours ago' "$dir"
	try mc srun --ddp true
	same "$rc:$err" "0:"
	missing "$WORK/.ddp"
}

@test "a leftover of another cluster is kept" {
	dir=$(leftover 0123456789abcdef -e 's/;cluster=[^;]*/;cluster=other/')
	[[ $dir == */other-* ]]
	# The same applies if the directory's name has this cluster, and the record has the other one.
	wrong=$(leftover fedcba9876543210)
	as_user sed -i 's/;cluster=[^;]*/;cluster=other/' "$wrong/step"
	as_user touch -d '25 hours ago' "$dir" "$wrong"
	try mc srun --ddp true
	same "$rc:$err" "0:"
	[ -s "$dir/step" ]
	[ -s "$wrong/step" ]
}

@test "a leftover of another user is kept" {
	need_root
	dir=$(leftover 0123456789abcdef)
	mine=$(leftover fedcba9876543210)
	chown -R daemon "$dir"
	chmod -R o+rwX "$dir"
	touch -d '25 hours ago' "$dir"
	try mc srun --ddp true
	same "$rc:$err" "0:"
	[ -s "$dir/step" ]
	missing "$mine"
}

@test "a leftover is kept if its record is of another release or cannot be read, or if it is a link" {
	dir=$(leftover 0123456789abcdef -e 's/^v2;/v1;/')
	unreadable=$(leftover fedcba9876543210 -e 's/;job=[0-9]*/&x/')
	own_dir "$WORK/precious"
	as_user ln -s ../precious "${dir%-*}-00112233445566ff"
	as_user touch -d '25 hours ago' "$unreadable" "$WORK/precious"
	try mc srun --ddp true
	same "$rc:$err" "0:"
	[ -s "$dir/step" ]
	[ -s "$unreadable/step" ]
	[ -d "${dir%-*}-00112233445566ff" ]
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

@test "directories whose names are not those of a step are kept" {
	dir=$(leftover 0123456789abcdef)
	parent=${dir%/*} cluster=$(basename "${dir%%-*}")
	own_dir "$parent/$cluster-1.0.0-xyz" "$parent/$cluster" "$parent/mine"
	as_user touch -d '25 hours ago' "$parent"/*
	try mc srun --ddp true
	same "$rc:$err" "0:"
	same "$(ls -A "$parent")" "$(printf '%s\n' "$cluster" "$cluster-1.0.0-xyz" mine)"
}

# --- Concurrent steps ----------------------------------------------------------------------

@test "eight concurrent sruns in one directory, five times: none fails, and no directory of a step remains" {
	for _ in 1 2 3 4 5; do
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
