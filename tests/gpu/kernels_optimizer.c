/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a step on the device against the CPU's: optim_step(), ddp_scaler_unscale() and _update(),
 * clipping. To the bit.
 */
#include "arrays.h"
#include "gradient/norm.h"
#include "optim/loop.h"

enum { MOST = 5000, MARGIN = 8 }; /* elements of an array; of these in front, for unaligned ones */

/* -1 to 1, times 2^-8 to 2^7; some are 0. */
static float random_value(void)
{
	uint32_t bits = draw(&arrays_seed, 1 << 16);
	float value = (float)draw(&arrays_seed, 1 << 25) * 0x1p-24f - 1;

	return bits % 32 == 0 ? 0 : ldexpf(value, (int)(bits >> 8 & 15) - 8);
}

/* --- Both sides ---------------------------------------------------------------------------- */

enum part { VALUES, GRADIENTS, FIRST, SECOND, ARRAYS };

/* What a test works on, on the host as it shall be, and on the device. */
struct bench {
	struct optim optim;
	size_t count;
	enum ddp_type type;
	struct ddp_scaler scaler;
	double clip;
	uint64_t updates;
	float arrays[ARRAYS][MOST];

	void *memory[ARRAYS], *narrow_memory;
	struct kernel_scratch scratch;
	float *device[ARRAYS];
	void *narrow;
	struct kernel_order *order;
	struct kernel_state *state;
	struct kernel_norm2 *norm2;
	float *divisor;
};

static struct bench bench;

static void open_bench(void)
{
	for (int a = 0; a < ARRAYS; a++)
		bench.memory[a] = bytes_make((MOST + 2 * MARGIN) * sizeof(float), NULL);
	bench.narrow_memory = bytes_make((MOST + 2 * MARGIN) * sizeof(float), NULL);
	bench.scratch = scratch_make(kernel_norm2_bytes(MOST));
	bench.order = bytes_make(sizeof(*bench.order), NULL);
	bench.state = bytes_make(sizeof(*bench.state), NULL);
	bench.norm2 = bytes_make(sizeof(*bench.norm2), NULL);
	bench.divisor = bytes_make(sizeof(*bench.divisor), NULL);
}

static void set_state(void)
{
	struct kernel_state state = {.scale = bench.scaler.scale,
				     .growth = bench.scaler.growth,
				     .backoff = bench.scaler.backoff,
				     .interval = bench.scaler.interval,
				     .good_steps = bench.scaler.good_steps,
				     .updates = 77};

	bytes_fetch(bench.state, &state, sizeof(state));
}

/* Values of before the first step; arrays begin [offset] elements behind an aligned place. */
static void begin(const struct optim *optim, size_t count, size_t offset, enum ddp_type type)
{
	float margin[MOST + 2 * MARGIN];

	for (size_t i = 0; i < MOST + 2 * MARGIN; i++)
		margin[i] = -77;
	bench.optim = *optim;
	bench.count = count;
	bench.type = type;
	bench.scaler = (struct ddp_scaler){1, 2, 0.5, 0, 0};
	bench.clip = 0;
	bench.updates = 0;
	memset(bench.arrays, 0, sizeof(bench.arrays));
	for (size_t i = 0; i < count; i++)
		bench.arrays[VALUES][i] = random_value();
	for (int a = 0; a < ARRAYS; a++) {
		bench.device[a] = (float *)bench.memory[a] + MARGIN + offset;
		bytes_fetch(bench.memory[a], margin, sizeof(margin));
		bytes_fetch(bench.device[a], bench.arrays[a], count * sizeof(float));
	}
	bench.narrow = (char *)bench.narrow_memory + (MARGIN + offset) * ddp_type_size(type);
	bytes_fetch(bench.narrow_memory, margin, sizeof(margin));
	set_state();
}

/* --- A step, as the CPU does it ------------------------------------------------------------ */

