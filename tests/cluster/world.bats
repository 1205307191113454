# SPDX-License-Identifier: Apache-2.0
# A step with --ddp runs as one world, or not at all: if --ddp fails for any task, no task of the step continues. plugstack.conf has
# "optional", unless a test changes it.
#
# shellcheck disable=SC2016 # variables in single quotes are expanded by the task's shell
# shellcheck disable=SC2154 # rc, out and err come from try

load lib

# Slurm reserves no ports here, so that the plugin computes MASTER_PORT. $PORT is an unused port, one of those that minicluster
# claimed for MpiParams.
setup_file()
{
	# If a task on n1 exits with DELAY_EPILOG in its environment, its TaskEpilog takes 3 s.
	printf '#!/bin/sh\n[ -z "$DELAY_EPILOG" ] || sleep 3\n' >"${TMPDIR:-/tmp}/ddp-epilog.$$"
	chmod 755 "${TMPDIR:-/tmp}/ddp-epilog.$$"
	cluster_up --nodes 3 --cpus 4 --conf MpiParams= --conf TaskEpilog="${TMPDIR:-/tmp}/ddp-epilog.$$"
	EPILOG=${TMPDIR:-/tmp}/ddp-epilog.$$
	PORT=$(($(sed -n 's/^base=//p' "$MINICLUSTER_DIR/cluster") + 50))
	cp "$MINICLUSTER_DIR/plugstack.conf" "$TOP/optional"
	export PORT EPILOG
}

teardown_file()
{
	cluster_down
	rm -f "$EPILOG"
}

setup() { cp "$TOP/optional" "$MINICLUSTER_DIR/plugstack.conf"; }

