/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_virtual.c - sums over virtual ranks (units of work that do not depend on the number of
 * ranks)
 *
 * The sums must have the bits that ddp.h and virtual.h define, on every layout of ranks. This test
 * computes the expected bits with 64-bit integers.
 */
#include "config.h"

#include <limits.h>
#include <math.h>

#include "ranks.h"

static const char *const layouts[] = {"1", "2", "4", "1,1", "2,2", "1,1,1,1"};
static const char *const threes[] = {"1", "3", "2,1", "2,2", "4,2"};

/* Kinds of values that are hard to sum. Each parameter has one kind. */
enum kind { SPREAD, DENORMAL, HUGE_ONES, CANCEL, ODD, ZEROS, INFINITE, ONE, SMALL, KINDS };

static const struct ddp_parameter parameters[KINDS] = {
	{"spread", 5003}, {"denormal", 100}, {"huge", 333}, {"cancel", 1000}, {"odd", 41},
	{"zeros", 17},	  {"infinite", 5},   {"one", 1},    {"small", 2050},
};

struct sums {
	enum ddp_type type;
	size_t ranks; /* number of virtual ranks */
	bool sum;
	int bits; /* number of bits of each value as an integer */
};

/* Returns [bits] as a number of [type]. Avoids the exponent of infinity and NaN. */
static double number(enum ddp_type type, uint64_t bits)
{
	uint32_t few = (uint32_t)bits;
	double f64;
	float f32;

	if (type == DDP_F64) {
		if ((bits >> 52 & 0x7ff) == 0x7ff)
			bits ^= UINT64_C(1) << 60;
		memcpy(&f64, &bits, sizeof(f64));
		return f64;
	}
	if ((few >> 23 & 0xff) == 0xff)
		few ^= UINT32_C(1) << 29;
	memcpy(&f32, &few, sizeof(f32));
	return (double)f32;
}

static double odd_value(size_t rank, size_t i, double otherwise)
{
	if (i == 0 && rank == 0)
		return NAN;
	if ((i == 1 || i == 2) && rank == 1)
		return INFINITY;
	if ((i == 2 || i == 3) && rank == 2)
		return -INFINITY;
	return otherwise;
}

/* Returns element [i] of a parameter of virtual rank [rank]. */
static double value(const struct sums *sums, size_t rank, size_t parameter, size_t i, int step)
{
	uint32_t random[4];
	uint64_t bits;
	double sign;

	ddp_random(7, (uint64_t)step, i, (uint32_t)parameter, (uint32_t)rank, random);
	bits = (uint64_t)random[0] << 32 | random[1];
	sign = random[2] % 2 ? 1 : -1;
	switch (parameter) {
	case SPREAD:
		return number(sums->type, bits);
	case DENORMAL:
		return sign *
		       number(sums->type, sums->type == DDP_F64 ? bits >> 12 : random[0] >> 9);
	case HUGE_ONES:
		return sign * (sums->type == DDP_F64 ? 0x1.fffffep1023 : 0x1.fffffep127);
	case CANCEL:
		ddp_random(7, (uint64_t)step, i, (uint32_t)parameter, (uint32_t)rank / 2, random);
		return (rank % 2 ? -1 : 1) * (double)(float)random[0] * (i % 3 ? 1 : 0x1p-40);
	case ODD:
		return odd_value(rank, i, sign * (double)(float)random[0]);
	case ZEROS:
		return sign * 0.0;
	case INFINITE:
		return rank == 1 ? INFINITY : 0;
	case ONE:
		return rank == sums->ranks - 1 ? (double)(step + 1) : 0x1p-60;
	default:
		return sign * ldexp((double)(float)random[0], -(int)i % 90);
	}
}

/* --- Expected sums, with integers ---------------------------------------------------------- */

static int exponent_of(const struct sums *sums, size_t parameter, int step)
{
	int most = INT_MIN;

	for (size_t rank = 0; rank < sums->ranks; rank++)
		for (size_t i = 0; i < parameters[parameter].count; i++) {
			double x = value(sums, rank, parameter, i, step);
			int exponent;

			if (!isfinite(x) || x == 0)
				continue;
			(void)frexp(x, &exponent);
			most = exponent > most ? exponent : most;
		}
	return most == INT_MIN ? 0 : most;
}

