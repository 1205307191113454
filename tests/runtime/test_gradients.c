/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>

#include "double.h"
#include "gradient/buckets.h"
#include "unit.h"

/* Forward order; with the limits below three buckets: [e d], [c b], [a]. */
static const struct ddp_parameter parameters[] = {
	{"a", 3}, {"b", 40}, {"c", 100}, {"d", 17}, {"e", 1}};

enum { PARAMETERS = 5, BUCKETS = 3 };

static const size_t buckets[PARAMETERS] = {2, 1, 1, 0, 0};

static struct ddp_gradients_options small_buckets(void)
{
	struct ddp_gradients_options options = DDP_GRADIENTS_OPTIONS_INIT;

	options.first_bytes = 60;
	options.bucket_bytes = 500;
	return options;
}

static struct ddp_gradients *create(struct ddp *ddp, const struct ddp_gradients_options *options)
{
	struct ddp_gradients *gradients = NULL;
	int status = ddp_gradients_create(&gradients, ddp, options, parameters, PARAMETERS);

	EXPECT(status == 0, "create: %s", ddp->error.text);
	return gradients;
}

/* A small whole number for each rank, parameter and element: sums are exact in every type. */
static double value_of(int rank, size_t parameter, size_t element)
{
	return (double)((rank + 1) * (int)(1 + (parameter + element) % 5));
}

static double sum_of(int size, size_t parameter, size_t element)
{
	double sum = 0;

	for (int rank = 0; rank < size; rank++)
		sum += value_of(rank, parameter, element);
	return sum;
}

static void put(void *view, enum ddp_type type, size_t element, double value)
{
	if (type == DDP_F64)
		((double *)view)[element] = value;
	else
		((float *)view)[element] = (float)value;
}

static double get(const void *view, enum ddp_type type, size_t element)
{
	return type == DDP_F64 ? ((const double *)view)[element]
			       : (double)((const float *)view)[element];
}

static void write_gradient(struct ddp *ddp, struct ddp_gradients *gradients, enum ddp_type type,
			   size_t parameter, double factor)
{
	void *view = ddp_gradients_view(gradients, parameter);

	for (size_t i = 0; i < parameters[parameter].count; i++)
		put(view, type, i, factor * value_of(ddp->world.rank, parameter, i));
}

static void expect_gradients(struct ddp *ddp, struct ddp_gradients *gradients, enum ddp_type type,
			     double factor)
{
	for (size_t p = 0; p < PARAMETERS; p++) {
		const void *view = ddp_gradients_view(gradients, p);

		for (size_t i = 0; i < parameters[p].count; i++) {
			double want = factor * sum_of(ddp->world.size, p, i);

			EXPECT(get(view, type, i) == want, "rank %d, %s[%zu]: %g, want %g",
			       ddp->world.rank, parameters[p].name, i, get(view, type, i), want);
		}
	}
}

/* --- Sums ------------------------------------------------------------------------------- */

/* The orders in which gradients become ready; -1 ends a list early. */
static const int orders[][PARAMETERS] = {
	{4, 3, 2, 1, 0}, {0, 1, 2, 3, 4}, {2, 4, 0, 3, 1}, {-1, -1, -1, -1, -1}, {3, 1, -1, -1, -1},
};

struct sums {
	struct ddp_gradients_options options;
	const char *name;
};

static void steps(struct ddp *ddp, void *argument)
{
	const struct sums *sums = argument;
	enum ddp_type type = sums->options.type;
	struct ddp_gradients *gradients = create(ddp, &sums->options);
	double factor = sums->options.sum ? 1 : 1.0 / ddp->world.size;

	for (int step = 0; step < ROWS(orders); step++) {
		for (size_t p = 0; p < PARAMETERS; p++)
			write_gradient(ddp, gradients, type, p, step + 1);
		for (int i = 0; i < PARAMETERS && orders[step][i] >= 0; i++)
			EXPECT(ddp_gradients_ready(gradients, (size_t)orders[step][i]) == 0,
			       "%s: %s", sums->name, ddp->error.text);
		EXPECT(ddp_gradients_finish(gradients) == 0, "%s: %s", sums->name, ddp->error.text);
		expect_gradients(ddp, gradients, type, (step + 1) * factor);
	}
	ddp_gradients_destroy(gradients);
}

