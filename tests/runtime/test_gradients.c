/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_gradients.c - gradients of several ranks: buckets, sums in every order of readiness, types
 * that ranks send, lists that differ between ranks, errors
 */
#include "config.h"

#include <math.h>

#include "ranks.h"

/*
 * The parameters in forward order. small_buckets() sets limits that make three buckets of them: [e
 * d], [c b], [a].
 */
static const struct ddp_parameter parameters[] = {
	{"a", 3}, {"b", 70001}, {"c", 100}, {"d", 17}, {"e", 1}};

enum { PARAMETERS = 5, BUCKETS = 3 };

static const size_t buckets[PARAMETERS] = {2, 1, 1, 0, 0};

static const char *const alone[] = {"1"}, *const pairs[] = {"2", "1,1"};

/* Row of the table that the ranks test. Set before the ranks start. */
static int row;

static struct ddp_gradients_options small_buckets(void)
{
	struct ddp_gradients_options options = DDP_GRADIENTS_OPTIONS_INIT;

	options.first_bytes = 60;
	options.bucket_bytes = 500;
	return options;
}

static struct ddp_gradients *create(struct ddp *ddp, const struct ddp_gradients_options *options)
{
	struct ddp_gradients *gradients;

	RANK_OK(ddp, ddp_gradients_create(&gradients, ddp, options, parameters, PARAMETERS));
	return gradients;
}

/* --- Buckets and views; tests/interop compares the choice of buckets with PyTorch's --------- */

RANKS_TEST(test_arena, alone)
{
	struct ddp_gradients_options options = small_buckets();
	struct ddp_gradients *gradients = create(ddp, &options);
	size_t count, views = 0;
	float *all = ddp_gradients_all(gradients, &count);

	for (size_t p = 0; p < PARAMETERS; p++) {
		float *view = ddp_gradients_view(gradients, p);

		RANK_CHECK((uintptr_t)view % 64 == 0);
		RANK_CHECK(view >= all && view + parameters[p].count <= all + count);
		for (size_t i = 0; i < parameters[p].count; i++)
			view[i] = 1;
		views += parameters[p].count;
	}
	RANK_CHECK(!ddp_gradients_view(gradients, PARAMETERS));
	RANK_CHECK(ddp_gradients_bucket(gradients, PARAMETERS) == BUCKETS);
	/*
	 * Views (each parameter's part of a bucket) do not overlap, and the gaps between views are
	 * zero.
	 */
	RANK_CHECK(ddp_gradients_norm(gradients) == sqrt((double)views));
	RANK_CHECK(ddp_gradients_clip(gradients, 1e9) == sqrt((double)views));
	RANK_CHECK(all[0] == 1);
	RANK_CHECK(ddp_gradients_clip(gradients, 2) == sqrt((double)views));
	RANK_CHECK(fabs(ddp_gradients_norm(gradients) - 2) < 1e-6);
	ddp_gradients_destroy(gradients);
	ddp_gradients_destroy(NULL);
}

/* --- Sums ------------------------------------------------------------------------------- */

static double get(const void *view, enum ddp_type type, size_t element)
{
	return type == DDP_F64 ? ((const double *)view)[element]
			       : (double)((const float *)view)[element];
}

/* Value of an element of a gradient: a small integer, so that sums are exact in every type. */
static double value_of(int rank, size_t parameter, size_t element)
{
	return (double)((rank + 1) * (int)(1 + (parameter + element) % 5));
}

static void write_gradient(struct ddp *ddp, struct ddp_gradients *gradients, enum ddp_type type,
			   size_t parameter, double factor)
{
	void *view = ddp_gradients_view(gradients, parameter);

	for (size_t i = 0; i < parameters[parameter].count; i++) {
		double value = factor * value_of(ddp_world(ddp)->rank, parameter, i);

		if (type == DDP_F64)
			((double *)view)[i] = value;
		else
			((float *)view)[i] = (float)value;
	}
}

static void check_gradient(struct ddp *ddp, struct ddp_gradients *gradients, enum ddp_type type,
			   size_t parameter, double factor)
{
	const void *view = ddp_gradients_view(gradients, parameter);

	for (size_t i = 0; i < parameters[parameter].count; i++) {
		double sum = 0;

		for (int rank = 0; rank < ddp_world(ddp)->size; rank++)
			sum += value_of(rank, parameter, i);
		RANK_CHECK(get(view, type, i) == factor * sum);
	}
}

