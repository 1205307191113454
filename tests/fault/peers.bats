# SPDX-License-Identifier: Apache-2.0
#
# Unauthorized peers on both hosts of a job: a process of another user, which can find the ranks'
# listeners. Whatever this process sends before or while the ranks connect, the ranks must compute
# correct sums, and must not crash.
#
# The hosts are network namespaces that hosts.bash creates, so root is needed. The ranks run as
# root, the peer as nobody. $DDP_BUILDDIR must have tests/runtime/column.
#
# bats file_tags=sanitize
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

# rank RANK: runs a rank that computes and checks sums. It may have at most 64 descriptors.
rank()
{
	(
		ulimit -n 64
		exec ip netns exec "$(host_of "$1")" "$COLUMN" sum "$1" 2 "$DIR/meet" \
			64 500 65536 30 1048576 4
	) >"$DIR/out$1" 2>"$DIR/err$1" 3>&- &
	ranks+=($!)
}

# peer HOST ATTACK once|on: starts peers.py. The attack "insider" runs as root, since it reads a
# rank's card (its published address and secret) and publishes one.
peer()
{
	local user=(setpriv --reuid 65534 --regid 65534 --clear-groups)
	[ "$2" != insider ] || user=()
	ip netns exec "$(host_of "$1")" "${user[@]}" \
		/usr/bin/python3 -c "$(<"$BATS_TEST_DIRNAME/peers.py")" "$2" "$3" "$DIR/seen" "$DIR/meet" \
		>"$DIR/reached$1" 2>"$DIR/peer$1" 3>&- &
}

# seen FILE PATTERN: waits until a line of FILE matches.
seen()
{
	local _
	for _ in {1..600}; do
		! grep -qs "$2" "$DIR/$1" || return 0
		sleep 0.05
	done
	cat "$DIR/$1" "$DIR"/peer? "$DIR"/err?
	return 1
}

# Checks that both ranks end with correct sums. Each rank may print one line about rejected peers.
all_is_well()
{
	local rc=0 rank lines
	for rank in 0 1; do
		wait "${ranks[rank]}" || rc=$?
		echo "rank $rank: $(grep -v '^[0-9]' "$DIR/out$rank"; cat "$DIR/err$rank")"
		lines=$(grep -c 'rejected [0-9]* connections' "$DIR/err$rank") || true
		((lines <= 1))
	done
	((rc == 0))
}

# before ATTACK: lets the peer connect before the ranks do, and keep its connections. Of the two
# ranks, rank 0 listens.
before()
{
	rank 0
	for _ in {1..600}; do
		[ ! -e "$DIR/meet/0" ] || break
		sleep 0.05
	done
	peer 0 "$1" once
	seen reached0 'reached [1-9]'
	rank 1
	all_is_well
	grep -E "rejected [0-9]+ connections without a valid proof, the first from 10.213.7.1:[0-9]+" "$DIR/err0"
}

# during ATTACK: attacks both hosts, from before the first rank starts until both ranks have ended.
during()
{
	peer 0 "$1" on
	peer 1 "$1" on
	seen reached0 reached && seen reached1 reached
	rank 0
	rank 1
	all_is_well
}

@test "garbage before the ranks connect" { before garbage; }
@test "garbage while the ranks connect" { during garbage; }
@test "a silent connection before the ranks connect" { before silence; }
@test "silent connections while the ranks connect" { during silence; }
@test "a slow sender before the ranks connect" { before slow; }
@test "slow senders while the ranks connect" { during slow; }
@test "greetings without a proof before the ranks connect" { before greeting; }
@test "greetings without a proof while the ranks connect" { during greeting; }
@test "greetings of ranks that are not partners before the ranks connect" { before wrong_rank; }
@test "greetings of ranks that are not partners while the ranks connect" { during wrong_rank; }
@test "a wrong proof, then garbage, before the ranks connect" { before wrong_proof; }
@test "wrong proofs, then garbage, while the ranks connect" { during wrong_proof; }
@test "a greeting and proof of another step before the ranks connect" { before other_step; }
@test "greetings and proofs of another step while the ranks connect" { during other_step; }
@test "600 connections, all pending slots held, before the ranks connect" { before flood; }
@test "600 connections, again and again, while the ranks connect" { during flood; }

@test "a proof is accepted on the connection whose challenge it answers, and on no other" {
	rank 0
	for _ in {1..600}; do
		[ ! -e "$DIR/meet/0" ] || break
		sleep 0.05
	done
	peer 0 insider once
	seen reached0 'reached 1'
	[ "$(grep answered "$DIR/reached0")" = "answered with 0 bytes"$'\n'"answered with 32 bytes" ]
}

@test "no port is open once the ranks are connected" {
	rank 0
	rank 1
	seen out0 '^64 '
	peer 0 silence once
	seen reached0 'reached 0'
	all_is_well
}
