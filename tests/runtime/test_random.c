/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <ddp.h>

#include "unit.h"

/* The known answers that come with Random123 (kat_vectors, philox4x32 10). */
static const struct {
	const char *name;
	uint32_t counter[4], key[2], want[4];
} answers[] = {
	{"zeros", {0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
	{"ones",
	 {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
	 {0xffffffff, 0xffffffff},
	 {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
	{"pi",
	 {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
	 {0xa4093822, 0x299f31d0},
	 {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

/* ddp_random() where nothing is beyond what counter and key hold. */
static void philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
	ddp_random((uint64_t)key[1] << 32 | key[0], counter[3] >> 8,
		   (uint64_t)(counter[3] & 0xff) << 32 | counter[2], counter[1], counter[0], out);
}

START_TEST(test_answer)
{
	uint32_t out[4];

	philox(answers[_i].counter, answers[_i].key, out);
	for (int i = 0; i < 4; i++)
		unit_number(answers[_i].name, "word", out[i], answers[_i].want[i]);
}
END_TEST

/* Which word of counter and key each argument is: another engine must do the same. */
static const struct {
	const char *name;
	uint64_t seed, epoch, order;
	uint32_t layer, block;
	uint32_t counter[4], key[2];
} maps[] = {
	{"zeros", 0, 0, 0, 0, 0, {0, 0, 0, 0}, {0, 0}},
	{"seed", 0x0123456789abcdef, 0, 0, 0, 0, {0, 0, 0, 0}, {0x89abcdef, 0x01234567}},
	{"epoch", 0, 0x123456, 0, 0, 0, {0, 0, 0, 0x12345600}, {0, 0}},
	{"order", 0, 0, 0x123456789a, 0, 0, {0, 0, 0x3456789a, 0x12}, {0, 0}},
	{"layer", 0, 0, 0, 0x12345678, 0, {0, 0x12345678, 0, 0}, {0, 0}},
	{"block", 0, 0, 0, 0, 0x12345678, {0x12345678, 0, 0, 0}, {0, 0}},
	{"most",
	 5,
	 0xffffff,
	 0xffffffffff,
	 UINT32_MAX,
	 UINT32_MAX,
	 {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX},
	 {5, 0}},
	{"epoch 2^24", 5, 1 << 24, 0, 0, 0, {0, 0, 0, 0}, {0x7f4a7c1a, 0x9e3779b9}},
	{"order 2^40", 5, 0, UINT64_C(1) << 40, 0, 0, {0, 0, 0, 0}, {0x1ce4e5be, 0xbf58476d}},
};

START_TEST(test_map)
{
	uint32_t got[4], want[4];

	ddp_random(maps[_i].seed, maps[_i].epoch, maps[_i].order, maps[_i].layer, maps[_i].block,
		   got);
	philox(maps[_i].counter, maps[_i].key, want);
	for (int i = 0; i < 4; i++)
		unit_number(maps[_i].name, "word", got[i], want[i]);
}
END_TEST

START_TEST(test_uniform)
{
	ck_assert_float_eq(ddp_random_uniform(0), 0);
	ck_assert_float_eq(ddp_random_uniform(255), 0);
	ck_assert_float_eq(ddp_random_uniform(256), 0x1p-24f);
	ck_assert_float_eq(ddp_random_uniform(0x80000000), 0.5f);
	ck_assert_float_eq(ddp_random_uniform(UINT32_MAX), 1 - 0x1p-24f);
	ck_assert_float_lt(ddp_random_uniform(UINT32_MAX), 1);
}
END_TEST

static void fill(TCase *tcase)
{
	UNIT_ROWS(tcase, test_answer, answers);
	UNIT_ROWS(tcase, test_map, maps);
	tcase_add_test(tcase, test_uniform);
}

int main(void)
{
	return unit_run("random", fill);
}