/* Orders in which gradients become ready. -1 ends a shorter list. */
static const int orders[][PARAMETERS] = {
	{4, 3, 2, 1, 0}, {0, 1, 2, 3, 4}, {2, 4, 0, 3, 1}, {-1, -1, -1, -1, -1}, {3, 1, -1, -1, -1},
};

/* All layouts have 1, 2, 4 or 8 ranks, so that averages are exact too. */
static const struct {
	enum ddp_type type, wire;
	bool sum;
	const char *layout;
} ways[] = {
	{DDP_F32, DDP_F32, false, "1"},	  {DDP_F32, DDP_F32, false, "2"},
	{DDP_F32, DDP_F32, true, "3"},	  {DDP_F64, DDP_F64, false, "4"},
	{DDP_F32, DDP_F32, false, "8"},	  {DDP_F32, DDP_BF16, false, "2"},
	{DDP_F32, DDP_F16, false, "2"},	  {DDP_F32, DDP_F16, true, "3"},
	{DDP_F64, DDP_F16, false, "4"},	  {DDP_F64, DDP_BF16, true, "2"},
	{DDP_F32, DDP_F32, false, "1,1"}, {DDP_F32, DDP_F32, true, "2,1"},
	{DDP_F32, DDP_F16, false, "2,2"},
};

RANK_BODY(sums)
{
	struct ddp_gradients_options options = small_buckets();
	enum ddp_type type = ways[row].type;
	double norm, factor = ways[row].sum ? 1 : 1.0 / ddp_world(ddp)->size;
	struct ddp_gradients *gradients;

	options.type = type;
	options.wire = ways[row].wire;
	options.sum = ways[row].sum;
	gradients = create(ddp, &options);
	for (int step = 0; step < ROWS(orders); step++) {
		for (size_t p = 0; p < PARAMETERS; p++)
			write_gradient(ddp, gradients, type, p, step + 1);
		for (int i = 0; i < PARAMETERS && orders[step][i] >= 0; i++)
			RANK_OK(ddp, ddp_gradients_ready(gradients, (size_t)orders[step][i]));
		RANK_OK(ddp, ddp_gradients_finish(gradients));
		for (size_t p = 0; p < PARAMETERS; p++)
			check_gradient(ddp, gradients, type, p, (step + 1) * factor);
		norm = ddp_gradients_norm(gradients);
		ranks_equal(ddp, &norm, sizeof(norm));
	}
	ddp_gradients_destroy(gradients);
}

TEST_ROWS(test_sums, ways)
{
	row = _i;
	ranks_run(ways[_i].layout, sums);
}

static void make_ready(struct ddp *ddp, struct ddp_gradients *gradients, size_t parameter)
{
	RANK_OK(ddp, ddp_gradients_ready(gradients, parameter));
}

static const char *const nodes[] = {"2", "4"};

/*
 * In one group, the call of ready() that completes a bucket sums that bucket. A bucket waits for
 * those before it.
 */
RANKS_TEST(test_boundaries, nodes)
{
	struct ddp_gradients_options options = small_buckets();
	struct ddp_gradients *gradients;

	options.sum = true;
	gradients = create(ddp, &options);
	RANK_CHECK(ddp_gradients_buckets(gradients) == BUCKETS);
	for (size_t p = 0; p < PARAMETERS; p++) {
		RANK_CHECK(ddp_gradients_bucket(gradients, p) == buckets[p]);
		write_gradient(ddp, gradients, DDP_F32, p, 1);
	}
	make_ready(ddp, gradients, 4);
	RANK_CHECK(get(ddp_gradients_view(gradients, 4), DDP_F32, 0) == value_of(rank, 4, 0));
	make_ready(ddp, gradients, 3);
	check_gradient(ddp, gradients, DDP_F32, 3, 1);
	check_gradient(ddp, gradients, DDP_F32, 4, 1);
	make_ready(ddp, gradients, 1);
	make_ready(ddp, gradients, 2);
	check_gradient(ddp, gradients, DDP_F32, 2, 1);
	RANK_OK(ddp, ddp_gradients_finish(gradients));
	for (size_t p = 0; p < PARAMETERS; p++)
		write_gradient(ddp, gradients, DDP_F32, p, 1);
	make_ready(ddp, gradients, 2);
	make_ready(ddp, gradients, 1);
	RANK_CHECK(get(ddp_gradients_view(gradients, 2), DDP_F32, 0) == value_of(rank, 2, 0));
	make_ready(ddp, gradients, 3);
	make_ready(ddp, gradients, 4);
	check_gradient(ddp, gradients, DDP_F32, 2, 1);
	RANK_OK(ddp, ddp_gradients_finish(gradients));
	ddp_gradients_destroy(gradients);
}

