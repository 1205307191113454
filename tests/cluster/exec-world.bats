# SPDX-License-Identifier: Apache-2.0
# A step of ddp-exec runs as one world, or not at all: if ddp-exec fails for any task, the step ends.
# shellcheck disable=SC2016,SC2154

load lib

setup_file()
{
	cluster_up --nodes 3 --cpus 4 --gpus 2
	install -m 755 "$DDP_BUILDDIR/runtime/launch/ddp-exec" "$TOP/ddp-exec"
	export EXEC=$TOP/ddp-exec
	cat >"$TOP/start" <<-'END'
		#!/bin/sh
		# start RANK COMMAND...: rank RANK starts a missing program, the others start COMMAND.
		rank=$1
		shift
		[ "$SLURM_PROCID" -ne "$rank" ] || set -- ./missing
		exec "$EXEC" "$@"
	END
	chmod 755 "$TOP/start"
}
teardown_file() { cluster_down; }
teardown()
{
	stop_listening
	end_jobs
	rm -rf "${WORK:?}"/* "$WORK"/.ddp
}

# tasks SRUN_OPTION... PROGRAM [ARGUMENT...]: runs a step.
tasks() { try mc srun -J x "$@"; }

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

# --- One task fails ----------------------------------------------------------------------

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
	has "$err" "^ddp-exec: node n2 does not see $WORK/\.ddp/mini[^ ]*, which rank 0 made on n1 \(.*\)$"
	within_s 30
}

@test "if scancel fails, one line names the command that ends the step" {
	forbid scancel
	tasks -w 'n[1-2]' -N2 -n2 sh -c 'PATH=$0/bin:$PATH exec "$@"' "$WORK" "$TOP/start" 1 sleep 5
	same "$rc" 127
	has "$err" "^ddp-exec: cannot end step [0-9]+\.0 \($WORK/bin/scancel: no answer\): its other tasks continue\. Type scancel [0-9]+\.0\.$"
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

server='import socket, os, time
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("", int(os.environ["MASTER_PORT"])))
s.listen()
open("listens", "w").close()
while not os.path.exists("end"): time.sleep(0.1)'

# bats test_tags=release
@test "a port of a running srun --ddp step is refused, also if no process listens on it" {
	mc srun -J x -w n1 -n2 --ddp --ddp-port=61999 sh -c 'touch runs; until [ -e end ]; do sleep 0.1; done' 3>&- &
	within 60 test -e "$WORK/runs"
	tasks -w n1 -n2 --overlap "$EXEC" --ddp-port=61999 touch ran
	touch "$WORK/end"
	wait $!
	same "$rc" 1
	same "$(grep '^ddp-exec' <<<"$err")" \
		"ddp-exec: port 61999 of n1, where rank 0 runs, is used by another --ddp step. Start the step again, or choose a port with --ddp-port=LO-HI."
	[ ! -e "$WORK/ran" ]
}

# bats test_tags=release
@test "a port on which a program of ddp-exec listens is refused by srun --ddp" {
	mc srun -J x -w n1 -n2 "$EXEC" --ddp-port=61999 sh -c '[ "$RANK" = 0 ] || exec sleep 1; exec /usr/bin/python3 -c "$0"' "$server" 3>&- &
	within 60 test -e "$WORK/listens"
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
	has "$(grep '^ddp-exec' <<<"$err" | sort -u)" '^ddp-exec: the node of rank 0 is unknown: .* give a directory that all nodes share with --ddp-rdzv=DIR'
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
