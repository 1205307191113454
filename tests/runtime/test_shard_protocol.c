/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of ranks that share a GPU: every order of their steps, with every death, and what each mistake in the
 * protocol would do. DDP_LONG=1: more members, turns and deaths.
 */
#include "config.h"

#include <stdio.h>

#include "device/shard-protocol.h"
#include "interleave.h"
#include "unit.h"

/* Three turns from here see the numbers wrap. */
#define FIRST 0xfffffffeu

static size_t go(const struct interleave_world *world, char *story, size_t size)
{
	size_t states = interleave(world, story, size);

	printf("%d members%s, %d turns, %d faults%s, plant %d: %zu states\n", world->members,
	       world->wide ? " with other GPUs" : "", world->turns, world->faults,
	       world->full ? ", nothing reduced" : "", world->plant, states);
	fflush(stdout);
	return states;
}

/* --- What is right holds in all orders ----------------------------------------------------- */

static void holds(struct interleave_world world)
{
	char story[4096];

	world.first = FIRST;
	go(&world, story, sizeof(story));
	ck_assert_msg(!*story, "%d members, wide %d, %d faults: %s", world.members, world.wide,
		      world.faults, story);
}

/* _i: wide or not, and how many die; two include one and none, but none is to be seen to end by itself. */
TEST_LOOP(test_sound, 0, 4)
{
	int faults = _i >> 1 ? 2 : 0;

	for (int members = 1; members <= 4; members++)
		holds((struct interleave_world){.members = members,
						.wide = _i & 1,
						.turns = 3,
						.faults = faults < members ? faults : members});
}

/* The reductions hide nothing. */
TEST_LOOP(test_sound_full, 0, 2)
{
	holds((struct interleave_world){
		.members = 2, .wide = _i, .turns = 3, .faults = 2, .full = true});
	holds((struct interleave_world){
		.members = 3, .wide = _i, .turns = 1, .faults = 2, .full = true});
}

TEST_LOOP(test_sound_long, 0, 2)
{
	if (!getenv("DDP_LONG"))
		return;
	holds((struct interleave_world){.members = 4, .wide = _i, .turns = 3, .faults = 3});
	holds((struct interleave_world){.members = 4, .wide = _i, .turns = 4, .faults = 1});
	holds((struct interleave_world){.members = 5, .wide = _i, .turns = 2, .faults = 1});
	holds((struct interleave_world){
		.members = 3, .wide = _i, .turns = 2, .faults = 1, .full = true});
}

/* What the search takes for granted: a free value ends the waits of all who are about at that turn. */
TEST(test_free_value)
{
	static const uint32_t turns[] = {0,	     1,		 FIRST,	    DDP_SHARD_FIRST,
					 0x3fffffff, 0x7fffffff, 0x80000000};

	for (int i = 0; i < ROWS(turns); i++) {
		for (uint32_t ahead = 0; ahead < 4 * DDP_SHARD_KEPT; ahead++) {
			uint32_t turn = turns[i], value = ddp_shard_free_value(turn);

			ck_assert(ddp_shard_reached(value, turn + ahead));
			ck_assert(ddp_shard_reached(value, turn - ahead));
			ck_assert(ddp_shard_reached(turn + ahead, turn));
			ck_assert(!ddp_shard_reached(turn, turn + ahead + 1));
		}
	}
}