/* --- Without sync ----------------------------------------------------------------------- */

static void backward(struct ddp *ddp, struct ddp_gradients *gradients, double add)
{
	for (size_t p = PARAMETERS; p-- > 0;) {
		float *view = ddp_gradients_view(gradients, p);

		for (size_t i = 0; i < parameters[p].count; i++)
			view[i] += (float)add;
		make_ready(ddp, gradients, p);
	}
}

RANKS_TEST(test_accumulate, pairs)
{
	struct ddp_gradients_options options = small_buckets();
	struct ddp_gradients *gradients = create(ddp, &options);
	const float *first = ddp_gradients_view(gradients, 0);

	ddp_gradients_set_sync(gradients, false);
	backward(ddp, gradients, rank + 1);
	backward(ddp, gradients, 10 * (rank + 1));
	RANK_OK(ddp, ddp_gradients_finish(gradients));
	RANK_CHECK(first[2] == (float)(11 * (rank + 1)));
	ddp_gradients_set_sync(gradients, true);
	backward(ddp, gradients, 100);
	RANK_OK(ddp, ddp_gradients_finish(gradients));
	/* Both steps' sums, averaged: (111 + 122) / 2. */
	RANK_CHECK(first[2] == 116.5f);

	/* A call in the middle of a step takes effect in the next step. */
	make_ready(ddp, gradients, 4);
	ddp_gradients_set_sync(gradients, false);
	RANK_OK(ddp, ddp_gradients_finish(gradients));
	RANK_CHECK(first[2] == 116.5f);
	backward(ddp, gradients, rank);
	RANK_OK(ddp, ddp_gradients_finish(gradients));
	RANK_CHECK(first[2] == 116.5f + (float)rank);
	ddp_gradients_destroy(gradients);
}

/* --- Types that ranks send ---------------------------------------------------------------- */

static const struct {
	const char *name;
	enum ddp_type wire;
	bool sum;
	const char *layout;
	float each, want;
} wires[] = {
	/* The values fit in f16, but their sum may not. */
	{"f16, average of large ones", DDP_F16, false, "4", 60000, 60000},
	{"f16, sum of large ones", DDP_F16, true, "4", 60000, 240000},
	{"f16, average of three large ones", DDP_F16, false, "3", 49152, 49152},
	{"f16, average of eight of the largest", DDP_F16, false, "8", 65504, 65504},
	{"f16, too large", DDP_F16, false, "4", 400000, INFINITY},
	{"f16, nan", DDP_F16, false, "2", NAN, NAN},
	{"f16, small", DDP_F16, false, "4", 0x1p-22f, 0x1p-22f},
	{"f16, rounded once", DDP_F16, false, "2", 1 + 0x1p-11f, 1},
	{"bf16, large", DDP_BF16, false, "4", 0x1p120f, 0x1p120f},
	{"bf16, infinity", DDP_BF16, false, "4", INFINITY, INFINITY},
	{"bf16, small", DDP_BF16, false, "4", 0x1p-120f, 0x1p-120f},
	{"bf16, ties to even", DDP_BF16, true, "1", 1 + 0x1p-8f, 1},
};

RANK_BODY(send_one)
{
	struct ddp_gradients_options options = small_buckets();
	struct ddp_gradients *gradients;
	float *view, want = wires[row].want;

	options.wire = wires[row].wire;
	options.sum = wires[row].sum;
	gradients = create(ddp, &options);
	view = ddp_gradients_view(gradients, 2);
	view[99] = wires[row].each;
	RANK_OK(ddp, ddp_gradients_finish(gradients));
	RANK_CHECK(isnan(want) ? isnan(view[99]) : view[99] == want);
	ddp_gradients_destroy(gradients);
}