teardown()
{
	stop_listening
	end_jobs
	rm -rf "${WORK:?}"/* "$WORK"/.ddp
}

# refused SRUN_ARGUMENT...: runs a step whose tasks would take ten minutes. It must end, with one message $message from the node
# $node and no task of rank 0's node that ran.
endless='touch ran.$RANK; exec sleep 600'
refused()
{
	try mc "$@" sh -c "$endless"
	[ "$rc" -ne 0 ]
	same "$(count_lines "$err" ddp:)" 1
	has "$err" "^slurmstepd-$node: error: ddp: $message$"
	[ ! -e "$WORK/ran.0" ]
	rm -f "$WORK"/ran.*
}

# --- Ports -------------------------------------------------------------------------------

@test "a port in use ends the step on all nodes, with the remedy" {
	node=n2 message="port $PORT of n2, where rank 0 runs, is in use by a process of user $(id -u). Unset MASTER_PORT, and a free port is chosen."
	for family in AF_INET AF_INET6; do
		listen "$PORT" "$family"
		refused env MASTER_PORT="$PORT" srun -w n2 -n2 --ddp
		refused env MASTER_PORT="$PORT" srun -w n2,n3 -N2 -n4 --ddp
		stop_listening
	done
	sed s/^optional/required/ "$TOP/optional" >"$MINICLUSTER_DIR/plugstack.conf"
	listen "$PORT"
	refused env MASTER_PORT="$PORT" srun -w n2,n3 -N2 -n4 --ddp
	# With optional or required, the exit status is that of killed tasks.
	same "$rc" 137
	message="port $PORT of n2, where rank 0 runs, is in use by a process of user $(id -u). Start the step again, or choose a port with --ddp-port=LO-HI."
	refused srun -w n2,n3 -N2 --ddp --ddp-port="$PORT"
	try mc srun -w n2,n3 -N2 --ddp --ddp-port=$((PORT + 2))-$((PORT + 3)) "$SHOW" MASTER_PORT
	same "$rc:$err:$(sort <<<"$out")" "0::0@n2 MASTER_PORT=$((PORT + 2))
1@n3 MASTER_PORT=$((PORT + 2))"
}

@test "a second step with the port of a running one is refused, also if nobody listens yet" {
	background_as_is mc srun -w n1 -n2 --ddp --ddp-port="$PORT" sh -c 'touch started; exec sleep 600' 2>"$TOP/first"
	within 60 test -e "$WORK/started"
	node=n1 message="port $PORT of n1, where rank 0 runs, is used by another --ddp step. Start the step again, or choose a port with --ddp-port=LO-HI."
	refused srun -w n1,n2 -N2 --ddp --ddp-port="$PORT"
	refused srun -w n1 -n1 --ddp --ddp-port="$PORT"
	# Two nodes of this cluster are one host, and have the same ports.
	node=n2 message="port $PORT of n2, where rank 0 runs, is used by another --ddp step. Unset MASTER_PORT, and a free port is chosen."
	refused env MASTER_PORT="$PORT" srun -w n2,n3 -N2 --ddp
	refused env MASTER_ADDR=127.0.0.1 MASTER_PORT="$PORT" srun -w n2,n3 -N2 --ddp
	# Rank 0 listens on its own node, also if MASTER_ADDR is another host.
	refused env MASTER_ADDR=alias.example MASTER_PORT="$PORT" srun -w n2,n3 -N2 --ddp
	same "$(<"$TOP/first")" ""
	end_jobs
	wait
	try mc srun -w n1 --ddp --ddp-port="$PORT" true
	same "$rc:$err" "0:"
}

@test "a step after another with the same port starts, also if a process of the first continues" {
	local i
	batch -w n1,n2 -N2 --wrap "export MASTER_PORT=$PORT i
		for i in \$(seq 10); do
			srun --ddp sh -c '[ \$((i % 3)) != 0 ] || sleep 1 & exit 0' && srun --ddp true || echo \"round \$i failed\"
		done"
	has_not "$out" 'failed|ddp:'
}

@test "srun in a batch script on rank 0's node skips or refuses a port that is in use, before any task starts" {
	echo "optional $TOP/ddp.so ports=$PORT-$((PORT + 3))" >"$MINICLUSTER_DIR/plugstack.conf"
	listen "$PORT"
	batch -w n1 --wrap 'for i in 1 2 3; do srun --ddp printenv MASTER_PORT; done'
	same "$(uniq -c <<<"$out" | xargs)" "3 $((PORT + 2))"
	stop_listening
	# The same applies to a port that another step has claimed.
	background_as_is mc srun -w n1 -n2 --ddp --ddp-port="$PORT" sh -c 'touch started; exec sleep 600'
	within 60 test -e "$WORK/started"
	batch -w n1 --wrap 'for i in 1 2 3; do srun --ddp printenv MASTER_PORT; done'
	same "$(uniq -c <<<"$out" | xargs)" "3 $((PORT + 2))"
	batch -w n1,n2 -N2 --wrap "srun --ddp --ddp-port=$PORT touch ran; MASTER_PORT=$PORT srun --ddp touch ran"
	same "$(grep -c "^srun: error: ddp: port $PORT of n1, where rank 0 runs, is used by another --ddp step" <<<"$out")" 2
	[ ! -e "$WORK/ran" ]
}

@test "the claim lasts until all tasks of rank 0's node have exited" {
	background_as_is mc srun -w n1 -n2 --ddp --ddp-port="$PORT" sh -c '[ "$RANK" = 1 ] || exit 0; touch started; exec sleep 600'
	within 60 test -e "$WORK/started"
	sleep 0.5
	node=n1 message="port $PORT of n1, where rank 0 runs, is used by another --ddp step.*"
	refused srun -w n1,n2 -N2 --ddp --ddp-port="$PORT"
}

@test "no task inherits the claim of the port" {
	try mc srun -n2 --ddp --ddp-port="$PORT" sh -c 'inode=$(sed -n "s|^\([^ ]* \)\{6\}\([0-9]*\) @slurm-ddp/'"$PORT"'$|\2|p" /proc/net/unix)
		echo "${inode:-none}" >inode.$RANK; ls -l /proc/*/fd 2>/dev/null | grep -c "socket:\[$inode\]"'
	same "$rc:$err:$(sort -u <<<"$out")" "1::0" || same "$rc:$(sort -u <<<"$out")" "1:0"
	has "$(<"$WORK/inode.0")" '^[0-9]+$'
}

@test "twenty parallel steps of a job have different ports" {
	batch -N1 -n1 --wrap 'for i in $(seq 20); do srun --overlap --ddp printenv MASTER_PORT & done; wait'
	same "$(grep -c . <<<"$out"):$(sort -u <<<"$out" | grep -c .)" "20:20"
}

# --- The user's endpoint -------------------------------------------------------------------

