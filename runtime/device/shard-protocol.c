/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/checksum.h"
#include "shard-protocol.h"

static int follow(int member, uint32_t turn, struct ddp_shard_move *moves)
{
	moves[0] = (struct ddp_shard_move){.act = DDP_SHARD_WRITE, .word = member, .value = turn};
	moves[1] = (struct ddp_shard_move){.act = DDP_SHARD_WAIT, .word = 0, .value = turn};
	return 2;
}

static int lead(int members, bool wide, uint32_t turn, struct ddp_shard_move *moves)
{
	int count = 0;

	for (int member = 1; member < members; member++)
		moves[count++] = (struct ddp_shard_move){
			.act = DDP_SHARD_WAIT, .word = member, .value = turn};
	if (members > 1)
		moves[count++] = (struct ddp_shard_move){.act = DDP_SHARD_SUM, .all = !wide};
	if (wide)
		moves[count++] = (struct ddp_shard_move){.act = DDP_SHARD_WIDE};
	if (wide && members > 1)
		moves[count++] = (struct ddp_shard_move){.act = DDP_SHARD_SPREAD};
	if (members > 1)
		moves[count++] =
			(struct ddp_shard_move){.act = DDP_SHARD_WRITE, .word = 0, .value = turn};
	return count;
}

int ddp_shard_moves(int members, int member, bool wide, uint32_t turn,
		    struct ddp_shard_move moves[DDP_SHARD_MOVES])
{
	return member == 0 ? lead(members, wide, turn, moves) : follow(member, turn, moves);
}

/* --- The page ------------------------------------------------------------------------- */

void ddp_shard_page_begin(struct ddp_shard_page *page, int members)
{
	for (int member = 0; member < members; member++)
		atomic_store(&page->words[member].value, DDP_SHARD_FIRST - 1);
}

/* A leader waits for the words of the others, and each of these for the leader's. */
void ddp_shard_page_release(struct ddp_shard_page *page, int members, int member, uint32_t turn)
{
	int first = member == 0 ? 1 : 0, last = member > 0 ? 1 : members;

	atomic_store(&page->released, 1);
	for (int word = first; word < last; word++)
		atomic_store(&page->words[word].value, ddp_shard_free_value(turn));
}

/* The turn in the upper half, so that a place that serves another turn by now is known. */
void ddp_shard_page_tell(struct ddp_shard_page *page, int member, uint32_t turn, size_t count,
			 enum ddp_type type, enum ddp_op op, uint64_t place)
{
	uint64_t said[] = {count, (uint64_t)type, (uint64_t)op, place};
	uint64_t hash = ddp_hash(DDP_HASH_INIT, said, sizeof(said));

	/* Never zero: that is a place where nothing was told yet. */
	hash = ((hash ^ hash >> 32) & UINT32_MAX) | 1;
	atomic_store(&page->told[member][turn % DDP_SHARD_KEPT], (uint64_t)turn << 32 | hash);
}

int ddp_shard_page_compare(const struct ddp_shard_page *page, int members, int member,
			   uint32_t turn)
{
	uint32_t place = turn % DDP_SHARD_KEPT;
	uint64_t mine = atomic_load(&page->told[member][place]);

	for (int other = 0; other < members; other++) {
		uint64_t told = atomic_load(&page->told[other][place]);

		if (told != mine && told != 0 && mine != 0 && told >> 32 == mine >> 32)
			return other;
	}
	return -1;
}