TEST_ROWS(test_wire, wires)
{
	row = _i;
	ranks_run(wires[_i].layout, send_one);
}

/* --- Lists that differ ------------------------------------------------------------------ */

static const struct {
	const char *name, *layout;
	int odd;	   /* rank whose list differs */
	const char *other; /* that rank's names and sizes */
	size_t bucket_bytes;
	const char *pieces;
} lists[] = {
	{"the first", "2", 1, "x 3 b 70001 c 100 d 17 e 1", 500,
	 "parameter 0|rank 0 has a with 3 elements|rank 1 has x with 3 elements"},
	{"a count in the middle", "4", 2, "a 3 b 70001 c 101 d 17 e 1", 500,
	 "parameter 2|rank 0 has c with 100 elements|rank 2 has c with 101 elements"},
	{"the last", "3", 2, "a 3 b 70001 c 100 d 17 E 1", 500,
	 "parameter 4|rank 2 has E with 1 elements"},
	{"rank 0 is the odd one", "3", 0, "a 3 B 70001 c 100 d 17 e 1", 500,
	 "parameter 1|rank 0 has B with 70001 elements|rank 1 has b with 70001 elements"},
	{"two swapped", "2", 1, "a 3 c 100 b 70001 d 17 e 1", 500,
	 "parameter 1|b with 70001|c with 100"},
	{"one less", "3", 1, "a 3 b 70001 c 100 d 17", 500,
	 "parameter 4|rank 0 has e with 1 elements|rank 1 has nothing"},
	{"one more", "2", 1, "a 3 b 70001 c 100 d 17 e 1 f 2", 500,
	 "parameter 5|rank 0 has nothing|rank 1 has f with 2 elements"},
	{"another bucket size", "3", 2, "a 3 b 70001 c 100 d 17 e 1", 501,
	 "bucket sizes|rank 2|rank 0"},
};

RANK_BODY(disagree)
{
	struct ddp_parameter other[PARAMETERS + 2];
	char names[PARAMETERS + 2][2] = {{0}};
	const char *text = lists[row].other;
	bool odd = rank == lists[row].odd;
	struct ddp_gradients_options options = small_buckets();
	struct ddp_gradients *gradients = (struct ddp_gradients *)&options;
	size_t count = 0;
	int status, n;

	for (size_t elements; sscanf(text, " %c %zu%n", names[count], &elements, &n) == 2;
	     count++) {
		other[count] = (struct ddp_parameter){names[count], elements};
		text += n;
	}
	if (odd)
		options.bucket_bytes = lists[row].bucket_bytes;
	status = ddp_gradients_create(&gradients, ddp, &options, odd ? other : parameters,
				      odd ? count : PARAMETERS);
	/* All ranks return the same text, whichever rank detects the error first. */
	RANK_CHECK(status == DDP_ERR_MISMATCH || status == DDP_ERR_ABORTED);
	RANK_CHECK(!gradients);
	unit_has(lists[row].name, ddp_error(ddp), lists[row].pieces);
}

TEST_ROWS(test_disagree, lists)
{
	row = _i;
	ranks_run(lists[_i].layout, disagree);
}

/* --- Failures --------------------------------------------------------------------------- */

/* Rank 1 ends after the first step. After that, every call of rank 0 returns the same error. */
RANKS_TEST(test_lost_rank, pairs)
{
	struct ddp_gradients_options options = small_buckets();
	struct ddp_gradients *gradients = create(ddp, &options);
	int status;

	backward(ddp, gradients, 1);
	RANK_OK(ddp, ddp_gradients_finish(gradients));
	if (rank == 1)
		_exit(0);
	for (size_t p = PARAMETERS; p-- > 0;)
		ddp_gradients_ready(gradients, p);
	status = ddp_gradients_finish(gradients);
	RANK_CHECK(ddp_is_peer_error(status));
	RANK_CHECK(strstr(ddp_error(ddp), "rank 1"));
	RANK_CHECK(ddp_gradients_ready(gradients, 4) == status);
	RANK_CHECK(ddp_gradients_finish(gradients) == status);
	ddp_gradients_destroy(gradients);
}

