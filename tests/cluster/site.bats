# SPDX-License-Identifier: Apache-2.0
# ddp-info --check on this host and on every node, for a correct installation and for one with each defect.
#
# shellcheck disable=SC2154 # rc, out and err come from try

load lib

setup_file()
{
	[ "$(tr "\t" - </proc/sys/net/ipv4/ip_local_port_range)" = 32768-60999 ] || skip "this host has another ip_local_port_range"
	# TaskProlog exports the SLURM_CONF in the file nN.conf, so that a test can set SLURM_CONF on single nodes, and delays the tasks of a node
	# with a file nN.slow.
	PROLOG=$(mktemp -d "${TMPDIR:-/tmp}/ddp-test.XXXXXX")
	export PROLOG
	printf '#!/bin/sh\nconf=%s/$SLURMD_NODENAME.conf\n[ ! -e "$conf" ] || echo "export SLURM_CONF=$conf"\n[ ! -e "${conf%%.conf}.slow" ] || sleep 3\n' "$PROLOG" >"$PROLOG/prolog"
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
	! mountpoint -q "$TOP/p-full" || umount "$TOP/p-full"
	rm -rf "${WORK:?}"/* "$WORK"/.ddp "$PROLOG"/n?.* "$TOP"/p-*
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
		out=$(TMPDIR=$WORK in_top_dir $user "$minicluster" run ddp-info --check) || rc=$?
		same "$rc:$(ls "$WORK")" 0:
		row ok "$(host_name), n\[1-3\]" plugstack.conf "$MINICLUSTER_DIR/plugstack.conf:1: optional $TOP/ddp.so$"
		row ok "$(host_name), n\[1-3\]" ddp.so "$TOP/ddp.so \(cksum [0-9]+\)$"
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
		inst=$1
		shift
		while (($#)); do
			ip link add "$1" type veth peer name "far-$1"
			ip link set "far-$1" up
			[ -z "$2" ] || ip address add "$2" dev "$1"
			ip link set "$1" up
			shift 2
		done
		SLURMD_NODENAME=n1 "$inst/libexec/slurm-ddp/check-site" --host "$inst/bin/ddp-info" /nonexistent 30 ddp ""' bash "$INST" "$@" |
		tr '\t' ' ' | grep -o '[0-2] network .*'
}

@test "network row: warnings about a container's interface and an InfiniBand interface without address, an error if DDP_SOCKET_IFNAME matches none" {
	((EUID == 0)) || skip "needs root, to make a network namespace"
	same "$(network eth7 10.1.2.3/20)" "0 network 10.1.0.0/20, by interface eth7 "
	has "$(network docker0 172.17.0.1/16)" '^1 network ranks would use docker0 \(172.17.0.0/16\), .* set DDP_SOCKET_IFNAME'
	has "$(network eth7 10.1.2.3/20 ib0 "")" '^1 network ranks would use eth7 \(10.1.0.0/20\), as ib0 has no address .*DDP_WIDE=mpi'
	has "$(IFNAME=nowhere network eth7 10.1.2.3/20)" '^2 network DDP_SOCKET_IFNAME=nowhere selects no interface that has an address. Choose from .*eth7 '
}

# host PLUGSTACK SETTINGS PATTERN...: checks one host whose plugstack.conf has the text PLUGSTACK, and slurmctld's settings the text
# SETTINGS. $AS is a command before check-site. The verdicts, "LEVEL WHAT FINDING REMEDY", match each pattern, and none that begins with
# "!". "@" is the test's directory.
host()
{
	local d=$TOP/p-host pattern got
	rm -rf "$d"
	mkdir -m 755 "$d" "$d/free" "$d/open" "$d/closed" "$d/d"
	chmod 1777 "$d/free"
	chmod 777 "$d/open"
	cp "$TOP/ddp.so" "$d"
	sed "s|^PlugStackConfig=.*|plugstackconfig = $d/plugstack.conf # a comment|" "$MINICLUSTER_DIR/slurm.conf" >"$d/slurm.conf"
	printf 'required\tspank_pyxis.so a  b=c # d\n' >"$d/d/b.conf"
	printf '# nothing\n\n   optional @/ddp.so rdzv=x#y\n' | sed "s|@|$d|" >"$d/d/a.conf"
	echo "optional /x/never.so" >"$d/d/c.txt"
	printf '%b' "${1//@/$d}" >"$d/plugstack.conf"
	got=$(SLURM_CONF=$d/slurm.conf ${AS-} "$INST/libexec/slurm-ddp/check-site" --host "$INST/bin/ddp-info" "$d" 60 here \
		"$(printf 'SlurmdUser = me(%d)\nSlurmUser = me(%d)\n%b' "$(id -u)" "$(id -u)" "${2//@/$d}")" | cut -f 3- | tr '\t' ' ')
	for pattern in "${@:3}"; do
		pattern=${pattern//@/$d}
		if [[ $pattern = !* ]]; then has_not "$got" "^${pattern#!}"; else has "$got" "^$pattern"; fi
	done
}

@test "lines of plugstack.conf: comments, includes, quotes, CR LF, unknown words, several lines, the order with pyxis" {
	host 'optional @/spank_pyxis.so\noptional @/ddp.so ports=61100-65533 rdzv=@/free/%u\n' 'MpiParams = ports=12000-12099\nSrunPortRange = 60001-60999\n' \
		'0 plugstack.conf @/plugstack.conf:2: optional @/ddp.so $' '0 order after pyxis \(@/plugstack.conf:1\) $' \
		'0 arguments ports=61100-65533 rdzv=@/free/%u $' '0 rendezvous rdzv=@/free/%u; other users cannot change @/free $' '!1 '
	# The file includes itself. Relative names are relative to its directory.
	host 'include d/*.conf\noptonal /x/y.so\nOptional /x/y.so\noptional\ninclude @/plugstack.conf\noptional @/ddp.so' '' \
		'0 plugstack.conf @/d/a.conf:3: optional @/ddp.so $' '0 arguments rdzv=x $' '2 order @/d/b.conf:1 loads pyxis after @/d/a.conf:3 loads ddp.so pyxis gives' \
		'1 plugstack.conf @/plugstack.conf:2: "optonal" is not a word' '1 .*:3: "Optional" is not' '1 .*:4: "optional" is not' \
		'1 plugstack.conf @/plugstack.conf:6 loads ddp.so once more remove one'
	host 'optional @/none/ddp.so\noptional @/ddp.so ports=62000\n' '' '0 plugstack.conf @/plugstack.conf:2: optional @/ddp.so ' \
		'1 plugstack.conf @/plugstack.conf:1 names @/none/ddp.so, which does not exist ' '!.*once more'
	# If the plugin is installed on this host, srun loads it.
	[ -e "$(mc scontrol show config | sed -n 's/^PluginDir *= //p')/ddp.so" ] ||
		host 'optional ddp.so\n' 'PluginDir = /nothing:@\n' '2 ddp.so srun of Slurm .* does not load @/ddp.so: '
	host 'optional "@/ddp.so" ports=62000\n' '' '2 plugstack.conf @/plugstack.conf:1: optional "@/ddp.so" ports=62000 has quotes correct' '!.*no line'
	host '# a comment\r\n\r\noptional @/ddp.so\r\n' '' '2 plugstack.conf @/plugstack.conf:3: optional @/ddp.so ends in CR LF correct' '!.*(no line|not a word)'
	host 'optional @/ddp.so ports=62000\r\n' '' '1 plugstack.conf @/plugstack.conf:1: optional @/ddp.so ports=62000 ends in CR LF correct' \
		'2 arguments @/plugstack.conf:1: ports=62000' '!.*no line'
	host "include '@/more.conf'\\n" '' "2 plugstack.conf @/plugstack.conf:1: include '@/more.conf' has quotes" '!.*no line'
	host 'include @/non*.conf\n' '' '1 plugstack.conf @/plugstack.conf:1: include @/non\*.conf matches no file'
	host 'include @/non*.conf\noptional @/ddp.so\n' '' '0 plugstack.conf @/plugstack.conf:2: optional' '!.*matches no file'
	host 'optional @/none/ddp.so' '' '2 ddp.so cannot read @/none/ddp.so: No such file' '2 srun srun does not know --ddp: .*@/none/ddp.so'
	host 'optional @/ddp.so rdvz=/x' '' '2 arguments @/plugstack.conf:1: "rdvz=/x" is not an argument'
	host 'optional @/ddp.so ports=70000' '' '2 arguments @/plugstack.conf:1: ports=70000 is not a port'
	host 'optional @/ddp.so gpu_memory=80G' '' '0 arguments none $'
}

@test "ports: those of the plugin, MpiParams and Slurm's daemons are compared" {
	host 'optional @/ddp.so ports=62000-62999\n' 'MpiParams = ports=62900-62999\nSrunPortRange = 62500-62600\n' \
		'1 ports 62000-62999, from which MASTER_PORT is computed, and MpiParams 62900-62999 and SrunPortRange 62500-62600 overlap set' \
		'0 MpiParams Slurm reserves 62900-62999 for steps $'
	host 'optional @/ddp.so\n' 'MpiParams = ports=12000-12099\nSrunPortRange = 12099-12200\nSlurmdPort = 12001\n' \
		'1 MpiParams its ports 12000-12099 and SrunPortRange 12099-12200 and SlurmdPort 12001-12001 overlap '
	host 'optional @/ddp.so ports=1-2\n' 'MpiParams = ports=12000-12099\n' '1 ports 1-2, from which MASTER_PORT is computed: only root may use ports below '
	host 'optional @/ddp.so\n' 'MpiParams = (null)\n' '1 MpiParams no ports are reserved'
	host 'optional @/ddp.so\n' 'MpiParams = 60000-65000\n' '1 MpiParams no ports are reserved' '!1 MpiParams .*overlap'
}

@test "rdzv=: the directory must exist, belong to root, permit each user to make a directory, and not be private to a job" {
	local kind
	host 'optional @/ddp.so rdzv=@/none/%u' '' '2 rendezvous rdzv=@/none/%u: cannot open @/none: No such file'
	host 'optional @/ddp.so rdzv=@/open/%u' '' '2 rendezvous rdzv=@/open/%u: @/open is writable for everybody and not sticky'
	host 'optional @/ddp.so rdzv=@/free' '' '1 rendezvous rdzv=@/free is one directory for all users write rdzv=DIR/%u'
	host 'optional @/ddp.so rdzv=x' '' "0 rendezvous rdzv=x, below each step's working directory \$"
	host 'optional @/ddp.so rdzv=/tmp/%u' 'JobContainerType = job_container/tmpfs\n' '2 rendezvous rdzv=/tmp/%u: with job_container/tmpfs each job has its own /tmp '
	host 'optional @/ddp.so rdzv=/dev/shm/a%u' 'NamespaceType = namespace/linux\n' '2 rendezvous .*: with namespace/linux each job has its own /dev/shm '
	need_root
	for kind in "/%u" "/%j" ""; do
		host "optional @/ddp.so rdzv=@/closed$kind" '' "2 rendezvous rdzv=@/closed$kind: @/closed has mode 0755, so users cannot make a directory in it chmod 1777"
	done
	install -d -m 700 -o nobody "$TOP/p-users/nobody"
	AS=as_user host "optional @/ddp.so rdzv=@/closed/%j" '' "2 rendezvous .*: @/closed has mode 0755, so users cannot"
	for AS in "" as_user; do
		host "optional @/ddp.so rdzv=$TOP/p-users/%u" '' "0 rendezvous rdzv=$TOP/p-users/%u; other users cannot change $TOP/p-users "
	done
	AS=""
	chmod 700 "$TOP/p-users"
	host "optional @/ddp.so rdzv=$TOP/p-users/%u" '' "2 rendezvous .*: $TOP/p-users has mode 0700, so users cannot"
}

@test "a full directory: a warning with the reason, or an error on the node that cannot write" {
	need_root
	mkdir "$TOP/p-full"
	mount -t tmpfs -o size=4k none "$TOP/p-full"
	echo x >"$TOP/p-full/x"
	try env DDP_RANK=0 DDP_RENDEZVOUS="$TOP/p-full" "$INST/libexec/slurm-ddp/check-site" --host "$INST/bin/ddp-info" /nonexistent 60 ddp ""
	has "$out" $'\t2\tstep\tcannot write to the directory that srun created: No space left on device\t'
	same "$(ls "$TOP/p-full")" x
	same "$(cd "$TOP/p-full" && "$minicluster" run ddp-info --check | sed -n 's/  */ /g; s|.ddp/[^:]*|.ddp/*|; / step /p')" \
		"warning n[1-3] step srun --ddp made the task a rank; no rendezvous directory: cannot write in $TOP/p-full/.ddp/*: No space left on device. Choose another directory with --ddp-rdzv=DIR."
}

@test "the user's defaults for srun, sinfo and scontrol have no effect; an invalid MASTER_PORT is named" {
	export SLURM_LABELIO=1 SLURM_STDOUTMODE=/dev/null SLURM_EXCLUSIVE=1 SINFO_PARTITION=nosuch SLURM_PARTITION=nosuch
	check
	same "$rc" 0
	row ok 'n\[1-3\]' step 'srun --ddp made the task a rank'
	unset SLURM_LABELIO SLURM_STDOUTMODE SLURM_EXCLUSIVE SINFO_PARTITION SLURM_PARTITION
	MASTER_PORT=abc check
	same "$rc" 1
	row WRONG 'n\[1-3\]' node 'usage error: MASTER_PORT=abc of your environment is not a port'
}

@test "root runs no program from a directory of PATH that other users can change, and uses no TMPDIR" {
	local name
	need_root
	mkdir -m 777 "$TOP/p-bin"
	for name in awk sed scontrol sinfo srun stat timeout; do
		printf '#!/bin/sh\ntouch "%s/ran"\n' "$TOP" >"$TOP/p-bin/$name"
		chmod 755 "$TOP/p-bin/$name"
	done
	try in_top_dir env PATH="$TOP/p-bin:$PATH" SLURM_CONF="$MINICLUSTER_DIR/slurm.conf" TMPDIR="$TOP/p-none" BASH_ENV="$TOP/p-bin/awk" "$INST/bin/ddp-info" --check -w n1
	same "$rc" 0
	row ok "$(host_name), n1" ddp.so "$TOP/ddp.so"
	[ ! -e "$TOP/ran" ]
}

@test "nodes and partitions that do not exist, and a check of no node, are errors" {
	check -w n1,n9
	same "$rc" 1
	row ok n1 step 'srun --ddp made the task a rank'
	row WRONG n9 node 'sinfo does not list this node; correct -w'
	check -p main,nosuch -w n2
	same "$rc" 1
	row ok n2 step 'srun --ddp made the task a rank'
	row WRONG "$(host_name)" node 'sinfo lists no node of n2 in partition nosuch; correct -p'
	check -p nosuch
	same "$rc" 1
	row WRONG "$(host_name)" node 'no node was checked: sinfo lists none'
}

@test "SLURM_CONF names no file: an error, and nothing else is judged" {
	check_by "$TOP/none.conf"
	same "$rc" 1
	row WRONG "$(host_name)" slurmctld "SLURM_CONF=$TOP/none.conf names no file that can be read; correct or unset it"
	same "$(tail -n 1 <<<"$out")" "1 wrong, 0 warnings"
	has_not "$out" plugstack
}

@test "without a plugin, a user is referred to ddp-exec, and root to the package" {
	: >"$MINICLUSTER_DIR/plugstack.conf"
	rc=0
	out=$(in_top_dir as_user "$minicluster" run ddp-info --check) || rc=$?
	same "$rc" 0
	row warning "$(host_name), n\[1-3\]" srun 'srun does not know --ddp, because the plugin is not installed; srun ddp-exec PROGRAM works without it'
	row ok 'n\[1-3\]' step 'srun ddp-exec made the task a rank'
	same "$(tail -n 1 <<<"$out")" "0 wrong, 1 warning"
	sed "s|^PlugStackConfig=.*|PlugStackConfig=$TOP/plugstack.conf|" "$MINICLUSTER_DIR/slurm.conf" >"$PROLOG/n2.conf"
	same "$(in_top_dir as_user "$minicluster" run ddp-info --check | sed -n 's/  */ /g; /^WRONG/p')" \
		"WRONG $(host_name) srun nodes load the plugin, and this host does not; install the package slurm-ddp here"
	need_root
	check --here
	same "$rc" 1
	row WRONG "$(host_name)" plugstack.conf "no line of .* loads ddp.so, and .*; install the package slurm-ddp here"
}

