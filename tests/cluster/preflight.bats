#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# ddp-run --preflight must find, name and exclude the node of each injected fault, and must report no fault on a cluster without
# one.
#
# All nodes run on one host and share its CPUs.
#
# shellcheck disable=SC2016 # the task's shell expands single-quoted texts
# shellcheck disable=SC2154 # try() sets rc, out and err

load lib

setup_file()
{
	cluster_up --nodes 8 --gpus 2 --conf SlurmdTimeout=300
	install_runtime
	# A driver with emulated GPUs; see driver.c.
	mkdir -m 755 "$TOP/driver"
	for library in libcuda.so.1 libnvidia-ml.so.1; do
		cc -shared -fPIC -Wall -Werror -o "$TOP/driver/$library" "$DDP_SRCDIR/tests/cluster/driver.c"
	done
	# NCCL for these GPUs, emulated in host memory.
	make -C "$DDP_BUILDDIR/tests/runtime" host/ddp_nccl.la host/ddp_gpu.la >"$TOP/make.log" 2>&1
	mkdir -m 755 "$TOP/modules"
	install -m 755 "$DDP_BUILDDIR"/tests/runtime/host/.libs/ddp_*.so "$TOP/modules"
	# A ddp-info whose product is wrong on the node that DDP_PREFLIGHT_FAULT names.
	mkdir -m 755 "$TOP/wrong"
	cp "$INST/bin/ddp-run" "$TOP/wrong"
	(
		cd "$DDP_BUILDDIR/runtime/info" || exit
		cc -std=gnu11 -O2 -DHAVE_CONFIG_H -DPREFLIGHT_FAULT -I"$DDP_BUILDDIR" -I"$DDP_SRCDIR/runtime" -o "$TOP/wrong/ddp-info" \
			ddp-info.o "$DDP_SRCDIR/runtime/info/node-tests.c" .libs/libinfo.a ../base/.libs/libbase.a \
			-L"$LD_LIBRARY_PATH" -lddp -ldl -lm -lpthread
	) >"$TOP/make.log" 2>&1 || cat "$TOP/make.log" >&2
	make_boost_plugin
	# On a busy host a job with a lost node takes more than a minute.
	export MC_SECONDS=300
	aside tree
	aside network
}

# aside NAME: runs the function NAME beside the tests. The function starts another cluster, and mostly waits.
aside()
{
	local top=$TOP
	(
		rc=0
		"$1" >"$top/$1.out" 2>"$top/$1.err" || rc=$?
		echo "$rc" >"$top/$1.rc"
	) 3>&- &
}

# outcome NAME: waits for the function's end, and sets rc, out and err like try().
outcome()
{
	within 200 test -s "$TOP/$1.rc"
	rc=$(<"$TOP/$1.rc") out=$(<"$TOP/$1.out") err=$(<"$TOP/$1.err")
}

# Compiles a SPANK plugin that gives the tasks on some nodes a higher priority than that of other programs on the host. $BOOST lists
# the numbers of these nodes, from 0.
make_boost_plugin()
{
	spank_plugin boost <<-'C'
		#include <slurm/spank.h>
		#include <fcntl.h>
		#include <stdint.h>
		#include <string.h>
		#include <sys/resource.h>
		#include <unistd.h>
		SPANK_PLUGIN(boost, 1);
		int slurm_spank_task_init_privileged(spank_t spank, int argc, char **argv)
		{
		    char nodes[64];
		    uint32_t node;
		    int fd;
		    (void)argc, (void)argv;
		    if (spank_getenv(spank, "BOOST", nodes, sizeof(nodes)) != ESPANK_SUCCESS ||
			spank_get_item(spank, S_JOB_NODEID, &node) != ESPANK_SUCCESS || !strchr(nodes, (int)('0' + node)))
			return 0;
		    (void)setpriority(PRIO_PROCESS, 0, -15);
		    /* Linux may divide a CPU among sessions, and each session has its own priority. */
		    if ((fd = open("/proc/self/autogroup", O_WRONLY)) >= 0) {
			(void)!write(fd, "-15", 3);
			close(fd);
		    }
		    return 0;
		}
	C
	export BOOST_PLUGIN=$TOP/boost.so
}

teardown_file()
{
	outcome tree
	outcome network
	cluster_down
}

