# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Helpers for tests on a real Slurm. Each .bats file starts a private cluster in setup_file and stops it in teardown_file:
#
#     load lib
#     setup_file() { cluster_up --nodes 2; }
#     teardown_file() { cluster_down; }
#
# If the tests run as root, jobs run as the unprivileged user nobody, and as daemon if a second user is needed. Otherwise they run
# as the user that runs the tests.

DDP_SRCDIR=${DDP_SRCDIR:-$(cd "$BATS_TEST_DIRNAME/../.." && pwd)}
DDP_BUILDDIR=${DDP_BUILDDIR:-$DDP_SRCDIR}
DDP_PLUGIN=${DDP_PLUGIN:-$DDP_BUILDDIR/spank-plugin/.libs/ddp.so}
export DDP_SRCDIR DDP_BUILDDIR DDP_PLUGIN

# A copy of minicluster that every user can run. A script in a private home directory might not be readable.
minicluster=${TOP:+$TOP/minicluster}

# cluster_up OPTION...: starts this file's cluster with these options of "minicluster up". Creates $WORK, a directory of the user
# that all nodes share.
cluster_up()
{
	TOP=$(mktemp -d "${TMPDIR:-/tmp}/ddp-test.XXXXXX")
	chmod 755 "$TOP"
	MINICLUSTER_DIR=$TOP/cluster
	WORK=$TOP/work
	mkdir -m 755 "$WORK"
	# Copies that every user can read. The build directory might not be readable.
	install -m 755 "$DDP_PLUGIN" "$TOP/ddp.so"
	minicluster=$TOP/minicluster
	install -m 755 "$DDP_SRCDIR/contrib/minicluster" "$minicluster"
	install -m 755 "$DDP_SRCDIR/tests/cluster/show" "$TOP/show"
	if [ "$(id -u)" -eq 0 ]; then
		chown nobody "$WORK"
	fi
	export TOP WORK MINICLUSTER_DIR
	export SHOW=$TOP/show
	start_cluster "$@" || return
	# Remove variables of a job in which the tests may run.
	eval "$("$minicluster" env | grep '^unset ')"
	umask 022
}

# start_cluster OPTION...: starts the cluster of cluster_up() with these options. If that fails, prints the cluster's log. With
# DDP_TEST_DELAY=MS in the environment, each task of a step starts up to MS milliseconds late, and the nodes of a job complete it up to
# MS milliseconds late. This finds tests and code that depend on the order in which tasks start, or on the nodes that Slurm chooses
# while the previous job is completing.
start_cluster()
{
	local delay=()
	if [[ ${DDP_TEST_DELAY:-0} != 0 ]]; then
		# shellcheck disable=SC2016 # the script expands the expression
		printf '#!/bin/bash\nsleep "$((RANDOM %% %d))e-3"\n' "$DDP_TEST_DELAY" >"$TOP/delay"
		chmod 755 "$TOP/delay"
		delay=(--conf Epilog="$TOP/delay")
		[[ "$*" == *TaskProlog* ]] || delay+=(--conf TaskProlog="$TOP/delay")
	fi
	"$minicluster" up --plugin "$TOP/ddp.so" "${delay[@]}" "$@" >"$TOP/up.log" 2>&1 || {
		cat "$TOP/up.log" >&2
		return 1
	}
}

# restart_cluster OPTION...: replaces the cluster by a new one. teardown() calls this, since Slurm keeps a lost node busy for
# minutes.
restart_cluster()
{
	"$minicluster" down >"$TOP/up.log" 2>&1 || {
		cat "$TOP/up.log" >&2
		return 1
	}
	# Try twice, since processes of the lost node may still be ending, and hold ports.
	start_cluster "$@" || start_cluster "$@"
}

cluster_down()
{
	"$minicluster" down >/dev/null
	rm -rf "$TOP"
}

# as_user and as_other_user run a command as the first and as the second unprivileged user.
as_user()
{
	if [ "$(id -u)" -eq 0 ]; then
		HOME=${USER_HOME:-$WORK} setpriv --reuid=nobody --regid=nogroup --clear-groups "$@"
	else
		HOME=${USER_HOME:-$HOME} "$@"
	fi
}

as_other_user()
{
	[ "$(id -u)" -eq 0 ] || skip "a second user needs root"
	HOME=/ setpriv --reuid=daemon --regid=daemon --clear-groups "$@"
}