/* With powers of two as number of ranks, so that averages are exact too. */
static const struct {
	const char *name;
	enum ddp_type type, wire;
	bool sum, wide;
	int size;
} ways[] = {
	{"alone", DDP_F32, DDP_F32, false, false, 1},
	{"two", DDP_F32, DDP_F32, false, false, 2},
	{"sum of three", DDP_F32, DDP_F32, true, false, 3},
	{"four in double", DDP_F64, DDP_F64, false, false, 4},
	{"eight", DDP_F32, DDP_F32, false, false, 8},
	{"two, bf16", DDP_F32, DDP_BF16, false, false, 2},
	{"two, f16", DDP_F32, DDP_F16, false, false, 2},
	{"sum of three, f16", DDP_F32, DDP_F16, true, false, 3},
	{"four in double, f16", DDP_F64, DDP_F16, false, false, 4},
	{"two in double, bf16", DDP_F64, DDP_BF16, true, false, 2},
	{"two, wide", DDP_F32, DDP_F32, false, true, 2},
	{"sum of three, wide", DDP_F32, DDP_F32, true, true, 3},
	{"four, wide, f16", DDP_F32, DDP_F16, false, true, 4},
};

TEST_ROWS(test_sums, ways)
{
	struct double_options options = {ways[_i].size, ways[_i].wide, 0};
	struct sums sums = {small_buckets(), ways[_i].name};
	struct double_notes notes;

	sums.options.type = ways[_i].type;
	sums.options.wire = ways[_i].wire;
	sums.options.sum = ways[_i].sum;
	/* The same number of elements, whatever the type. */
	sums.options.first_bytes *= ways[_i].type == DDP_F64 ? 2 : 1;
	sums.options.bucket_bytes *= ways[_i].type == DDP_F64 ? 2 : 1;
	notes = double_run(&options, steps, &sums);
	/* Strictly in the order of the buckets, whatever became ready first. */
	unit_number(ways[_i].name, "sums", notes.reduces, BUCKETS * ROWS(orders));
	for (int i = 0; i < notes.reduces; i++)
		ck_assert_uint_eq(notes.counts[i], notes.counts[i % BUCKETS]);
	ck_assert_uint_gt(notes.counts[1], notes.counts[0]);
	ck_assert_uint_lt(notes.counts[2], notes.counts[0]);
}

/* With one group a bucket is summed within the call of ready that completes it. */
static void boundaries(struct ddp *ddp, void *argument)
{
	static const int want[PARAMETERS] = {0, 1, 1, 2, 3};
	struct ddp_gradients_options options = small_buckets();
	struct ddp_gradients *gradients = create(ddp, &options);

	(void)argument;
	EXPECT(ddp_gradients_buckets(gradients) == BUCKETS, "%zu buckets",
	       ddp_gradients_buckets(gradients));
	for (size_t p = 0; p < PARAMETERS; p++)
		EXPECT(ddp_gradients_bucket(gradients, p) == buckets[p], "bucket of %zu", p);
	EXPECT(ddp_gradients_bucket(gradients, PARAMETERS) == BUCKETS, "of no parameter");
	for (int i = 0; i < PARAMETERS; i++) {
		ddp_gradients_ready(gradients, (size_t)(PARAMETERS - 1 - i));
		EXPECT(double_reduces(ddp) == want[i], "%d sums after %d gradients",
		       double_reduces(ddp), i + 1);
	}
	ddp_gradients_finish(gradients);
	/* The second bucket waits for the first. */
	ddp_gradients_ready(gradients, 2);
	ddp_gradients_ready(gradients, 1);
	EXPECT(double_reduces(ddp) == 3, "%d sums", double_reduces(ddp));
	ddp_gradients_ready(gradients, 3);
	ddp_gradients_ready(gradients, 4);
	EXPECT(double_reduces(ddp) == 5, "%d sums", double_reduces(ddp));
	ddp_gradients_finish(gradients);
	ddp_gradients_destroy(gradients);
}