static double expected(const struct sums *sums, size_t parameter, size_t i, int step, int exponent)
{
	int64_t whole = 0;
	double odd = 0;

	for (size_t rank = 0; rank < sums->ranks; rank++) {
		double x = value(sums, rank, parameter, i, step);

		if (isfinite(x))
			whole += (int64_t)rint(ldexp(x, sums->bits - exponent));
		else
			odd += x;
	}
	if (odd != 0)
		return odd;
	return ldexp((double)whole / (sums->sum ? 1 : (double)sums->ranks), exponent - sums->bits);
}

static bool same(enum ddp_type type, const void *view, size_t i, double want)
{
	double got = type == DDP_F64 ? ((const double *)view)[i] : (double)((const float *)view)[i];

	if (type == DDP_F32)
		want = (double)(float)want;
	return isnan(want) ? isnan(got) : memcmp(&got, &want, sizeof(got)) == 0;
}

/* --- Steps ----------------------------------------------------------------------------------- */

static void write_views(struct ddp_gradients *gradients, const struct sums *sums, size_t rank,
			int step)
{
	for (size_t p = 0; p < KINDS; p++) {
		void *view = ddp_gradients_view(gradients, p);

		for (size_t i = 0; i < parameters[p].count; i++) {
			double x = value(sums, rank, p, i, step);

			if (sums->type == DDP_F64)
				((double *)view)[i] = x;
			else
				((float *)view)[i] = (float)x;
		}
	}
}

static void check_views(struct ddp_gradients *gradients, const struct sums *sums, int step)
{
	for (size_t p = 0; p < KINDS; p++) {
		const void *view = ddp_gradients_view(gradients, p);
		int exponent = exponent_of(sums, p, step);

		for (size_t i = 0; i < parameters[p].count; i++) {
			double want = expected(sums, p, i, step, exponent);

			if (!same(sums->type, view, i, want))
				fprintf(stderr, "%s[%zu], step %d: want %a, got %a\n",
					parameters[p].name, i, step, want,
					sums->type == DDP_F64 ? ((const double *)view)[i]
							      : (double)((const float *)view)[i]);
			RANK_CHECK(same(sums->type, view, i, want));
		}
	}
}

static void run_sums(struct ddp *ddp, const struct sums *sums)
{
	const struct ddp_world *world = ddp_world(ddp);
	struct ddp_gradients_options options = DDP_GRADIENTS_OPTIONS_INIT;
	size_t mine = sums->ranks / (size_t)world->size, first = mine * (size_t)world->rank;
	struct ddp_gradients *gradients;

	options.type = options.wire = sums->type;
	options.sum = sums->sum;
	options.virtual_ranks = sums->ranks;
	options.first_bytes = 100;
	options.bucket_bytes = 3000;
	RANK_OK(ddp, ddp_gradients_create(&gradients, ddp, &options, parameters, KINDS));
	RANK_CHECK(ddp_gradients_buckets(gradients) > 2);
	for (int step = 0; step < 2; step++) {
		for (size_t rank = first; rank < first + mine; rank++) {
			write_views(gradients, sums, rank, step);
			for (size_t p = KINDS; p-- > 1;)
				RANK_OK(ddp, ddp_gradients_ready(gradients, p));
			RANK_OK(ddp, ddp_gradients_finish(gradients));
		}
		check_views(gradients, sums, step);
	}
	ddp_gradients_destroy(gradients);
}

RANKS_TEST(test_virtual, layouts)
{
	run_sums(ddp, &(struct sums){DDP_F32, 4, false, 51});
	run_sums(ddp, &(struct sums){DDP_F64, 4, false, 51});
	run_sums(ddp, &(struct sums){DDP_F32, 8, true, 50});
}

RANKS_TEST(test_twelve, threes)
{
	run_sums(ddp, &(struct sums){DDP_F32, 12, true, 49});
	run_sums(ddp, &(struct sums){DDP_F64, 12, true, 49});
}

