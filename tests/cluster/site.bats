# SPDX-License-Identifier: Apache-2.0
# ddp-info --check on this host and on every node, for a correct installation and for one with each defect.
# tests/runtime/test_site.c tests the checks that need only files.
#
# shellcheck disable=SC2154 # rc, out and err come from try

load lib

setup_file()
{
	[ "$(tr "\t" - </proc/sys/net/ipv4/ip_local_port_range)" = 32768-60999 ] || skip "this host has another ip_local_port_range"
	# TaskProlog exports the SLURM_CONF in the file nN.conf, so that a test can set SLURM_CONF on single nodes.
	PROLOG=$(mktemp -d "${TMPDIR:-/tmp}/ddp-test.XXXXXX")
	export PROLOG
	printf '#!/bin/sh\nconf=%s/$SLURMD_NODENAME.conf\n[ ! -e "$conf" ] || echo "export SLURM_CONF=$conf"\n' "$PROLOG" >"$PROLOG/prolog"
	chmod 755 "$PROLOG" "$PROLOG/prolog"
	cluster_up --nodes 3 --conf KillOnBadExit=1 --conf SrunPortRange=61000-61099 --conf TaskProlog="$PROLOG/prolog" \
		--plugin-args ports=62000-62999
	cp "$MINICLUSTER_DIR/plugstack.conf" "$TOP/plugstack.conf"
	install_runtime
}

teardown_file()
{
	cluster_down
	rm -rf "$PROLOG"
}

