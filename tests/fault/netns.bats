# SPDX-License-Identifier: Apache-2.0
# Two hosts, whose network cable is pulled.
#
# The hosts are network namespaces that hosts.bash creates (needs root). Needs $DDP_BUILDDIR with
# tests/runtime/column.
#
# shellcheck disable=SC2154 # rc and out come from run

load hosts

setup() { hosts_up; }

# member RANK BYTES SECONDS: on the host of RANK, runs a rank that all-reduces until an error
# occurs.
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

# pull BYTES SECONDS: runs both ranks, pulls the cable, and waits for both ranks. Sets rc0, rc1,
# out0 and out1.
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

# named STATUS: checks that both ranks exit with STATUS and name each other. STATUS is 64 + 21 (lost
# peer) before the timeout, 64 + 20 (timeout) at the timeout.
named()
{
	[[ $rc0 == "$1" && $out0 == *"rank 1"* ]]
	[[ $rc1 == "$1" && $out1 == *"rank 0"* ]]
}

@test "a pulled cable during a large message is detected before the time limit" {
	pull 4194304 60
	named 85
}

@test "a pulled cable between small messages is detected before the time limit" {
	pull 64 60
	named 85
}

@test "a short time limit ends the wait first, and the message names the peer" {
	pull 4194304 8
	named 84
}
