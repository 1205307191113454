# SPDX-License-Identifier: Apache-2.0
#
# A stranger on both hosts of a job, another user who can see who listens there: nothing that it
# sends before, while or after the ranks meet changes what they compute, and none of them falls.
#
# The hosts are network namespaces which this file makes (root), the ranks run as root and the
# stranger as nobody. Needs $DDP_BUILDDIR with tests/runtime/column and the module ddp_ucx.so.
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
	DIR=$(mktemp -d "${TMPDIR:-/tmp}/ddp-stranger.XXXXXX")
	A=ddpa$$ B=ddpb$$
	ip netns add "$A" 2>"$DIR/why" || skip "no network namespaces here: $(cat "$DIR/why")"
	ip netns add "$B"
	ip link add "v$A" netns "$A" type veth peer name "v$B" netns "$B"
	ip -n "$A" addr add 10.213.7.1/24 dev "v$A"
	ip -n "$B" addr add 10.213.7.2/24 dev "v$B"
	for host in "$A" "$B"; do
		ip -n "$host" link set "v$host" up
		ip -n "$host" link set lo up
	done
	running "$A" && running "$B"
	mkdir "$DIR/meet"
	mkdir -m 777 "$DIR/seen"
	chmod 711 "$DIR"
	ranks=()
}

# The other end of the cable is seen.
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

host_of()
{
	if (($1)); then echo "$B"; else echo "$A"; fi
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
