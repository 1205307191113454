/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <ddp.h>
#include <math.h>

#include "gradient/statistics.h"
#include "unit.h"

/* --- Norm ------------------------------------------------------------------------------- */

TEST(test_norm)
{
	float f32[100] = {0};
	double f64[100] = {0};

	for (size_t count = 0; count <= 100; count++) {
		for (size_t i = 0; i < count; i++)
			f64[i] = f32[i] = i % 2 ? -3 : 3;
		ck_assert_double_eq(ddp_norm(f32, DDP_F32, count), sqrt(9 * (double)count));
		ck_assert_double_eq(ddp_norm(f64, DDP_F64, count), sqrt(9 * (double)count));
	}
	/* The squares of these values overflow or underflow in f32. */
	f32[0] = 0x1p100f;
	ck_assert_double_eq(ddp_norm(f32, DDP_F32, 1), 0x1p100);
	f32[0] = 0x1p-140f;
	ck_assert_double_eq(ddp_norm(f32, DDP_F32, 1), 0x1p-140);
	f32[7] = INFINITY;
	ck_assert_double_infinite(ddp_norm(f32, DDP_F32, 20));
	f32[19] = NAN;
	ck_assert_double_nan(ddp_norm(f32, DDP_F32, 20));
}

/* --- Loss scaling ----------------------------------------------------------------------- */

/* One update of the loss scale, with the result of PyTorch's _amp_update_scale_. */
static const struct {
	const char *name;
	struct ddp_scaler before;
	bool found;
	float scale;
	int32_t good;
} updates[] = {
	{"a good step", {65536, 2, 0.5, 2000, 0}, false, 65536, 1},
	{"one before growth", {65536, 2, 0.5, 2000, 1998}, false, 65536, 1999},
	{"growth", {65536, 2, 0.5, 2000, 1999}, false, 131072, 0},
	{"overflow", {65536, 2, 0.5, 2000, 1999}, true, 32768, 0},
	{"overflow at once", {65536, 2, 0.5, 2000, 0}, true, 32768, 0},
	{"interval 1", {1, 2, 0.5, 1, 0}, false, 2, 0},
	{"growth to infinity is not adopted", {0x1p127f, 2, 0.5, 10, 9}, false, 0x1p127f, 0},
	{"growth to the largest", {0x1p126f, 2, 0.5, 10, 9}, false, 0x1p127f, 0},
	{"no growth past the interval", {8, 2, 0.5, 3, 5}, false, 8, 6},
	{"backoff has no lower end", {0x1p-149f, 2, 0.5, 3, 2}, true, 0, 0},
	/* 3 * 1.1 is 3.3000000000000003 in double and 3.3 rounded to float. */
	{"factors are doubles", {3, 1.1, 0.9, 1, 0}, false, 3.3f, 0},
	{"backoff by 0.9", {3, 1.1, 0.9, 1, 0}, true, 2.7f, 0},
};

TEST_ROWS(test_update, updates)
{
	struct ddp_scaler scaler = updates[_i].before;

	ddp_scaler_update(&scaler, updates[_i].found);
	ck_assert_msg(scaler.scale == updates[_i].scale, "%s: scale is %a, want %a",
		      updates[_i].name, (double)scaler.scale, (double)updates[_i].scale);
	unit_number(updates[_i].name, "good steps", scaler.good_steps, updates[_i].good);
}

static const struct {
	const char *name;
	float scale, gradient, want;
	bool found;
} divisions[] = {
	{"power of two", 65536, 3, 3 * 0x1p-16f, false},
	{"zero", 65536, 0, 0, false},
	/*
	 * As in PyTorch, the inverse is first rounded to float. A division would give
	 * 0x1.99999ap-2.
	 */
	{"a third of 1.2", 3, 1.2f, 0x1.99999cp-2f, false},
	{"ten", 10, 7, 7 * 0.1f, false},
	{"largest", 2, 0x1.fffffep127f, 0x1.fffffep126f, false},
	{"infinity", 2, INFINITY, INFINITY, true},
	{"minus infinity", 2, -INFINITY, -INFINITY, true},
	{"nan", 2, NAN, NAN, true},
	/* As in PyTorch, gradients are checked before the division. */
	{"overflow by a scale below one", 0.5, 0x1.fffffep127f, INFINITY, false},
};

