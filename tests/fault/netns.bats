# SPDX-License-Identifier: Apache-2.0
#
# Two hosts with addresses of their own, and the cable between them is pulled.
#
# The hosts are network namespaces which hosts.bash makes (root). Needs $DDP_BUILDDIR with tests/runtime/column.
#
# shellcheck disable=SC2154 # rc and out come from run

load hosts

setup() { hosts_up; }

# member RANK BYTES SECONDS: all-reduce in a loop, on the host of RANK, until something happens.
member()
{
	exec ip netns exec "$(host_of "$1")" "$COLUMN" loop "$1" 2 "$DIR/meet" "$2" "$3" >"$DIR/out$1"
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
