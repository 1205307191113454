/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "gradient/buckets.h"
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

TEST_ROWS(test_assign, assignments)
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

/* --- Where ------------------------------------------------------------------------------ */

static const struct ddp_parameter mnist[] = {
	{"conv1.weight", 288},	 {"conv1.bias", 32}, {"conv2.weight", 18432}, {"conv2.bias", 64},
	{"fc1.weight", 1179648}, {"fc1.bias", 128},  {"fc2.weight", 1280},    {"fc2.bias", 10},
};

/* The network of pytorch/examples: [fc2 fc1] with 4,724,264 bytes, [conv2 conv1] with 75,264. */
TEST(test_mnist)
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

TEST(test_layout)
{
	uint64_t state = unit_seed(1);
	struct ddp_parameter parameters[40];
	struct ddp_layout layout;

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

TEST(test_too_many)
{
	struct ddp_parameter parameters[] = {{"small", 1}, {"large", SIZE_MAX / 4}};
	struct ddp_error error = {0};
	struct ddp_layout layout;

	ck_assert_int_eq(ddp_layout_create(&layout, parameters, 2, 8, 1, 1, &error),
			 DDP_ERR_ARGUMENT);
	UNIT_SAYS("layout", error.text, "large");
	parameters[0].count = SIZE_MAX / 4;
	ck_assert_int_eq(ddp_layout_create(&layout, parameters, 2, 4, 1, 1, &error),
			 DDP_ERR_ARGUMENT);
	ddp_layout_destroy(&layout);
}

UNIT_MAIN("buckets", NULL)