# mc COMMAND...: runs a command on the cluster, as the user, in $WORK, for at most $MC_SECONDS (120) seconds. Sets what "minicluster
# run" would set, without its dozen processes.
mc() { mc_in "$WORK" "$@"; }

# mc_in DIRECTORY COMMAND...: like mc, but in another working directory.
mc_in()
{
	(cd "$1" && shift && SLURM_CONF=$MINICLUSTER_DIR/slurm.conf as_user timeout -k 5 "${MC_SECONDS:-120}" "$@")
}

# show "NAME..." SRUN_OPTION...: each task prints a line "RANK@node NAME=value ..." of these variables, sorted by rank. An
# unset variable has the value UNSET. Messages of Slurm and the plugin are in $TOP/err.
#
#     show "RANK LOCAL_RANK" -N2 -n4 --ddp
show()
{
	local names=$1
	shift
	# shellcheck disable=SC2086
	mc srun "$@" "$SHOW" $names 2>"$TOP/err" | sort -n
}

# slurm_at_least RELEASE: succeeds if this Slurm has this release, such as "23.11", or a later one.
slurm_at_least()
{
	local version
	version=$(PATH=$PATH:/usr/sbin:/sbin slurmd -V)
	[ "$(printf '%s\n' "$1" "${version##* }" | sort -V | head -n 1)" = "$1" ]
}

# same GOT WANTED: if the two texts differ, prints both and fails.
same()
{
	[ "$1" = "$2" ] && return 0
	printf 'got:\n%s\nwanted:\n%s\n' "$1" "$2" >&2
	[ -s "$TOP/err" ] && sed 's/^/stderr: /' "$TOP/err" >&2
	return 1
}

# has TEXT PATTERN: unless a line of the text matches the extended regular expression, prints the text and fails. has_not: fails
# if a line matches.
has()
{
	grep -qE -- "$2" <<<"$1" && return 0
	printf 'no line matches "%s" in:\n%s\n' "$2" "$1" >&2
	return 1
}

has_not()
{
	grep -qE -- "$2" <<<"$1" || return 0
	printf 'a line matches "%s" in:\n%s\n' "$2" "$1" >&2
	return 1
}

# try COMMAND...: runs the command and sets $out, $err and $rc (exit status). $err is without srun's lines about waiting for
# resources, because these depend on earlier tests.
try()
{
	rc=0
	"$@" >"$TOP/out" 2>"$TOP/err" || rc=$?
	out=$(<"$TOP/out") err=$(not_waiting <"$TOP/err")
	export out err rc
}

# background PROGRAM...: starts a program as the user in the background. $! is the program's own process, so that a test can kill
# it.
background()
{
	if [ "$(id -u)" -eq 0 ]; then
		set -- setpriv --reuid=nobody --regid=nogroup --clear-groups "$@"
	fi
	HOME=$WORK background_as_is "$@"
}

# background_as_is PROGRAM...: does the same as the user that runs the tests.
background_as_is() { "$@" 3>&- & }

# Removes srun's lines about waiting from stdin. Gives the plugin's errors from nodes the form that they have up to Slurm 25.05.
# Later releases print the time in place of "slurmstepd-NODE", and the plugin prints the node.
not_waiting()
{
	grep -vE '^srun: (job [0-9]+ (queued and waiting for|has been allocated) resources|Job [0-9]+ step creation .*, retrying.*|Step created for .*)$' |
		sed -E 's/^\[[0-9T:.-]+\] error: ddp: (n[0-9]+): /slurmstepd-\1: error: ddp: /'
}

# within SECONDS COMMAND...: repeats COMMAND until it succeeds, and fails after SECONDS. Runs COMMAND at most five times a second,
# since many commands start several processes.
within()
{
	local end=$((SECONDS + $1)) pause=0.05
	shift
	until "$@"; do
		if [ "$SECONDS" -ge "$end" ]; then
			printf 'not within the time limit: %s\n' "$*" >&2
			return 1
		fi
		sleep "$pause"
		pause=0.2
	done
}

# remove_attempts: removes the reports of ddp-run, and what is left of its steps. A process that is just ending may still write there.
remove_attempts() { within 60 rm -rf "$WORK/.ddp"; }

# queue: runs squeue -h, as the user that runs the tests. For conditions that are polled.
queue() { SLURM_CONF=$MINICLUSTER_DIR/slurm.conf timeout -k 5 120 squeue -h "$@"; }

# batch OPTION...: submits a batch job with these arguments of sbatch, and waits until the job has ended. This is faster than
# sbatch -W. Sets $job to the job's id, and $out to its output.
batch()
{
	job=$(mc sbatch --parsable -o batch.out "$@") || return 1
	within 120 gone "$job"
	# If a step has to wait for the previous one, srun prints a line, which is removed here.
	out=$(grep -vE '^srun: (Job|Step) ' "$WORK/batch.out" || true)
	export out job
}

gone()
{
	local left
	left=$(queue -j "$1" 2>&1) || grep -q 'Invalid job id' <<<"$left" || return 1
	[ -z "$left" ] || grep -q 'Invalid job id' <<<"$left"
}

# other_cluster: starts a cluster with other options for one test. plugin_arguments: changes the arguments in the plugin's line of
# plugstack.conf. A file whose tests use these must call other_cluster_down in teardown().
other_cluster()
{
	other_cluster_is_up=yes
	cluster_up "$@"
}

plugin_arguments()
{
	other_arguments=yes
	echo "optional $TOP/ddp.so $*" >"$MINICLUSTER_DIR/plugstack.conf"
}

other_cluster_down()
{
	[ -z "${other_cluster_is_up-}" ] || cluster_down
	[ -z "${other_arguments-}" ] || plugin_arguments ""
	unset other_cluster_is_up other_arguments
}

# Skips a test if minicluster could not create GPU device nodes, which may need root; see minicluster(1).
need_gpus()
{
	[ -s "$MINICLUSTER_DIR/gres.conf" ] || skip "this user can make no GPU device nodes"
}

# Some Debian packages of Slurm do not have the PMIx plugin.
needs_pmix()
{
	[ -f "$DDP_MODULES/ddp_pmix.so" ] || skip "built without PMIx"
	mc srun --mpi=list 2>&1 | grep -q pmix || skip "this Slurm has no PMIx"
}

# Skips a test that mounts a file system, if this is not possible.
need_root()
{
	[ "$(id -u)" -eq 0 ] || skip "needs root"
	unshare -m true 2>/dev/null || skip "this host lets nobody mount (unshare -m fails)"
}

# start_slurmd NODE [OPTION...]: starts the node's slurmd, with the environment that an init system would set.
start_slurmd()
{
	local node=$1
	shift
	(cd / && env -i PATH="$PATH:/usr/sbin:/sbin" LANG=C.UTF-8 timeout 60 slurmd "$@" -f "$MINICLUSTER_DIR/slurm.conf" -N "$node" </dev/null 3>&-)
}

# slurmd_in NODE COMMAND: runs the shell command in a new mount namespace, and restarts slurmd of NODE there. slurmd_n2: does so for n2.
slurmd_in()
{
	local pid
	pid=$(cat "$MINICLUSTER_DIR/slurmd-$1.pid")
	kill "$pid"
	within 60 test ! -e "/proc/$pid"
	(cd / && env -i PATH="$PATH:/usr/sbin:/sbin" LANG=C.UTF-8 unshare -m sh -c "$2; exec slurmd -f '$MINICLUSTER_DIR/slurm.conf' -N $1" \
		>"$TOP/slurmd-$1.out" 2>&1 </dev/null 3>&-)
	within 60 test -s "$MINICLUSTER_DIR/slurmd-$1.pid"
	within 150 node_answers "$1"
}

slurmd_n2() { slurmd_in n2 "$1"; }

# The node's state is not compared, because slurmctld may call a node without jobs "mixed" until the next job.
node_answers() { mc srun -Q -I10 -w "$1" -t 1 true 2>/dev/null; }

no_jobs() { [ -z "$(queue)" ]; }

# count_lines TEXT PATTERN: prints the number of lines of TEXT that match.
count_lines() { grep -c "$2" <<<"$1" || true; }

# Ends all background processes and jobs of the test.
end_jobs()
{
	local pid
	for pid in $(jobs -p); do
		kill "$pid" 2>/dev/null || true
	done
	no_jobs && return
	# Cancel jobs by id: "scancel -u nobody" does not return on Slurm 25.11.
	mc sh -c 'squeue -h -o %A | sort -u | xargs -r scancel' >/dev/null 2>&1 || true
	within 60 no_jobs
}

# mps_listen SOCKET STARTER: creates the socket of an MPS daemon, which listens until stop_listening. STARTER is "background" or
# "background_as_is", and selects the daemon's user.
mps_listen()
{
	local socket=$1
	shift
	"$@" /usr/bin/python3 -c '
import os, signal, socket, sys
at = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
at.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o666)
at.listen()
signal.pause()' "$socket"
	listener=$!
	within 60 grep -q "$socket" /proc/net/unix
}

# listen PORT [FAMILY]: starts a process of the user that runs the tests, which listens on the TCP port, on all addresses, until
# stop_listening.
listen()
{
	rm -f "$TOP/listener"
	/usr/bin/python3 -c 'import socket, sys, time
s = socket.socket(getattr(socket, sys.argv[2]))
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("", int(sys.argv[1])))
s.listen()
print("up", flush=True)
time.sleep(600)' "$1" "${2-AF_INET}" >"$TOP/listener" 3>&- &
	listener=$!
	export listener
	within 60 grep -qs up "$TOP/listener"
}