teardown()
{
	echo "optional $TOP/ddp.so" >"$MINICLUSTER_DIR/plugstack.conf"
	[[ -z ${stopped-} ]] || kill -9 "${stopped[@]}" || true
	# shellcheck disable=SC2086 # names
	revive ${lost-}
	end_jobs
	rm -rf "$TOP/through" "$WORK/.ddp" "${WORK:?}"/*
}

# revive NODE...: replaces the slurmd of nodes that a test has lost or changed. Slurm keeps a lost node busy for minutes, unless it is
# down for a moment.
revive()
{
	local node
	for node; do
		kill -9 "$(cat "$MINICLUSTER_DIR/slurmd-$node.pid")" || true
		"$minicluster" run scontrol update nodename="$node" state=down reason=test
		start_slurmd "$node"
	done
	for node; do
		within 60 node_answers "$node"
	done
}

# preflight NODES OPTION...: runs ddp-run with these options in a job with this number of nodes, the first ones. try() sets $err to
# its messages. Slow nodes, as on a busy host, are tested again, which most tests avoid.
preflight()
{
	local nodes=$1
	shift
	# While the previous job is completing, Slurm would use other nodes.
	within 60 no_jobs
	[[ -n ${DDP_RUN-} && ${DDP_RUN##*/} != ddp-run ]] || set -- --preflight-slow 0.1 "$@"
	try mc salloc -Q --no-kill -N"$nodes" "${DDP_RUN:-ddp-run}" "$@"
}

# Prints the nodes on which the program ran.
nodes() { sort -u <<<"$out" | tr '\n' ' '; }

# through SCRIPT: lets the next preflight use a ddp-info whose lines pass through the shell script. The script runs on each node with
# the process ids of ddp-info and of its slurmstepd.
through()
{
	mkdir "$TOP/through"
	cp "$INST/bin/ddp-run" "$TOP/through"
	printf '#!/bin/bash\nexec %s/bin/ddp-info "$@" > >(set -- $$ $PPID; %s)\n' "$INST" "$1" >"$TOP/through/ddp-info"
	chmod 755 "$TOP/through" "$TOP/through/ddp-info"
	DDP_RUN=$TOP/through/ddp-run
}

