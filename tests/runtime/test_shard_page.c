/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page of ranks that share a GPU: where words begin and end, and who meant something else.
 */
#include "config.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/shard-protocol.h"
#include "unit.h"

enum { MEMBERS = 3, PAGE = 4096 };

static _Alignas(PAGE) struct ddp_shard_page page;

static uint32_t word(int member)
{
	return atomic_load(&page.words[member].value);
}

static void tell(int member, uint32_t turn)
{
	ddp_shard_page_tell(&page, member, turn, 1000, DDP_F32, DDP_SUM, 4096);
}

TEST(test_begin)
{
	ddp_shard_page_begin(&page, MEMBERS);
	for (int member = 0; member < MEMBERS; member++) {
		ck_assert(!ddp_shard_reached(word(member), DDP_SHARD_FIRST));
		ck_assert(ddp_shard_reached(word(member), DDP_SHARD_FIRST - 1));
	}
	ck_assert_uint_eq(word(MEMBERS), 0);
	ck_assert_uint_eq(atomic_load(&page.released), 0);
}

/* Again after a stream has written its own; by one that is ahead and by one that is behind. */
TEST(test_release)
{
	static const uint32_t turns[] = {DDP_SHARD_FIRST, DDP_SHARD_FIRST + 200, 3};

	ddp_shard_page_begin(&page, MEMBERS);
	for (int i = 0; i < ROWS(turns); i++) {
		atomic_store(&page.words[1].value, DDP_SHARD_FIRST);
		ddp_shard_page_release(&page, MEMBERS, -1, turns[i]);
		ck_assert_uint_eq(atomic_load(&page.released), 1);
		for (int member = 0; member < MEMBERS; member++)
			for (uint32_t turn = DDP_SHARD_FIRST; turn != 4 * DDP_SHARD_KEPT; turn++)
				ck_assert(ddp_shard_reached(word(member), turn));
		ck_assert_uint_eq(word(MEMBERS), 0);
	}
}

/* What a leader waits for are the others' words, what these wait for is its. */
TEST(test_release_own)
{
	for (int who = 0; who < MEMBERS; who++) {
		ddp_shard_page_begin(&page, MEMBERS);
		ddp_shard_page_release(&page, MEMBERS, who, DDP_SHARD_FIRST);
		for (int member = 0; member < MEMBERS; member++)
			ck_assert_int_eq(ddp_shard_reached(word(member), DDP_SHARD_FIRST),
					 who == 0 ? member > 0 : member == 0);
	}
}

static volatile sig_atomic_t touched, before;

/* Somebody is about to write what lies behind the words. */
static void look(int number)
{
	(void)number;
	touched = 1;
	before = 1;
	for (int member = 0; member < MEMBERS; member++)
		before &= word(member) == DDP_SHARD_FIRST - 1;
	mprotect((char *)&page + sizeof(page.words), PAGE, PROT_READ | PROT_WRITE);
}

/* The flag is set while all words are as they were. */
TEST(test_order)
{
	struct sigaction action = {.sa_handler = look};

	ck_assert_uint_eq(offsetof(struct ddp_shard_page, released), sizeof(page.words));
	ck_assert_uint_eq(sizeof(page.words) % PAGE, 0);
	if (sysconf(_SC_PAGESIZE) != PAGE)
		return; /* it would take more than one page */
	ddp_shard_page_begin(&page, MEMBERS);
	sigaction(SIGSEGV, &action, NULL);
	mprotect((char *)&page + sizeof(page.words), PAGE, PROT_READ);
	ddp_shard_page_release(&page, MEMBERS, -1, DDP_SHARD_FIRST);
	signal(SIGSEGV, SIG_DFL);
	ck_assert_int_eq(touched, 1);
	ck_assert_int_eq(before, 1);
}

/* What streams write and what hosts write are in lines of their own. */
TEST(test_lines)
{
	ck_assert_uint_eq(sizeof(page.words[0]), 128);
	ck_assert_uint_eq(offsetof(struct ddp_shard_page, released) % 128, 0);
	ck_assert_uint_eq(offsetof(struct ddp_shard_page, told) % 128, 0);
	ck_assert_uint_ge(offsetof(struct ddp_shard_page, told),
			  offsetof(struct ddp_shard_page, released) + 128);
}

