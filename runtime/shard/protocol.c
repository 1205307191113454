/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "protocol.h"

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