# Ends the listener of listen or mps_listen. A socket file remains.
stop_listening()
{
	[ -n "${listener-}" ] || return 0
	kill "$listener"
	wait "$listener" || true
	unset listener
}

# For setup_file(): installs libddp and its programs in a directory that every user can read. Concurrent suites take turns, since
# libtool links again in the build directory.
install_runtime()
{
	flock "$DDP_BUILDDIR/Makefile" make -C "$DDP_BUILDDIR/runtime" install DESTDIR="$TOP/inst" >"$TOP/install.log" 2>&1 ||
		{ tail -n 20 "$TOP/install.log" >&2; return 1; }
	INST=$(find "$TOP/inst" -name ddp.pc)
	INST=${INST%/lib*/pkgconfig/ddp.pc}
	DDP_MODULES=$(dirname "$(find "$INST" -name ddp_onednn.so)")
	LD_LIBRARY_PATH=$(dirname "$(find "$INST" -name libddp.so)")
	PATH=$INST/bin:$PATH
	# All traffic between nodes stays on this host.
	export INST DDP_MODULES LD_LIBRARY_PATH PATH DDP_SOCKET_IFNAME=lo
}

# run_once OPTION...: runs ddp-run with one attempt, which must fail. Sets $dir to the report's directory and $text to the report.
run_once()
{
	try mc ddp-run --restarts 0 "$@"
	dir=$(find "$WORK/.ddp" -maxdepth 1 -name 'failed-*')
	text=$(<"$dir/report.txt")
	# ddp-run has printed the report, whose second line is checked here. --explain prints the report again.
	[[ $'\n'$err$'\n' == *$'\n'"$(sed -n 2p "$dir/report.txt")"$'\n'* ]] || same "$err" "$text"
	same "$(mc ddp-run --explain "$dir")" "$text"
}

