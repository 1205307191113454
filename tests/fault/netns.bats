# SPDX-License-Identifier: Apache-2.0
#
# Two hosts with addresses of their own, and the cable between them is pulled.
#
# The hosts are network namespaces which this file makes (root), each with one end of a pair of
# virtual cards. Needs $DDP_BUILDDIR with tests/runtime/column and the module ddp_ucx.so.
#
# shellcheck disable=SC2154 # rc and out come from run

setup_file()
{
	BUILD=${DDP_BUILDDIR:-$(cd "$BATS_TEST_DIRNAME/../.." && pwd)}
	COLUMN=$BUILD/tests/runtime/column
	DDP_MODULES=$BUILD/runtime/.libs
	export COLUMN DDP_MODULES
	unset "${!UCX_@}"
}

setup()
{
	((EUID == 0)) || skip "needs root, to make network namespaces"
	[ -x "$COLUMN" ] || skip "no $COLUMN: run make check, or set DDP_BUILDDIR"
	[ -e "$DDP_MODULES/ddp_ucx.so" ] || skip "built without UCX"
	DIR=$(mktemp -d "${TMPDIR:-/tmp}/ddp-netns.XXXXXX")
	A=ddpa$$ B=ddpb$$
	ip netns add "$A" 2>"$DIR/why" || skip "no network namespaces here: $(cat "$DIR/why")"
	ip netns add "$B"
	ip link add "v$A" netns "$A" type veth peer name "v$B" netns "$B"
	ip -n "$A" addr add 10.213.7.1/24 dev "v$A"
	ip -n "$B" addr add 10.213.7.2/24 dev "v$B"
	ip -n "$A" link set "v$A" up
	ip -n "$B" link set "v$B" up
	running "$A" && running "$B"
	mkdir "$DIR/meet"
}

# The cable is seen at this end, too.
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

# member RANK BYTES SECONDS: all-reduce in a loop, on the host of RANK, until something happens.
member()
{
	local host=$A
	[ "$1" = 0 ] || host=$B
	exec ip netns exec "$host" "$COLUMN" loop "$1" 2 "$DIR/meet" "$2" "$3" >"$DIR/out$1"
}

under_way()
{
	local _
	for _ in {1..400}; do
		! grep -q 'under way' "$DIR/out$1" || return 0
		sleep 0.05
	done
	cat "$DIR/out$1"
	return 1
}

# pull BYTES SECONDS: run both, pull the cable, wait for both; sets rc0, rc1, out0, out1.
pull()
{
	local pids=()
	member 0 "$1" "$2" 3>&- & pids+=($!)
	member 1 "$1" "$2" 3>&- & pids+=($!)
	under_way 0 && under_way 1
	ip -n "$A" link set "v$A" down
	rc0=0 rc1=0
	wait "${pids[0]}" || rc0=$?
	wait "${pids[1]}" || rc1=$?
	out0=$(cat "$DIR/out0") out1=$(cat "$DIR/out1")
	echo "rank 0: $rc0, $out0; rank 1: $rc1, $out1"
}

# A process that lost its peer says so: 64 + 21 (peer) before the limit is over, 64 + 20 (timeout) then.
named()
{
	[[ $rc0 == "$1" && $out0 == *"rank 1"* ]]
	[[ $rc1 == "$1" && $out1 == *"rank 0"* ]]
}

@test "a pulled cable with data on its way is noticed before the time limit" {
	pull 4194304 60
	named 85
}

@test "a pulled cable between small messages is noticed before the time limit" {
	pull 64 60
	named 85
}

@test "a short time limit comes first and names the peer" {
	pull 4194304 2
	named 84
}
