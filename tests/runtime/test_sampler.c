/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <ddp.h>

#include "base/random.h"
#include "sampling/permutation.h"
#include "unit.h"

enum kind { PAD, DROP, EXACT, KINDS };

static struct ddp_sampler *open_sampler(uint64_t samples, int rank, int ranks, uint64_t seed,
					bool shuffle, enum kind kind)
{
	struct ddp_sampler_options options = DDP_SAMPLER_OPTIONS_INIT;
	struct ddp_error error = {0};
	struct ddp_sampler *sampler;

	options.samples = samples;
	options.rank = rank;
	options.ranks = ranks;
	options.seed = seed;
	options.shuffle = shuffle;
	options.drop_last = kind == DROP;
	options.exact = kind == EXACT;
	ck_assert_msg(ddp_sampler_create(&sampler, &options, &error) == 0, "%s", error.text);
	return sampler;
}

/* --- The generator and permutations ------------------------------------------------------- */

TEST(test_large_order)
{
	/* From numpy's MT19937, by the inside-out shuffle with 64-bit random numbers. */
	static const uint64_t want[] = {8, 2, 6, 3, 5, 1, 0, 9, 7, 4};
	struct ddp_permutation permutation;

	ck_assert_int_eq(ddp_permutation_create(&permutation, 10, NULL), 0);
	ddp_permutation_draw_large(&permutation, 0);
	for (uint64_t i = 0; i < 10; i++)
		ck_assert_uint_eq(ddp_permutation_get(&permutation, i), want[i]);
	ddp_permutation_destroy(&permutation);
}

/*
 * A 64-bit permutation has the same entries as a 32-bit one. Sets of more than 2^32 samples need 64
 * bits.
 */
TEST(test_wide_order)
{
	struct ddp_permutation narrow, wide = {.count = 1000};

	ck_assert_int_eq(ddp_permutation_create(&narrow, 1000, NULL), 0);
	wide.wide = calloc(1000, sizeof(*wide.wide));
	ck_assert_ptr_nonnull(wide.wide);
	for (int large = 0; large < 2; large++) {
		if (large) {
			ddp_permutation_draw_large(&narrow, 5);
			ddp_permutation_draw_large(&wide, 5);
		} else {
			ddp_permutation_draw_small(&narrow, 5);
			ddp_permutation_draw_small(&wide, 5);
		}
		for (uint64_t i = 0; i < 1000; i++)
			ck_assert_uint_eq(ddp_permutation_get(&narrow, i),
					  ddp_permutation_get(&wide, i));
	}
	ddp_permutation_destroy(&wide);
	ddp_permutation_destroy(&narrow);
}

/* --- Lists of samples (tests/interop compares them with PyTorch's) ------------------------ */

static const struct {
	const char *name;
	uint64_t samples;
	int rank, ranks;
	uint64_t seed, epoch;
	bool shuffle;
	enum kind kind;
	size_t count;
	uint64_t want[10];
} lists[] = {
	{"seed 0", 10, 0, 1, 0, 0, true, PAD, 10, {4, 1, 7, 5, 3, 9, 0, 8, 6, 2}},
	{"seed 42", 10, 0, 1, 42, 0, true, PAD, 10, {2, 6, 1, 8, 4, 5, 0, 9, 3, 7}},
	{"epoch 1, rank 1", 10, 1, 3, 0, 1, true, PAD, 4, {6, 0, 3, 5}},
	{"drop, rank 2", 10, 2, 3, 0, 0, true, DROP, 3, {7, 9, 6}},
	{"exact, rank 0", 10, 0, 3, 0, 0, true, EXACT, 4, {4, 5, 0, 2}},
	{"exact, rank 1", 10, 1, 3, 0, 0, true, EXACT, 3, {1, 3, 8}},
	{"exact, rank 2", 10, 2, 3, 0, 0, true, EXACT, 3, {7, 9, 6}},
	{"in order, exact", 10, 1, 3, 0, 7, false, EXACT, 3, {1, 4, 7}},
	{"2 for 5 ranks, rank 4", 2, 4, 5, 0, 0, true, PAD, 1, {0}},
	{"2 for 5 ranks, drop", 2, 0, 5, 0, 0, true, DROP, 0, {0}},
	{"2 for 5 ranks, exact, rank 1", 2, 1, 5, 0, 0, true, EXACT, 1, {1}},
	{"2 for 5 ranks, exact, rank 2", 2, 2, 5, 0, 0, true, EXACT, 0, {0}},
	{"none", 0, 0, 3, 0, 0, true, PAD, 0, {0}},
	{"none, drop", 0, 1, 3, 0, 0, true, DROP, 0, {0}},
	{"none, in order", 0, 1, 3, 0, 0, false, EXACT, 0, {0}},
};

