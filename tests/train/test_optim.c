/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers: PyTorch's numbers, and the same ones from every loop; learning rates */
#include "config.h"

#include <math.h>

#include "optim/loop.h"
#include "unit.h"

/* --- PyTorch's numbers ------------------------------------------------------------------- */

enum { ELEMENTS = 5, STEPS = 3 };

static const float begin[ELEMENTS] = {1.0f, -0.5f, 0.25f, 3.0f, -2.0f};
static const float gradients[STEPS][ELEMENTS] = {
	{0.5f, -0.25f, 0, 1e-3f, 7},
	{-0.125f, 0.75f, 0, -2e-3f, -9},
	{0.3f, 0.1f, 0, 1e-4f, 3},
};
static const double rates[STEPS] = {0.1, 0.07, 0.049};

/* After three steps, from PyTorch 1.13.1 with AVX2. */
static const struct {
	struct optim optim;
	float values[ELEMENTS], slots[2][ELEMENTS];
} golden[] = {
	{{.kind = OPTIM_SGD, .decay = 5e-4},
	 {0x1.e34c88p-1f, -0x1.108f96p-1f, 0x1.fff1a6p-3f, 0x1.7ff662p+1f, -0x1.1bbe9ep+1f},
	 {{0}}},
	{{.kind = OPTIM_SGD, .decay = 5e-4, .momentum = 0.9},
	 {0x1.cbcbccp-1f, -0x1.145528p-1f, 0x1.ffe806p-3f, 0x1.7feeb2p+1f, -0x1.44edf4p+1f},
	 {{0x1.30060ap-1f, 0x1.24c6a2p-1f, 0x1.632f18p-12f, 0x1.a01d4cp-9f, 0x1.222908p-1f}}},
	{{.kind = OPTIM_SGD, .decay = 5e-4, .momentum = 0.9, .nesterov = true},
	 {0x1.b45192p-1f, -0x1.22dc5ep-1f, 0x1.ffdc14p-3f, 0x1.7fe6d2p+1f, -0x1.59c5dp+1f},
	 {{0x1.300128p-1f, 0x1.24c63cp-1f, 0x1.632b46p-12f, 0x1.a016ecp-9f, 0x1.2202a8p-1f}}},
	{{.kind = OPTIM_ADAMW, .decay = 0.01, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8},
	 {0x1.aafcf6p-1f, -0x1.d30c52p-2f, 0x1.fee128p-3f, 0x1.773f6ap+1f, -0x1.0ad706p+1f},
	 {{0x1.e56042p-5f, 0x1.d4fdf4p-5f, 0, -0x1.754b06p-14f, 0x1.d2f1acp-5f},
	  {0x1.745c06p-12f, 0x1.4c9p-11f, 0, 0x1.57df54p-28f, 0x1.1c4e38p-3f}}},
	{{.kind = OPTIM_ADADELTA, .rho = 0.9, .epsilon = 1e-6},
	 {0x1.ffd154p-1f, -0x1.0002ep-1f, 0x1p-2f, 0x1.8000a4p+1f, -0x1.000492p+1f},
	 {{0x1.f645a2p-6f, 0x1.d0624cp-5f, 0, 0x1.da980ap-22f, 0x1.851686p+3f},
	  {0x1.98c1a8p-20f, 0x1.511c04p-19f, 0, 0x1.6b1a1ap-22f, 0x1.28e23cp-19f}}},
};

static void check_row(int row, const char *what, const float *got, const float *want)
{
	for (int i = 0; i < ELEMENTS; i++)
		ck_assert_msg(got[i] == want[i], "row %d, %s[%d]: %a, want %a", row, what, i,
			      (double)got[i], (double)want[i]);
}

TEST_ROWS(test_golden, golden)
{
	float values[ELEMENTS], first[ELEMENTS] = {0}, second[ELEMENTS] = {0};
	float *const slots[2] = {first, second};

	memcpy(values, begin, sizeof(values));
	for (uint64_t step = 0; step < STEPS; step++)
		optim_step(&golden[_i].optim, step + 1, rates[step], values, gradients[step], slots,
			   ELEMENTS);
	check_row(_i, "values", values, golden[_i].values);
	check_row(_i, "slot 0", first, golden[_i].slots[0]);
	check_row(_i, "slot 1", second, golden[_i].slots[1]);
}