/* What member 1 says of the turn, where the others say count 1000, F32, sum, place 4096. */
static const struct {
	const char *name;
	size_t count;
	enum ddp_type type;
	enum ddp_op op;
	uint64_t place;
	bool same;
} sayings[] = {
	{"the same", 1000, DDP_F32, DDP_SUM, 4096, true},
	{"another count", 1001, DDP_F32, DDP_SUM, 4096, false},
	{"a count of 2^32 more", 1000 + (1ull << 32), DDP_F32, DDP_SUM, 4096, false},
	{"another type", 1000, DDP_I32, DDP_SUM, 4096, false},
	{"another operation", 1000, DDP_F32, DDP_MAX, 4096, false},
	{"another place", 1000, DDP_F32, DDP_SUM, 0, false},
	{"a place of 2^32 more", 1000, DDP_F32, DDP_SUM, 4096 + (1ull << 32), false},
};

TEST_ROWS(test_compare, sayings)
{
	static const uint32_t turns[] = {DDP_SHARD_FIRST, UINT32_MAX, 0, 1, 77777};
	const char *name = sayings[_i].name;

	for (int i = 0; i < ROWS(turns); i++) {
		tell(0, turns[i]);
		tell(2, turns[i]);
		ddp_shard_page_tell(&page, 1, turns[i], sayings[_i].count, sayings[_i].type,
				    sayings[_i].op, sayings[_i].place);
		unit_number(name, "seen by 0", ddp_shard_page_compare(&page, MEMBERS, 0, turns[i]),
			    sayings[_i].same ? -1 : 1);
		unit_number(name, "seen by 1", ddp_shard_page_compare(&page, MEMBERS, 1, turns[i]),
			    sayings[_i].same ? -1 : 0);
		unit_number(name, "seen by 2", ddp_shard_page_compare(&page, MEMBERS, 2, turns[i]),
			    sayings[_i].same ? -1 : 1);
		unit_number(name, "without 1", ddp_shard_page_compare(&page, 1, 0, turns[i]), -1);
	}
}

/* Who says nothing of a turn yet is not asked; nor who still says what an older one was. */
TEST(test_silent)
{
	static const uint32_t turns[] = {0, DDP_SHARD_FIRST, 12};

	memset(&page, 0, sizeof(page));
	for (int i = 0; i < ROWS(turns); i++) {
		tell(0, turns[i]);
		tell(1, turns[i]);
		ck_assert_int_eq(ddp_shard_page_compare(&page, MEMBERS, 0, turns[i]), -1);
		tell(2, turns[i] - DDP_SHARD_KEPT);
		ck_assert_int_eq(ddp_shard_page_compare(&page, MEMBERS, 0, turns[i]), -1);
		tell(2, turns[i]);
		ck_assert_int_eq(ddp_shard_page_compare(&page, MEMBERS, 0, turns[i]), -1);
	}
}

/* Each turn has a place of its own, through the wrap; and who is a round ahead is not asked. */
TEST(test_round)
{
	uint32_t first = UINT32_MAX - 100;

	for (uint32_t i = 0; i < DDP_SHARD_KEPT; i++)
		for (int member = 0; member < MEMBERS; member++)
			ddp_shard_page_tell(&page, member, first + i, member == 1 && i == 150,
					    DDP_F32, DDP_SUM, i);
	for (uint32_t i = 0; i < DDP_SHARD_KEPT; i++)
		ck_assert_int_eq(ddp_shard_page_compare(&page, MEMBERS, 0, first + i),
				 i == 150 ? 1 : -1);
	tell(1, first + 150 + DDP_SHARD_KEPT);
	ck_assert_int_eq(ddp_shard_page_compare(&page, MEMBERS, 0, first + 150), -1);
	ck_assert_int_eq(ddp_shard_page_compare(&page, MEMBERS, 1, first + 150 + DDP_SHARD_KEPT),
			 -1);
}

UNIT_MAIN("shard_page", NULL)