TEST(test_boundaries)
{
	struct double_options options = {2, false, 0};

	double_run(&options, boundaries, NULL);
}

static void arena(struct ddp *ddp, void *argument)
{
	struct ddp_gradients_options options = small_buckets();
	struct ddp_gradients *gradients = create(ddp, &options);
	size_t count, views = 0;
	float *all = ddp_gradients_all(gradients, &count);

	(void)argument;
	for (size_t p = 0; p < PARAMETERS; p++) {
		float *view = ddp_gradients_view(gradients, p);

		EXPECT((uintptr_t)view % 64 == 0, "view %zu at %p", p, (void *)view);
		EXPECT(view >= all && view + parameters[p].count <= all + count, "view %zu", p);
		for (size_t i = 0; i < parameters[p].count; i++)
			view[i] = 1;
		views += parameters[p].count;
	}
	EXPECT(ddp_gradients_view(gradients, PARAMETERS) == NULL, "a view of no parameter");
	/* Views do not overlap, and what is between them is zero. */
	EXPECT(ddp_gradients_norm(gradients) == sqrt((double)views), "norm %g",
	       ddp_gradients_norm(gradients));
	EXPECT(ddp_gradients_clip(gradients, 1e9) == sqrt((double)views), "clip within");
	EXPECT(all[0] == 1, "untouched within the limit: %g", (double)all[0]);
	EXPECT(ddp_gradients_clip(gradients, 2) == sqrt((double)views), "clip");
	EXPECT(fabs(ddp_gradients_norm(gradients) - 2) < 1e-6, "norm after it %g",
	       ddp_gradients_norm(gradients));
	ddp_gradients_destroy(gradients);
	ddp_gradients_destroy(NULL);
}

TEST(test_arena)
{
	struct double_options options = {1, false, 0};

	double_run(&options, arena, NULL);
}

/* --- Without sync ----------------------------------------------------------------------- */

static void backward(struct ddp_gradients *gradients, double add)
{
	for (size_t p = PARAMETERS; p-- > 0;) {
		float *view = ddp_gradients_view(gradients, p);

		for (size_t i = 0; i < parameters[p].count; i++)
			view[i] += (float)add;
		ddp_gradients_ready(gradients, p);
	}
}

static void accumulate(struct ddp *ddp, void *argument)
{
	struct ddp_gradients_options options = small_buckets();
	struct ddp_gradients *gradients = create(ddp, &options);
	const float *first = ddp_gradients_view(gradients, 0);
	int rank = ddp->world.rank;

	(void)argument;
	ddp_gradients_set_sync(gradients, false);
	backward(gradients, rank + 1);
	backward(gradients, 10 * (rank + 1));
	EXPECT(ddp_gradients_finish(gradients) == 0, "%s", ddp->error.text);
	EXPECT(double_reduces(ddp) == 0, "%d sums without sync", double_reduces(ddp));
	EXPECT(first[2] == (float)(11 * (rank + 1)), "kept %g", (double)first[2]);
	ddp_gradients_set_sync(gradients, true);
	backward(gradients, 100);
	EXPECT(ddp_gradients_finish(gradients) == 0, "%s", ddp->error.text);
	/* (111 + 122) / 2 */
	EXPECT(first[2] == 116.5f, "summed %g", (double)first[2]);

	/* Asked for in the middle of a step, it holds from the next one on. */
	ddp_gradients_ready(gradients, 4);
	ddp_gradients_set_sync(gradients, false);
	EXPECT(ddp_gradients_finish(gradients) == 0, "%s", ddp->error.text);
	EXPECT(double_reduces(ddp) == 6, "%d sums", double_reduces(ddp));
	backward(gradients, 1);
	EXPECT(ddp_gradients_finish(gradients) == 0, "%s", ddp->error.text);
	EXPECT(double_reduces(ddp) == 6, "%d sums", double_reduces(ddp));
	ddp_gradients_destroy(gradients);
}