TEST_ROWS(test_list, lists)
{
	const char *name = lists[_i].name;
	struct ddp_sampler *sampler =
		open_sampler(lists[_i].samples, lists[_i].rank, lists[_i].ranks, lists[_i].seed,
			     lists[_i].shuffle, lists[_i].kind);
	uint64_t index;

	ddp_sampler_set_epoch(sampler, lists[_i].epoch);
	unit_number(name, "length", (int64_t)ddp_sampler_length(sampler), (int64_t)lists[_i].count);
	for (size_t i = 0; i < lists[_i].count; i++) {
		ck_assert_int_eq(ddp_sampler_next(sampler, &index), 1);
		unit_number(name, "sample", (int64_t)index, (int64_t)lists[_i].want[i]);
	}
	ck_assert_int_eq(ddp_sampler_next(sampler, &index), 0);
	ddp_sampler_destroy(sampler);
}

/* --- Epochs ----------------------------------------------------------------------------- */

TEST(test_next_epoch)
{
	struct ddp_sampler *sampler = open_sampler(10, 0, 3, 0, true, PAD);
	uint64_t got[8];

	ck_assert_uint_eq(ddp_sampler_epoch(sampler), 0);
	ck_assert_uint_eq(ddp_sampler_take(sampler, got, 3), 3);
	ck_assert_uint_eq(ddp_sampler_take(sampler, got, 0), 0);
	ck_assert_uint_eq(ddp_sampler_take(sampler, got, 8), 1);
	ck_assert_uint_eq(got[0], 2);
	ck_assert_uint_eq(ddp_sampler_epoch(sampler), 0);
	ck_assert_uint_eq(ddp_sampler_take(sampler, got, 8), 0);
	ck_assert_uint_eq(ddp_sampler_epoch(sampler), 1);
	/*
	 * A call of set_epoch() for the current epoch changes nothing. Most programs make this
	 * call.
	 */
	ddp_sampler_set_epoch(sampler, 1);
	ck_assert_uint_eq(ddp_sampler_take(sampler, got, 8), 4);
	ck_assert_uint_eq(got[0], 5);
	ck_assert_uint_eq(got[3], 4);
	/* set_epoch() in the middle of an epoch: first to another epoch, then to the same one. */
	ddp_sampler_set_epoch(sampler, 0);
	ck_assert_uint_eq(ddp_sampler_take(sampler, got, 2), 2);
	ck_assert_uint_eq(got[1], 5);
	ddp_sampler_set_epoch(sampler, 0);
	ck_assert_uint_eq(ddp_sampler_take(sampler, got, 8), 4);
	ck_assert_uint_eq(got[0], 4);
	ddp_sampler_destroy(sampler);
}

TEST(test_seek_end)
{
	struct ddp_sampler *sampler = open_sampler(10, 2, 3, 0, true, PAD);
	struct ddp_error error = {0};
	uint64_t index;

	ck_assert_int_eq(ddp_sampler_seek(sampler, 0, 10, NULL), 0);
	ck_assert_int_eq(ddp_sampler_next(sampler, &index), 0);
	ck_assert_int_eq(ddp_sampler_next(sampler, &index), 1);
	ck_assert_uint_eq(index, 1);
	ck_assert_int_eq(ddp_sampler_seek(sampler, 3, 11, &error), DDP_ERR_ARGUMENT);
	UNIT_SAYS("seek", error.text, "11", "epoch 3", "10 samples");
	/* A failed seek leaves the position unchanged. */
	ck_assert_uint_eq(ddp_sampler_epoch(sampler), 1);
	ck_assert_uint_eq(ddp_sampler_position(sampler), 3);
	ddp_sampler_destroy(sampler);
}

/* --- Properties ------------------------------------------------------------------------- */

/* Counts samples that a run has returned: how often each sample, and how many padding samples. */
struct returned {
	int times[200];
	int padding;
};

static void run_some(struct ddp_sampler *sampler, size_t samples, uint64_t count,
		     struct returned *returned)
{
	for (uint64_t i = 0; i < count; i++) {
		uint64_t order = ddp_sampler_order(sampler), index;

		if (ddp_sampler_next(sampler, &index) == 0)
			return;
		if (order < samples)
			returned->times[index]++;
		else
			returned->padding++;
	}
}