# stop_at NODE:LINE...: lets the next preflight stop the tests on each NODE when they have written a line that matches, and write their
# process id and that of their slurmstepd to $WORK/paused.NODE.
stop_at()
{
	export STOPS="$*"
	through 'for stop in $STOPS; do
			[ "${stop%%:*}" != "$SLURMD_NODENAME" ] || pattern=${stop#*:}
		done
		while IFS= read -r line; do
			echo "$line"
			[ -n "$pattern" ] && [[ $line == *$pattern* ]] || continue
			kill -STOP "$1"
			until grep -q "^State:.[TZ]" "/proc/$1/status"; do :; done
			echo "$@" >"$WORK/paused.$SLURMD_NODENAME"
			pattern=
		done'
}

# act NODE COMMAND...: runs COMMAND when the tests on NODE have stopped, with two more arguments: the process ids of the tests and of
# their slurmstepd.
act()
{
	local node=$1 pids
	shift
	within 100 test -s "$WORK/paused.$node"
	read -ra pids <"$WORK/paused.$node"
	"$@" "${pids[@]}"
}

# during NODE COMMAND...: lets the next preflight stop the tests on NODE after the test of CPUs, and run COMMAND then.
during()
{
	stop_at "$1:product"
	act "$@" >"$TOP/act" 2>&1 3>&- &
}

# Prints the nodes that failed according to preflight.json, such as "n3 failed". Other programs on the host may make a node slow.
verdicts()
{
	/usr/bin/python3 -c '
import glob, json, sys
print(*sorted(f"{node} {verdict}" for name in glob.glob(sys.argv[1] + "/.ddp/failed-*/preflight.json")
              for node, verdict in json.load(open(name))["nodes"].items() if verdict not in ("ok", "slow")))' "$WORK"
}

# bats test_tags=release
@test "a cluster without faults: all tests are ok, and no node is excluded" {
	preflight 8 --preflight-slow 0.8 --preflight sh -c 'echo $SLURMD_NODENAME'
	same "$rc" 0
	same "$(nodes)" "n1 n2 n3 n4 n5 n6 n7 n8 "
	has "$err" '^ddp-run: preflight of 8 nodes in [0-9.]+ s, 4 of 4 rounds of pairs: 0 failed, '
	has "$err" '^8 files +program .* ok'
	has "$err" '^[4-8] nodes +product +.* GFLOP/s .* ok'
	has "$err" '^[0-9]+ pairs +pair +.* MB/s .* ok'
	has "$err" '^8 nodes +clock .* s .* ok'
	has "$err" '^all +all +.* MB/s .* ok'
	has_not "$err" 'has failed|no answer|GPU|-0\.00'
}

@test "--preflight=full tests all pairs, and a single node has no pairs" {
	preflight 5 --preflight=full true
	same "$rc" 0
	has "$err" '5 of 5 rounds of pairs: 0 failed'
	preflight 1 --preflight true
	same "$rc" 0
	has "$err" '^ddp-run: preflight of 1 node in [0-9.]+ s: 0 failed'
	has_not "$err" 'pair'
}

@test "nodes that compute a wrong product, or have no program, a full /dev/shm and a read-only directory, are replaced; one with fewer CPUs is named" {
	local online=/sys/devices/system/cpu/online cpus
	need_root
	cpus=$(getconf _NPROCESSORS_ONLN)
	as_user mkdir "$WORK/dir"
	mkdir "$WORK/bin"
	printf '#!/bin/sh\necho $SLURMD_NODENAME\n' >"$WORK/bin/program"
	chmod -R 755 "$WORK/bin"
	echo 0 >"$TOP/online"
	lost="n2 n3"
	slurmd_n2 "mount -t tmpfs -o size=1m none /dev/shm && mount -t tmpfs none '$WORK/bin' &&
		mount --bind '$WORK/dir' '$WORK/dir' && mount -o remount,bind,ro '$WORK/dir'"
	slurmd_in n3 "mount --bind '$TOP/online' '$online'"
	# Other programs on the host make no node slow, which the report would name.
	DDP_RUN=sh DDP_PREFLIGHT_FAULT=n4 preflight 5 -c \
		'cd dir && exec "$TOP/wrong/ddp-run" --preflight --preflight-slow 0.1 --spare-nodes 2 --ddp-rdzv="$OLDPWD" ../bin/program'
	same "$rc" 0
	same "$(nodes)" "n1 n3 n5 "
	same "$(verdicts)" "n2 failed n3 differs n4 failed"
	has "$err" '^n2 +/dev/shm +1.00 MiB .* failed +/dev/shm is full: 1048576 bytes are free$'
	has "$err" '^n2 +program .* failed +cannot read ../bin/program: No such file or directory$'
	has "$err" "^n2 +directory .* failed +cannot write a file in $WORK/dir: Read-only file system\$"
	same "$(find "$WORK" -name '.ddp-preflight*')" ""
	[ "$cpus" -eq 1 ] || has "$err" "^node n3 differs in test CPUs: 1, median $cpus\$"
	has_not "$err" 'nodename=n3'
	has "$err" '^n4 +product .* failed +[0-9]+ elements of matrix products on CPUs are wrong$'
	has "$err" '^node n4 has failed in test product: [0-9]+ elements'
	has "$err" 'an administrator would type: scontrol update nodename=n4 state=drain reason="product: '
	same "$(mc ddp-run --explain "$WORK"/.ddp/failed-*)" "$(sed -n 's/^ddp-run: preflight/preflight/; /^preflight/,/nodename=n4/p' <<<"$err")"
	# ddp-run never drains a node.
	same "$(mc sinfo -h -o %T | sort -u | grep -c drain)" 0
}

# In the first round, n2 meets n7, and n3 to n6 meet each other.
@test "nodes whose tests stop, also with their slurmstepd, are killed, or die have failed, and the nodes that wait for them have not" {
	kill_tests() { kill -9 "$1"; }
	kill_node() { kill -9 "$(cat "$MINICLUSTER_DIR/slurmd-n6.pid")" "$@"; }
	stop_at n2:met?pair n3:memory n5:product n6:product
	# The slurmstepd of n1 waits for those of the others.
	lost="n1 n3 n6"
	act n3 kill -STOP >"$TOP/act" 2>&1 3>&- &
	act n5 kill_tests >"$TOP/act" 2>&1 3>&- &
	act n6 kill_node >"$TOP/act" 2>&1 3>&- &
	preflight 8 --preflight --preflight-limit 20 --spare-nodes 4 sh -c 'echo $SLURMD_NODENAME'
	read -rd '' -a stopped < <(cat "$WORK"/paused.n[23]) || true
	same "$rc" 0
	same "$(nodes)" "n1 n4 n7 n8 "
	same "$(verdicts | sed 's/n6 failed/n6 no answer/')" "n2 no answer n3 no answer n5 failed n6 no answer"
	has "$err" '3 of 3 rounds of pairs: 4 failed, '
	has "$err" '^n3 +tests .* no answer +no answer in [0-9]+ s after test '
	has "$err" '^n5 .* failed +ddp-info was ended by signal 9$'
	has "$err" '^node n5 has failed in test .*: ddp-info was ended by signal 9$'
	has "$err" '^node n6 has failed in test '
}

# allocate NODES: makes a job of this number of nodes, and starts a step, since Slurm delays the first one until all nodes respond.
# in_job OPTION...: runs ddp-run in this job.
allocate()
{
	within 60 no_jobs
	mc salloc -Q --no-kill --no-shell -N"$1"
	job=$(queue -o %A) job_nodes=$1
	mc srun -Q --jobid="$job" true
}

in_job()
{
	try mc env SLURM_JOB_ID="$job" SLURM_JOB_NUM_NODES="$job_nodes" SLURM_JOB_NODELIST="n[1-$job_nodes]" ddp-run "$@"
}

@test "nodes whose slurmd is dead at the start, that do not respond, or that Slurm removed are replaced" {
	allocate 7
	lost="n2 n3 n4"
	kill -9 "$(cat "$MINICLUSTER_DIR/slurmd-n2.pid")" "$(cat "$MINICLUSTER_DIR/slurmd-n3.pid")"
	"$minicluster" run scontrol update nodename=n3 state=noresp
	"$minicluster" run scontrol update nodename=n4 state=down reason=test
	in_job --preflight --preflight-limit 40 --preflight-slow 0.1 --spare-nodes 3 -N4 sh -c 'echo $SLURMD_NODENAME'
	same "$rc" 0
	same "$(nodes)" "n1 n5 n6 n7 "
	has "$err" '^ddp-run: preflight of 7 nodes in [0-9.]+ s, [0-9]+ of [0-9]+ rounds of pairs: 3 failed, '
	has "$err" '^n2 +start .* failed +srun cannot start a process: '
	# An answer of n3 on its way makes Slurm forget that it does not respond.
	has "$err" '^n3 +start .* failed +(Slurm says that this node is down or does not respond|srun cannot start a process: .*)$'
	has "$err" '^n4 +start .* failed +Slurm says that this node is down'
	has "$err" '^[1-4] nodes? +product .* ok'
	has "$err" '^node n2 has failed in test start: '
	has "$err" '^node n3 has failed in test start: '
	# Nodes that are slow, as on a busy host, come last.
	has "$err" '^ddp-run: the first attempt runs on n[1567],n[1567],n[1567],n[1567]$'
}

# With this TreeWidth, srun reaches most nodes through others. The slurmd of n1 hangs.
tree()
{
	local hung
	cluster_up --nodes 5 --gpus 0 --conf TreeWidth=2
	allocate 5
	hung=$(cat "$MINICLUSTER_DIR/slurmd-n1.pid")
	kill -STOP "$hung"
	in_job --preflight --preflight-slow 0.1 --spare-nodes 1 sh -c 'echo $SLURMD_NODENAME'
	kill -CONT "$hung"
	cluster_down
	printf '%s\n' "$out"
	printf '%s\n' "$err" >&2
	return "$rc"
}

@test "a node whose slurmd hangs at the start is replaced, and the nodes that it hides are tested" {
	outcome tree
	same "$rc" 0
	same "$(nodes)" "n2 n3 n4 n5 "
	has "$err" '^ddp-run: preflight of 5 nodes in [0-9.]+ s, [0-9] of [0-9] rounds of pairs: 1 failed, '
	has "$err" '^node n1 has failed in test start: no step starts on this node$'
	has "$err" '^4 nodes +CPUs '
}

@test "a missing program and a full directory on all nodes are errors of the command and of the directory" {
	need_root
	as_user mkdir "$WORK/full"
	mount -t tmpfs -o size=1m,mode=777 none "$WORK/full"
	DDP_RUN="sh" preflight 3 -c 'cd full && exec ddp-run --preflight --preflight-slow 0.1 --restarts 0 --ddp-rdzv="$OLDPWD" ./nosuch'
	umount -l "$WORK/full"
	same "$rc" 2
	has "$err" '^test program failed on all nodes, so the cause is the command and not a node: cannot read ./nosuch: No such file or directory$'
	has "$err" "^test directory failed on all nodes, so the cause is the directory and not a node: $WORK/full is full: 1048576 bytes are free\$"
	has "$err" '^ddp-run: preflight of 3 nodes in [0-9.]+ s, 3 of 3 rounds of pairs: 0 failed, '
	has "$err" '^all +all +.* MB/s .* ok'
	has_not "$err" 'drain|has failed|the program needs'
	has "$err" 'execve\(\): .*/nosuch: No such file or directory'
}

@test "nodes on which another step runs are not tested, unless the attempt needs them" {
	cat >"$WORK/two.sh" <<-'END'
		srun -N2 -n2 --job-name=other sh -c 'touch "began.$SLURM_PROCID"; while ! [ -e end ]; do sleep 0.1; done' &
		while ! [ -e began.0 ] || ! [ -e began.1 ]; do sleep 0.1; done
		ddp-run --preflight -N2 -n2 sh -c 'echo $SLURMD_NODENAME'
		rc=$?
		ddp-run --preflight --preflight-limit 15 -N4 -n4 --overlap true
		touch end
		wait
		exit "$rc"
	END
	try mc salloc -Q --no-kill -N4 sh two.sh
	same "$rc" 0
	same "$(nodes)" "n3 n4 "
	has "$err" '^ddp-run: other steps and ddp-runs of job [0-9]+ use nodes n1,n2, so these nodes are not tested$'
	has "$err" '^ddp-run: preflight of 2 nodes in '
	has "$err" '^ddp-run: preflight of 4 nodes in '
}

@test "without the plugin, preflight runs the same tests; a failed node without a spare: fewer nodes with --min-nodes" {
	cp "$DDP_BUILDDIR/runtime/launch/ddp-exec" "$TOP/wrong"
	: >"$MINICLUSTER_DIR/plugstack.conf"
	DDP_RUN=$TOP/wrong/ddp-run DDP_PREFLIGHT_FAULT=n3 preflight 4 --preflight --min-nodes 3 -n4 sh -c 'echo $SLURMD_NODENAME $SLURM_NTASKS'
	same "$rc" 0
	same "$(nodes)" "n1 3 n2 3 n4 3 "
	has "$err" '^[0-9] pairs? +pair +.* MB/s .* ok'
	has "$err" '^all +all +.* MB/s .* ok'
	same "$(verdicts)" "n3 failed"
	same "$(find "$WORK/.ddp" -mindepth 1 -maxdepth 1 ! -name 'failed-*')" ""
}

@test "after an attempt failed by a GPU fault, its nodes are tested again" {
	cat >"$WORK/rank.py" <<-'END'
		import json, os, sys
		if os.environ["DDP_RESTART"] == "0" and os.environ["RANK"] == "2":
		    with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
		        json.dump({"message": {"message": "CUDA error: uncorrectable ECC error encountered", "extraInfo": {"timestamp": "1"}}}, file)
		    sys.exit(1)
		print(os.environ["SLURMD_NODENAME"])
	END
	preflight 4 --preflight -N3 /usr/bin/python3 rank.py
	same "$rc" 0
	has "$err" '^ddp-run: preflight of 4 nodes'
	has "$err" '^ddp-run: preflight of 3 nodes'
	# If other processes disturbed the first tests, there is a directory of them as well.
	has "$(for dir in "$WORK"/.ddp/failed-*; do mc ddp-run --explain "$dir"; done)" '^preflight of 3 nodes'
}

# cpu_time COMMAND...: prints the part of the time, in percent, in which a node whose tests run on the last CPU could compute.
cpu_time()
{
	env -u DDP_RENDEZVOUS "$@" taskset -c "$cpu" ddp-info --preflight=8 | awk -F '\t' '$5 == "CPU time" { print int($7) }'
}

@test "the CPU time of a node whose CPUs are busy with other processes is low" {
	local cpu free busy
	need_root
	cpu=$(/usr/bin/python3 -c 'import os; print(max(os.sched_getaffinity(0)))')
	free=$(cpu_time nice -n -15 setsid)
	for _ in 1 2 3 4; do
		nice -n -5 setsid taskset -c "$cpu" sh -c 'while :; do :; done' 3>&- &
	done
	busy=$(cpu_time setsid)
	echo "CPU time: $free %, and beside four processes $busy %"
	((busy < 50 && busy < free))
}

# gpus FAULTS OPTION...: runs a preflight of $NODES (3) nodes with two emulated GPUs each. driver.c lists the faults. A node is slow
# below 30 % of the median, because other programs on the host disturb the tests.
gpus()
{
	local fault=$1
	shift
	need_gpus
	within 60 no_jobs
	export LD_LIBRARY_PATH=$TOP/driver:$LD_LIBRARY_PATH DRIVER_KERNEL=$WORK/kernel
	# libddp's own modules need the real CUDA, of which the emulated driver has only a part.
	DRIVER_FAULT=$fault DDP_MODULES=${MODULES-$TOP/none} try mc salloc -Q --no-kill --gres=gpu:2 -N"${NODES:-3}" ddp-run "--preflight${STRICT-}" \
		--preflight-slow 0.3 "$@" sh -c 'echo $SLURMD_NODENAME'
}

@test "GPUs: each fault is named; failed GPUs fail their nodes, slow ones do not; without NCCL sums are not tested" {
	NODES=8 gpus "n2 product,n3 missing,n4 ECC,n5 link,n6 slot,n7 hot,n8 hang" --min-nodes 4 --preflight-limit 40
	same "$rc" 0
	same "$(nodes)" "n1 n5 n6 n7 "
	has "$err" '^[0-9]+ GPUs +GPU copy .* GB/s .* ok'
	has "$err" '^[0-9]+ GPUs +GPU product .* TFLOP/s .* ok'
	has "$err" '^n2 +GPU product .* failed +GPU [01]: 1 elements of bf16 products are wrong$'
	has "$err" '^n3 +devices .* failed +the driver finds 1 of 2 GPUs$'
	has "$err" '^n4 +GPU state .* failed +GPU 0: 2 uncorrected ECC errors$'
	has "$err" '^node n5 is slow in test GPU PCIe: |^node n5 is slow in test GPU state: GPU [01]: PCIe of generation 3 of 5$'
	has "$err" '^n5 +GPU state .* slow +GPU [01]: PCIe of generation 3 of 5$'
	has "$err" '^n6 +GPU PCIe +16 GB/s +63 GB/s +slow +GPU [01]: generation 3, 16 lanes$'
	has_not "$err" '^n6 .*PCIe of generation'
	has "$err" '^node n7 is slow in test GPU state: GPU [01]: its clocks are reduced for temperature$'
	has "$err" '^n8 +GPU product .* no answer +no answer in [0-9]+ s$'
	has "$err" '^GPUs +GPU sum +- +- +not tested +there is no engine nccl: .*No such file or directory$'
	if command -v ptxas >/dev/null; then
		ptxas -arch=sm_80 -o /dev/null "$WORK/kernel"
	fi
}

# with_nccl COMMAND...: runs COMMAND with an emulated NCCL.
with_nccl() { MODULES=$TOP/modules DDP_HOST_GPUS=1 "$@"; }

@test "GPUs: NCCL sums within a node, of a pair and of all nodes are ok; with =strict a slow node fails" {
	NODES=2 STRICT="=strict" with_nccl gpus "n2 hot" --preflight-limit 60
	same "$rc" 94
	has "$err" '^[12] nodes? +GPU sum +.* GB/s .* ok'
	has "$err" '^1 pair +GPU pair +.* GB/s .* ok'
	has "$err" '^all +GPU all +.* GB/s .* ok'
	has "$err" '^1 pair +pair +.* MB/s .* ok'
	has_not "$err" 'not tested'
	has "$err" '^n2 +GPU state .* slow +GPU [01]: its clocks are reduced for temperature$'
	has "$err" '^ddp-run: the program is not started: the program needs 2 nodes and has 1$'
}

@test "GPUs: a crash in a sum, and a wrong sum, fail the node" {
	NODES=4 with_nccl gpus "n2 crash,n3 sum" --min-nodes 2 --preflight-limit 30
	same "$rc" 0
	same "$(nodes)" "n1 n4 "
	has "$err" '^n2 +GPU sum .* failed +(process [01] of the test was ended by signal 6|.*rank [01].*)$'
	has "$err" '^n3 +GPU sum .* failed +[0-9]+ elements of a sum are wrong$'
}

# The cluster runs in a network namespace, and its nodes n1 to n6 have interfaces v1 to v6. All traffic of n2 is limited to 10 Mbit/s
# and, if the kernel has netem, delayed by 50 ms. All traffic of n4 is dropped.
network()
{
	cat >"$TOP/network.sh" <<-'END'
		set -e
		. "$DDP_SRCDIR/tests/cluster/lib.bash"
		ip link set lo up mtu 1500
		for i in {1..6}; do
			ip link add "v$i" type veth peer name "w$i"
			ip addr add "10.9.0.$i/32" dev "v$i"
			ip link set "v$i" up
			ip link set "w$i" up
		done
		tc qdisc add dev lo root handle 1: htb default 10 || exit 77
		tc class add dev lo parent 1: classid 1:10 htb rate 100gbit quantum 200000
		tc class add dev lo parent 1: classid 1:20 htb rate 10mbit
		tc class add dev lo parent 1: classid 1:40 htb rate 10mbit
		tc qdisc add dev lo parent 1:20 netem delay 50ms || echo "no netem: no delay"
		tc qdisc add dev lo parent 1:40 pfifo limit 0
		for end in dst src; do
			# The first filter that matches counts, so packets between n2 and n4 are dropped.
			tc filter add dev lo parent 1: prio 1 protocol ip u32 match ip "$end" 10.9.0.4/32 flowid 1:40
			tc filter add dev lo parent 1: prio 2 protocol ip u32 match ip "$end" 10.9.0.2/32 flowid 1:20
		done
		trap cluster_down EXIT
		cluster_up --nodes 6 --gpus 0 --conf TaskProlog="$PROLOG"
		echo "required $BOOST_PLUGIN" >>"$MINICLUSTER_DIR/plugstack.conf"
		export BOOST=0,1,2,3,4,5
		unset DDP_SOCKET_IFNAME
		mc salloc -Q -N6 ddp-run --preflight --preflight-slow 0.1 --spare-nodes 2 sh -c 'echo on $SLURMD_NODENAME'
	END
	printf '#!/bin/sh\necho "export DDP_SOCKET_IFNAME==v${SLURMD_NODENAME#n}"\n' >"$TOP/prolog"
	chmod 755 "$TOP/prolog"
	env PROLOG="$TOP/prolog" TMPDIR="${TOP%/*}" unshare --net bash "$TOP/network.sh"
}

@test "a node with a slow link is slow, a node whose link drops all packets has failed, and their partners are neither" {
	local used
	need_root
	((EUID == 0)) || skip "needs root, to make a network namespace"
	outcome network
	[[ $rc != 77 ]] || skip "the kernel cannot do that to a network: $err"
	same "$rc" 0
	used=$(grep '^on ' <<<"$out" | sort | tr '\n' ' ')
	has "$err" ': 1 failed, 1 slow$'
	has "$err" '^node n4 has failed in test pairs: no answer in [0-9]+ s$'
	has "$err" '^n., n. +pair +[0-9.]+ MB/s +[0-9.]+ MB/s +slow'
	has "$err" '^node n2 is slow in test pairs: '
	same "$used" "on n1 on n3 on n5 on n6 "
	has_not "$err" 'nodes? n[24] and|and n[24]:'
}

@test "nodes without a shared directory: their pairs are not tested" {
	DDP_RUN="sh" preflight 3 -c 'cd / && HOME=/nonexistent exec ddp-run --preflight sh -c "echo \$SLURMD_NODENAME"'
	same "$rc" 0
	same "$(nodes)" "n1 n2 n3 "
	has "$err" '^ddp-run: preflight of 3 nodes in [0-9.]+ s, 0 of 3 rounds of pairs: 0 failed, '
	has "$err" '^pairs +pair +.* not tested +the nodes share no directory, see --ddp-rdzv$'
	has_not "$err" ' pairs? +pair|^all '
}

@test "if the step of the tests is cancelled, the program starts without a verdict" {
	end_step() { "$minicluster" run scancel "$(queue -o %A).0"; }
	during n2 end_step
	preflight 3 --preflight sh -c 'echo $SLURMD_NODENAME'
	same "$rc" 0
	same "$(nodes)" "n1 n2 n3 "
	has "$err" '^ddp-run: the tests of --preflight did not run to their end(: srun: error: .*)?\. The program starts without them\.$'
}

@test "tests that are stopped on all nodes, as in a suspended job, fail no node" {
	# Each process is stopped for 20 s after its first line.
	through 'IFS= read -r line; kill -STOP $1; echo "$line"; sleep 20; kill -CONT $1; exec cat'
	preflight 3 --preflight --preflight-limit 15 sh -c 'echo $SLURMD_NODENAME'
	same "$rc" 0
	same "$(nodes)" "n1 n2 n3 "
	has "$err" '^ddp-run: the tests of --preflight did not run to their end\. The program starts without them\.$'
	has_not "$err" 'has failed|is slow'
}

@test "-w with fewer nodes than -N: all nodes that srun may add are tested; a directory as an argument is not tested as a file" {
	preflight 3 --preflight -N2 -w n2 ls -d "$WORK"
	same "$rc:$out" "0:$WORK
$WORK"
	has "$err" '^ddp-run: preflight of 3 nodes '
	has "$err" '^[1-3] pairs? +pair +.* ok'
}

@test "SIGTERM during the tests ends them, and no attempt starts" {
	end_run() { kill -TERM "$(pgrep -xf "$TOP/through/ddp-run --preflight-slow 0.1 --preflight touch $WORK/started")"; }
	during n2 end_run
	preflight 3 --preflight touch "$WORK/started"
	same "$rc" 1
	has "$err" '^ddp-run: the tests of --preflight did not run to their end$'
	has "$err" '^ddp-run: the program is not started: the program was cancelled$'
	[ ! -e "$WORK/started" ]
}

@test "wrong options, a missing ddp-info, and --het-group are refused" {
	for wrong in '--preflight=x|--preflight=x is not valid\. Give --preflight\[=full,strict\]\.' '--preflight-slow 2|--preflight-slow 2 is not valid\. Give a number from 0.01 to 1\.' \
		'--preflight=|--preflight= is not valid\. Give --preflight\[=full,strict\]\.' '--preflight=strict,|--preflight=strict, is not valid\. Give --preflight\[=full,strict\]\.' \
		'--preflight-limit 3s|--preflight-limit 3s is not valid\. Give at least 15 s, in seconds, or as a number with s, m or h\.'; do
		# shellcheck disable=SC2086
		try ddp-run ${wrong%|*} true
		same "$rc" 2
		has "$err" "^ddp-run: ${wrong#*|}$"
	done
	install -m 755 "$INST/bin/ddp-run" "$WORK"
	try mc salloc -Q -N1 "$WORK/ddp-run" --preflight true
	same "$rc:$err" "2:ddp-run: cannot run $WORK/ddp-info for --preflight. Install ddp-info beside ddp-run."
	try mc salloc -Q -N1 ddp-run --preflight --het-group=0 true
	same "$rc" 2
	same "$err" 'ddp-run: --preflight tests only jobs with one component, so it cannot be combined with --het-group. Remove one of the options.'
	try ddp-info --preflight --json
	same "$rc" 2
	has "$err" '^ddp-info: --preflight cannot be combined with other options'
}

@test "clean preflights beside a load: no node is excluded, and at most two are reported as slow" {
	local excluded=0 slow=0 run
	[ -n "${DDP_LONG-}" ] || skip "takes 20 minutes: DDP_LONG=1"
	for _ in 1 2 3 4; do
		sh -c 'while :; do :; done' 3>&- &
	done
	for ((run = 1; run <= 200; run++)); do
		preflight 8 --preflight-slow 0.8 --preflight true
		same "$rc" 0
		printf '# %(%T)T run %d: %s\n' -1 "$run" "$(sed -n 's/^ddp-run: preflight of 8 nodes //p' <<<"$err")" >&3
		grep -E '^node [^ ]+ (is|has)' <<<"$err" | sed 's/^/#   /' >&3 || true
		has "$err" '^ddp-run: preflight of 8 nodes in '
		excluded=$((excluded + $(count_lines "$err" '^node .* has failed')))
		slow=$((slow + $(count_lines "$err" '^node .* is slow')))
		remove_attempts
	done
	echo "# excluded: $excluded; reported as slow: $slow" >&3
	same "$excluded" 0
	((slow <= 2))
}