TEST_LOOP(test_accumulate, 0, 2)
{
	struct double_options options = {2, _i == 1, 0};

	double_run(&options, accumulate, NULL);
}

/* --- On the wire ------------------------------------------------------------------------ */

static const struct {
	const char *name;
	enum ddp_type wire;
	bool sum;
	int size;
	float each, want;
} wires[] = {
	/* The sum of what fits need not fit f16. */
	{"f16, average of large ones", DDP_F16, false, 4, 60000, 60000},
	{"f16, sum of large ones", DDP_F16, true, 4, 60000, 240000},
	{"f16, average of three large ones", DDP_F16, false, 3, 49152, 49152},
	{"f16, average of eight of the largest", DDP_F16, false, 8, 65504, 65504},
	{"f16, too large", DDP_F16, false, 4, 400000, INFINITY},
	{"f16, nan", DDP_F16, false, 2, NAN, NAN},
	{"f16, small", DDP_F16, false, 4, 0x1p-22f, 0x1p-22f},
	{"f16, rounded once", DDP_F16, false, 2, 1 + 0x1p-11f, 1},
	{"bf16, large", DDP_BF16, false, 4, 0x1p120f, 0x1p120f},
	{"bf16, infinity", DDP_BF16, false, 4, INFINITY, INFINITY},
	{"bf16, small", DDP_BF16, false, 4, 0x1p-120f, 0x1p-120f},
	{"bf16, ties to even", DDP_BF16, true, 1, 1 + 0x1p-8f, 1},
};

static void send_one(struct ddp *ddp, void *argument)
{
	int row = *(int *)argument;
	struct ddp_gradients_options options = small_buckets();
	struct ddp_gradients *gradients;
	float *view, want = wires[row].want;

	options.wire = wires[row].wire;
	options.sum = wires[row].sum;
	gradients = create(ddp, &options);
	view = ddp_gradients_view(gradients, 2);
	view[99] = wires[row].each;
	EXPECT(ddp_gradients_finish(gradients) == 0, "%s", ddp->error.text);
	EXPECT(isnan(want) ? isnan(view[99]) : view[99] == want, "%s: %a, want %a", wires[row].name,
	       (double)view[99], (double)want);
	ddp_gradients_destroy(gradients);
}

TEST_ROWS(test_wire, wires)
{
	struct double_options options = {wires[_i].size, false, 0};
	int row = _i;

	double_run(&options, send_one, &row);
}

/* More elements than are converted at a time. */
static void send_many(struct ddp *ddp, void *argument)
{
	static const struct ddp_parameter many = {"many", 5001};
	struct ddp_gradients_options options = DDP_GRADIENTS_OPTIONS_INIT;
	struct ddp_gradients *gradients;
	float *view;

	(void)argument;
	options.wire = DDP_F16;
	EXPECT(ddp_gradients_create(&gradients, ddp, &options, &many, 1) == 0, "%s",
	       ddp->error.text);
	view = ddp_gradients_view(gradients, 0);
	for (int i = 0; i < 5001; i++)
		view[i] = (float)(i % 600 * (ddp->world.rank + 1));
	EXPECT(ddp_gradients_finish(gradients) == 0, "%s", ddp->error.text);
	for (int i = 0; i < 5001; i++)
		EXPECT(view[i] == (float)(i % 600) * 1.5f, "%d: %g", i, (double)view[i]);
	ddp_gradients_destroy(gradients);
}

TEST(test_many)
{
	struct double_options options = {2, false, 0};

	double_run(&options, send_many, NULL);
}

/* --- Lists that differ ------------------------------------------------------------------ */

#define LIST 6

