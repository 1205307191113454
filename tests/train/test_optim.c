/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_optim.c - equal results of every loop of the optimizers; learning rates at the ends of
 * schedules and in a warm-up
 *
 * interop/train-model.bats compares optimizers, their defaults and the schedules with PyTorch's.
 */
#include "config.h"

#include <math.h>

#include "optim/loop.h"
#include "unit.h"

/* --- All loops and lengths --------------------------------------------------------------- */

enum { MOST = 67, GUARD = 8, ALL = MOST + GUARD };

struct arrays {
	float values[ALL], gradients[ALL], first[ALL], second[ALL];
};

static const struct optim_numbers numbers = {
	.decay = 0.01f,
	.momentum = 0.9f,
	.nesterov = true,
	.shrink = 0.999f,
	.old_factor = {0.9f, 0.99f},
	.new_factor = {0.1f, 0.01f},
	.root = 0.3f,
	.epsilon = 1e-6f,
	.rate = -0.05f,
};

static optim_loop *loop_of(const struct optim_loops *loops, int number)
{
	optim_loop *const list[] = {loops->sgd, loops->momentum, loops->adamw, loops->adadelta};

	return list[number];
}

static void draw(float *to, uint64_t *state, bool positive)
{
	for (int i = 0; i < ALL; i++) {
		float size = (float)unit_random(state, 1 << 20) * 0x1p-18f;

		to[i] = positive || unit_random(state, 2) ? size : -size;
	}
}

static void draw_arrays(struct arrays *arrays, uint64_t seed)
{
	uint64_t state = seed;

	draw(arrays->values, &state, false);
	draw(arrays->gradients, &state, false);
	draw(arrays->first, &state, true);
	draw(arrays->second, &state, true);
}

static void run(optim_loop *loop, struct arrays *arrays, size_t from, size_t count)
{
	float *const slots[2] = {arrays->first + from, arrays->second + from};

	loop(&numbers, arrays->values + from, arrays->gradients + from, slots, count);
}

/* Results of vector loops equal those of single elements, and nothing is written beyond the end. */
TEST(test_lengths)
{
	struct arrays whole, pieces, before;
	enum ddp_simd best;

	ck_assert_int_eq(ddp_simd_choose(&best, NULL), 0);
	for (int simd = 0; simd <= (int)best; simd++)
		for (int number = 0; number < 4; number++) {
			for (size_t count = 0; count <= MOST; count++) {
				draw_arrays(&before, 77 + count);
				whole = pieces = before;
				run(loop_of(optim_loops[simd], number), &whole, 0, count);
				for (size_t i = 0; i < count; i++)
					run(loop_of(&optim_plain, number), &pieces, i, 1);
				ck_assert_msg(memcmp(&whole, &pieces, sizeof(whole)) == 0,
					      "loop %d of %s, %zu elements", number,
					      ddp_simd_name((enum ddp_simd)simd), count);
				ck_assert_mem_eq(whole.values + count, before.values + count,
						 (ALL - count) * sizeof(float));
				ck_assert(count == 0 || whole.values[0] != before.values[0]);
			}
		}
}

/* The gaps between parameters are zero, and must remain zero. */
TEST_LOOP(test_zeros, 0, OPTIM_KINDS)
{
	static const struct arrays zeros;
	struct arrays arrays = zeros;
	float *const slots[2] = {arrays.first, arrays.second};
	struct optim optim = optim_default((enum optim_kind)_i);

	optim.momentum = 0.9;
	for (uint64_t step = 1; step <= 20; step++)
		optim_step(&optim, step, 0.5, arrays.values, arrays.gradients, slots, ALL);
	for (int i = 0; i < ALL; i++)
		ck_assert(arrays.values[i] == 0 && arrays.first[i] == 0 && arrays.second[i] == 0);
}

/* --- Learning rates --------------------------------------------------------------------------- */

static const struct schedule never = {SCHEDULE_STEP, 0.8, 0.5, 0, 30, 0};
static const struct schedule cosine = {SCHEDULE_COSINE, 0.2, 0, 0, 30, 0};
static const struct schedule endless = {SCHEDULE_COSINE, 0.2, 0, 0, 0, 0};
static const struct schedule rising = {SCHEDULE_CONSTANT, 1.0, 0, 0, 0, 2.5};
static const struct schedule stepping = {SCHEDULE_STEP, 1.0, 0.5, 1, 0, 2};

/* Rates that are exact in binary, except in a warm-up. */
static const struct {
	const char *name;
	const struct schedule *schedule;
	unsigned epoch;
	uint64_t step, steps;
	double rate;
} learning[] = {
	{"every 0", &never, 9, 0, 10, 0.8},
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

TEST_ROWS(test_rate, learning)
{
	double rate = schedule_rate(learning[_i].schedule, learning[_i].epoch, learning[_i].step,
				    learning[_i].steps);
	double slack = learning[_i].schedule->kind == SCHEDULE_COSINE ? 1e-15 : 0;

	if (learning[_i].schedule->warmup > 0)
		slack = 1e-15;
	ck_assert_msg(fabs(rate - learning[_i].rate) <= slack, "%s: %a", learning[_i].name, rate);
}

UNIT_MAIN("optim", NULL)