static void check_returned(const struct returned *returned, size_t samples, int ranks,
			   enum kind kind)
{
	int missing = 0;

	for (size_t i = 0; i < samples; i++) {
		ck_assert_int_le(returned->times[i], 1);
		missing += !returned->times[i];
	}
	ck_assert_int_lt(missing, kind == DROP ? ranks : 1);
	ck_assert_int_lt(returned->padding, kind == PAD ? ranks : 1);
}

/*
 * An epoch is interrupted and resumed up to twice, with other numbers of ranks. It still returns
 * each sample once.
 */
TEST(test_resume)
{
	uint64_t state = unit_seed(20240917);

	for (int round = 0; round < 300; round++) {
		size_t samples = 1 + unit_random(&state, 200);
		uint64_t seed = unit_random(&state, 1000), position = 0;
		enum kind kind = (enum kind)unit_random(&state, KINDS);
		struct returned returned = {{0}, 0};
		int ranks = 1;

		for (int part = 0; part < 3; part++) {
			uint64_t after = position, count = unit_random(&state, 60);

			ranks = 1 + (int)unit_random(&state, 12);
			for (int rank = ranks - 1; rank >= 0; rank--) {
				struct ddp_sampler *sampler =
					open_sampler(samples, rank, ranks, seed, true, kind);

				ddp_sampler_seek(sampler, 4, position, NULL);
				run_some(sampler, samples, part < 2 ? count : UINT64_MAX,
					 &returned);
				after = ddp_sampler_epoch(sampler) == 4
						? ddp_sampler_position(sampler)
						: samples;
				ddp_sampler_destroy(sampler);
			}
			if (after == samples)
				break;
			position = after;
		}
		check_returned(&returned, samples, ranks, kind);
	}
}

/* --- Errors ----------------------------------------------------------------------------- */

#define OPTIONS(...)                                            \
	{                                                       \
		sizeof(struct ddp_sampler_options), __VA_ARGS__ \
	}

static const struct {
	const char *name;
	struct ddp_sampler_options options;
	int status;
	const char *pieces;
} errors[] = {
	{"size", {7, 10, 0, 1, 0, true, false, false}, DDP_ERR_ARGUMENT, "7 bytes"},
	{"no ranks", OPTIONS(10, 0, 0, 0, true, false, false), DDP_ERR_ARGUMENT, "rank 0 of 0"},
	{"rank", OPTIONS(10, 2, 2, 0, true, false, false), DDP_ERR_ARGUMENT, "rank 2 of 2"},
	{"rank -1", OPTIONS(10, -1, 2, 0, true, false, false), DDP_ERR_ARGUMENT, "rank -1 of 2"},
	{"both", OPTIONS(10, 0, 2, 0, true, true, true), DDP_ERR_ARGUMENT, "exact|drop_last"},
	{"samples", OPTIONS(UINT64_MAX, 0, 2, 0, false, false, false), DDP_ERR_ARGUMENT,
	 "18446744073709551615 samples"},
	{"memory", OPTIONS(UINT64_MAX / 8, 0, 2, 0, true, false, false), DDP_ERR_MEMORY,
	 "2305843009213693951 samples|8 bytes"},
};

TEST_ROWS(test_errors, errors)
{
	struct ddp_error error = {0};
	struct ddp_sampler *sampler = (struct ddp_sampler *)&error;

	unit_number(errors[_i].name, "status",
		    ddp_sampler_create(&sampler, &errors[_i].options, &error), errors[_i].status);
	ck_assert_ptr_null(sampler);
	unit_has(errors[_i].name, error.text, errors[_i].pieces);
	ck_assert_int_eq(ddp_sampler_create(&sampler, &errors[_i].options, NULL),
			 errors[_i].status);
	ddp_sampler_destroy(NULL);
}

/* Without shuffling, a set of any size needs no memory. */
TEST(test_huge)
{
	struct ddp_sampler *sampler = open_sampler(UINT64_C(1) << 40, 1, 3, 0, false, EXACT);
	uint64_t index;

	ck_assert_uint_eq(ddp_sampler_length(sampler), 366503875925);
	ck_assert_int_eq(ddp_sampler_seek(sampler, 0, (UINT64_C(1) << 40) - 2, NULL), 0);
	ck_assert_int_eq(ddp_sampler_next(sampler, &index), 1);
	ck_assert_uint_eq(index, (UINT64_C(1) << 40) - 1);
	ck_assert_int_eq(ddp_sampler_next(sampler, &index), 0);
	ddp_sampler_destroy(sampler);
}

UNIT_MAIN("sampler", NULL)
