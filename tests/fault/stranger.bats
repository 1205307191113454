# SPDX-License-Identifier: Apache-2.0
#
# A stranger on both hosts of a job, another user who can see who listens there: nothing that it
# sends before, while or after the ranks meet changes what they compute, and none of them falls.
#
# The hosts are network namespaces which hosts.bash makes (root), the ranks run as root and the
# stranger as nobody. Needs $DDP_BUILDDIR with tests/runtime/column and the module ddp_ucx.so.
#
# shellcheck disable=SC2154 # rc and out come from run

load hosts

setup()
{
	hosts_up
	ip -n "$A" link set lo up
	ip -n "$B" link set lo up
	mkdir -m 777 "$DIR/seen"
	chmod 711 "$DIR"
	ranks=()
}

# rank RANK: sums and checks them for a while, with few files to spare.
rank()
{
	(
		ulimit -n 256
		exec ip netns exec "$(host_of "$1")" "$COLUMN" sum "$1" 2 "$DIR/meet" \
			64 500 65536 30 1048576 4
	) >"$DIR/out$1" 2>"$DIR/err$1" 3>&- &
	ranks+=($!)
}

# stranger HOST ATTACK once|on
stranger()
{
	ip netns exec "$(host_of "$1")" setpriv --reuid 65534 --regid 65534 --clear-groups \
		/usr/bin/python3 -c "$(<"$BATS_TEST_DIRNAME/stranger.py")" "$2" "$3" "$DIR/seen" \
		>"$DIR/reached$1" 2>"$DIR/stranger$1" 3>&- &
}

# seen FILE PATTERN: wait until a line of it is there.
seen()
{
	local _
	for _ in {1..600}; do
		! grep -qs "$2" "$DIR/$1" || return 0
		sleep 0.05
	done
	cat "$DIR/$1" "$DIR"/stranger? "$DIR"/err?
	return 1
}

# Both ranks came to their end with the right sums, and told of strangers at most once.
well()
{
	local rc=0 rank lines
	for rank in 0 1; do
		wait "${ranks[rank]}" || rc=$?
		echo "rank $rank: $(grep -v '^[0-9]' "$DIR/out$rank"; cat "$DIR/err$rank")"
		lines=$(grep -c 'refused a stranger' "$DIR/err$rank") || true
		((lines <= 1))
	done
	((rc == 0))
}

# Connected before the ranks have met, and still there when they meet.
before()
{
	rank 0
	for _ in {1..600}; do
		[ ! -e "$DIR/meet/0" ] || break
		sleep 0.05
	done
	stranger 0 "$1" once
	seen reached0 'reached [1-9]'
	rank 1
	well
	grep 'refused a stranger that connected from' "$DIR/err0"
}

# All the time, from before the first rank until after the last, on both hosts.
during()
{
	stranger 0 "$1" on
	stranger 1 "$1" on
	seen reached0 reached && seen reached1 reached
	rank 0
	rank 1
	well
}

@test "a stranger before the ranks meet, with garbage" { before garbage; }
@test "a stranger while the ranks meet, with garbage" { during garbage; }
@test "a stranger before the ranks meet, with a greeting of UCX" { before greeting; }
@test "a stranger while the ranks meet, with a greeting of UCX" { during greeting; }
@test "a stranger before the ranks meet, with the greeting of another rank" { before replay; }
@test "a stranger while the ranks meet, with the greeting of another rank" { during replay; }
@test "a stranger before the ranks meet, with a note that a rank gives up" { before letter; }
@test "a stranger while the ranks meet, with a note that a rank gives up" { during letter; }
@test "a stranger before the ranks meet, with gradients" { before message; }
@test "a stranger while the ranks meet, with gradients" { during message; }
@test "a stranger before the ranks meet, with a write to the memory" { before put; }
@test "a stranger while the ranks meet, with a write to the memory" { during put; }
@test "a stranger before the ranks meet, with no word" { before silence; }
@test "a stranger while the ranks meet, with no word" { during silence; }
@test "a stranger before the ranks meet, with 600 connections" { before flood; }
@test "a stranger while the ranks meet, with 600 connections" { during flood; }

@test "nobody listens when the ranks have met" {
	rank 0
	rank 1
	seen out0 '^64 '
	stranger 0 put once
	seen reached0 'reached 0'
	well
}