static const struct {
	const char *name;
	int size, odd; /* which rank has the other list */
	size_t count;
	struct ddp_parameter other[LIST];
	size_t bucket_bytes;
	const char *pieces[4];
} lists[] = {
	{"the first",
	 2,
	 1,
	 5,
	 {{"x", 3}, {"b", 40}, {"c", 100}, {"d", 17}, {"e", 1}},
	 500,
	 {"parameter 0", "rank 0 has a with 3 elements", "rank 1 has x with 3 elements"}},
	{"a count in the middle",
	 4,
	 2,
	 5,
	 {{"a", 3}, {"b", 40}, {"c", 101}, {"d", 17}, {"e", 1}},
	 500,
	 {"parameter 2", "rank 0 has c with 100 elements", "rank 2 has c with 101 elements"}},
	{"the last",
	 3,
	 2,
	 5,
	 {{"a", 3}, {"b", 40}, {"c", 100}, {"d", 17}, {"E", 1}},
	 500,
	 {"parameter 4", "rank 2 has E with 1 elements"}},
	{"rank 0 is the odd one",
	 3,
	 0,
	 5,
	 {{"a", 3}, {"B", 40}, {"c", 100}, {"d", 17}, {"e", 1}},
	 500,
	 {"parameter 1", "rank 0 has B with 40 elements", "rank 1 has b with 40 elements"}},
	{"two swapped",
	 2,
	 1,
	 5,
	 {{"a", 3}, {"c", 100}, {"b", 40}, {"d", 17}, {"e", 1}},
	 500,
	 {"parameter 1", "b with 40", "c with 100"}},
	{"one less",
	 3,
	 1,
	 4,
	 {{"a", 3}, {"b", 40}, {"c", 100}, {"d", 17}},
	 500,
	 {"parameter 4", "rank 0 has e with 1 elements", "rank 1 has nothing"}},
	{"one more",
	 2,
	 1,
	 6,
	 {{"a", 3}, {"b", 40}, {"c", 100}, {"d", 17}, {"e", 1}, {"f", 2}},
	 500,
	 {"parameter 5", "rank 0 has nothing", "rank 1 has f with 2 elements"}},
	{"another bucket size",
	 3,
	 2,
	 5,
	 {{"a", 3}, {"b", 40}, {"c", 100}, {"d", 17}, {"e", 1}},
	 501,
	 {"bucket sizes", "rank 2", "rank 0"}},
};

static void disagree(struct ddp *ddp, void *argument)
{
	int row = *(int *)argument;
	bool odd = ddp->world.rank == lists[row].odd;
	struct ddp_gradients_options options = small_buckets();
	struct ddp_gradients *gradients = (struct ddp_gradients *)&options;
	int status;

	if (odd)
		options.bucket_bytes = lists[row].bucket_bytes;
	status =
		ddp_gradients_create(&gradients, ddp, &options, odd ? lists[row].other : parameters,
				     odd ? lists[row].count : PARAMETERS);
	EXPECT(status == DDP_ERR_MISMATCH && gradients == NULL, "%s: status %d", lists[row].name,
	       status);
	/* The same text on all ranks. */
	for (const char *const *piece = lists[row].pieces; *piece; piece++)
		EXPECT(strstr(ddp->error.text, *piece), "%s: \"%s\" does not say \"%s\"",
		       lists[row].name, ddp->error.text, *piece);
}

TEST_ROWS(test_disagree, lists)
{
	struct double_options options = {lists[_i].size, false, 0};
	int row = _i;

	double_run(&options, disagree, &row);
}

/* --- Failures --------------------------------------------------------------------------- */

