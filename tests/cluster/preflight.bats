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

options=(--nodes 8 --gpus 2 --conf KillWait=5 --conf SlurmdTimeout=300)

setup_file()
{
	cluster_up "${options[@]}"
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

teardown_file() { cluster_down; }

# Replaces the cluster, because Slurm keeps a lost node busy for minutes.
teardown()
{
	if [[ -n ${other_cluster_is_up-} ]]; then
		end_jobs
		other_cluster_down
		return
	fi
	echo "optional $TOP/ddp.so" >"$MINICLUSTER_DIR/plugstack.conf"
	[[ -z ${stopped-} ]] || kill -CONT "${stopped[@]}" || true
	if [[ -e $TOP/lost ]]; then
		restart_cluster "${options[@]}"
	else
		end_jobs
	fi
	rm -rf "$TOP/lost" "$TOP/through" "$WORK/.ddp" "${WORK:?}"/*
}

# preflight NODES OPTION...: runs ddp-run with these options in a job with this number of nodes, the first ones. try() sets $err to
# its messages.
preflight()
{
	local nodes=$1
	shift
	# While the previous job is completing, Slurm would use other nodes.
	within 60 no_jobs
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

# stop_at NODE LINE: lets the next preflight stop the tests on NODE when they have written a line that matches, and write their
# process id and that of their slurmstepd to $WORK/begun. On a busy host they may have ended before.
stop_at()
{
	export NODE=$1 LINE=$2
	rm -rf "$TOP/through" "$WORK/begun"
	through 'while IFS= read -r line; do
			echo "$line"
			[ "$SLURMD_NODENAME" = "$NODE" ] && [ ! -e "$WORK/begun" ] && [[ $line =~ $LINE ]] || continue
			kill -STOP "$1"
			until [ ! -e "/proc/$1" ] || grep -q "^State:.[TZ]" "/proc/$1/status"; do :; done
			! grep -q "^State:.T" "/proc/$1/status" || echo "$@" >"$WORK/begun"
		done'
}

# during NODE COMMAND...: lets the next preflight stop the tests on NODE after the test of CPUs, and run COMMAND then. COMMAND gets
# two more arguments: the process ids of the tests on NODE and of their slurmstepd.
during()
{
	stop_at "$1" product
	shift
	act "$@" >"$TOP/act" 2>&1 3>&- &
}

act()
{
	local pids
	within 100 test -s "$WORK/begun"
	read -ra pids <"$WORK/begun"
	"$@" "${pids[@]}"
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
	preflight 8 --preflight sh -c 'echo $SLURMD_NODENAME'
	same "$rc" 0
	same "$(nodes)" "n1 n2 n3 n4 n5 n6 n7 n8 "
	has "$err" '^ddp-run: preflight of 8 nodes in [0-9.]+ s, 4 of 4 rounds of pairs: 0 failed, '
	has "$err" '^8 files +program .* ok'
	has "$err" '^[4-8] nodes +product +.* GFLOP/s .* ok'
	has "$err" '^[0-9]+ pairs +pair +.* MB/s .* ok'
	has "$err" '^all +all +.* MB/s .* ok'
	has_not "$err" 'has failed|no answer|GPU'
}

@test "--preflight=full tests all pairs, and a single node has no pairs" {
	preflight 4 --preflight=full true
	same "$rc" 0
	has "$err" '3 of 3 rounds of pairs: 0 failed'
	preflight 1 --preflight true
	same "$rc" 0
	has "$err" '^ddp-run: preflight of 1 node in [0-9.]+ s: 0 failed'
	has_not "$err" 'pair'
}

@test "a node with a wrong product is named, replaced by a spare, and reported by --explain" {
	# Other programs on the host make no node slow, which the report would name.
	DDP_RUN=$TOP/wrong/ddp-run DDP_PREFLIGHT_FAULT=n3 preflight 8 --preflight --preflight-slow 0.1 --spare-nodes 1 sh -c 'echo $SLURMD_NODENAME'
	same "$rc" 0
	same "$(nodes)" "n1 n2 n4 n5 n6 n7 n8 "
	has "$err" '^n3 +product .* failed +[0-9]+ elements of matrix products on CPUs are wrong$'
	has "$err" '^node n3 has failed: product: [0-9]+ elements'
	has "$err" 'an administrator would type: scontrol update nodename=n3 state=drain reason="product: '
	same "$(verdicts)" "n3 failed"
	same "$(mc ddp-run --explain "$WORK"/.ddp/failed-*)" "$(sed -n 's/^ddp-run: preflight/preflight/; /^preflight/,/^  an admin/p' <<<"$err")"
	# ddp-run never drains a node.
	same "$(mc sinfo -h -o %T | sort -u | grep -c drain)" 0
}

@test "a failed node without a spare: exit status 94, or fewer nodes with --min-nodes" {
	export DDP_RUN=$TOP/wrong/ddp-run DDP_PREFLIGHT_FAULT=n3
	preflight 4 --preflight sh -c 'echo $SLURMD_NODENAME'
	same "$rc" 94
	same "$out" ''
	has "$err" '^ddp-run: not started: 3 nodes are left, and 4 are needed$'
	preflight 4 --preflight --min-nodes 3 -n4 sh -c 'echo $SLURMD_NODENAME $SLURM_NTASKS'
	same "$rc" 0
	same "$(nodes)" "n1 3 n2 3 n4 3 "
}

@test "a node whose tests stop, also with their slurmstepd, has failed, and the nodes that wait for it have not" {
	local line
	for line in hello memory 'met.pair'; do
		stop_at n3 "$line"
		[[ $line != memory ]] || act kill -STOP >"$TOP/act" 2>&1 3>&- &
		until [ -s "$WORK/begun" ]; do
			preflight 4 --preflight --preflight-limit 20 --spare-nodes 1 sh -c 'echo $SLURMD_NODENAME'
		done
		same "$rc" 0
		same "$(nodes)" "n1 n2 n4 "
		same "$(verdicts)" "n3 no answer"
		has "$err" '3 of 3 rounds of pairs: 1 failed, '
		[[ $line == hello ]] || has "$err" '^n3 +tests .* no answer +no answer in [0-9]+ s after test '
		read -ra stopped <"$WORK/begun"
		kill -CONT "${stopped[@]}" || true
		remove_attempts
	done
}

@test "a node that dies during the tests is excluded" {
	kill_node() { kill -9 "$(cat "$MINICLUSTER_DIR/slurmd-n6.pid")" "$@"; }
	during n6 kill_node
	preflight 8 --preflight --spare-nodes 1 sh -c 'echo $SLURMD_NODENAME'
	touch "$TOP/lost"
	same "$rc" 0
	same "$(nodes)" "n1 n2 n3 n4 n5 n7 n8 "
	has "$err" '^node n6 has failed: '
}

# held NODES OPTION...: like preflight, but ddp-run starts only when "release" is called.
held()
{
	local nodes=$1
	shift
	cat >"$WORK/hold" <<-'END'
		# Slurm delays the first step of a job until all nodes respond, so start a step first.
		srun true
		touch "$0.begun"
		while ! [ -e "$0.end" ]; do sleep 0.1; done
		ddp-run "$@"
		rc=$?
		[ ! -e "$0.then" ] || sh "$0.then"
		exit "$rc"
	END
	touch "$TOP/lost"
	within 60 no_jobs
	(try mc salloc -Q --no-kill -N"$nodes" sh "$WORK/hold" "$@" && exit "$rc") 3>&- &
	held_pid=$!
	within 60 test -e "$WORK/hold.begun"
}

release()
{
	as_user touch "$WORK/hold.end"
	rc=0
	wait "$held_pid" || rc=$?
	out=$(<"$TOP/out") err=$(<"$TOP/err")
}

@test "nodes whose slurmd is dead at the start, that do not respond, or that Slurm removed are replaced; without a spare, exit status 94" {
	echo 'ddp-run --preflight -x n2,n3 echo on 2>&1; echo "exit status $?"' >"$WORK/hold.then"
	held 7 --preflight --preflight-limit 90 --spare-nodes 3 -N4 sh -c 'echo on $SLURMD_NODENAME'
	kill -9 "$(cat "$MINICLUSTER_DIR/slurmd-n2.pid")" "$(cat "$MINICLUSTER_DIR/slurmd-n3.pid")"
	"$minicluster" run scontrol update nodename=n3 state=noresp
	"$minicluster" run scontrol update nodename=n4 state=down reason=test
	release
	same "$rc" 0
	same "$(grep '^on ' <<<"$out" | sort | tr '\n' ' ')" "on n1 on n5 on n6 on n7 "
	has "$err" '^ddp-run: preflight of 7 nodes in [0-9.]+ s, [0-9]+ of [0-9]+ rounds of pairs: 3 failed, '
	has "$err" '^n2 +start .* failed +srun cannot start a process: '
	has "$err" '^n3 +start .* failed +Slurm says that it is down or does not respond$'
	has "$err" '^n4 +start .* failed +Slurm says that it is down'
	has "$err" '^[1-4] nodes? +product .* ok'
	has "$err" '^node n2 has failed: start: '
	has "$err" '^node n3 has failed: start: Slurm says '
	# Nodes that are slow, as on a busy host, come last.
	has "$err" '^ddp-run: the first attempt runs on n[1567],n[1567],n[1567],n[1567]$'
	has "$out" '^ddp-run: not started: 4 nodes are left, and 5 are needed$'
	has "$out" '^exit status 94$'
}

# With this TreeWidth, srun reaches most nodes through others.
@test "a node whose slurmd hangs at the start is replaced, and the nodes that it hides are tested" {
	local hung
	other_cluster --nodes 8 --gpus 0 --conf TreeWidth=2 --conf KillWait=5
	held 8 --preflight --spare-nodes 1 sh -c 'echo $SLURMD_NODENAME'
	hung=$(cat "$MINICLUSTER_DIR/slurmd-n1.pid")
	kill -STOP "$hung"
	release
	kill -CONT "$hung"
	same "$rc" 0
	same "$(nodes)" "n2 n3 n4 n5 n6 n7 n8 "
	has "$err" '^ddp-run: preflight of 8 nodes in [0-9.]+ s, 4 of 4 rounds of pairs: 1 failed, '
	has "$err" '^node n1 has failed: start: no step starts on it$'
	has "$err" '^7 nodes +CPUs '
}

@test "a node with a full /dev/shm, without the program and with a read-only directory is replaced; one with fewer CPUs is named" {
	local online=/sys/devices/system/cpu/online cpus
	need_root
	cpus=$(getconf _NPROCESSORS_ONLN)
	as_user mkdir "$WORK/dir"
	mkdir "$WORK/bin"
	printf '#!/bin/sh\necho $SLURMD_NODENAME\n' >"$WORK/bin/program"
	chmod -R 755 "$WORK/bin"
	echo 0 >"$TOP/online"
	touch "$TOP/lost"
	slurmd_n2 "mount -t tmpfs -o size=1m none /dev/shm && mount -t tmpfs none '$WORK/bin' &&
		mount --bind '$WORK/dir' '$WORK/dir' && mount -o remount,bind,ro '$WORK/dir'"
	slurmd_in n3 "mount --bind '$TOP/online' '$online'"
	DDP_RUN="sh" preflight 8 -c 'cd dir && exec ddp-run --preflight --preflight-slow 0.1 --spare-nodes 1 --ddp-rdzv="$OLDPWD" ../bin/program'
	same "$rc" 0
	same "$(nodes)" "n1 n3 n4 n5 n6 n7 n8 "
	has "$err" '^n2 +/dev/shm +1.00 MiB .* failed +/dev/shm is full: 1048576 bytes are free$'
	has "$err" '^n2 +program .* failed +cannot read ../bin/program: No such file or directory$'
	has "$err" "^n2 +directory .* failed +cannot write a file in $WORK/dir: Read-only file system\$"
	same "$(find "$WORK" -name '.ddp-preflight*')" ""
	[ "$cpus" -eq 1 ] || has "$err" "^node n3 differs: CPUs: 1, median $cpus\$"
	has_not "$err" 'nodename=n3'
}

@test "a missing program and a directory without write permission on all nodes are errors of the command and of the directory" {
	need_root
	mkdir "$WORK/closed"
	DDP_RUN="sh" preflight 3 -c 'cd closed && exec ddp-run --preflight --preflight-slow 0.1 --restarts 0 --ddp-rdzv="$OLDPWD" ./nosuch'
	same "$rc" 2
	has "$err" '^test program failed on all nodes, an error of the command and not of a node: cannot read ./nosuch: No such file or directory$'
	has "$err" "^test directory failed on all nodes, an error of the directory and not of a node: cannot write a file in $WORK/closed: Permission denied\$"
	has "$err" '^ddp-run: preflight of 3 nodes in [0-9.]+ s, 3 of 3 rounds of pairs: 0 failed, '
	has "$err" '^all +all +.* MB/s .* ok'
	has_not "$err" 'drain|has failed|are left'
	has "$err" 'execve\(\): .*/nosuch: No such file or directory'
}

@test "a directory that is full on all nodes is an error of the directory, and no node has failed" {
	need_root
	as_user mkdir "$WORK/full"
	mount -t tmpfs -o size=1m,mode=777 none "$WORK/full"
	DDP_RUN="sh" preflight 3 -c 'cd full && exec ddp-run --preflight --preflight-slow 0.1 --ddp-rdzv="$OLDPWD" sh -c "echo \$SLURMD_NODENAME"'
	umount -l "$WORK/full"
	same "$rc" 0
	same "$(nodes)" "n1 n2 n3 "
	has "$err" "^test directory failed on all nodes, an error of the directory and not of a node: $WORK/full is full: 1048576 bytes are free\$"
	has_not "$err" 'drain|has failed|are left'
}

@test "a node whose test process is killed has failed, and the signal is named" {
	kill_tests() { kill -9 "$1"; }
	during n3 kill_tests
	preflight 4 --preflight --spare-nodes 1 sh -c 'echo $SLURMD_NODENAME'
	same "$rc" 0
	same "$(nodes)" "n1 n2 n4 "
	has "$err" '^n3 .* failed +ddp-info was ended by signal 9$'
	has "$err" '^node n3 has failed: .*: ddp-info was ended by signal 9$'
}

@test "--preflight with --het-group is refused" {
	try mc salloc -Q -N1 ddp-run --preflight --het-group=0 true
	same "$rc" 2
	same "$err" 'ddp-run: --preflight cannot be used with --het-group, since it tests jobs with one component only: remove one of the options'
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
	has "$err" '^ddp-run: other steps and ddp-runs of job [0-9]+ use n1,n2, which are not tested$'
	has "$err" '^ddp-run: preflight of 2 nodes in '
	has "$err" '^ddp-run: preflight of 4 nodes in '
}

@test "two concurrent ddp-runs with -w test only their own nodes" {
	cat >"$WORK/two.sh" <<-'END'
		ddp-run --preflight -w n1,n2 -N2 -n2 sh -c 'echo a $SLURMD_NODENAME' 2>a.err &
		ddp-run --preflight -w n3,n4 -N2 -n2 sh -c 'echo b $SLURMD_NODENAME' 2>b.err
		wait
	END
	try mc salloc -Q --no-kill -N4 sh two.sh
	same "$(nodes)" "a n1 a n2 b n3 b n4 "
	same "$(cat "$WORK"/*.err | grep -c '^ddp-run: preflight of 2 nodes in .* 1 of 1 rounds of pairs: 0 failed')" 2
}

@test "without the plugin, preflight runs the same tests and finds a wrong product" {
	cp "$DDP_BUILDDIR/runtime/launch/ddp-exec" "$TOP/wrong"
	: >"$MINICLUSTER_DIR/plugstack.conf"
	preflight 3 --preflight sh -c 'echo $SLURMD_NODENAME'
	same "$rc" 0
	same "$(nodes)" "n1 n2 n3 "
	has "$err" '^[0-9] pairs? +pair +.* MB/s .* ok'
	has "$err" '^all +all +.* MB/s .* ok'
	DDP_RUN=$TOP/wrong/ddp-run DDP_PREFLIGHT_FAULT=n3 preflight 3 --preflight --min-nodes 2 sh -c 'echo $SLURMD_NODENAME'
	same "$rc" 0
	same "$(nodes)" "n1 n2 "
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

# All nodes run on one CPU of this host, except n2. n2 runs on another CPU, which four processes of higher priority keep busy. The
# nodes that are not busy have a higher priority than other programs on the host.
@test "a node whose CPUs are busy with other processes is reported as slow in CPU time, and replaced" {
	local cpus
	need_root
	read -ra cpus < <(/usr/bin/python3 -c 'import os; print(*os.sched_getaffinity(0))')
	((${#cpus[@]} > 1)) || skip "this machine has one CPU"
	taskset -cp "${cpus[0]}" "$BASHPID" >/dev/null
	other_cluster --nodes 3 --gpus 0
	echo "required $BOOST_PLUGIN" >>"$MINICLUSTER_DIR/plugstack.conf"
	slurmd_n2 "taskset -cp ${cpus[1]} \$\$ >/dev/null"
	BOOST=0,1,2 preflight 3 --preflight --spare-nodes 1 true
	same "$rc" 0
	has_not "$err" '^node n2 is slow: CPU time'
	for _ in 1 2 3 4; do
		nice -n -5 setsid taskset -c "${cpus[1]}" sh -c '! [ -w /proc/self/autogroup ] || echo -5 >/proc/self/autogroup; while :; do :; done' 3>&- &
	done
	BOOST=0,2 preflight 3 --preflight --spare-nodes 1 sh -c 'echo $SLURMD_NODENAME'
	same "$rc" 0
	has "$err" '^n2 +CPU time +[0-9.]+ % +[0-9.]+ % +slow'
	has "$err" '^node n2 is slow: (CPU time|memory|product): '
	has_not "$err" 'nodename=n2'
	same "$(nodes)" "n1 n3 "
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
	DRIVER_FAULT=$fault DDP_MODULES=${MODULES-$TOP/none} try mc salloc -Q --no-kill --gres=gpu:2 -N"${NODES:-3}" ddp-run --preflight${STRICT-} \
		--preflight-slow 0.3 "$@" sh -c 'echo $SLURMD_NODENAME'
}

@test "GPUs: each fault is named; failed GPUs fail their nodes, slow ones do not; without NCCL sums are not tested" {
	NODES=8 gpus "n2 product,n3 missing,n4 ECC,n5 link,n6 slot,n7 hot,n8 hang" --min-nodes 4 --preflight-limit 90
	same "$rc" 0
	same "$(nodes)" "n1 n5 n6 n7 "
	has "$err" '^[0-9]+ GPUs +GPU copy .* GB/s .* ok'
	has "$err" '^[0-9]+ GPUs +GPU product .* TFLOP/s .* ok'
	has "$err" '^n2 +GPU product .* failed +GPU [01]: 1 elements of bf16 products are wrong$'
	has "$err" '^n3 +devices .* failed +the driver finds 1 of 2 GPUs$'
	has "$err" '^n4 +GPU state .* failed +GPU 0: 2 uncorrected ECC errors$'
	has "$err" '^node n5 is slow: GPU PCIe: |^node n5 is slow: GPU state: GPU [01]: PCIe of generation 3 of 5$'
	has "$err" '^n5 +GPU state .* slow +GPU [01]: PCIe of generation 3 of 5$'
	has "$err" '^n6 +GPU PCIe +16 GB/s +63 GB/s +slow +GPU [01]: generation 3, 16 lanes$'
	has_not "$err" '^n6 .*PCIe of generation'
	has "$err" '^node n7 is slow: GPU state: GPU [01]: its clocks are reduced for temperature$'
	has "$err" '^n8 +GPU product .* no answer +no answer in [0-9]+ s$'
	has "$err" '^GPUs +GPU sum +- +- +not tested +no engine nccl: .*No such file or directory$'
	if command -v ptxas >/dev/null; then
		ptxas -arch=sm_80 -o /dev/null "$WORK/kernel"
	fi
	STRICT='=strict' gpus "n3 hot" --preflight-limit 90
	same "$rc" 94
	has "$err" '^node n3 is slow: GPU state: GPU [01]: its clocks are reduced for temperature$'
	has "$err" '^ddp-run: not started: 2 nodes are left, and 3 are needed$'
}

# with_nccl COMMAND...: runs COMMAND with an emulated NCCL.
with_nccl() { MODULES=$TOP/modules DDP_HOST_GPUS=1 "$@"; }

@test "GPUs: NCCL sums within a node, of pairs of nodes and of all nodes are ok" {
	with_nccl gpus none --preflight-limit 90
	same "$rc" 0
	has "$err" '^[23] nodes +GPU sum +.* GB/s .* ok'
	has "$err" '^[23] pairs +GPU pair +.* GB/s .* ok'
	has "$err" '^all +GPU all +.* GB/s .* ok'
	has "$err" '^[0-9] pairs +pair +.* MB/s .* ok'
	has_not "$err" 'not tested'
}

@test "GPUs: a crash in a sum, and a wrong sum, fail the node" {
	with_nccl gpus "n2 crash" --min-nodes 2 --preflight-limit 90
	same "$rc" 0
	same "$(nodes)" "n1 n3 "
	has "$err" '^n2 +GPU sum .* failed +(process [01] of the test was ended by signal 6|.*rank [01].*)$'
	with_nccl gpus "n2 sum" --min-nodes 2 --preflight-limit 90
	same "$rc" 0
	same "$(nodes)" "n1 n3 "
	has "$err" '^n2 +GPU sum .* failed +[0-9]+ elements of a sum are wrong$'
}

@test "GPUs: if the sums of all nodes are wrong, it is an error of NCCL, and no node has failed" {
	with_nccl gpus "all sum" --preflight-limit 90
	same "$rc" 0
	same "$(nodes)" "n1 n2 n3 "
	has "$err" '^test GPU sum failed on all nodes, an error of NCCL or its settings and not of a node: [0-9]+ elements of a sum are wrong$'
	has "$err" '^test GPU pair failed on all pairs, an error of the network or its settings and not of a node: '
}

# network FAULT: runs a preflight in a network namespace, on a cluster whose nodes n1 to n5 have interfaces v1 to v5. "drop" drops
# all traffic of n2. "slow" limits it to 10 Mbit/s and, if the kernel has netem, delays it by 50 ms.
network()
{
	need_root
	((EUID == 0)) || skip "needs root, to make a network namespace"
	cat >"$WORK/network.sh" <<-'END'
		set -e
		. "$DDP_SRCDIR/tests/cluster/lib.bash"
		ip link set lo up mtu 1500
		for i in 1 2 3 4 5; do
			ip link add "v$i" type veth peer name "w$i"
			ip addr add "10.9.0.$i/32" dev "v$i"
			ip link set "v$i" up
			ip link set "w$i" up
		done
		tc qdisc add dev lo root handle 1: htb default 10 || exit 77
		tc class add dev lo parent 1: classid 1:10 htb rate 100gbit quantum 200000
		tc class add dev lo parent 1: classid 1:20 htb rate 10mbit
		case $1 in
		slow) tc qdisc add dev lo parent 1:20 netem delay 50ms || echo "no netem: no delay" ;;
		drop) tc qdisc add dev lo parent 1:20 pfifo limit 0 ;;
		esac
		for end in dst src; do
			tc filter add dev lo parent 1: protocol ip u32 match ip "$end" 10.9.0.2/32 flowid 1:20
		done
		trap cluster_down EXIT
		cluster_up --nodes 5 --gpus 0 --conf TaskProlog="$PROLOG"
		echo "required $BOOST_PLUGIN" >>"$MINICLUSTER_DIR/plugstack.conf"
		export BOOST=0,1,2,3,4
		unset DDP_SOCKET_IFNAME
		mc salloc -Q -N5 ddp-run --preflight --spare-nodes 1 sh -c 'echo on $SLURMD_NODENAME'
	END
	printf '#!/bin/sh\necho "export DDP_SOCKET_IFNAME==v${SLURMD_NODENAME#n}"\n' >"$TOP/prolog"
	chmod 755 "$TOP/prolog"
	try env PROLOG="$TOP/prolog" TMPDIR="${TOP%/*}" unshare --net bash "$WORK/network.sh" "$1"
	[[ $rc != 77 ]] || skip "the kernel cannot do that to a network: $err"
	same "$rc" 0
	used=$(grep '^on ' <<<"$out" | sort | tr '\n' ' ')
}

@test "a node with a slow link is slow, and its partners are not" {
	network slow
	has "$err" ': 0 failed, '
	has "$err" '^n., n. +pair +[0-9.]+ MB/s +[0-9.]+ MB/s +slow'
	# Other programs on the host may make a node slow as well. There is one spare node.
	has "$err" '^node n2 is slow: (pairs|memory|product|CPU time): '
	[[ $err != *", 1 slow"* ]] || same "$used" "on n1 on n3 on n4 on n5 "
	has_not "$err" 'nodes? n2 and|and n2:'
}

@test "a node whose link drops all packets has failed, and its partners have not" {
	network drop
	same "$used" "on n1 on n3 on n4 on n5 "
	has "$err" ': 1 failed, '
	has "$err" '^node n2 has failed: pairs: no answer in [0-9]+ s$'
	has_not "$err" 'nodes? n2 and|and n2:'
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
	has "$err" '^ddp-run: --preflight: the tests did not run to their end(: srun: error: .*)?; the program starts without them$'
}

@test "tests that are stopped on all nodes, as in a suspended job, fail no node" {
	# Each process is stopped for 20 s after its first line.
	through 'IFS= read -r line; kill -STOP $1; echo "$line"; sleep 20; kill -CONT $1; exec cat'
	preflight 3 --preflight --preflight-limit 15 sh -c 'echo $SLURMD_NODENAME'
	same "$rc" 0
	same "$(nodes)" "n1 n2 n3 "
	has "$err" '^ddp-run: --preflight: the tests did not run to their end; the program starts without them$'
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
	end_run() { kill -TERM "$(pgrep -xf "$TOP/through/ddp-run --preflight touch $WORK/started")"; }
	during n2 end_run
	preflight 3 --preflight touch "$WORK/started"
	same "$rc" 1
	has "$err" '^ddp-run: --preflight: the tests did not run to their end$'
	has "$err" '^ddp-run: not started: it was cancelled$'
	[ ! -e "$WORK/started" ]
}

@test "two hundred preflights on busy CPUs exclude no node, and report two as slow at most" {
	[ -n "${DDP_LONG-}" ] || skip "takes an hour: DDP_LONG=1"
	local excluded=0 slow=0 run
	for _ in 1 2 3 4; do
		sh -c 'while :; do :; done' 3>&- &
	done
	for ((run = 1; run <= ${DDP_PREFLIGHTS:-200}; run++)); do
		preflight 8 --preflight true
		same "$rc" 0
		printf '# %(%T)T run %d: %s\n' -1 "$run" "$(sed -n 's/^ddp-run: preflight of 8 nodes //p' <<<"$err")" >&3
		grep -E '^node [^ ]+ (is|has)' <<<"$err" | sed 's/^/#   /' >&3 || true
		has "$err" '^ddp-run: preflight of 8 nodes in '
		excluded=$((excluded + $(grep -c '^node .* has failed' <<<"$err" || true)))
		slow=$((slow + $(grep -c '^node .* is slow' <<<"$err" || true)))
		remove_attempts
	done
	echo "# excluded: $excluded; reported as slow: $slow" >&3
	same "$excluded" 0
	((slow <= 2))
}

@test "wrong options, and a missing ddp-info, are refused" {
	for wrong in '--preflight=x|--preflight=x: give --preflight\[=full,strict\]' '--preflight-slow 2|--preflight-slow 2: give a number from 0.01 to 1' \
		'--preflight=|--preflight=: give --preflight\[=full,strict\]' '--preflight=strict,|--preflight=strict,: give --preflight\[=full,strict\]' \
		'--preflight-limit 3s|--preflight-limit 3s: give at least 15 s, in seconds, or as a number with s, m or h'; do
		# shellcheck disable=SC2086
		try ddp-run ${wrong%|*} true
		same "$rc" 2
		has "$err" "^ddp-run: ${wrong#*|}$"
	done
	install -m 755 "$INST/bin/ddp-run" "$WORK"
	try mc salloc -Q -N1 "$WORK/ddp-run" --preflight true
	same "$rc:$err" "2:ddp-run: --preflight: cannot run $WORK/ddp-info: install it beside ddp-run"
	try ddp-info --preflight --json
	same "$rc" 2
	has "$err" '^ddp-info: --preflight cannot be combined with other options'
}
