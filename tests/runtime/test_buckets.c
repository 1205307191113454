/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <stdio.h>

#include "gradient/buckets.h"
#include "gradient/carrier.h"
#include "gradient/norm.h"
#include "gradient/reducer.h"
#include "unit.h"

/* --- Which bucket ----------------------------------------------------------------------- */

static const struct {
	const char *name;
	size_t count, bytes[8], first, limit;
	size_t buckets, want[8];
} assignments[] = {
	{"one", 1, {10}, 100, 100, 1, {0}},
	{"reaching the limit closes", 3, {50, 50, 1}, 100, 100, 2, {0, 0, 1}},
	{"one less does not", 3, {50, 49, 1}, 100, 100, 1, {0, 0, 0}},
	{"a bucket may pass its limit", 3, {99, 500, 1}, 100, 100, 2, {0, 0, 1}},
	{"nothing is left open", 2, {100, 100}, 100, 100, 2, {0, 1}},
	{"a small first one", 5, {10, 60, 30, 10, 5}, 10, 100, 3, {0, 1, 1, 1, 2}},
	{"a large first one", 5, {60, 60, 60, 10, 10}, 150, 20, 2, {0, 0, 0, 1, 1}},
	{"empty gradients stay where they come", 4, {0, 100, 0, 0}, 100, 100, 2, {0, 0, 1, 1}},
	{"all empty", 2, {0, 0}, 100, 100, 1, {0, 0}},
	{"limit 1: each alone", 3, {4, 8, 4}, 1, 1, 3, {0, 1, 2}},
};

START_TEST(test_assign)
{
	const char *name = assignments[_i].name;
	size_t got[8];

	unit_number(name, "buckets",
		    (int64_t)ddp_buckets_assign(assignments[_i].bytes, assignments[_i].count,
						assignments[_i].first, assignments[_i].limit, got),
		    (int64_t)assignments[_i].buckets);
	for (size_t i = 0; i < assignments[_i].count; i++)
		unit_number(name, "bucket", (int64_t)got[i], (int64_t)assignments[_i].want[i]);
}
END_TEST

/* --- Where ------------------------------------------------------------------------------ */

static const struct ddp_parameter mnist[] = {
	{"conv1.weight", 288},	 {"conv1.bias", 32}, {"conv2.weight", 18432}, {"conv2.bias", 64},
	{"fc1.weight", 1179648}, {"fc1.bias", 128},  {"fc2.weight", 1280},    {"fc2.bias", 10},
};

/* The network of pytorch/examples: [fc2 fc1] with 4,724,264 bytes, [conv2 conv1] with 75,264. */
START_TEST(test_mnist)
{
	static const size_t want[] = {1, 1, 1, 1, 0, 0, 0, 0};
	size_t bytes[2] = {0, 0};
	struct ddp_layout layout;

	ck_assert_int_eq(ddp_layout_create(&layout, mnist, 8, 4, DDP_BUCKET_FIRST_BYTES,
					   DDP_BUCKET_BYTES, NULL),
			 0);
	ck_assert_uint_eq(layout.bucket_count, 2);
	for (size_t i = 0; i < 8; i++) {
		ck_assert_uint_eq(layout.views[i].bucket, want[i]);
		ck_assert_uint_eq(layout.views[i].count, mnist[i].count);
		bytes[want[i]] += 4 * layout.views[i].count;
	}
	ck_assert_uint_eq(bytes[0], 4724264);
	ck_assert_uint_eq(bytes[1], 75264);
	ck_assert_uint_eq(layout.buckets[0].members, 4);
	ck_assert_uint_eq(layout.buckets[0].waiting, 4);
	ck_assert_uint_eq(ddp_layout_largest(&layout), layout.buckets[0].count);
	ddp_layout_destroy(&layout);
}
END_TEST