static void host_step(uint64_t step, double rate)
{
	float *slots[2] = {bench.arrays[FIRST], bench.arrays[SECOND]};
	bool overflow = false;

	if (bench.scaler.interval > 0) {
		overflow = ddp_scaler_unscale(&bench.scaler, bench.arrays[GRADIENTS], bench.count);
		ddp_scaler_update(&bench.scaler, overflow);
	}
	bench.updates = step - overflow;
	if (overflow)
		return;
	if (bench.clip > 0)
		ddp_scale(bench.arrays[GRADIENTS], DDP_F32, bench.count,
			  ddp_clip_factor(ddp_norm(bench.arrays[GRADIENTS], DDP_F32, bench.count),
					  bench.clip));
	optim_step(&bench.optim, step, rate, bench.arrays[VALUES], bench.arrays[GRADIENTS], slots,
		   bench.count);
}

/* --- And the device ------------------------------------------------------------------------ */

static void device_step(uint64_t step, double rate, bool anew, uint64_t first)
{
	struct kernel_order order = {.step = step, .rate = rate, .anew = anew, .first = first};
	struct ddp_error error = {0, ""};
	bool wanted = bench.scaler.interval > 0 || bench.clip > 0;

	for (size_t i = 0; i < KERNEL_AHEAD; i++) {
		struct optim_numbers numbers = optim_numbers_of(&bench.optim, first + i, rate);

		order.paces[i] = (struct kernel_pace){numbers.rate, numbers.root, numbers.shrink};
	}
	bytes_fetch(bench.order, &order, sizeof(order));
	if (wanted)
		kernel_norm2(arrays_stream, bench.device[GRADIENTS], bench.count, bench.state,
			     &bench.scratch, bench.norm2);
	kernel_advance(arrays_stream, bench.order, bench.state, wanted ? bench.norm2 : NULL,
		       bench.divisor);
	kernel_optimize(arrays_stream, &bench.optim, bench.order, bench.state,
			wanted ? bench.norm2 : NULL, bench.divisor, bench.clip,
			bench.device[VALUES], bench.device[GRADIENTS], &bench.device[FIRST],
			bench.narrow, bench.count, bench.type);
	arrays_check(device_check(arrays_device, "a step", &error), &error);
}

static void new_gradients(float scale)
{
	for (size_t i = 0; i < bench.count; i++)
		bench.arrays[GRADIENTS][i] = random_value() * scale;
}

/* Step [step] on both sides; [first]: the first step that the order has a pace for. */
static void both(uint64_t step, double rate, bool anew, uint64_t first)
{
	bytes_fetch(bench.device[GRADIENTS], bench.arrays[GRADIENTS], bench.count * sizeof(float));
	device_step(step, rate, anew, first);
	host_step(anew ? step : bench.updates + 1, rate);
}

/* --- Comparing ----------------------------------------------------------------------------- */

static bool narrow_is(const void *narrow, size_t i, float value)
{
	uint16_t bits;

	if (bench.type == DDP_F32)
		return memcmp((const float *)narrow + i, &value, sizeof(value)) == 0;
	memcpy(&bits, (const uint16_t *)narrow + i, sizeof(bits));
	return bits == bits16((float)rounded((double)value, bench.type), bench.type);
}

static bool same_narrow(void)
{
	static char got[(MOST + 2 * MARGIN) * sizeof(float)];
	size_t size = ddp_type_size(bench.type);
	static const float margin = -77;
	ptrdiff_t offset = (char *)bench.narrow - (char *)bench.narrow_memory;

	bytes_fetch(got, bench.narrow_memory, sizeof(got));
	for (size_t i = 0; i < bench.count; i++) {
		if (!narrow_is(got + offset, i, bench.arrays[VALUES][i])) {
			printf("# narrow copy, element %zu\n", i);
			return false;
		}
	}
	/* What was written in 4 bytes each. */
	return offset < 4 || size > 4 ||
	       memcmp(got + (offset & ~3) - 4, &margin, sizeof(margin)) == 0;
}