/* Steps without sync add to the gradients of the next virtual rank. */
RANKS_TEST(test_accumulate, layouts)
{
	static const struct ddp_parameter one = {"one", 3};
	struct ddp_gradients_options options = DDP_GRADIENTS_OPTIONS_INIT;
	struct ddp_gradients *gradients;
	int mine = 4 / ddp_world(ddp)->size;
	float *view;

	options.virtual_ranks = 4;
	RANK_OK(ddp, ddp_gradients_create(&gradients, ddp, &options, &one, 1));
	view = ddp_gradients_view(gradients, 0);
	for (int i = 0; i < mine; i++) {
		view[2] = 0;
		for (int part = 0; part < 3; part++) {
			ddp_gradients_set_sync(gradients, part == 2);
			view[2] += (float)(1 + mine * ddp_world(ddp)->rank + i);
			RANK_OK(ddp, ddp_gradients_ready(gradients, 0));
			RANK_OK(ddp, ddp_gradients_finish(gradients));
		}
	}
	/* Three steps' sums, averaged: 3 x (1 + 2 + 3 + 4) / 4. */
	RANK_CHECK(view[2] == 7.5f);
	ddp_gradients_destroy(gradients);
}

/*
 * Layouts for gradients that groups exchange in several pieces. One parameter's gradient crosses
 * the end of a piece.
 */
static const char *const longs[] = {"1", "2", "1,1", "2,2"};

RANKS_TEST(test_long_parameters, longs)
{
	static const struct ddp_parameter two[] = {{"front", 700001}, {"behind", 1500003}};
	struct ddp_gradients_options options = DDP_GRADIENTS_OPTIONS_INIT;
	struct ddp_gradients *gradients;
	int mine = 4 / ddp_world(ddp)->size;

	options.virtual_ranks = 4;
	options.first_bytes = 16 << 20;
	RANK_OK(ddp, ddp_gradients_create(&gradients, ddp, &options, two, 2));
	RANK_CHECK(ddp_gradients_buckets(gradients) == 1);
	for (int v = 0; v < mine; v++) {
		for (size_t p = 0; p < 2; p++)
			for (size_t i = 0; i < two[p].count; i++)
				((float *)ddp_gradients_view(gradients, p))[i] =
					(float)(i % 1001 + p +
						(size_t)(mine * ddp_world(ddp)->rank + v));
		RANK_OK(ddp, ddp_gradients_finish(gradients));
	}
	/* mean of the virtual ranks 0, 1, 2 and 3 */
	for (size_t p = 0; p < 2; p++)
		for (size_t i = 0; i < two[p].count; i++)
			RANK_CHECK(((float *)ddp_gradients_view(gradients, p))[i] ==
				   (float)(i % 1001 + p) + 1.5f);
	ddp_gradients_destroy(gradients);
}

/* --- Errors ---------------------------------------------------------------------------------- */

static void expect_error(struct ddp *ddp, struct ddp_gradients_options options, int status,
			 const char *text)
{
	struct ddp_gradients *gradients;

	RANK_CHECK(ddp_gradients_create(&gradients, ddp, &options, parameters, KINDS) == status);
	if (!strstr(ddp_error(ddp), text))
		fprintf(stderr, "%s\n", ddp_error(ddp));
	RANK_CHECK(strstr(ddp_error(ddp), text));
}

static const char *const three[] = {"3"};

RANKS_TEST(test_errors, three)
{
	struct ddp_gradients_options options = DDP_GRADIENTS_OPTIONS_INIT;

	options.virtual_ranks = 4;
	expect_error(
		ddp, options, DDP_ERR_ARGUMENT,
		"3 ranks cannot share 4 virtual ranks evenly. Start 2 ranks, or use 6 virtual");
	options.virtual_ranks = 1026;
	expect_error(ddp, options, DDP_ERR_ARGUMENT, "at most 1024");
	options.virtual_ranks = 3;
	options.wire = DDP_BF16;
	expect_error(ddp, options, DDP_ERR_ARGUMENT, "type on the wire");
	options.wire = DDP_F32;
	options.device = true;
	expect_error(ddp, options, DDP_ERR_UNSUPPORTED, "not on a device");
}

UNIT_MAIN("virtual", NULL)