/* Buckets touch, views lie in them in the order in which they become ready, aligned. */
static void check_layout(const struct ddp_layout *layout, size_t size)
{
	size_t at = 0, last = layout->view_count;

	for (size_t b = 0; b < layout->bucket_count; b++) {
		const struct ddp_bucket *bucket = &layout->buckets[b];

		ck_assert_uint_eq(bucket->offset, at);
		for (size_t i = 0; i < bucket->members; i++) {
			const struct ddp_view *view = &layout->views[--last];

			ck_assert_uint_eq(view->bucket, b);
			ck_assert_uint_eq(view->offset * size % DDP_VIEW_ALIGNMENT, 0);
			ck_assert_uint_ge(view->offset, at);
			ck_assert_uint_lt(view->offset - at, DDP_VIEW_ALIGNMENT / size);
			at = view->offset + view->count;
		}
		ck_assert_uint_le(at, bucket->offset + bucket->count);
		at = bucket->offset + bucket->count;
	}
	ck_assert_uint_eq(last, 0);
	ck_assert_uint_eq(layout->elements, at);
}

START_TEST(test_layout)
{
	const char *text = getenv("DDP_SEED");
	uint64_t seed = text && *text ? strtoull(text, NULL, 0) : 1, state = 2 * seed + 1;
	struct ddp_parameter parameters[40];
	struct ddp_layout layout;

	printf("DDP_SEED=%llu\n", (unsigned long long)seed);
	for (int round = 0; round < 200; round++) {
		size_t count = 1 + unit_random(&state, 40), size = unit_random(&state, 2) ? 4 : 8;

		for (size_t i = 0; i < count; i++)
			parameters[i] = (struct ddp_parameter){"p", unit_random(&state, 300)};
		ck_assert_int_eq(ddp_layout_create(&layout, parameters, count, size,
						   unit_random(&state, 500),
						   unit_random(&state, 2000), NULL),
				 0);
		check_layout(&layout, size);
		ddp_layout_destroy(&layout);
	}
}
END_TEST

START_TEST(test_too_many)
{
	struct ddp_parameter parameters[] = {{"small", 1}, {"large", SIZE_MAX / 4}};
	struct ddp_error error = {0};
	struct ddp_layout layout;

	ck_assert_int_eq(ddp_layout_create(&layout, parameters, 2, 8, 1, 1, &error),
			 DDP_ERR_ARGUMENT);
	unit_pieces("layout", error.text, (const char *const[]){"large", NULL});
	parameters[0].count = SIZE_MAX / 4;
	ck_assert_int_eq(ddp_layout_create(&layout, parameters, 2, 4, 1, 1, &error),
			 DDP_ERR_ARGUMENT);
	ddp_layout_destroy(&layout);
}
END_TEST

/* --- Norm ------------------------------------------------------------------------------- */

START_TEST(test_norm)
{
	float f32[100] = {0};
	double f64[100] = {0};

	for (size_t count = 0; count <= 100; count++) {
		for (size_t i = 0; i < count; i++)
			f64[i] = f32[i] = i % 2 ? -3 : 3;
		ck_assert_double_eq(ddp_norm(f32, DDP_F32, count), sqrt(9 * (double)count));
		ck_assert_double_eq(ddp_norm(f64, DDP_F64, count), sqrt(9 * (double)count));
	}
	/* What would overflow, or be lost, if it were summed in f32. */
	f32[0] = 0x1p100f;
	ck_assert_double_eq(ddp_norm(f32, DDP_F32, 1), 0x1p100);
	f32[0] = 0x1p-140f;
	ck_assert_double_eq(ddp_norm(f32, DDP_F32, 1), 0x1p-140);
	f32[7] = INFINITY;
	ck_assert_double_infinite(ddp_norm(f32, DDP_F32, 20));
	f32[19] = NAN;
	ck_assert_double_nan(ddp_norm(f32, DDP_F32, 20));
}
END_TEST

static const struct {
	const char *name;
	double norm, limit, want;
} clips[] = {
	{"within", 1, 2, 1},
	{"beyond", 4, 1, 1 / (4 + 1e-6)},
	/* As PyTorch: the small number in the denominator clips what is at the limit. */
	{"at the limit", 1, 1, 1 / (1 + 1e-6)},
	{"zero", 0, 1, 1},
	{"infinite", INFINITY, 1, 0},
	{"limit 0", 1, 0, 0},
};

START_TEST(test_clip_factor)
{
	double factor = ddp_clip_factor(clips[_i].norm, clips[_i].limit);

	ck_assert_msg(factor == clips[_i].want, "%s: %g, want %g", clips[_i].name, factor,
		      clips[_i].want);
	ck_assert_double_nan(ddp_clip_factor(NAN, clips[_i].limit));
}
END_TEST

