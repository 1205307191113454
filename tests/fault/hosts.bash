# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Two hosts, $A and $B, with their own addresses. Each host is a network namespace with one end of a
# pair of virtual network devices, so root is needed. A rank is a process of $COLUMN. The ranks'
# files are in $DIR.

setup_file()
{
	BUILD=${DDP_BUILDDIR:-$(cd "$BATS_TEST_DIRNAME/../.." && pwd)}
	COLUMN=$BUILD/tests/runtime/column
	DDP_MODULES=$BUILD/runtime/.libs
	export COLUMN DDP_MODULES
	unset DDP_SOCKET_IFNAME NCCL_SOCKET_IFNAME DDP_TCP_PORTS DDP_WIDE
}

hosts_up()
{
	local host
	((EUID == 0)) || skip "needs root, to make network namespaces"
	[ -x "$COLUMN" ] || skip "no $COLUMN: run make check, or set DDP_BUILDDIR"
	DIR=$(mktemp -d "${TMPDIR:-/tmp}/ddp-hosts.XXXXXX")
	A=ddpa$$ B=ddpb$$
	ip netns add "$A" 2>"$DIR/why" || skip "no network namespaces here: $(cat "$DIR/why")"
	ip netns add "$B"
	ip link add "v$A" netns "$A" type veth peer name "v$B" netns "$B"
	ip -n "$A" addr add 10.213.7.1/24 dev "v$A"
	ip -n "$B" addr add 10.213.7.2/24 dev "v$B"
	for host in "$A" "$B"; do
		ip -n "$host" link set "v$host" up
	done
	running "$A" && running "$B"
	mkdir "$DIR/meet"
}

# running NAMESPACE: waits until the namespace's device has a link.
running()
{
	local _
	for _ in {1..100}; do
		[[ $(ip -n "$1" -o link show "v$1") != *LOWER_UP* ]] || return 0
		sleep 0.05
	done
	return 1
}

teardown()
{
	local pid
	for pid in $(jobs -p); do
		kill -9 "$pid" 2>/dev/null || true
	done
	wait
	[ -z "${A-}" ] || ip netns del "$A" 2>/dev/null || true
	[ -z "${B-}" ] || ip netns del "$B" 2>/dev/null || true
	[ -z "${DIR-}" ] || rm -rf "$DIR"
}

# host_of RANK: prints the host of rank 0 or 1.
host_of()
{
	if (($1)); then echo "$B"; else echo "$A"; fi
}