@test "states of nodes: those that are free are checked, without -w not the busy ones, and never those that are down or away" {
	local asked
	mkdir "$TOP/p-bin"
	# srun fails after it has written the nodes that it was started on.
	cat >"$TOP/p-bin/sinfo" <<-'END'
		#!/bin/bash
		i=0
		for state in idle mixed planned idle- completing allocated allocated+ reserved 'idle$' 'idle*' idle~ 'allocated*' mixed@ down drained draining unknown; do
			echo "s$((++i))|$state|1|(null)|up|main*"
		done
	END
	cat >"$TOP/p-bin/srun" <<-'END'
		#!/bin/bash
		case $* in
		*nodelist=*) tr ' ' '\n' <<<"$*" | sed -n 's/--nodelist=//p' >"${0%/*}/asked"; exit 1 ;;
		*) exec -a srun /usr/bin/srun "$@" ;;
		esac
	END
	chmod 755 "$TOP/p-bin"/*
	PATH=$TOP/p-bin:$PATH check
	same "$(<"$TOP/p-bin/asked")" "s[1-5]"
	row warning 's\[12,14-16\]|s12' node 'not checked: it is'
	row warning s6 node 'not checked: it is allocated; run ddp-info --check --here on it'
	row warning s10 node 'not checked: it is idle\*$'
	PATH=$TOP/p-bin:$PATH check -w 's[1-17]'
	same "$(<"$TOP/p-bin/asked")" "s[1-9]"
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
	row WRONG "$(host_name), n\[1-3\]" arguments '.*:1: "rdvz=/x" is not an argument of ddp.so'
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
	chmod 600 "$MINICLUSTER_DIR/plugstack.conf"
	out=$(in_top_dir as_user "$minicluster" run ddp-info --check --here) || true
	chmod 644 "$MINICLUSTER_DIR/plugstack.conf"
	row warning "$(host_name)" plugstack.conf "$MINICLUSTER_DIR/plugstack.conf: Permission denied; every srun must read it"
	has_not "$out" 'no line|not installed'
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
	row WRONG "$(host_name), n\[1-3\]" ddp.so "srun of Slurm [0-9.]+ does not load $TOP/p-lib/ddp.so: .*version.*; .*install the matching slurm-ddp"
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
	row WRONG n1 node 'the plugin is disabled, because its line in plugstack.conf on this node is wrong: "nonsense" is not an argument'
	# With "required" no task starts, so the row has the message that Slurm printed.
	echo "required $TOP/ddp.so nonsense" >"$MINICLUSTER_DIR/plugstack.conf"
	check_by "$TOP/p-srun.conf"
	same "$rc" 1
	row WRONG 'n\[1-3\]' node 'the plugin is disabled, because its line in plugstack.conf on this node is wrong: "nonsense" is not an argument'
}

@test "a node without ddp.so, and a node without ddp-info, are errors" {
	need_root
	mkdir "$TOP/p-lib"
	cp "$TOP/ddp.so" "$TOP/p-lib"
	echo "optional $TOP/p-lib/ddp.so" >"$MINICLUSTER_DIR/plugstack.conf"
	slurmd_n2 "mount -t tmpfs none '$TOP/p-lib'"
	check
	same "$rc" 1
	row ok "$(host_name), n\[1,3\]" ddp.so "$TOP/p-lib/ddp.so \(cksum"
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
	# n2 refuses the step, and so ends it before the other nodes have been checked.
	touch "$PROLOG/n1.slow" "$PROLOG/n3.slow"
	check
	rm "$PROLOG"/n?.slow
	same "$rc" 1
	row WRONG n2 node 'node n2 does not see .* \(tasks cannot write in the directory: Read-only file system\)'
	row ok 'n\[1,3\]' step 'srun --ddp made the task a rank, and the directory is shared'
	try mc srun -w n2 -N1 --ddp "$SHOW" RANK
	same "$rc:$out" 1:
	has "$err" 'ddp: node n2 does not see .* \(tasks cannot write in the directory: Read-only file system\)'
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
	same "$rc" 1
	row warning n1 node 'Unable to allocate resources: .*; check it when it is free'
	row WRONG "$(host_name)" node 'no node was checked$'
	end_jobs
	within 60 node_has_state n3 idle
}

node_has_state() { [ "$(mc sinfo -h -N -n "$1" -o %T)" = "$2" ]; }

@test "a slurmctld that does not answer is an error; a user who may not submit gets an error and the rows of this host" {
	sed 's/^SlurmctldPort=.*/SlurmctldPort=1/' "$MINICLUSTER_DIR/slurm.conf" >"$TOP/p-none.conf"
	check_by "$TOP/p-none.conf" --limit 2
	same "$rc" 1
	row WRONG "$(host_name)" slurmctld 'it does not respond: '
	row ok "$(host_name)" plugstack.conf ".*: optional $TOP/ddp.so"
	need_root
	"$minicluster" run scontrol update partitionname=main AllowGroups=daemon
	rc=0
	out=$(in_top_dir as_user "$minicluster" run ddp-info --check) || rc=$?
	"$minicluster" run scontrol update partitionname=main AllowGroups=ALL
	same "$rc" 1
	row ok "$(host_name)" ddp.so "$TOP/ddp.so"
	row WRONG "$(host_name)" node 'no node was checked'
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

@test "a full disk: no verdict is lost, and the error is named" {
	need_root
	mkdir "$TOP/p-full"
	mount -t tmpfs -o size=4k,mode=1777 none "$TOP/p-full"
	echo x >"$TOP/p-full/x"
	try in_top_dir env TMPDIR="$TOP/p-full" SLURM_CONF="$MINICLUSTER_DIR/slurm.conf" setpriv --reuid=nobody --clear-groups ddp-info --check --here
	same "$rc:$out" 1:
	has "$err" "^ddp-info: cannot write to $TOP/p-full/ddp-check"
	try in_top_dir "$minicluster" run sh -c 'ddp-info --check --here >/dev/full'
	same "$rc:$err" "1:ddp-info: cannot write to stdout"
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