TEST(test_slots)
{
	static const struct {
		struct optim optim;
		int slots;
	} rows[] = {
		{{.kind = OPTIM_SGD}, 0},
		{{.kind = OPTIM_SGD, .momentum = 0.9}, 1},
		{{.kind = OPTIM_ADAMW}, 2},
		{{.kind = OPTIM_ADADELTA}, 2},
	};

	for (int i = 0; i < ROWS(rows); i++)
		ck_assert_int_eq(optim_slots(&rows[i].optim), rows[i].slots);
}

/* The numbers of torch.optim's signatures. */
TEST(test_defaults)
{
	struct optim sgd = optim_default(OPTIM_SGD), adamw = optim_default(OPTIM_ADAMW);
	struct optim adadelta = optim_default(OPTIM_ADADELTA);

	ck_assert(sgd.kind == OPTIM_SGD && sgd.decay == 0 && sgd.momentum == 0 && !sgd.nesterov);
	ck_assert(adamw.kind == OPTIM_ADAMW && adamw.decay == 0.01 && adamw.epsilon == 1e-8);
	ck_assert(adamw.beta1 == 0.9 && adamw.beta2 == 0.999);
	ck_assert(adadelta.kind == OPTIM_ADADELTA && adadelta.decay == 0);
	ck_assert(adadelta.rho == 0.9 && adadelta.epsilon == 1e-6);
	for (int kind = 0; kind < OPTIM_KINDS; kind++)
		ck_assert_ptr_nonnull(optim_names()[kind]);
	ck_assert_ptr_null(optim_names()[OPTIM_KINDS]);
}

/* --- Every loop, every length ------------------------------------------------------------ */

enum { MOST = 67, GUARD = 8, ALL = MOST + GUARD };

struct arrays {
	float values[ALL], gradients[ALL], first[ALL], second[ALL];
};

static const struct optim_numbers numbers = {
	.decay = 0.01f,
	.momentum = 0.9f,
	.nesterov = true,
	.shrink = 0.999f,
	.keep = {0.9f, 0.99f},
	.take = {0.1f, 0.01f},
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

/* Vectors against single elements, which the plain loops take one by one; nothing beyond. */
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

/* The gaps between views are such elements. */
TEST_ROWS(test_zeros, golden)
{
	static const struct arrays zeros;
	struct arrays arrays = zeros;
	float *const slots[2] = {arrays.first, arrays.second};
	struct optim optim = golden[_i].optim;

	for (uint64_t step = 1; step <= 20; step++)
		optim_step(&optim, step, 0.5, arrays.values, arrays.gradients, slots, ALL);
	for (int i = 0; i < ALL; i++)
		ck_assert(arrays.values[i] == 0 && arrays.first[i] == 0 && arrays.second[i] == 0);
}

/* --- Learning rates, step by step ------------------------------------------------------------- */

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
} learning[] = {
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

TEST_ROWS(test_rate, learning)
{
	double rate = schedule_rate(learning[_i].schedule, learning[_i].epoch, learning[_i].step,
				    learning[_i].steps);
	double slack = learning[_i].schedule->kind == SCHEDULE_COSINE ? 1e-15 : 0;

	if (learning[_i].schedule->warmup > 0)
		slack = 1e-15;
	ck_assert_msg(fabs(rate - learning[_i].rate) <= slack, "%s: %a", learning[_i].name, rate);
}

TEST(test_names)
{
	unit_text("0", "name", schedule_names()[SCHEDULE_CONSTANT], "constant");
	unit_text("1", "name", schedule_names()[SCHEDULE_STEP], "step");
	unit_text("2", "name", schedule_names()[SCHEDULE_COSINE], "cosine");
	ck_assert_ptr_null(schedule_names()[SCHEDULE_KINDS]);
}

UNIT_MAIN("optim", NULL)