static const char *const few_layouts[] = {"1", "2", "1,1"};

RANKS_TEST(test_misuse, few_layouts)
{
	struct ddp_gradients_options options = small_buckets();
	struct ddp_gradients *gradients = create(ddp, &options);

	RANK_OK(ddp, ddp_gradients_ready(gradients, 3));
	RANK_CHECK(ddp_gradients_ready(gradients, 3) == DDP_ERR_STATE);
	RANK_CHECK(strstr(ddp_error(ddp), "parameter 3 d is ready for the second time"));
	RANK_CHECK(ddp_gradients_ready(gradients, 5) == DDP_ERR_ARGUMENT);
	RANK_CHECK(strstr(ddp_error(ddp), "parameter 5 does not exist"));
	RANK_OK(ddp, ddp_gradients_finish(gradients));
	RANK_OK(ddp, ddp_gradients_ready(gradients, 3));
	/* The object is destroyed while a sum is in progress. */
	RANK_OK(ddp, ddp_gradients_ready(gradients, 4));
	ddp_gradients_destroy(gradients);
}

#define OPTIONS(type, wire)                                                                \
	{                                                                                  \
		sizeof(struct ddp_gradients_options), type, wire, 0, 0, false, 0, false, 0 \
	}

static const struct {
	struct ddp_gradients_options options;
	size_t count;
	const char *piece;
} errors[] = {
	{{8, DDP_F32, DDP_F32, 0, 0, false, 0, false, 0}, 2, "8 bytes"},
	{OPTIONS(DDP_I32, DDP_I32), 2, "DDP_F32 or"},
	{OPTIONS(DDP_F64, DDP_F32), 2, "on the wire"},
	{OPTIONS(DDP_F32, DDP_I32), 2, "on the wire"},
	{OPTIONS(DDP_F32, DDP_F32), 0, "no parameters"},
	{OPTIONS(DDP_F32, DDP_F32), 2, "parameter 1 has no name"},
	{OPTIONS(DDP_F64, DDP_F64), 4, "large"},
	{OPTIONS(DDP_F32, DDP_F32), 5, "large"},
};

RANKS_TEST(test_errors, alone)
{
	static const struct ddp_parameter lists_of[][5] = {
		{{"a", 1}, {NULL, 1}},
		{{"a", 1}, {"b", 1}, {"c", 1}, {"large", SIZE_MAX / 4}},
		{{"a", 1}, {"b", 1}, {"c", 1}, {"large", SIZE_MAX / 4}, {"large", SIZE_MAX / 4}}};
	struct ddp_gradients *gradients;

	for (int i = 0; i < ROWS(errors); i++) {
		size_t list = errors[i].count < 3 ? 0 : errors[i].count - 3;

		RANK_CHECK(ddp_gradients_create(&gradients, ddp, &errors[i].options, lists_of[list],
						errors[i].count) == DDP_ERR_ARGUMENT);
		RANK_CHECK(!gradients && strstr(ddp_error(ddp), errors[i].piece));
	}
}

/* A program that was compiled with an older ddp.h passes shorter options. */
RANKS_TEST(test_options_of_older_header, pairs)
{
	static const size_t sizes[] = {offsetof(struct ddp_gradients_options, exact),
				       offsetof(struct ddp_gradients_options, virtual_ranks)};

	for (int i = 0; i < ROWS(sizes); i++) {
		struct ddp_gradients_options options = small_buckets();

		options.size = sizes[i];
		options.virtual_ranks = 77; /* [size] excludes this member */
		ddp_gradients_destroy(create(ddp, &options));
	}
}

/* Parameters without elements are legal. */
RANKS_TEST(test_empty, pairs)
{
	static const struct ddp_parameter list[] = {{"a", 0}, {"b", 0}};
	struct ddp_gradients *gradients;

	RANK_OK(ddp, ddp_gradients_create(&gradients, ddp, NULL, list, 2));
	RANK_OK(ddp, ddp_gradients_ready(gradients, 0));
	RANK_OK(ddp, ddp_gradients_finish(gradients));
	RANK_CHECK(ddp_gradients_norm(gradients) == 0);
	ddp_gradients_destroy(gradients);
}

UNIT_MAIN("gradients", NULL)
