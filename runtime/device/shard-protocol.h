/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard-protocol.h - how ranks that share a GPU make one sum: what the stream of each of them does
 *
 * Members are the ranks of one GPU, or of one MIG slice, in the order of their world ranks; member 0
 * leads. A sum is a turn. Turns are numbered, the same on all members; numbers wrap at 2^32.
 *
 * Each member has a word in host memory that all see, which it alone writes:
 *
 *	word[m], m > 0	q: "my part of turn q lies in my memory, and until your q comes it is yours"
 *	word[0]		q: "the sum of turn q lies in the memory of each of you, which is yours again"
 *
 * So a member's memory has one owner at a time, and there are two states:
 *
 *	OWN	the member computes in it.   word[m] = q (by m)   -> LENT
 *	LENT	the leader reads and writes. word[0] = q (leader) -> OWN
 *
 * The leader waits for all words, sums in the order of members, lets the other GPUs add theirs if there
 * are any (NCCL, leaders alone), brings the result into the memory of all, and says so. Nobody
 * else touches another's memory, and nobody is waited for but for its word: each sum takes two.
 *
 * A stream waits for a word in the device's own queue (no kernel spins) until
 * (int32_t)(word - q) >= 0. So the host can end all waits: ddp_shard_free_value() into all words, again
 * and again until its own streams are at rest, since a stream that was under way may still write its
 * own. What is computed from then on is worth nothing, and that is known, if hosts keep an order:
 *
 *	who releases	tells its node why (ddp_group_abort), sets `released` in the page, gives up NCCL
 *			if it leads (whose kernels then end with anything), stores the words
 *	who takes	lets its stream read the result, waits for the stream, then looks at `released`
 *
 * Who reads a result later looks again then: a leader that is freed sums over the memory of all, for each turn
 * that it had enqueued. It also gives other GPUs what is no sum, and their pages do not say so; so where
 * other GPUs take part, who takes looks at what the node was told, too. Another node may hear of it
 * after it has the sum. That does not last: no collective of all ranks succeeds any more.
 *
 * The moves are pure; the page is the memory that the words lie in. tests/runtime/test_shard_protocol.c goes through every interleaving of up to four members, and of the
 * death of any two of them at each point.
 */
#ifndef DDP_DEVICE_SHARD_PROTOCOL_H
#define DDP_DEVICE_SHARD_PROTOCOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/type.h"

/* MPS serves no more clients than that, and shares get small. */
enum { DDP_SHARD_MEMBERS = DDP_DEVICE_RANKS };

enum ddp_shard_act {
	DDP_SHARD_WRITE,  /* word[word] = value, after all that is before it in the stream */
	DDP_SHARD_WAIT,	  /* until word[word] has reached value */
	DDP_SHARD_SUM,	  /* of all members' parts, into the leader's memory; into all with [all] */
	DDP_SHARD_WIDE,	  /* the leader's memory over all GPUs, in place */
	DDP_SHARD_SPREAD, /* from the leader's memory into all others' */
};

struct ddp_shard_move {
	enum ddp_shard_act act;
	int word;
	uint32_t value;
	bool all;
};

/* As many moves as a turn can have. */
enum { DDP_SHARD_MOVES = DDP_SHARD_MEMBERS + 4 };

/*
 * What [member] of [members] enqueues for [turn], in this order; [wide] where other GPUs take part.
 * The same arguments but [member] on all members.
 * Returns how many moves; one member has none but WIDE.
 */
int ddp_shard_moves(int members, int member, bool wide, uint32_t turn,
		    struct ddp_shard_move moves[DDP_SHARD_MOVES]);

/* Whether [word] has reached [value]. */
static inline bool ddp_shard_reached(uint32_t word, uint32_t value)
{
	return (int32_t)(word - value) >= 0;
}

/* What ends all waits of who is about at [turn]: far ahead of all, but not so far that it seems behind. */
static inline uint32_t ddp_shard_free_value(uint32_t turn)
{
	return turn + (1u << 30);
}

/* --- The page: host memory that the ranks of one GPU share ----------------------------------- */

/*
 * It lies in a region of the node's group (local/group.h), so nothing has a name and the kernel frees it.
 * Streams write and await the words; hosts do the rest.
 */

/*
 * Turns whose descriptions are kept. A host that compares after each wait and enqueues no more than
 * half of them between two waits finds all of them: others are then at most as far ahead again.
 */
enum { DDP_SHARD_KEPT = 256 };

struct ddp_shard_word {
	_Alignas(128) _Atomic uint32_t value;
};

/* All zero at first. Turns begin at DDP_SHARD_FIRST, so that each run sees their numbers wrap. */
#define DDP_SHARD_FIRST 0xffffffc0u

struct ddp_shard_page {
	struct ddp_shard_word words[DDP_SHARD_MEMBERS];
	_Alignas(128) _Atomic uint32_t released; /* results are worth nothing from here on */
	/* What each member enqueued as turn q, a hash of it, in [q % DDP_SHARD_KEPT]. */
	_Alignas(128) _Atomic uint64_t told[DDP_SHARD_MEMBERS][DDP_SHARD_KEPT];
};

/* All words stand before the first turn. By the leader, before others look. */
void ddp_shard_page_begin(struct ddp_shard_page *page, int members);

/*
 * Set `released`, then end all waits on the words, or with a [member] that is not -1 those of its own stream alone.
 * That is for where other GPUs take part: a leader whose waits others ended would go on to sum with those, who do not
 * know. [turn]: the last that this member enqueued. Callable again and again, from any thread of any member.
 */
void ddp_shard_page_release(struct ddp_shard_page *page, int members, int member, uint32_t turn);

/*
 * Note that [member] enqueues a sum as [turn]; [place]: where in memory that all have. Before its first
 * move is enqueued.
 */
void ddp_shard_page_tell(struct ddp_shard_page *page, int member, uint32_t turn, size_t count,
			 enum ddp_type type, enum ddp_op op, uint64_t place);

/*
 * Whether all members meant the same by [turn], which this member told of, ended or not. Who has not told it yet, or
 * has told later ones in its place, is not asked; nobody's turn ends before all have told it.
 * Returns the first member that did not, or -1.
 */
int ddp_shard_page_compare(const struct ddp_shard_page *page, int members, int member,
			   uint32_t turn);

#endif /* DDP_DEVICE_SHARD_PROTOCOL_H */