/* The array, and what is beside it. */
static bool same_array(enum part a)
{
	static float got[MOST + 2 * MARGIN];
	size_t first = (size_t)(bench.device[a] - (float *)bench.memory[a]);

	bytes_fetch(got, bench.memory[a], sizeof(got));
	for (size_t i = 0; i < MOST + 2 * MARGIN; i++) {
		bool inside = i >= first && i < first + bench.count;
		float want = inside ? bench.arrays[a][i - first] : -77;

		if (memcmp(&got[i], &want, sizeof(want)) != 0) {
			printf("# array %d, element %zd: %a, want %a\n", (int)a,
			       (ptrdiff_t)(i - first), (double)got[i], (double)want);
			return false;
		}
	}
	return true;
}

static bool same_arrays(void)
{
	return same_array(VALUES) && same_array(FIRST) && same_array(SECOND);
}

static bool same_state(void)
{
	struct kernel_state state;

	bytes_fetch(&state, bench.state, sizeof(state));
	if (state.scale == bench.scaler.scale && state.good_steps == bench.scaler.good_steps &&
	    state.updates == bench.updates)
		return true;
	printf("# scale %a, good steps %d, updates %llu; want %a, %d, %llu\n", (double)state.scale,
	       state.good_steps, (unsigned long long)state.updates, (double)bench.scaler.scale,
	       bench.scaler.good_steps, (unsigned long long)bench.updates);
	return false;
}

/* --- Tests --------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	struct optim optim;
} rules[] = {
	{"sgd", {.kind = OPTIM_SGD}},
	{"sgd with decay", {.kind = OPTIM_SGD, .decay = 5e-4}},
	{"momentum", {.kind = OPTIM_SGD, .momentum = 0.9}},
	{"momentum with decay", {.kind = OPTIM_SGD, .momentum = 0.9, .decay = 5e-4}},
	{"nesterov", {.kind = OPTIM_SGD, .momentum = 0.9, .nesterov = true, .decay = 5e-4}},
	{"adamw",
	 {.kind = OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .decay = 0.01, .epsilon = 1e-8}},
	{"adamw without decay",
	 {.kind = OPTIM_ADAMW, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-6}},
	{"adadelta", {.kind = OPTIM_ADADELTA, .rho = 0.9, .epsilon = 1e-6}},
	{"adadelta with decay",
	 {.kind = OPTIM_ADADELTA, .rho = 0.95, .epsilon = 1e-6, .decay = 1e-3}},
};
enum { RULES = sizeof(rules) / sizeof(rules[0]) };

/* Every rule with every type, at sizes and places that leave tails. */
static void test_rules(void)
{
	static const struct {
		size_t count, offset;
	} places[] = {{1, 0}, {3, 0}, {4, 0}, {1027, 0}, {1024, 1}, {517, 2}, {MOST - 8, 3}};

	for (size_t r = 0; r < RULES; r++) {
		bool good = true;

		for (size_t p = 0; p < sizeof(places) / sizeof(places[0]); p++) {
			begin(&rules[r].optim, places[p].count, places[p].offset,
			      arrays_types[(r + p) % 3]);
			for (uint64_t step = 1; step <= 3; step++) {
				new_gradients(1);
				both(step, 0.1 / (double)step, step == 1, 1);
			}
			if (!same_arrays() || !same_narrow() || !same_state()) {
				printf("# %zu elements at %zu, %s\n", places[p].count,
				       places[p].offset, arrays_name(bench.type));
				good = false;
			}
		}
		ok(good, "%s: as optim_step()", rules[r].name);
	}
}

