# SPDX-License-Identifier: Apache-2.0
# contrib/minicluster itself: its messages, and its safe use of /tmp, which all users share.
#
# shellcheck disable=SC2086 # words
# shellcheck disable=SC2154 # rc, out and err come from try

load lib

setup()
{
	TOP=$(mktemp -d /tmp/ddp-test.XXXXXX)
	chmod 755 "$TOP"
	export TOP MINICLUSTER_DIR=
	minicluster=$DDP_SRCDIR/contrib/minicluster
}

teardown()
{
	timeout 200 "$minicluster" down --dir "$TOP/c" >/dev/null || true
	[[ $(readlink "${claim-}") != "$TOP"/* ]] || rm -f "$claim"
	rm -rf "$TOP"
}

# trap_of_another DIRECTORY: creates a directory of another user, in which the file "cluster" is a FIFO. A read of this file would
# hang.
trap_of_another()
{
	[ "$(id -u)" -eq 0 ] || skip "a second user needs root"
	install -d -o daemon "$1"
	as_other_user mkfifo "$1/cluster"
}

@test "a claim on ports that another user made is neither followed nor removed while its directory exists" {
	trap_of_another "$TOP/trap"
	# The first block of ports that a cluster in this directory would claim.
	claim=/tmp/minicluster-port-$((10000 + $(cksum <<<"$TOP/c" | cut -d ' ' -f 1) % 200 * 100))
	[ ! -L "$claim" ] || skip "these ports are taken"
	as_other_user ln -s "$TOP/trap" "$claim"
	try timeout 200 "$minicluster" up --dir "$TOP/c" --nodes 1 --gpus 0 --plugstack none
	same "$rc" 0
	[ -L "$claim" ]
	# Without the other user's directory, the claim is stale, and is replaced by this cluster's. Another cluster on this host may
	# replace it first.
	rm -r "$TOP/trap"
	timeout 200 "$minicluster" down --dir "$TOP/c" >/dev/null
	try timeout 200 "$minicluster" up --dir "$TOP/c" --nodes 1 --gpus 0 --plugstack none
	same "$rc" 0
	[ "$(readlink "$claim")" != "$TOP/trap" ]
}

@test "a directory of another user, and a link by another user, are refused without reading them" {
	trap_of_another "$TOP/trap"
	as_other_user ln -s "$TOP/trap" "$TOP/trap/link"
	for command in up down status env shell; do
		try timeout 20 "$minicluster" "$command" --dir "$TOP/trap"
		same "$rc" 1
		has "$err" "$TOP/trap (belongs to daemon|exists and is not an empty directory of yours)"
	done
	try timeout 20 "$minicluster" up --dir "$TOP/trap/link"
	same "$rc" 1
	has "$err" "link' is a symbolic link of daemon: give a directory of your own with --dir"
}

@test "up prints an example command that works as printed" {
	try timeout 200 "$minicluster" up --dir "$TOP/c" --nodes 1 --gpus 0 --plugstack none
	same "$rc" 0
	has "$out" "try: .* run --dir $TOP/c srun -N1 hostname$"
	try bash -c "${out##*try: }"
	same "$rc:$out" "0:$(uname -n)"
}

# The test simulates such a Slurm: it removes MULTIPLE_SLURMD from the output of scontrol.
@test "a Slurm without multiple slurmd support is refused for two nodes, and works for one" {
	real=$(PATH=$PATH:/usr/sbin:/sbin type -P scontrol)
	mkdir "$TOP/bin"
	printf '#!/bin/sh\n%s "$@" | grep -v MULTIPLE_SLURMD\n' "$real" >"$TOP/bin/scontrol"
	chmod 755 "$TOP/bin/scontrol"
	PATH=$TOP/bin:$PATH try timeout 200 "$minicluster" up --dir "$TOP/c" --nodes 2 --gpus 0 --plugstack none
	same "$rc:$out" 1:
	has "$err" '^minicluster: this Slurm runs one slurmd on a host, .* --enable-multiple-slurmd: give --nodes 1, or '
	[ ! -e "$TOP/c" ]
	PATH=$TOP/bin:$PATH try timeout 200 "$minicluster" up --dir "$TOP/c" --nodes 1 --gpus 0 --plugstack none
	same "$rc" 0
}

@test "--conf with a port of slurmctld is refused before anything is created" {
	try "$minicluster" up --dir "$TOP/c" --gpus 0 --plugstack none --conf slurmctldport=7000
	same "$rc:$out" 2:
	has "$err" "^minicluster: --conf is 'slurmctldport=7000': the cluster chooses the ports; remove this line$"
}

@test "--dir without a directory is refused" {
	for options in "--dir=" "--dir= status" "up --dir=" "--dir --nodes" "up --dir --nodes 1"; do
		try "$minicluster" $options
		same "$rc:$out" 2:
		has "$err" "^minicluster: --dir is '(--nodes)?': give a directory; a name that starts with - as \\./-NAME$"
	done
}

@test "status, run and env report that up still runs, and that up was killed" {
	mkdir "$TOP/bin"
	printf '#!/bin/sh\necho $$ >"%s/munged"\nexec sleep 100\n' "$TOP" >"$TOP/bin/munged"
	chmod 755 "$TOP/bin/munged"
	PATH=$TOP/bin:$PATH "$minicluster" up --dir "$TOP/c" --gpus 0 --plugstack none 3>&- &
	within 60 test -s "$TOP/munged"
	try "$minicluster" status --dir "$TOP/c"
	same "$rc:$out$err" "1:minicluster: the cluster in $TOP/c is not up yet: wait for its 'minicluster up'"
	kill -9 $!
	wait $! || true
	kill "$(<"$TOP/munged")"
	for command in status 'run hostname' env; do
		try "$minicluster" --dir "$TOP/c" $command
		same "$rc:$out$err" "1:minicluster: the 'minicluster up' of $TOP/c was killed: run up or down again"
	done
}

@test "AuthType=auth/slurm is refused before Slurm 23.11" {
	! slurm_at_least 23.11 || skip "this Slurm has it"
	try "$minicluster" up --dir "$TOP/c" --gpus 0 --plugstack none --conf AuthType=auth/slurm
	same "$rc" 1
	has "$err" '^minicluster: AuthType=auth/slurm needs Slurm 23\.11 or later, and this is 2[0-3]\.'
}

# bats test_tags=release
@test "AuthType=auth/slurm: a cluster without munge works, and a second one is refused" {
	slurm_at_least 23.11 || skip "this Slurm has no auth/slurm"
	need_root
	try timeout 200 "$minicluster" up --dir "$TOP/c" --gpus 0 --plugstack none --conf AuthType=auth/slurm
	same "$rc" 0
	try as_other_user "$minicluster" run --dir "$TOP/c" srun -D / -N2 id -un
	same "$rc:$out" "0:daemon
daemon"
	try timeout 20 "$minicluster" status --dir "$TOP/c"
	same "$rc" 0
	has_not "$out" '^munged'
	try timeout 200 "$minicluster" up --dir "$TOP/c2" --gpus 0 --plugstack none --conf AuthType=auth/slurm
	same "$rc" 1
	has "$err" '^minicluster: another Slurm on this machine uses the sockets of auth/slurm: '
}