# field NAME...: prints fields of report.json in one line, such as "first.rank" or "ranks.0.why".
field()
{
	/usr/bin/python3 -c '
import json, sys
for path in sys.argv[2:]:
    value = json.load(open(sys.argv[1]))
    for key in path.split("."):
        value = value[int(key) if isinstance(value, list) else key]
    print(value, end=" " if path != sys.argv[-1] else "\n")' "$dir/report.json" "$@"
}

# Prints "PID RANK ATTEMPT NODE" of each ddp-train process that runs in $WORK.
ranks()
{
	local pid
	for pid in $(pgrep -f '^[^ ]*ddp-train '); do
		[ "$(readlink "/proc/$pid/cwd" 2>/dev/null)" = "$WORK" ] || continue
		tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | awk -F= -v pid="$pid" '
			$1 == "RANK" { rank = $2 } $1 == "DDP_RESTART" { attempt = $2 } $1 == "SLURMD_NODENAME" { node = $2 }
			END { if (node != "") print pid, rank, attempt, node }'
	done
}

# spank_plugin NAME <SOURCE: compiles a SPANK plugin to $TOP/NAME.so, for the Slurm release for which ddp.so was built.
spank_plugin()
{
	local flags
	flags=$(sed -n 's/^SLURM_CPPFLAGS = *//p' "$DDP_BUILDDIR/spank-plugin/Makefile")
	# shellcheck disable=SC2086 # flags are words
	cc -shared -fPIC -Wall -Werror $flags -o "$TOP/$1.so" -x c -
	chmod 755 "$TOP/$1.so"
}