teardown()
{
	if [ -n "${stopped-}" ]; then
		kill -CONT "$stopped"
		return
	fi
	end_jobs
	cp "$TOP/plugstack.conf" "$MINICLUSTER_DIR/plugstack.conf"
	chown "$(id -u)" "$TOP/ddp.so"
	chmod 755 "$TOP/ddp.so"
	rm -rf "${WORK:?}"/* "$WORK"/.ddp "$PROLOG"/n?.conf "$TOP"/p-*
}

# check OPTION...: runs ddp-info --check in $TOP, as the user that runs the tests.
check() { try in_top_dir "$minicluster" run timeout -k 5 120 ddp-info --check "$@"; }

# check_by FILE OPTION...: like check, with another slurm.conf.
check_by() { try in_top_dir env SLURM_CONF="$1" timeout -k 5 120 ddp-info --check "${@:2}"; }

in_top_dir() { (cd "$TOP" && "$@"); }

host_name() { uname -n | sed 's/\..*//'; }

# row VERDICT NODES CHECK FINDING: checks that the output has this row.
row() { has "$out" "^$1 +$2 +$3 +$4"; }

# bats test_tags=release
@test "a correct installation: every row is ok, for root, for a user and with --json" {
	for user in "" as_user; do
		rc=0
		out=$(in_top_dir $user "$minicluster" run ddp-info --check) || rc=$?
		same "$rc" 0
		row ok "$(host_name), n\[1-3\]" plugstack.conf "$MINICLUSTER_DIR/plugstack.conf:1: optional $TOP/ddp.so$"
		row ok "$(host_name), n\[1-3\]" ddp.so "$TOP/ddp.so is for Slurm [0-9.]+, the installed release"
		row ok "$(host_name), n\[1-3\]" arguments ports=62000-62999
		row ok "$(host_name), n\[1-3\]" ports '62000-62999, .*, overlap no others$'
		row ok 'n\[1-3\]' step 'srun --ddp made the task a rank'
		row ok 'n\[1-3\]' network '127.0.0.0/8, by interface lo'
		row ok 'n\[1-3\]' slurmd 'slurmd is of Slurm '
		row ok 'n\[1-3\]' shards 'gpu:2.*shard:8.*: 4 shards per GPU$'
		same "$(tail -n 1 <<<"$out")" "0 wrong, 0 warnings"
	done
	check --json --strict -w n[2-3]
	same "$rc" 0
	same "$(/usr/bin/python3 -c '
import json, sys
rows = json.load(sys.stdin)["check"]
print({row["verdict"] for row in rows}, [row["nodes"] for row in rows if row["what"] == "step"])' <<<"$out")" "{'ok'} ['n[2-3]']"
}

# network INTERFACE ADDRESS...: prints the row about the network of a host that has only these interfaces and lo.
network()
{
	DDP_SOCKET_IFNAME=${IFNAME-} unshare --net bash -ec '
		while (($#)); do
			ip link add "$1" type veth peer name "far-$1"
			ip link set "far-$1" up
			[ -z "$2" ] || ip address add "$2" dev "$1"
			ip link set "$1" up
			shift 2
		done
		ddp-info --check-node "DdpCheckStep=1
"' bash "$@" | tr '\t' ' ' | grep -o '[0-2] network .*'
}

@test "network row: warnings about a container's interface and an InfiniBand interface without address, an error if DDP_SOCKET_IFNAME matches none" {
	((EUID == 0)) || skip "needs root, to make a network namespace"
	same "$(network eth7 10.1.2.3/20)" "0 network 10.1.0.0/20, by interface eth7 "
	has "$(network docker0 172.17.0.1/16)" '^1 network ranks would use docker0 \(172.17.0.0/16\), .* set DDP_SOCKET_IFNAME'
	has "$(network eth7 10.1.2.3/20 ib0 "")" '^1 network ranks would use eth7 \(10.1.0.0/20\), as ib0 has no address .*DDP_WIDE=mpi'
	has "$(IFNAME=nowhere network eth7 10.1.2.3/20)" '^2 network DDP_SOCKET_IFNAME=nowhere selects no interface; .* eth7 '
}

@test "--here checks this host only, without srun" {
	check --here
	same "$rc" 0
	row ok "$(host_name)" ddp.so "$TOP/ddp.so"
	has_not "$out" ' n[1-3] '
}

@test "plugstack.conf with required is a warning; an unknown argument and a ddp.so that others can write or own are errors" {
	echo "required $TOP/ddp.so ports=62000-62999" >"$MINICLUSTER_DIR/plugstack.conf"
	check
	same "$rc" 0
	row warning "$(host_name), n\[1-3\]" plugstack.conf '.*:1: required .*; write optional'
	check --strict
	same "$rc" 3
	plugin_arguments rdvz=/x
	chmod 757 "$TOP/ddp.so"
	check
	same "$rc" 1
	row WRONG "$(host_name), n\[1-3\]" arguments '.*:1: there is no argument "rdvz=/x"; '
	row WRONG "$(host_name), n\[1-3\]" ddp.so "$TOP/ddp.so is writable for everybody"
	need_root
	chmod 755 "$TOP/ddp.so"
	chown nobody "$TOP/ddp.so"
	check -w n1
	same "$rc" 1
	row WRONG "$(host_name), n1" ddp.so "$TOP/ddp.so belongs to user $(id -u nobody), "
}

@test "plugstack.conf and ddp.so that only root can read are errors" {
	need_root
	mkdir "$TOP/p-conf" "$TOP/p-lib"
	cp "$TOP/ddp.so" "$TOP/p-lib/ddp.so"
	echo "optional $TOP/p-lib/ddp.so" >"$TOP/p-conf/zz-ddp.conf"
	echo "include $TOP/p-conf/*.conf" >"$MINICLUSTER_DIR/plugstack.conf"
	check --here
	has_not "$out" 'users cannot read'
	chmod 700 "$TOP/p-conf"
	chmod 640 "$TOP/p-lib/ddp.so"
	check -w n1
	same "$rc" 1
	row WRONG "$(host_name), n1" plugstack.conf "$TOP/p-conf has mode 0700, so users cannot read $TOP/p-conf/zz-ddp.conf; every srun reads it"
	row WRONG "$(host_name), n1" ddp.so "$TOP/p-lib/ddp.so has mode 0640, so users cannot read $TOP/p-lib/ddp.so; "
	chgrp nogroup "$TOP/p-lib/ddp.so"
	check --here
	has_not "$out" 'users cannot read .*ddp.so'
}

@test "plugin ports that overlap SrunPortRange and MpiParams are a warning" {
	local base
	base=$(sed -n 's/^SlurmctldPort=//p' "$MINICLUSTER_DIR/slurm.conf")
	plugin_arguments "ports=$((base + 50))-61010"
	check -w n1
	same "$rc" 0
	row warning "$(host_name), n1" ports "$((base + 50))-61010, .*, and MpiParams [0-9]+-[0-9]+ and SrunPortRange 61000-61099 overlap"
}

@test "a ddp.so for another Slurm release, and a missing one, are errors" {
	spank_plugin p-old <<-'C'
		#include <slurm/slurm_version.h>
		#include <slurm/spank.h>
		#undef SLURM_VERSION_NUMBER
		#define SLURM_VERSION_NUMBER SLURM_VERSION_NUM(20, 2, 7)
		SPANK_PLUGIN(ddp, 1)
	C
	mkdir "$TOP/p-lib"
	mv "$TOP/p-old.so" "$TOP/p-lib/ddp.so"
	echo "optional $TOP/p-lib/ddp.so" >"$MINICLUSTER_DIR/plugstack.conf"
	check
	same "$rc" 1
	row WRONG "$(host_name), n\[1-3\]" srun 'srun does not know --ddp'
	row WRONG "$(host_name), n\[1-3\]" ddp.so "$TOP/p-lib/ddp.so is for Slurm 20.02, and Slurm here is "
	row WRONG 'n\[1-3\]' slurmd '.*, ddp.so is for 20.02'
	rm "$TOP/p-lib/ddp.so"
	check -w n1
	same "$rc" 1
	row WRONG "$(host_name), n1" ddp.so "cannot read $TOP/p-lib/ddp.so: No such file or directory; install the package slurm-ddp here"
}

@test "nodes whose plugstack.conf differs: for commands on the node, and for slurmd" {
	mkdir "$TOP/p-n2" "$TOP/p-n3"
	sed "s|^PlugStackConfig=.*|PlugStackConfig=$TOP/p-n2/plugstack.conf|" "$MINICLUSTER_DIR/slurm.conf" >"$PROLOG/n2.conf"
	sed "s|^PlugStackConfig=.*|PlugStackConfig=$TOP/p-n3/plugstack.conf|" "$MINICLUSTER_DIR/slurm.conf" >"$PROLOG/n3.conf"
	echo "optional $TOP/ddp.so ports=63000-63999" >"$TOP/p-n2/plugstack.conf"
	check
	same "$rc" 1
	row ok "$(host_name), n1" arguments ports=62000-62999
	row warning n2 arguments 'ports=63000-63999; other hosts have: ports=62000-62999; '
	row WRONG n3 plugstack.conf "no line of $TOP/p-n3/plugstack.conf loads ddp.so"
	row ok 'n\[1-3\]' step 'srun --ddp'
	rm "$PROLOG"/n?.conf
	# From here on, srun and slurmd read different plugstack.conf files.
	sed "s|^PlugStackConfig=.*|PlugStackConfig=$TOP/p-n2/plugstack.conf|" "$MINICLUSTER_DIR/slurm.conf" >"$TOP/p-srun.conf"
	echo "optional $TOP/ddp.so" >"$MINICLUSTER_DIR/plugstack.conf"
	check_by "$TOP/p-srun.conf" -w n1
	same "$rc" 0
	: >"$MINICLUSTER_DIR/plugstack.conf"
	check_by "$TOP/p-srun.conf" -w n1
	same "$rc" 1
	row WRONG n1 step 'slurmd started the task without the plugin'
	echo "optional $TOP/ddp.so nonsense" >"$MINICLUSTER_DIR/plugstack.conf"
	check_by "$TOP/p-srun.conf" -w n1
	same "$rc" 1
	row WRONG n1 node 'disabled, since its line in plugstack.conf on this node is wrong: there is no argument "nonsense"'
	# With "required" no task starts, so the row has the message that Slurm printed.
	echo "required $TOP/ddp.so nonsense" >"$MINICLUSTER_DIR/plugstack.conf"
	check_by "$TOP/p-srun.conf"
	same "$rc" 1
	row WRONG 'n\[1-3\]' node 'disabled, since its line in plugstack.conf on this node is wrong: there is no argument "nonsense"'
}

@test "a node without ddp.so, and a node without ddp-info, are errors" {
	need_root
	mkdir "$TOP/p-lib"
	cp "$TOP/ddp.so" "$TOP/p-lib"
	echo "optional $TOP/p-lib/ddp.so" >"$MINICLUSTER_DIR/plugstack.conf"
	slurmd_n2 "mount -t tmpfs none '$TOP/p-lib'"
	check
	same "$rc" 1
	row ok "$(host_name), n\[1,3\]" ddp.so "$TOP/p-lib/ddp.so is for Slurm"
	row WRONG n2 ddp.so "cannot read $TOP/p-lib/ddp.so: No such file or directory; install the package slurm-ddp here"
	row WRONG n2 step 'slurmd started the task without the plugin'
	row ok 'n\[1,3\]' step 'srun --ddp made the task a rank'
	slurmd_n2 "mount -t tmpfs none '$INST/bin'"
	check
	same "$rc" 1
	row WRONG n2 node '.*; install the package slurm-ddp-tools there$'
	row ok 'n\[1,3\]' step 'srun --ddp made the task a rank'
	slurmd_n2 true
}

@test "rdzv= with a directory that one node cannot write to, and with a missing one, are errors" {
	need_root
	mkdir -m 1777 "$TOP/p-base"
	mkdir "$TOP/p-base/cwd"
	plugin_arguments "ports=62000-62999 rdzv=$TOP/p-base/%u"
	slurmd_n2 "mount --bind '$TOP/p-base' '$TOP/p-base' && mount -o remount,ro,bind '$TOP/p-base'"
	check
	same "$rc" 1
	row WRONG n2 node 'node n2 does not share .* \(tasks cannot write in it: Read-only file system\)'
	row ok 'n\[1,3\]' step 'srun --ddp made the task a rank, and the directory is shared'
	try mc srun -w n2 -N1 --ddp "$SHOW" RANK
	same "$rc:$out" 1:
	has "$err" 'ddp: node n2 does not share .* \(tasks cannot write in it: Read-only file system\)'
	# Without rdzv=, the base directory is the working directory.
	cp "$TOP/plugstack.conf" "$MINICLUSTER_DIR/plugstack.conf"
	out=$(cd "$TOP/p-base/cwd" && "$minicluster" run ddp-info --check)
	row warning n2 step 'srun --ddp made the task a rank; the directory of this command is not shared; other hosts have: '
	slurmd_n2 true
	# As root, srun does not create the base directory, because it would belong to root.
	plugin_arguments "ports=62000-62999 rdzv=$TOP/p-base/%u"
	rmdir "$TOP/p-base/cwd" "$TOP/p-base"
	check
	same "$rc" 1
	[ ! -e "$TOP/p-base" ]
	row WRONG "$(host_name)" rendezvous "rdzv=.*: cannot open $TOP/p-base: No such file"
}

@test "a drained and an allocated node are a warning each" {
	mc sbatch -w n1 --exclusive -o /dev/null --wrap 'sleep 300'
	within 60 node_has_state n1 allocated
	"$minicluster" run scontrol update nodename=n3 state=drain reason=test
	check
	"$minicluster" run scontrol update nodename=n3 state=resume
	same "$rc" 0
	row warning n1 node 'not checked: it is allocated; run ddp-info --check --here on it'
	row warning n3 node 'not checked: it is drained'
	row ok n2 step 'srun --ddp made'
	# srun waits for half of this time, and prints an error. The rest is for slow commands.
	check -w n1 --limit 14
	same "$rc" 0
	row warning n1 node 'Unable to allocate resources: .*; check it when it is free'
	end_jobs
	within 60 node_has_state n3 idle
}

node_has_state() { [ "$(mc sinfo -h -N -n "$1" -o %T)" = "$2" ]; }

@test "a user who may not submit gets a warning and the rows of this host; a slurmctld that does not answer is an error" {
	"$minicluster" run scontrol update partitionname=main AllowGroups=daemon
	rc=0
	out=$(in_top_dir as_user "$minicluster" run ddp-info --check) || rc=$?
	"$minicluster" run scontrol update partitionname=main AllowGroups=ALL
	same "$rc" 0
	row ok "$(host_name)" ddp.so "$TOP/ddp.so"
	has "$out" '^warning .* node +(no node was checked|Unable to allocate)'
	sed 's/^SlurmctldPort=.*/SlurmctldPort=1/' "$MINICLUSTER_DIR/slurm.conf" >"$TOP/p-none.conf"
	check_by "$TOP/p-none.conf" --limit 2
	same "$rc" 1
	row WRONG "$(host_name)" slurmctld 'it does not respond: '
	row ok "$(host_name)" plugstack.conf ".*: optional $TOP/ddp.so"
}

@test "inside a job: only its nodes are checked, by a step" {
	mc salloc -N2 ddp-info --check >"$TOP/out" 2>"$TOP/err"
	out=$(<"$TOP/out")
	row ok 'n\[1-2\]' step 'srun --ddp made'
	has_not "$out" n3
}

@test "nodes in different partitions: all are checked; -p selects one partition" {
	"$minicluster" run scontrol create partitionname=two nodes=n3
	"$minicluster" run scontrol update partitionname=main nodes=n[1-2]
	check
	same "$rc" 0
	row ok 'n\[1-3\]' step 'srun --ddp made'
	check -p two
	same "$rc" 0
	row ok n3 step 'srun --ddp made'
	"$minicluster" run scontrol update partitionname=two state=down
	check
	same "$rc" 0
	row ok 'n\[1-2\]' step 'srun --ddp made'
	row warning n3 node 'not checked: none of its partitions is up'
	"$minicluster" run scontrol delete partitionname=two
	"$minicluster" run scontrol update partitionname=main nodes=n[1-3]
}

@test "invalid combinations of options, and unknown arguments, are refused" {
	for arguments in "--check --device" "--check --no-test" "-w n1" "--check --here -p main" "--check --limit 0" "--check x"; do
		# shellcheck disable=SC2086
		try ddp-info $arguments
		same "$rc:$out" "2:"
		same "$(wc -l <<<"$err")" 1
	done
}

# This is the last test, because Slurm needs a while before it uses the stopped node again.
@test "a node that does not answer is an error, within --limit" {
	stopped=$(<"$MINICLUSTER_DIR/slurmd-n2.pid")
	kill -STOP "$stopped"
	check --limit 20
	same "$rc" 1
	row WRONG n2 node '.'
	row ok 'n\[1,3\]' step 'srun --ddp made'
}