START_TEST(test_scale)
{
	float f32[3] = {1, -2, 4};
	double f64[3] = {1, -2, 4};

	ddp_scale(f32, DDP_F32, 2, 0.5);
	ddp_scale(f64, DDP_F64, 2, 0.5);
	ck_assert(f32[0] == 0.5f && f32[1] == -1 && f32[2] == 4);
	ck_assert(f64[0] == 0.5 && f64[1] == -1 && f64[2] == 4);
	ddp_scale(f64, DDP_F64, 1, 0.1);
	ck_assert_double_eq(f64[0], 0.5 * 0.1);
}
END_TEST

/* --- The way ---------------------------------------------------------------------------- */

static const struct {
	enum ddp_type wire;
	int size;
	double sum, before, after;
} factors[] = {
	{DDP_BF16, 3, 1.0 / 3, 1, 1.0 / 3}, {DDP_F16, 1, 1, 1, 1},
	{DDP_F16, 2, 0.5, 0.5, 1},	    {DDP_F16, 3, 1.0 / 3, 0.25, 4.0 / 3},
	{DDP_F16, 4, 1, 0.25, 4},	    {DDP_F16, 5, 0.2, 0.125, 0.2 * 8},
};

START_TEST(test_factors)
{
	double before, after;

	ddp_reducer_factors(factors[_i].wire, factors[_i].size, factors[_i].sum, &before, &after);
	ck_assert_double_eq(before, factors[_i].before);
	ck_assert_double_eq(after, factors[_i].after);
}
END_TEST

/* --- The thread ------------------------------------------------------------------------- */

struct work {
	uint64_t jobs[100];
	uint64_t count, fails_at;
};

static int note(void *owner, uint64_t job)
{
	struct work *work = owner;

	work->jobs[work->count++] = job;
	return job == work->fails_at ? DDP_ERR_PEER : 0;
}

START_TEST(test_carrier)
{
	struct work work = {{0}, 0, UINT64_MAX};
	struct ddp_carrier *carrier;

	ck_assert_int_eq(ddp_carrier_create(&carrier, note, &work, NULL), 0);
	ck_assert_int_eq(ddp_carrier_wait(carrier), 0);
	for (int step = 0; step < 10; step++) {
		for (int i = 0; i < 10; i++)
			ck_assert_int_eq(ddp_carrier_post(carrier), 0);
		ck_assert_int_eq(ddp_carrier_wait(carrier), 0);
		ck_assert_uint_eq(work.count, 10 * (uint64_t)(step + 1));
	}
	for (uint64_t i = 0; i < 100; i++)
		ck_assert_uint_eq(work.jobs[i], i);
	ddp_carrier_destroy(carrier);
	ddp_carrier_destroy(NULL);
}
END_TEST

START_TEST(test_carrier_error)
{
	struct work work = {{0}, 0, 3};
	struct ddp_carrier *carrier;

	ck_assert_int_eq(ddp_carrier_create(&carrier, note, &work, NULL), 0);
	for (int i = 0; i < 8; i++)
		ddp_carrier_post(carrier);
	ck_assert_int_eq(ddp_carrier_wait(carrier), DDP_ERR_PEER);
	/* What comes after an error is dropped, and the error stays. */
	ck_assert_uint_eq(work.count, 4);
	ck_assert_int_eq(ddp_carrier_post(carrier), DDP_ERR_PEER);
	ck_assert_int_eq(ddp_carrier_wait(carrier), DDP_ERR_PEER);
	ck_assert_uint_eq(work.count, 4);
	ddp_carrier_destroy(carrier);
}
END_TEST

static void fill(TCase *tcase)
{
	UNIT_ROWS(tcase, test_assign, assignments);
	tcase_add_test(tcase, test_mnist);
	tcase_add_test(tcase, test_layout);
	tcase_add_test(tcase, test_too_many);
	tcase_add_test(tcase, test_norm);
	UNIT_ROWS(tcase, test_clip_factor, clips);
	tcase_add_test(tcase, test_scale);
	UNIT_ROWS(tcase, test_factors, factors);
	tcase_add_test(tcase, test_carrier);
	tcase_add_test(tcase, test_carrier_error);
}

int main(void)
{
	return unit_run("buckets", fill);
}
