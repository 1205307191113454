/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page.h - the host memory that the ranks of one GPU share: words, and what they tell each other
 *
 * It lies in a region of the node's group (local/group.h), so nothing has a name and the kernel frees it.
 * Streams write and await the words (protocol.h); hosts do the rest.
 */
#ifndef DDP_SHARD_PAGE_H
#define DDP_SHARD_PAGE_H

#include <stdatomic.h>

#include "base/error.h"
#include "base/type.h"
#include "protocol.h"

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
 * Set `released`, then end all waits on the words; [turn]: the last that this member enqueued. Callable again
 * and again, from any thread of any member.
 */
void ddp_shard_page_release(struct ddp_shard_page *page, int members, uint32_t turn);

/*
 * The same for what [member]'s own stream waits for alone. Where other GPUs take part: a leader whose waits others
 * ended would go on to sum with those, who do not know.
 */
void ddp_shard_page_release_own(struct ddp_shard_page *page, int members, int member,
				uint32_t turn);

/*
 * Note that [member] enqueues a sum as [turn]; [place]: where in memory that all have. Before its first
 * move is enqueued.
 */
void ddp_shard_page_tell(struct ddp_shard_page *page, int member, uint32_t turn, size_t count,
			 enum ddp_type type, enum ddp_op op, uint64_t place);

/*
 * After [turn] has ended on [member], and not by a release: whether all members meant the same by it.
 * Who is further by all of KEPT is not asked any more.
 * Returns the first member that did not, or -1.
 */
int ddp_shard_page_compare(const struct ddp_shard_page *page, int members, int member,
			   uint32_t turn);

/*
 * The same for any turn that this member told of, ended or not: who has not told it yet, or has told later ones
 * in its place, is not asked.
 */
int ddp_shard_page_differ(const struct ddp_shard_page *page, int members, int member,
			  uint32_t turn);

#endif /* DDP_SHARD_PAGE_H */