@test "a MASTER_PORT or MASTER_ADDR that cannot be right ends the step, and has no effect without --ddp" {
	for port in abc 65536; do
		node=n1 message="usage error: MASTER_PORT=$port of your environment is not a port from 1 to 65535. Unset it, and a port is chosen."
		refused env MASTER_PORT="$port" srun -w n1 -n2 --ddp
	done
	message="usage error: MASTER_PORT=abc of your environment is .*"
	refused env SLURM_DDP=1 srun -w n1,n2 -N2 --export=ALL,MASTER_PORT=abc
	try mc env MASTER_PORT=abc srun -w n1 "$SHOW" MASTER_PORT
	same "$rc:$out:$err" "0:0@n1 MASTER_PORT=abc:"
	message="usage error: MASTER_ADDR=n2 of your environment is node n2, but rank 0 runs on n1. Unset MASTER_ADDR, and the address of rank 0's node is set."
	refused env MASTER_ADDR=n2 srun -w n1,n2 -N2 --ddp
	message="usage error: MASTER_ADDR=localhost of your environment is a different host on each of the 2 nodes. Unset MASTER_ADDR, and the address of rank 0's node is set."
	refused env MASTER_ADDR=localhost srun -w n1,n2 -N2 --ddp
}

@test "an address and a port that the tasks do not get are not used" {
	got=$(MASTER_ADDR=localhost MASTER_PORT=abc show "MASTER_ADDR MASTER_PORT" -N2 -w n1,n2 --export=NONE --ddp --ddp-port="$PORT")
	same "$got" "0@n1 MASTER_ADDR=127.0.0.1 MASTER_PORT=$PORT
1@n2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$PORT"
}

# --- Reasons that only a node knows ---------------------------------------------------------

@test "a program that fails does not end the step" {
	try mc srun -w n1,n2 -N2 --ddp sh -c '[ "$RANK" = 1 ] || exit 1; sleep 1; touch ran'
	same "$rc" 1
	[ -e "$WORK/ran" ]
	has_not "$err" 'ddp:|CANCELLED'
}

@test "a TaskEpilog that takes 3 s delays the end of the step" {
	listen "$PORT"
	node=n1 message="port $PORT of n1, .*"
	refused env DELAY_EPILOG=1 MASTER_PORT="$PORT" srun -w n1,n2 -N2 --ddp
}

# Installs a plugin before ddp.so that waits for a file HOLD on node n2, before its tasks start.
hold_n2()
{
	spank_plugin hold <<-'C'
		#include <slurm/spank.h>
		#include <stdlib.h>
		#include <string.h>
		#include <unistd.h>
		SPANK_PLUGIN(hold, 1);
		int slurm_spank_user_init(spank_t spank, int argc, char **argv)
		{
		    const char *node = getenv("SLURMD_NODENAME");
		    char path[4096], at[4200];
		    (void)argc, (void)argv;
		    if (!node || strcmp(node, "n2") != 0 || spank_getenv(spank, "HOLD", path, sizeof(path)) != ESPANK_SUCCESS)
		        return 0;
		    strcpy(at, path);
		    strcat(at, ".held");
		    (void)!symlink("held", at);
		    for (int i = 0; i < 1200 && access(path, F_OK) < 0; i++)
		        usleep(50000);
		    return 0;
		}
	C
	echo "optional $TOP/hold.so" | cat - "$TOP/optional" >"$MINICLUSTER_DIR/plugstack.conf"
}

@test "a node that starts its tasks after the step was ended does not keep them" {
	hold_n2
	listen "$PORT"
	batch -w n1,n2 -N2 --wrap "export HOLD=$WORK/go MASTER_PORT=$PORT
		srun --ddp sh -c 'echo ran; exec sleep 300'; echo \"status \$?\" >status; touch go
		while squeue -h -s -j \$SLURM_JOB_ID | grep -q '\\.0 '; do sleep 0.1; done; pgrep -fx 'sleep 300' || true"
	has "$(<"$WORK/status")" '^status [1-9]'
	has_not "$out" '^(ran|[0-9]+)$'
}