/* The fourth sum fails: the first of the second step. */
static void lose(struct ddp *ddp, void *argument)
{
	struct ddp_gradients_options options = small_buckets();
	struct ddp_gradients *gradients = create(ddp, &options);
	bool wide = *(bool *)argument;

	backward(gradients, 1);
	EXPECT(ddp_gradients_finish(gradients) == 0, "%s", ddp->error.text);
	EXPECT(ddp_gradients_ready(gradients, 4) == 0, "%s", ddp->error.text);
	if (!wide)
		EXPECT(ddp_gradients_ready(gradients, 3) == DDP_ERR_PEER, "in ready");
	EXPECT(ddp_gradients_finish(gradients) == DDP_ERR_PEER, "in finish");
	EXPECT(strstr(ddp->error.text, "all-reduce 4: rank 9 is gone"), "%s", ddp->error.text);
	/* Nothing is sent any more. */
	EXPECT(double_reduces(ddp) == 4, "%d sums", double_reduces(ddp));
	backward(gradients, 1);
	EXPECT(ddp_gradients_finish(gradients) == DDP_ERR_PEER, "in a later step");
	EXPECT(double_reduces(ddp) == 4, "%d sums", double_reduces(ddp));
	ddp_gradients_destroy(gradients);
}

TEST_LOOP(test_lose, 0, 2)
{
	struct double_options options = {2, _i == 1, 4};
	bool wide = _i == 1;

	double_run(&options, lose, &wide);
}

static void misuse(struct ddp *ddp, void *argument)
{
	struct ddp_gradients_options options = small_buckets();
	struct ddp_gradients *gradients = create(ddp, &options);

	(void)argument;
	EXPECT(ddp_gradients_ready(gradients, 3) == 0, "%s", ddp->error.text);
	EXPECT(ddp_gradients_ready(gradients, 3) == DDP_ERR_STATE, "twice");
	EXPECT(strstr(ddp->error.text, "parameter 3 d is ready for the second time"), "%s",
	       ddp->error.text);
	EXPECT(ddp_gradients_ready(gradients, 5) == DDP_ERR_ARGUMENT, "none");
	EXPECT(strstr(ddp->error.text, "parameter 5 does not exist"), "%s", ddp->error.text);
	EXPECT(ddp_gradients_finish(gradients) == 0, "it goes on");
	EXPECT(ddp_gradients_ready(gradients, 3) == 0, "in the next step");
	/* With a sum that nobody waited for. */
	EXPECT(ddp_gradients_ready(gradients, 4) == 0, "%s", ddp->error.text);
	ddp_gradients_destroy(gradients);
}

TEST_LOOP(test_misuse, 0, 2)
{
	struct double_options options = {1, _i == 1, 0};

	double_run(&options, misuse, NULL);
}

static const struct {
	const char *name;
	struct ddp_gradients_options options;
	size_t count;
	const char *piece;
} refused[] = {
	{"size", {8, DDP_F32, DDP_F32, 0, 0, false, 0, false, 0}, 2, "8 bytes"},
	{"type",
	 {sizeof(refused[0].options), DDP_I32, DDP_I32, 0, 0, false, 0, false, 0},
	 2,
	 "DDP_F32 or"},
	{"wire",
	 {sizeof(refused[0].options), DDP_F64, DDP_F32, 0, 0, false, 0, false, 0},
	 2,
	 "on the wire"},
	{"wire of integers",
	 {sizeof(refused[0].options), DDP_F32, DDP_I32, 0, 0, false, 0, false, 0},
	 2,
	 "on the wire"},
	{"none",
	 {sizeof(refused[0].options), DDP_F32, DDP_F32, 0, 0, false, 0, false, 0},
	 0,
	 "no parameters"},
	{"nameless",
	 {sizeof(refused[0].options), DDP_F32, DDP_F32, 0, 0, false, 0, false, 0},
	 2,
	 "parameter 1 has no name"},
};

static void refuse(struct ddp *ddp, void *argument)
{
	static const struct ddp_parameter list[] = {{"a", 1}, {NULL, 1}};
	int row = *(int *)argument;
	struct ddp_gradients *gradients;

	EXPECT(ddp_gradients_create(&gradients, ddp, &refused[row].options, list,
				    refused[row].count) == DDP_ERR_ARGUMENT,
	       "%s", refused[row].name);
	EXPECT(!gradients && strstr(ddp->error.text, refused[row].piece), "%s: %s",
	       refused[row].name, ddp->error.text);
}

TEST_ROWS(test_refused, refused)
{
	struct double_options options = {1, false, 0};
	int row = _i;

	double_run(&options, refuse, &row);
}

