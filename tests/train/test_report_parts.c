/* SPDX-License-Identifier: Apache-2.0 */
/* test_report_parts.c - what reports are made of: texts, numbers, curves, axes, the fitted line */
#include "config.h"

#include <math.h>
#include <stdio.h>

#include "report/axis.h"
#include "report/curve.h"
#include "report/meter.h"
#include "report/text.h"
#include "unit.h"

/* --- Texts ------------------------------------------------------------------------------ */

static const struct escaped {
	const char *name, *in, *html, *json, *plain;
} escapes[] = {
	{"plain", "a b", "a b", "\"a b\"", "a b"},
	{"empty", "", "", "\"\"", ""},
	{"tag", "<a&'\">", "&lt;a&amp;&#39;&quot;&gt;", "\"<a&'\\\">\"", "<a&'\">"},
	{"control", "\x1b[1m\r\x7f", "\xef\xbf\xbd[1m\xef\xbf\xbd\xef\xbf\xbd",
	 "\"\\u001b[1m\\u000d\\u007f\"", "?[1m??"},
	{"line", "a\n\tb", "a\n\tb", "\"a\\u000a\\u0009b\"", "a??b"},
	{"backslash", "\\n", "\\n", "\"\\\\n\"", "\\n"},
	{"2 to 4 bytes", "é€😀", "é€😀", "\"é€😀\"", "é€😀"},
	{"C1 control", "\xc2\x9b", "\xef\xbf\xbd", "\"\xc2\x9b\"", "?"},
	{"stray", "a\x80z", "a\xef\xbf\xbdz", "\"a\xef\xbf\xbdz\"", "a\xef\xbf\xbdz"},
	{"cut", "\xe2\x82", "\xef\xbf\xbd\xef\xbf\xbd", "\"\xef\xbf\xbd\xef\xbf\xbd\"",
	 "\xef\xbf\xbd\xef\xbf\xbd"},
	{"overlong", "\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd", "\"\xef\xbf\xbd\xef\xbf\xbd\"",
	 "\xef\xbf\xbd\xef\xbf\xbd"},
	{"surrogate", "\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd",
	 "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
};

static void check_escape(const struct escaped *row, const char *what,
			 void (*escape)(struct text *text, const char *string), const char *want)
{
	struct text text = {0};

	text_put(&text, "", 0);
	escape(&text, row->in);
	unit_text(row->name, what, text.data, want);
	text_free(&text);
}

START_TEST(texts_are_escaped)
{
	const struct escaped *row = &escapes[_i];

	check_escape(row, "HTML", text_html, row->html);
	check_escape(row, "JSON", text_json, row->json);
	check_escape(row, "a line", text_plain, row->plain);
}
END_TEST

static const struct number {
	double number;
	const char *json;
} numbers[] = {
	{0, "0"},
	{1, "1"},
	{0.1, "0.1"},
	{1.0 / 3, "0.33333333333333331"},
	{-2.5e-300, "-2.5e-300"},
	{NAN, "null"},
	{INFINITY, "null"},
	{-INFINITY, "null"},
	{(double)0.1f, "0.10000000149011612"},
};

START_TEST(json_numbers_read_back_the_same)
{
	struct text text = {0};

	text_json_number(&text, numbers[_i].number);
	unit_text("number", "JSON", text.data, numbers[_i].json);
	if (isfinite(numbers[_i].number))
		ck_assert(strtod(text.data, NULL) == numbers[_i].number);
	text_free(&text);
}
END_TEST

START_TEST(numbers_are_shown)
{
	ck_assert_str_eq(show_count(0).text, "0");
	ck_assert_str_eq(show_count(999.4).text, "999");
	ck_assert_str_eq(show_count(1234567).text, "1,234,567");
	ck_assert_str_eq(show_count(-1234).text, "-1,234");
	ck_assert_str_eq(show_count(INFINITY).text, "inf");
	ck_assert_str_eq(show_loss(0.08123).text, "0.0812");
	ck_assert_str_eq(show_loss(0.00012345).text, "0.000123");
	ck_assert_str_eq(show_loss(123456).text, "1.23e+05");
	ck_assert_str_eq(show_loss(-NAN).text, "nan");
	ck_assert_str_eq(show_loss(INFINITY).text, "inf");
	ck_assert_str_eq(show_percent(0.9803).text, "98.03 %");
	ck_assert_str_eq(show_percent(NAN).text, "nan");
	ck_assert_str_eq(show_seconds(0.94).text, "0.9 s");
	ck_assert_str_eq(show_seconds(59.99).text, "1 min 00 s");
	ck_assert_str_eq(show_seconds(3599.6).text, "1 h 00 min");
	ck_assert_str_eq(show_seconds(90000).text, "1 d 1 h");
	ck_assert_str_eq(show_seconds(-1).text, "0.0 s");
	ck_assert_str_eq(show_clock(42).text, "0:42");
	ck_assert_str_eq(show_clock(3723).text, "1:02:03");
	ck_assert_str_eq(show_clock(NAN).text, "0:00");
	ck_assert_str_eq(show_bytes(82 << 20).text, "82 MiB");
	ck_assert_str_eq(show_bytes(UINT64_C(20) << 30).text, "20.0 GiB");
}
END_TEST

/* --- Curves ----------------------------------------------------------------------------- */

START_TEST(curve_keeps_mean_and_extremes_of_any_length)
{
	enum { ROOM = 16, MOST = 1000 };
	struct curve curve;

	for (int length = 1; length <= MOST; length += 37) {
		double sum = 0, low = INFINITY, high = -INFINITY;
		uint64_t count = 0;

		ck_assert_int_eq(curve_open(&curve, ROOM), 0);
		for (int i = 1; i <= length; i++)
			curve_add(&curve, i, i % 10 == 3 ? -i : i);
		ck_assert_uint_le(curve.used, ROOM);
		ck_assert_uint_ge(curve.used, length < ROOM ? (size_t)length : ROOM / 2);
		for (size_t i = 0; i < curve.used; i++) {
			sum += curve.points[i].mean * (double)curve.points[i].count;
			count += curve.points[i].count;
			low = fmin(low, curve.points[i].low);
			high = fmax(high, curve.points[i].high);
			ck_assert(i == 0 || curve.points[i].x > curve.points[i - 1].x);
		}
		for (int i = 1; i <= length; i++)
			sum -= i % 10 == 3 ? -i : i;
		ck_assert_uint_eq(count, (uint64_t)length);
		ck_assert_double_eq_tol(sum, 0, 1e-6);
		ck_assert(low == (length < 3 ? 1 : -(double)((length - 3) / 10 * 10 + 3)));
		ck_assert(high == length - (length % 10 == 3));
		curve_close(&curve);
	}
}
END_TEST

START_TEST(curve_has_gaps_where_nothing_is_finite)
{
	static const uint64_t counts[] = {2, 0, 1, 2};
	struct curve curve;

	ck_assert_int_eq(curve_open(&curve, 4), 0);
	ck_assert_ptr_null(curve_last(&curve));
	for (int i = 0; i < 8; i++)
		curve_add(&curve, i, i == 2 || i == 3 ? NAN : i == 4 ? INFINITY : 1);
	ck_assert_uint_eq(curve.used, 4);
	ck_assert(curve.bad == 2);
	for (size_t i = 0; i < 4; i++)
		ck_assert_uint_eq(curve.points[i].count, counts[i]);
	ck_assert_ptr_eq(curve_last(&curve), &curve.points[3]);
	curve_close(&curve);
}
END_TEST

/* --- Axes ------------------------------------------------------------------------------- */

static const struct scale {
	const char *name;
	void (*axis)(struct axis *axis, double low, double high);
	double low, high;
	const char *labels;
} scales[] = {
	{"loss", axis_loss, 0.5, 2.3, "0.0 0.5 1.0 1.5 2.0 2.5 "},
	{"loss, two decades", axis_loss, 0.02, 2.3, "0.02 0.05 0.1 0.2 0.5 1 2 "},
	{"loss, many decades", axis_loss, 1e-8, 1,
	 "1e-08 1e-07 1e-06 1e-05 0.0001 0.001 0.01 0.1 1 "},
	{"loss, one value", axis_loss, 0, 0, "0.0 0.2 0.4 0.6 0.8 1.0 "},
	{"loss below 0", axis_loss, -1, 1, "-1.0 -0.5 0.0 0.5 1.0 "},
	{"accuracy", axis_hits, 0.1, 0.93, "0 20 40 60 80 100 "},
	{"accuracy, good", axis_hits, 0.5, 0.992, "50 80 90 95 98 99 "},
	{"accuracy, good at once", axis_hits, 0.981, 0.992, "98.0 98.5 99.0 99.5 "},
	{"accuracy, all right", axis_hits, 0, 1, "0 80 95 99 99.8 99.95 99.99 99.999 "},
};

START_TEST(axes_have_round_ticks)
{
	const struct scale *row = &scales[_i];
	struct text labels = {0};
	struct axis axis;

	row->axis(&axis, row->low, row->high);
	for (int i = 0; i < axis.count; i++) {
		text_add(&labels, "%s ", axis.ticks[i].label);
		ck_assert(axis.ticks[i].place > -1e-9 && axis.ticks[i].place < 1 + 1e-9);
		ck_assert(i == 0 || axis.ticks[i].place - axis.ticks[i - 1].place > 0.08);
	}
	unit_text(row->name, "its ticks", labels.data, row->labels);
	ck_assert(axis_place(&axis, row->low) >= 0 && axis_place(&axis, row->low) <= 1);
	ck_assert(axis_place(&axis, row->high) >= 0 && axis_place(&axis, row->high) <= 1);
	ck_assert(row->low == row->high ||
		  axis_place(&axis, row->low) < axis_place(&axis, row->high));
	text_free(&labels);
}
END_TEST

START_TEST(axis_counts_epochs)
{
	struct axis axis;

	axis_whole(&axis, 0, 14 * 469, 469);
	ck_assert_int_eq(axis.count, 8);
	ck_assert_str_eq(axis.ticks[7].label, "14");
	axis_whole(&axis, 1000, 100000000, 1);
	ck_assert_str_eq(axis.ticks[0].label, "20,000,000");
	axis_round(&axis, 0, 366000, 1);
	ck_assert_str_eq(axis.ticks[axis.count - 1].label, "400k");
}
END_TEST

/* --- The fitted line -------------------------------------------------------------------- */

static struct meter meter_of(bool utf8, bool colour)
{
	return (struct meter){
		.fields = {[METER_EPOCH] = "epoch 2/14",
			   [METER_STEP] = "412/938",
			   [METER_LOSS] = "loss 0.0812",
			   [METER_LEFT] = "left 0:42",
			   [METER_SPEED] = "3,912 img/s",
			   [METER_HITS] = "acc 97.61 %",
			   [METER_SLOWEST] = "slowest n2:3 (+14 %)"},
		.done = 0.44,
		.utf8 = utf8,
		.colour = colour,
		.alarm = true,
	};
}

static const struct fit {
	size_t room;
	const char *line;
} fits[] = {
	{0, ""},
	{9, "412/938"},
	{10, "epoch 2/14"},
	{19, "epoch 2/14  412/938"},
	{32, "epoch 2/14  412/938  loss 0.0812"},
	{43, "epoch 2/14  412/938  loss 0.0812  left 0:42"},
	{79, "epoch 2/14  412/938  [==>   ]  3,912 img/s  loss 0.0812  acc 97.61 %  left 0:42"},
	{200, "epoch 2/14  412/938  [==========>             ]  3,912 img/s  loss 0.0812  "
	      "acc 97.61 %  left 0:42  slowest n2:3 (+14 %)"},
};

START_TEST(line_drops_what_matters_least)
{
	struct meter meter = meter_of(false, false);
	struct text text = {0};

	text_put(&text, "", 0);
	meter_compose(&meter, fits[_i].room, &text);
	unit_text("line", "in its room", text.data, fits[_i].line);
	text_free(&text);
}
END_TEST

START_TEST(line_is_as_wide_as_it_says)
{
	for (int style = 0; style < 2; style++)
		for (size_t room = 0; room < 150; room++) {
			struct meter meter = meter_of(style, false);
			struct text text = {0};
			size_t columns;

			text_put(&text, "", 0);
			columns = meter_compose(&meter, room, &text);
			ck_assert_uint_le(columns, room);
			ck_assert_uint_eq(columns, meter_columns(text.data));
			text_free(&text);
		}
}
END_TEST

START_TEST(line_does_not_tremble_and_warns_in_colour)
{
	struct meter meter = meter_of(true, true);
	struct text text = {0};

	meter_compose(&meter, 150, &text);
	ck_assert_ptr_nonnull(strstr(text.data, "\033[33mslowest n2:3 (+14 %)\033[0m"));
	ck_assert_ptr_nonnull(strstr(text.data, "\033[36m██████████▌"));
	text_clear(&text);
	snprintf(meter.fields[METER_SPEED], sizeof(meter.fields[0]), "912 img/s");
	meter_compose(&meter, 150, &text);
	ck_assert_ptr_nonnull(strstr(text.data, "▏    912 img/s  loss"));
	text_clear(&text);
	snprintf(meter.fields[METER_SLOWEST], sizeof(meter.fields[0]), "slowest n2:3 (+4 %%)");
	meter.alarm = false;
	meter_compose(&meter, 150, &text);
	ck_assert_ptr_nonnull(strstr(text.data, "left 0:42  slowest n2:3 (+4 %)"));
	text_free(&text);
}
END_TEST

static void fill(TCase *tcase)
{
	UNIT_ROWS(tcase, texts_are_escaped, escapes);
	UNIT_ROWS(tcase, json_numbers_read_back_the_same, numbers);
	tcase_add_test(tcase, numbers_are_shown);
	tcase_add_test(tcase, curve_keeps_mean_and_extremes_of_any_length);
	tcase_add_test(tcase, curve_has_gaps_where_nothing_is_finite);
	UNIT_ROWS(tcase, axes_have_round_ticks, scales);
	tcase_add_test(tcase, axis_counts_epochs);
	UNIT_ROWS(tcase, line_drops_what_matters_least, fits);
	tcase_add_test(tcase, line_is_as_wide_as_it_says);
	tcase_add_test(tcase, line_does_not_tremble_and_warns_in_colour);
}

int main(void)
{
	return unit_run("report_parts", fill);
}