/* Bias corrections: the host's pow(), whatever step it is. */
static void test_many_steps(void)
{
	for (size_t r = 5; r < 7; r++) {
		bool good = true;

		begin(&rules[r].optim, 5, 0, DDP_BF16);
		for (uint64_t step = 1; step <= 200; step++) {
			new_gradients(1);
			/* The step is somewhere among those that the order tells of. */
			both(step, 1e-3, step == 1,
			     step > step % KERNEL_AHEAD ? step - step % KERNEL_AHEAD : 1);
			good = good && same_arrays();
		}
		ok(good && same_state() && same_narrow(), "%s: 200 steps", rules[r].name);
	}
}

static void test_scaling(const char *what, double clip)
{
	static const float odd[] = {INFINITY, NAN, -INFINITY};
	bool good = true;

	for (size_t r = 0; r < RULES; r++) {
		begin(&rules[r].optim, 1021, r % 2, arrays_types[r % 3]);
		bench.scaler = (struct ddp_scaler){8, 2, 0.5, 3, 1};
		bench.clip = clip;
		set_state();
		for (uint64_t turn = 1; turn <= 12; turn++) {
			new_gradients(bench.scaler.scale);
			/* Overflows: one at the last element, two in a row, and the very first step. */
			if (turn == 1 || turn == 6 || turn == 7)
				bench.arrays[GRADIENTS][turn == 6 ? 1020 : 5 * turn] =
					odd[turn % 3];
			both(turn, 0.01, turn == 1, turn == 1 ? 1 : bench.updates + 1);
			good = good && same_arrays() && same_state() &&
			       (turn == 1 || same_narrow());
		}
		good = good && bench.updates == 9;
	}
	ok(good, "overflows are skipped, the scale moves as ddp_scaler_update()'s%s", what);
}

static void test_clipping(void)
{
	static const double limits[] = {1e-3, 1, 1e6};
	bool good = true;

	for (size_t i = 0; i < 3; i++) {
		begin(&rules[2].optim, 4003, i, DDP_F32);
		bench.clip = limits[i];
		for (uint64_t step = 1; step <= 2; step++) {
			new_gradients(1);
			both(step, 0.1, step == 1, 1);
		}
		good = good && same_arrays() && same_state();
	}
	ok(good, "gradients are clipped as by ddp_gradients_clip()");
	begin(&rules[0].optim, 9, 0, DDP_F32);
	bench.clip = 1;
	new_gradients(1);
	bench.arrays[GRADIENTS][4] = NAN;
	both(1, 0.1, true, 1);
	bytes_fetch(bench.arrays[GRADIENTS], bench.device[VALUES], 9 * sizeof(float));
	good = true;
	for (size_t i = 0; i < 9; i++)
		good = good && isnan(bench.arrays[GRADIENTS][i]);
	ok(good && same_state(), "without a loss scale a broken gradient is not hidden");
}

/* After a push the count is the host's; and a step that is skipped then is done again. */
static void test_anew(void)
{
	bool good;

	begin(&rules[5].optim, 33, 0, DDP_F16);
	bench.scaler = (struct ddp_scaler){1024, 2, 0.5, 2000, 0};
	set_state();
	new_gradients(1024);
	both(100, 1e-3, true, 100);
	good = same_arrays() && same_state() && bench.updates == 100;
	new_gradients(1024);
	bench.arrays[GRADIENTS][0] = INFINITY;
	both(40, 1e-3, true, 40);
	good = good && same_arrays() && same_state() && bench.updates == 39;
	new_gradients(512);
	both(41, 1e-3, false, 40);
	ok(good && same_arrays() && same_state() && bench.updates == 40,
	   "a step anew has the number that it is given");
}

int main(void)
{
	if (!arrays_begin("the end of a step"))
		return tap_failed ? tap_end() : EXIT_SUCCESS;
	open_bench();
	test_rules();
	test_many_steps();
	test_scaling("", 0);
	test_scaling(", with clipping", 0.5);
	test_clipping();
	test_anew();
	return arrays_end();
}