/* What programs pass that were compiled with an earlier ddp.h. */
static void older(struct ddp *ddp, void *argument)
{
	static const size_t sizes[] = {offsetof(struct ddp_gradients_options, exact),
				       offsetof(struct ddp_gradients_options, virtual_ranks)};

	(void)argument;
	for (int i = 0; i < ROWS(sizes); i++) {
		struct ddp_gradients_options options = small_buckets();

		options.size = sizes[i];
		options.virtual_ranks = 77; /* which is not theirs */
		ddp_gradients_destroy(create(ddp, &options));
	}
}

TEST(test_older)
{
	struct double_options options = {2, false, 0};

	double_run(&options, older, NULL);
}

/* Gradients without elements, all of them or some. */
static void empty(struct ddp *ddp, void *argument)
{
	static const struct ddp_parameter list[] = {{"a", 0}, {"b", 0}};
	struct ddp_gradients *gradients;

	(void)argument;
	EXPECT(ddp_gradients_create(&gradients, ddp, NULL, list, 2) == 0, "%s", ddp->error.text);
	EXPECT(ddp_gradients_ready(gradients, 0) == 0, "%s", ddp->error.text);
	EXPECT(ddp_gradients_finish(gradients) == 0, "%s", ddp->error.text);
	EXPECT(ddp_gradients_norm(gradients) == 0, "%g", ddp_gradients_norm(gradients));
	ddp_gradients_destroy(gradients);
}

TEST(test_empty)
{
	struct double_options options = {2, false, 0};

	double_run(&options, empty, NULL);
}

/* --- Others that stand on a collective -------------------------------------------------- */

/* Rank r has r values: 1..r. Their mean over all, and their squared deviations from it. */
static void moments(struct ddp *ddp, void *argument)
{
	int rank = ddp->world.rank;
	double count = rank, bad = -1;
	float mean[2] = {(float)(rank + 1) / 2, NAN}, m2[2] = {0, 0};

	(void)argument;
	for (int i = 1; i <= rank; i++)
		m2[0] += ((float)i - mean[0]) * ((float)i - mean[0]);
	mean[1] = mean[0];
	m2[1] = m2[0];
	EXPECT(ddp_all_reduce_moments(ddp, &bad, mean, m2, 2) == DDP_ERR_ARGUMENT, "count -1");
	EXPECT(ddp_all_reduce_moments(ddp, &count, mean, m2, 2) == 0, "%s", ddp->error.text);
	/* 1, 1 2, 1 2 3: mean 10/6, m2 1+1+4+1+4+9 - 100/6 */
	EXPECT(count == 6, "count %g", count);
	for (int i = 0; i < 2; i++) {
		EXPECT(fabs((double)mean[i] - 10.0 / 6) < 1e-6, "mean %g", (double)mean[i]);
		EXPECT(fabs((double)m2[i] - 20.0 / 6) < 1e-6, "m2 %g", (double)m2[i]);
	}
}

TEST(test_moments)
{
	struct double_options options = {4, false, 0};

	double_run(&options, moments, NULL);
}

static void evaluate(struct ddp *ddp, void *argument)
{
	uint64_t rank = (uint64_t)ddp->world.rank;
	struct ddp_evaluation evaluation = {0.5 * (double)rank, rank, 2 * rank, 10 * rank};

	(void)argument;
	EXPECT(ddp_evaluation_reduce(ddp, &evaluation) == 0, "%s", ddp->error.text);
	EXPECT(evaluation.loss == 1.5 && evaluation.top1 == 3 && evaluation.top5 == 6 &&
		       evaluation.samples == 30,
	       "rank %d: %g %d %d %d", ddp->world.rank, evaluation.loss, (int)evaluation.top1,
	       (int)evaluation.top5, (int)evaluation.samples);
}

TEST(test_evaluate)
{
	struct double_options options = {3, false, 0};

	double_run(&options, evaluate, NULL);
}

UNIT_MAIN("gradients", NULL)
