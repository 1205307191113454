/* SPDX-License-Identifier: Apache-2.0 */
/* Learning rates, step by step */
#include "config.h"

#include <math.h>

#include "optim/optim.h"
#include "unit.h"

static const struct schedule constant = {SCHEDULE_CONSTANT, 0.3, 0, 0, 0, 0};
static const struct schedule mnist = {SCHEDULE_STEP, 1.0, 0.7, 1, 14, 0};
static const struct schedule thirds = {SCHEDULE_STEP, 0.8, 0.5, 3, 30, 0};
static const struct schedule never = {SCHEDULE_STEP, 0.8, 0.5, 0, 30, 0};
static const struct schedule cosine = {SCHEDULE_COSINE, 0.2, 0, 0, 30, 0};
static const struct schedule endless = {SCHEDULE_COSINE, 0.2, 0, 0, 0, 0};
static const struct schedule rising = {SCHEDULE_CONSTANT, 1.0, 0, 0, 0, 2.5};
static const struct schedule stepping = {SCHEDULE_STEP, 1.0, 0.5, 1, 0, 2};

/* Rates that are exact in binary, or PyTorch's to the bit. */
static const struct {
	const char *name;
	const struct schedule *schedule;
	unsigned epoch;
	uint64_t step, steps;
	double rate;
} rows[] = {
	{"constant", &constant, 0, 0, 10, 0.3},
	{"constant, later", &constant, 99, 3, 10, 0.3},
	{"mnist, first", &mnist, 0, 937, 938, 1.0},
	{"mnist, second", &mnist, 1, 0, 938, 0.7},
	/* A product; a power is another number. */
	{"mnist, seventh", &mnist, 6, 0, 938, 0x1.e1e3eaf6837f4p-4},
	{"mnist, last", &mnist, 13, 0, 938, 0x1.3d7c648d4f70cp-7},
	{"every third, 2", &thirds, 2, 9, 10, 0.8},
	{"every third, 3", &thirds, 3, 0, 10, 0.4},
	{"every third, 8", &thirds, 8, 9, 10, 0.2},
	{"every third, 9", &thirds, 9, 0, 10, 0.1},
	{"every 0", &never, 9, 0, 10, 0.8},
	{"cosine, begin", &cosine, 0, 5, 10, 0.2},
	{"cosine, a third", &cosine, 10, 0, 10, 0.15},
	{"cosine, half", &cosine, 15, 0, 10, 0.1},
	{"cosine, end", &cosine, 30, 0, 10, 0},
	{"cosine without end", &endless, 30, 0, 10, 0.2},
	{"warm-up, first step", &rising, 0, 0, 4, 0.1},
	{"warm-up, end of epoch", &rising, 0, 3, 4, 0.4},
	{"warm-up, third epoch", &rising, 2, 0, 4, 0.9},
	{"warm-up, its last step", &rising, 2, 1, 4, 1},
	{"warm-up, after it", &rising, 2, 2, 4, 1},
	{"warm-up of a step schedule", &stepping, 1, 1, 4, 0.375},
	{"after that", &stepping, 2, 0, 4, 0.25},
};

START_TEST(test_rate)
{
	double rate =
		schedule_rate(rows[_i].schedule, rows[_i].epoch, rows[_i].step, rows[_i].steps);
	double slack = rows[_i].schedule->kind == SCHEDULE_COSINE ? 1e-15 : 0;

	if (rows[_i].schedule->warmup > 0)
		slack = 1e-15;
	ck_assert_msg(fabs(rate - rows[_i].rate) <= slack, "%s: %a", rows[_i].name, rate);
}
END_TEST

START_TEST(test_names)
{
	unit_text("0", "name", schedule_names()[SCHEDULE_CONSTANT], "constant");
	unit_text("1", "name", schedule_names()[SCHEDULE_STEP], "step");
	unit_text("2", "name", schedule_names()[SCHEDULE_COSINE], "cosine");
	ck_assert_ptr_null(schedule_names()[SCHEDULE_KINDS]);
}
END_TEST

static void fill(TCase *tcase)
{
	UNIT_ROWS(tcase, test_rate, rows);
	tcase_add_test(tcase, test_names);
}

int main(void)
{
	return unit_run("schedule", fill);
}