/* All that can be, in 64 members: the list has room, and two words a member are all that is said. */
TEST(test_most)
{
	struct ddp_shard_move moves[DDP_SHARD_MOVES];
	int count = ddp_shard_moves(DDP_SHARD_MEMBERS, 0, true, 7, moves);

	ck_assert_int_eq(count, DDP_SHARD_MEMBERS - 1 + 4);
	ck_assert_int_le(count, DDP_SHARD_MOVES);
	ck_assert_int_eq(ddp_shard_moves(DDP_SHARD_MEMBERS, 9, true, 7, moves), 2);
	ck_assert_int_eq(ddp_shard_moves(1, 0, true, 7, moves), 1);
	ck_assert_int_eq(moves[0].act, DDP_SHARD_WIDE);
	ck_assert_int_eq(ddp_shard_moves(1, 0, false, 7, moves), 0);
	/* One pass over the memory of all where it is enough, and none in vain where it is not. */
	for (int wide = 0; wide < 2; wide++) {
		ddp_shard_moves(2, 0, wide, 7, moves);
		ck_assert_int_eq(moves[1].act, DDP_SHARD_SUM);
		ck_assert_int_eq(moves[1].all, !wide);
	}
}

/* --- What is wrong is found ---------------------------------------------------------------- */

enum { ANY, ONLY_WIDE, ONLY_ALONE };

/* Where [members] are fewer, more only take longer to show the same. */
static const struct {
	const char *name;
	enum interleave_plant plant;
	int members, faults, where;
	const char *story;
} plants[] = {
	{"done too early", DONE_TOO_EARLY, 4, 0, ANY, "that another works on"},
	{"a follower does not wait", FOLLOWER_WAITS_NOT, 4, 0, ANY, "1: takes a wrong result"},
	{"a follower waits for less", FOLLOWER_WAITS_LESS, 4, 0, ANY, "1: takes a wrong result"},
	{"the leader waits for one less", LEADER_SKIPS_ONE, 4, 0, ANY, "0: reads what is not"},
	{"lent too early", LENT_TOO_EARLY, 4, 0, ANY, "0: reads what is not"},
	{"spread too early", SPREAD_TOO_EARLY, 4, 0, ONLY_WIDE, "0: reads what is not"},
	{"not into all", NOT_INTO_ALL, 4, 0, ONLY_ALONE, "1: takes a wrong result"},
	{"words at zero", WORDS_AT_ZERO, 4, 0, ANY, "0: reads what is not"},
	{"no wrap", NO_WRAP, 4, 0, ANY, "0: reads what is not"},
	{"exactly the value", EXACTLY, 4, 1, ANY, "waits for ever"},
	{"free too far", FREE_TOO_FAR, 4, 1, ANY, "waits for ever"},
	{"nobody releases", NOBODY_RELEASES, 4, 1, ANY, "waits for ever"},
	{"releases once", RELEASES_ONCE, 3, 1, ANY, "0: waits for ever"},
	{"flag last", FLAG_LAST, 3, 1, ANY, "0: reads what is not"},
	{"tell last", TELL_LAST, 3, 1, ONLY_WIDE, "0: gives other GPUs"},
	{"aborts first", ABORTS_FIRST, 4, 1, ONLY_WIDE, "0: reads what is not"},
	{"looks not", LOOKS_NOT, 3, 1, ANY, "takes a wrong result"},
	{"looks first", LOOKS_FIRST, 2, 1, ANY, "takes a wrong result"},
};

static void is_found(int row, int members, bool wide, bool full)
{
	struct interleave_world world = {.members = members,
					 .wide = wide,
					 .turns = 3,
					 .first = FIRST,
					 .faults = plants[row].faults,
					 .full = full,
					 .plant = plants[row].plant};
	char story[4096];

	go(&world, story, sizeof(story));
	printf("%s: %s\n", plants[row].name, story);
	ck_assert_msg(strstr(story, plants[row].story), "%s, %d members, wide %d: \"%s\"",
		      plants[row].name, members, wide, story);
}

TEST_ROWS(test_plants, plants)
{
	for (int members = 2; members <= plants[_i].members; members++) {
		if (plants[_i].where != ONLY_WIDE)
			is_found(_i, members, false, false);
		if (plants[_i].where != ONLY_ALONE)
			is_found(_i, members, true, false);
	}
	is_found(_i, 2, plants[_i].where == ONLY_WIDE, true);
}

UNIT_MAIN("shard_protocol", NULL)