@test "ddp-run starts a refused step again, and its report has the reason" {
	install -m 755 "$DDP_BUILDDIR/runtime/run/ddp-run" "$TOP/ddp-run"
	listen "$PORT"
	cat >"$TOP/once" <<-END
		#!/bin/sh
		touch ran.\$DDP_RESTART.\$RANK
	END
	chmod 755 "$TOP/once"
	try mc salloc -Q -N2 -w n1,n2 "$TOP/ddp-run" --restarts 1 -N2 --ddp-port="$PORT" "$TOP/once"
	has "$err" "^ddp: port $PORT of n1, where rank 0 runs, is in use by a process"
	has "$err" '^next: started again'
	has_not "$err" 'was cancelled'
}

@test "with required in plugstack.conf, a step that srun refuses does not keep its nodes busy" {
	sed s/^optional/required/ "$TOP/optional" >"$MINICLUSTER_DIR/plugstack.conf"
	batch -w n1,n2 -N2 -n4 --wrap 'srun --ddp mpirun true; echo "status $?"; srun hostname'
	has "$out" '^status 1$'
	same "$(grep -c "^$(hostname)$" <<<"$out")" 4
}

# --- A node that does not load the plugin ----------------------------------------------------

mark='-1 \(ddp.so is not loaded on this node\)'

@test "on a node without the plugin no variable looks like a rank" {
	need_root
	: >"$TOP/empty"
	slurmd_n2 "mount --bind '$TOP/empty' '$MINICLUSTER_DIR/plugstack.conf'"
	names="RANK WORLD_SIZE LOCAL_RANK MASTER_PORT PET_NNODES"
	for kind in optional required; do
		# Writes to the same file, which is a mount point for n2.
		sed "s/^[a-z]*/$kind/" "$TOP/optional" >"$MINICLUSTER_DIR/plugstack.conf"
		got=$(show "$names" -N2 -w n1,n2 --ddp --ddp-port="$PORT")
		same "$got" "0@n1 RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_PORT=$PORT PET_NNODES=2
1@n2 RANK=${mark//\\/} WORLD_SIZE=${mark//\\/} LOCAL_RANK=${mark//\\/} MASTER_PORT=${mark//\\/} PET_NNODES=${mark//\\/}"
	done
	cp "$TOP/optional" "$MINICLUSTER_DIR/plugstack.conf"
	# The user's values stay, from the environment and from --export.
	got=$(PET_NNODES=7 show "RANK MASTER_PORT PET_NNODES" -N2 -w n1,n2 --export=ALL,MASTER_PORT=4000 --ddp)
	same "$got" "0@n1 RANK=0 MASTER_PORT=4000 PET_NNODES=7
1@n2 RANK=${mark//\\/} MASTER_PORT=4000 PET_NNODES=7"
	# A refused step has the text, too, since its tasks run on the node without the plugin.
	listen "$PORT"
	try mc env MASTER_PORT="$PORT" srun -w n1,n2 -N2 --ddp sh -c 'echo "$SLURMD_NODENAME $RANK"; exec sleep 600'
	[ "$rc" -ne 0 ]
	has_not "$out" n1
	# Without --ddp, and in a step of daemons that start ranks, nothing is changed.
	got=$(show "$names" -N2 -w n1,n2)
	has_not "$got" ddp.so
	ln -s "$SHOW" "$WORK/orted"
	has_not "$(mc srun -N2 -w n1,n2 --ddp "$WORK/orted" RANK PET_NNODES)" ddp.so
	slurmd_n2 true
}

@test "a step inside a task of a node without the plugin: nodes with the plugin remove the text" {
	need_root
	: >"$TOP/empty"
	slurmd_n2 "mount --bind '$TOP/empty' '$MINICLUSTER_DIR/plugstack.conf'"
	got=$(mc srun -N2 -w n1,n2 --ddp sh -c '[ "$SLURM_NODEID" = 0 ] || exec srun --overlap -N1 -n1 -w n1 '"$SHOW RANK WORLD_SIZE LOCAL_RANK MASTER_PORT PET_NNODES")
	same "$got" "0@n1 RANK=UNSET WORLD_SIZE=UNSET LOCAL_RANK=UNSET MASTER_PORT=UNSET PET_NNODES=UNSET"
	slurmd_n2 true
}

@test "a script with --ddp on a node without the plugin: no task of its srun trains alone" {
	need_root
	: >"$TOP/empty"
	slurmd_n2 "mount --bind '$TOP/empty' '$MINICLUSTER_DIR/plugstack.conf'"
	value=${mark//\\/}
	for variable in '' 1; do
		option=()
		[ -n "$variable" ] || option=(--ddp)
		SLURM_DDP=$variable batch "${option[@]}" -w n2 --wrap "srun $SHOW RANK WORLD_SIZE LOCAL_RANK MASTER_PORT PET_NNODES"
		same "$out" "0@n2 RANK=$value WORLD_SIZE=$value LOCAL_RANK=$value MASTER_PORT=$value PET_NNODES=$value"
		SLURM_DDP=$variable batch "${option[@]}" -w n2,n3 -N2 -n2 --ntasks-per-node=1 --wrap \
			"srun sh -c '[ \$SLURMD_NODENAME = n2 ] || touch ran; exec sleep 600'; echo \"status \$?\""
		has "$(not_waiting <<<"$out")" '^slurmstepd-n3: error: ddp: srun left no plan for this step\. Install the plugin of slurm-ddp where srun runs\.$'
		has "$out" '^status [1-9]'
		[ ! -e "$WORK/ran" ]
	done
	# In a job without --ddp, nothing is changed.
	batch -w n2,n3 -N2 -n2 --ntasks-per-node=1 --wrap "srun $SHOW RANK SLURM_DDP_STEP"
	same "$(sort <<<"$out")" "0@n2 RANK=UNSET SLURM_DDP_STEP=UNSET
1@n3 RANK=UNSET SLURM_DDP_STEP=UNSET"
	slurmd_n2 true
}

# --- Reasons that srun knows -----------------------------------------------------------------

@test "a heterogeneous step is refused, whichever component has --ddp; a step in one component works" {
	line="srun: error: ddp: --ddp cannot be used in a heterogeneous step, which has several components. Start the program in one component."
	for place in first second all; do
		one='' two='' all=''
		case $place in first) one=--ddp ;; second) two=--ddp ;; all) all=1 ;; esac
		# shellcheck disable=SC2086 # empty options
		try mc env ${all:+SLURM_DDP=1} srun -Q -n2 -w n2 $one touch ran : -n1 -w n1 $two touch ran
		[ "$rc" -ne 0 ]
		same "$(grep ddp: <<<"$err")" "$line"
		[ ! -e "$WORK/ran" ]
	done
	try mc salloc -Q -n1 -w n1 : -n2 -w n2 srun --het-group=1 --ddp "$SHOW" RANK WORLD_SIZE NODE_RANK
	same "$rc:$(sort <<<"$out")" "0:0@n2 RANK=0 WORLD_SIZE=2 NODE_RANK=0
1@n2 RANK=1 WORLD_SIZE=2 NODE_RANK=0"
}