TEST_ROWS(test_unscale, divisions)
{
	struct ddp_scaler scaler = DDP_SCALER_INIT;
	/* An infinite value at each position: within whole vectors, and after them. */
	float gradients[37];

	scaler.scale = divisions[_i].scale;
	for (size_t at = 0; at < 37; at++) {
		for (size_t i = 0; i < 37; i++)
			gradients[i] = i == at ? divisions[_i].gradient : 1;
		ck_assert_msg(ddp_scaler_unscale(&scaler, gradients, 37) == divisions[_i].found,
			      "%s at %zu", divisions[_i].name, at);
		if (isnan(divisions[_i].want))
			ck_assert_float_nan(gradients[at]);
		else
			ck_assert_msg(gradients[at] == divisions[_i].want, "%s: %a, want %a",
				      divisions[_i].name, (double)gradients[at],
				      (double)divisions[_i].want);
		ck_assert_float_eq(gradients[(at + 1) % 37], (float)(1 / (double)scaler.scale));
	}
	ck_assert(!ddp_scaler_unscale(&scaler, NULL, 0));
}

/* --- Evaluation: one row ---------------------------------------------------------------- */

#define CLASSES 7

static const struct {
	const char *name;
	float logits[CLASSES];
	int32_t label;
	bool top1, top5;
	double loss;
} rows[] = {
	{"largest", {0, 0, 0, 9, 0, 0, 0}, 3, true, true, 0.0007401848201357},
	{"all equal, the first", {1, 1, 1, 1, 1, 1, 1}, 0, true, true, 1.9459101490553132},
	{"all equal, the second", {1, 1, 1, 1, 1, 1, 1}, 1, false, true, 1.9459101490553132},
	{"all equal, the fifth", {1, 1, 1, 1, 1, 1, 1}, 4, false, true, 1.9459101490553132},
	{"all equal, the sixth", {1, 1, 1, 1, 1, 1, 1}, 5, false, false, 1.9459101490553132},
	{"the fifth", {7, 6, 5, 4, 3, 2, 1}, 4, false, true, 4.457762847404243},
	{"the sixth", {7, 6, 5, 4, 3, 2, 1}, 5, false, false, 5.457762847404243},
	{"large",
	 {1000, 1000, -1000, -1000, -1000, -1000, -1000},
	 0,
	 true,
	 true,
	 0.6931471805599453},
	{"far away", {1000, 0, 0, 0, 0, 0, -1000}, 6, false, false, 2000},
	{"minus infinity elsewhere",
	 {-INFINITY, 2, -INFINITY, 2, -INFINITY, -INFINITY, -INFINITY},
	 1,
	 true,
	 true,
	 0.6931471805599453},
	{"minus infinity", {0, 0, -INFINITY, 0, 0, 0, 0}, 2, false, false, INFINITY},
	{"nan elsewhere", {0, 5, NAN, 0, 0, 0, 0}, 1, false, true, NAN},
	{"nan", {0, 5, NAN, 0, 0, 0, 0}, 2, true, true, NAN},
	{"all nan, the first", {NAN, NAN, NAN, NAN, NAN, NAN, NAN}, 0, true, true, NAN},
	{"all nan, the sixth", {NAN, NAN, NAN, NAN, NAN, NAN, NAN}, 5, false, false, NAN},
};

TEST_ROWS(test_row, rows)
{
	struct ddp_evaluation got = {0, 0, 0, 0};
	double want = rows[_i].loss;

	ddp_evaluation_add(&got, rows[_i].logits, &rows[_i].label, 1, CLASSES);
	unit_number(rows[_i].name, "top 1", (int64_t)got.top1, rows[_i].top1);
	unit_number(rows[_i].name, "top 5", (int64_t)got.top5, rows[_i].top5);
	unit_number(rows[_i].name, "samples", (int64_t)got.samples, 1);
	ck_assert_msg(isnan(want)   ? isnan(got.loss)
		      : isinf(want) ? got.loss == want
				    : fabs(got.loss - want) <= 1e-12 * (1 + want),
		      "%s: loss is %.17g, want %.17g", rows[_i].name, got.loss, want);
}

TEST(test_rows_add_up)
{
	static const float logits[] = {0, 1, 1, 0, 0, 0};
	static const int32_t labels[] = {1, 1, 0};
	struct ddp_evaluation got = {1, 2, 3, 4};

	ddp_evaluation_add(&got, logits, labels, 3, 2);
	ck_assert_uint_eq(got.top1, 4);
	ck_assert_uint_eq(got.top5, 6);
	ck_assert_uint_eq(got.samples, 7);
	ck_assert_double_eq_tol(got.loss, 1 + 0.3132616875182228 + 1.3132616875182228 + log(2),
				1e-12);
}

TEST(test_no_class)
{
	static const float logits[8] = {0};
	static const int32_t labels[] = {-1, 2, INT32_MIN, INT32_MAX};
	struct ddp_evaluation got = {0, 0, 0, 0};

	ddp_evaluation_add(&got, logits, labels, 4, 2);
	ddp_evaluation_add(&got, NULL, NULL, 0, 2);
	ck_assert_uint_eq(got.samples, 0);
	ck_assert_uint_eq(got.top5, 0);
	ck_assert_double_eq(got.loss, 0);
}

UNIT_MAIN("statistics", NULL)
