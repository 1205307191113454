# SPDX-License-Identifier: Apache-2.0
# Two hosts, whose network cable is pulled.
#
# The hosts are network namespaces that hosts.bash creates (needs root). Needs $DDP_BUILDDIR with
# tests/runtime/column.
#
# shellcheck disable=SC2154 # rc and out come from run

load hosts

setup() { hosts_up; }

# member CASE RANK BYTES SECONDS: on the host of RANK, runs a rank that all-reduces until an error occurs.
member()
{
	exec ip netns exec "$(host_of "$2")" "$COLUMN" loop "$2" 2 "$DIR/$1" "$3" "$4" >"$DIR/out.$1.$2"
}

under_way()
{
	local _
	for _ in {1..400}; do
		! grep -q 'under way' "$DIR/out.$1" || return 0
		sleep 0.05
	done
	cat "$DIR/out.$1"
	return 1
}

# named CASE STATUS: checks that both ranks exit with STATUS and name each other.
named()
{
	local rank rc
	for rank in 0 1; do
		rc=0
		wait "${pids[$1$rank]}" || rc=$?
		echo "$1: rank $rank: $rc, $(<"$DIR/out.$1.$rank")"
		[[ $rc == "$2" && $(<"$DIR/out.$1.$rank") == *"rank $((1 - rank))"* ]] || return 1
	done
}

# The pairs run at the same time, because each waits for half a minute.
@test "a pulled cable is detected during large and small messages before the time limit, and at a short one, and the peer is named" {
	local case rank
	local -A pids cases=([large]='4194304 60' [small]='64 60' [short]='4194304 8')
	for case in "${!cases[@]}"; do
		mkdir "$DIR/$case"
		for rank in 0 1; do
			# shellcheck disable=SC2086 # words
			member "$case" $rank ${cases[$case]} 3>&- &
			pids[$case$rank]=$!
		done
		under_way "$case.0" && under_way "$case.1"
	done
	ip -n "$A" link set "v$A" down
	# 64 + 20 is the timeout, and 64 + 21 a lost peer.
	named short 84
	named large 85
	named small 85
}