@test "DDP_ATTEMPT is the job's, not that of the job that submitted it" {
	SLURM_RESTART_COUNT=3 batch -w n1 --wrap 'srun --ddp sh -c '\''echo "$DDP_ATTEMPT ${DDP_RENDEZVOUS##*/}"'\'
	has "$out" "^0 mini[0-9]+-$job\.0\.0-"
	got=$(SLURM_RESTART_COUNT=3 show DDP_ATTEMPT -w n1 --ddp)
	same "$got" "0@n1 DDP_ATTEMPT=0"
}

# This test is the last one, because a node whose messages were lost may be unavailable for a while.
@test "slurmctld does not answer: one line names the step, and its other tasks continue" {
	local ctld
	hold_n2
	listen "$PORT"
	ctld=$(cat "$MINICLUSTER_DIR/slurmctld.pid")
	# Rank 0 runs on n2, and starts when slurmctld is stopped.
	background_as_is mc env HOLD="$WORK/go" MASTER_PORT="$PORT" srun -n2 -w n2,n3 -N2 --ddp sh -c 'touch ran; exec sleep 600' >"$TOP/out" 2>"$TOP/err"
	step=$!
	within 60 test -L "$WORK/go.held"
	kill -STOP "$ctld"
	as_user touch "$WORK/go"
	within 120 grep -q 'cannot end step' "$TOP/err" || { kill -CONT "$ctld"; return 1; }
	kill -CONT "$ctld"
	has "$(not_waiting <"$TOP/err")" "^slurmstepd-n2: error: ddp: cannot end step [0-9]+\.0 \(.+\), so its other tasks continue. Type scancel [0-9]+\.0\.$"
	[ -e "$WORK/ran" ]
	end_jobs
	wait "$step" || true
}
