/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>

#include "gradient/moments.h"
#include "state/evaluation.h"
#include "unit.h"

/* --- One row ---------------------------------------------------------------------------- */

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

START_TEST(test_row)
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
END_TEST

START_TEST(test_rows_add_up)
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
END_TEST

START_TEST(test_no_class)
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
END_TEST

START_TEST(test_sum)
{
	static const struct ddp_evaluation parts[] = {
		{0.5, 1, 2, 3}, {0.25, 10, 20, 30}, {0, 0, 0, 0}, {4, 100, 200, 300}};
	struct ddp_evaluation sum = ddp_evaluation_sum(parts, 4);

	ck_assert_double_eq(sum.loss, 4.75);
	ck_assert_uint_eq(sum.top1, 111);
	ck_assert_uint_eq(sum.top5, 222);
	ck_assert_uint_eq(sum.samples, 333);
}
END_TEST

/* --- Moments ---------------------------------------------------------------------------- */

/* One channel; what the values 1..count of each part, shifted, would have. */
static const struct {
	const char *name;
	size_t parts;
	struct {
		double count;
		float mean, m2;
	} in[4];
	double count;
	float mean, m2;
} combined[] = {
	{"one", 1, {{5, 3, 10}}, 5, 3, 10},
	/* 0 2 | 10: mean 4, deviations 16 4 36 */
	{"unequal", 2, {{2, 1, 2}, {1, 10, 0}}, 3, 4, 56},
	{"an empty one", 3, {{2, 1, 2}, {0, NAN, INFINITY}, {1, 10, 0}}, 3, 4, 56},
	{"empty ones first", 4, {{0, NAN, NAN}, {0, 7, 7}, {2, 1, 2}, {1, 10, 0}}, 3, 4, 56},
	{"all empty", 2, {{0, NAN, NAN}, {0, 7, 7}}, 0, 0, 0},
	/* A variance of 1 around a million: sums of squares in float would lose it. */
	{"far from zero", 2, {{1024, 1e6f, 1024}, {1024, 1e6f, 1024}}, 2048, 1e6f, 2048},
	{"apart", 2, {{1024, 1e6f, 1024}, {1024, 1e6f + 2, 1024}}, 2048, 1e6f + 1, 4096},
};

START_TEST(test_combine)
{
	size_t channels = 3, bytes = ddp_moments_bytes(channels);
	char *data = calloc(combined[_i].parts, bytes);
	float mean[3], m2[3];
	double count;

	ck_assert_ptr_nonnull(data);
	for (size_t i = 0; i < combined[_i].parts; i++) {
		float values[6] = {combined[_i].in[i].mean, combined[_i].in[i].mean, 0,
				   combined[_i].in[i].m2,   combined[_i].in[i].m2,   0};

		memcpy(data + i * bytes, &combined[_i].in[i].count, sizeof(double));
		memcpy(data + i * bytes + sizeof(double), values, sizeof(values));
	}
	ddp_moments_combine(data, combined[_i].parts, channels, &count, mean, m2);
	ck_assert_double_eq(count, combined[_i].count);
	for (int i = 0; i < 2; i++) {
		ck_assert_msg(mean[i] == combined[_i].mean, "%s: mean %a", combined[_i].name,
			      (double)mean[i]);
		ck_assert_msg(m2[i] == combined[_i].m2, "%s: m2 %a", combined[_i].name,
			      (double)m2[i]);
	}
	ck_assert(mean[2] == 0 && m2[2] == 0);
	free(data);
}
END_TEST

static void fill(TCase *tcase)
{
	UNIT_ROWS(tcase, test_row, rows);
	tcase_add_test(tcase, test_rows_add_up);
	tcase_add_test(tcase, test_no_class);
	tcase_add_test(tcase, test_sum);
	UNIT_ROWS(tcase, test_combine, combined);
}

int main(void)
{
	return unit_run("evaluation", fill);
}
