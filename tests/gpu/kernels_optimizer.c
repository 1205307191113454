/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a step on the device against the CPU's: optim_step(), ddp_scaler_unscale() and _update(),
 * clipping. To the bit. And what it leaves for the next step, and for the host.
 */
#include "arrays.h"
#include "gradient/statistics.h"
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
	uint64_t updates, sequence;
	bool overflow;
	float arrays[ARRAYS][MOST];

	void *memory[ARRAYS], *narrow_memory, *halves_memory;
	struct kernel_scratch scratch;
	float *device[ARRAYS];
	void *narrow;
	uint32_t marks[MOST / KERNEL_UNIT / 32 + 1];
	struct kernel_gradients gradients;
	struct kernel_step *step;
	struct kernel_entry *rest; /* what comes behind the step */
	struct kernel_norm2 *norm2;
	float *word;
	struct kernel_result *results; /* of the host */
};

static struct bench bench;

static const float word[KERNEL_WORD] = {1, 2.5f, 3, 8};
static const struct kernel_entry behind = {
	.rate = 0.75, .shrink = 0.5f, .share = 0.0625f, .count = 9};

static void open_bench(void)
{
	struct ddp_error error = {0, ""};
	void *results = NULL;

	for (int a = 0; a < ARRAYS; a++)
		bench.memory[a] = bytes_make((MOST + 2 * MARGIN) * sizeof(float), NULL);
	bench.narrow_memory = bytes_make((MOST + 2 * MARGIN) * sizeof(float), NULL);
	bench.halves_memory = bytes_make((MOST + 2 * MARGIN) * sizeof(uint16_t), NULL);
	bench.gradients.marks = bytes_make(sizeof(bench.marks), NULL);
	bench.scratch = scratch_make(kernel_norm2_bytes(MOST));
	bench.step = bytes_make(sizeof(*bench.step), NULL);
	bench.rest = bytes_make(sizeof(behind), &behind);
	bench.norm2 = bytes_make(sizeof(*bench.norm2), NULL);
	bench.word = bytes_make(sizeof(word), word);
	arrays_check(device_alloc_host(arrays_device, &results,
				       KERNEL_SLOTS * sizeof(*bench.results), "a test", &error),
		     &error);
	bench.results = memset(results, 0, KERNEL_SLOTS * sizeof(*bench.results));
}

static void set_state(void)
{
	struct kernel_state state = {.scale = bench.scaler.scale,
				     .growth = bench.scaler.growth,
				     .backoff = bench.scaler.backoff,
				     .interval = bench.scaler.interval,
				     .good_steps = bench.scaler.good_steps,
				     .updates = bench.updates};

	bytes_fetch(&bench.step->next.state, &state, sizeof(state));
}

/* Values of before the first step. */
static void begin(const struct optim *optim, size_t count, enum ddp_type type)
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
		bench.device[a] = (float *)bench.memory[a] + MARGIN;
		bytes_fetch(bench.memory[a], margin, sizeof(margin));
		bytes_fetch(bench.device[a], bench.arrays[a], count * sizeof(float));
	}
	bench.narrow = (char *)bench.narrow_memory + MARGIN * ddp_type_size(type);
	bytes_fetch(bench.narrow_memory, margin, sizeof(margin));
	bench.gradients.wide = bench.device[GRADIENTS];
	bench.gradients.narrow = (uint16_t *)bench.halves_memory + MARGIN;
	for (int i = 0; i < ROWS(bench.marks); i++)
		bench.marks[i] = type == DDP_F32 ? 0 : draw(&arrays_seed, UINT32_MAX);
	bytes_fetch((void *)bench.gradients.marks, bench.marks, sizeof(bench.marks));
	set_state();
}

/* --- A step, as the CPU does it ------------------------------------------------------------ */

static void host_step(uint64_t step, double rate)
{
	float *slots[2] = {bench.arrays[FIRST], bench.arrays[SECOND]};
	bool overflow = false;

	bench.overflow = false;
	if (bench.scaler.interval > 0) {
		overflow = ddp_scaler_unscale(&bench.scaler, bench.arrays[GRADIENTS], bench.count);
		ddp_scaler_update(&bench.scaler, overflow);
	}
	bench.overflow = overflow;
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

/* As kernel_gather() makes it: what the last step left, and the numbers of this one. */
static void begin_step(uint64_t step, double rate)
{
	struct optim_numbers numbers = optim_numbers_of(&bench.optim, step, rate);
	struct kernel_step now;

	bytes_fetch(&now, bench.step, sizeof(now));
	now.order = (struct kernel_order){.pace = {numbers.rate, numbers.root, numbers.shrink}};
	now.state = now.next.state;
	now.next.seed = 5;
	now.next.sequence = ++bench.sequence;
	now.next.entry = (struct kernel_entry){.count = 7};
	now.next.indices = (const uint32_t *)bench.scratch.memory;
	now.next.places = (const uint64_t *)bench.scratch.memory;
	now.next.rest = bench.rest;
	bytes_fetch(bench.step, &now, sizeof(now));
}

static void device_step(uint64_t step, double rate)
{
	struct ddp_error error = {0, ""};
	bool wanted = bench.scaler.interval > 0 || bench.clip > 0;
	struct kernel_end end = {bench.step, wanted ? bench.norm2 : NULL, bench.clip, bench.word,
				 bench.results};

	begin_step(step, rate);
	if (wanted)
		kernel_norm2(arrays_stream, &bench.gradients, bench.count, &bench.step->state,
			     &bench.scratch, bench.norm2, bench.type);
	kernel_optimize(arrays_stream, &bench.optim, &end, bench.device[VALUES], &bench.gradients,
			&bench.device[FIRST], bench.narrow, bench.count, bench.type);
	arrays_check(device_check(arrays_device, "a step", &error), &error);
}

static void new_gradients(float scale)
{
	for (size_t i = 0; i < bench.count; i++)
		bench.arrays[GRADIENTS][i] = random_value() * scale;
}

/* To where they are read: in the other place there is something else. */
static void send_gradients(void)
{
	static float wide[MOST];
	static uint16_t narrow[MOST];

	for (size_t i = 0; i < bench.count; i++) {
		size_t unit = i / KERNEL_UNIT;
		float *value = &bench.arrays[GRADIENTS][i];

		wide[i] = *value;
		narrow[i] = 77;
		if (bench.marks[unit / 32] >> unit % 32 & 1) {
			*value = (float)rounded((double)*value, bench.type);
			wide[i] = NAN;
			narrow[i] = bits16(*value, bench.type);
		}
	}
	bytes_fetch(bench.device[GRADIENTS], wide, bench.count * sizeof(*wide));
	bytes_fetch((void *)bench.gradients.narrow, narrow, bench.count * sizeof(*narrow));
}

/* The next step on both sides. */
static void both(double rate)
{
	uint64_t step = bench.updates + 1;

	send_gradients();
	device_step(step, rate);
	host_step(step, rate);
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

/* Waits as a host does that never waits for the device, but looks after it. */
static bool result_comes(void)
{
	const struct kernel_result *result = &bench.results[bench.sequence % KERNEL_SLOTS];
	struct ddp_error error = {0, ""};
	int status = 0;

	while (status == 0 &&
	       __atomic_load_n(&result->sequence, __ATOMIC_ACQUIRE) != bench.sequence)
		status = device_ended(arrays_device, DEVICE_COMPUTE, &error);
	arrays_check(status < 0 ? status : 0, &error);
	return result->sequence == bench.sequence && result->skipped == bench.overflow &&
	       memcmp(result->word, word, sizeof(word)) == 0 &&
	       result->scale == bench.scaler.scale &&
	       result->good_steps == bench.scaler.good_steps && result->updates == bench.updates;
}

/* What comes next: the samples behind these, and the entry's numbers. */
static bool next_follows(const struct kernel_next *next)
{
	return next->seed == 5 && next->sequence == bench.sequence + 1 &&
	       next->indices == (const uint32_t *)bench.scratch.memory + 7 &&
	       next->places == (const uint64_t *)bench.scratch.memory + 7 &&
	       next->rest == bench.rest + 1 && next->entry.rate == behind.rate &&
	       next->entry.shrink == behind.shrink && next->entry.share == behind.share &&
	       next->entry.count == behind.count;
}

static bool same_state(void)
{
	const struct kernel_state *state;
	struct kernel_next next;

	bytes_fetch(&next, &bench.step->next, sizeof(next));
	state = &next.state;
	if (!result_comes() || !next_follows(&next)) {
		printf("# step %llu: what is told, or what comes next\n",
		       (unsigned long long)bench.sequence);
		return false;
	}
	if (state->scale == bench.scaler.scale && state->good_steps == bench.scaler.good_steps &&
	    state->updates == bench.updates)
		return true;
	printf("# scale %a, good steps %d, updates %llu; want %a, %d, %llu\n", (double)state->scale,
	       state->good_steps, (unsigned long long)state->updates, (double)bench.scaler.scale,
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

/* Every rule with every type, at sizes that leave tails. */
static void test_rules(void)
{
	static const size_t counts[] = {1, 3, 4, 1027, 1024, 518, MOST - 8};

	for (size_t r = 0; r < RULES; r++) {
		bool good = true;

		for (size_t p = 0; p < sizeof(counts) / sizeof(counts[0]); p++) {
			begin(&rules[r].optim, counts[p], arrays_types[(r + p) % 3]);
			for (uint64_t step = 1; step <= 3; step++) {
				new_gradients(1);
				both(0.1 / (double)step);
			}
			if (!same_arrays() || !same_narrow() || !same_state()) {
				printf("# %zu elements, %s\n", counts[p], arrays_name(bench.type));
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

		begin(&rules[r].optim, 5, DDP_BF16);
		for (uint64_t step = 1; step <= 200; step++) {
			new_gradients(1);
			both(1e-3);
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
		begin(&rules[r].optim, 1021, arrays_types[r % 3]);
		bench.scaler = (struct ddp_scaler){8, 2, 0.5, 3, 1};
		bench.clip = clip;
		set_state();
		for (uint64_t turn = 1; turn <= 12; turn++) {
			new_gradients(bench.scaler.scale);
			/* Overflows: one at the last element, two in a row, and the very first step. */
			if (turn == 1 || turn == 6 || turn == 7)
				bench.arrays[GRADIENTS][turn == 6 ? 1020 : 5 * turn] =
					odd[turn % 3];
			both(0.01);
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
		begin(&rules[2].optim, 4003, arrays_types[i]);
		bench.clip = limits[i];
		for (uint64_t step = 1; step <= 2; step++) {
			new_gradients(1);
			both(0.1);
		}
		good = good && same_arrays() && same_state();
	}
	ok(good, "gradients are clipped as by ddp_gradients_clip()");
	begin(&rules[0].optim, 9, DDP_F32);
	bench.clip = 1;
	new_gradients(1);
	bench.arrays[GRADIENTS][4] = NAN;
	both(0.1);
	bytes_fetch(bench.arrays[GRADIENTS], bench.device[VALUES], 9 * sizeof(float));
	good = true;
	for (size_t i = 0; i < 9; i++)
		good = good && isnan(bench.arrays[GRADIENTS][i]);
	ok(good && same_state(), "without a loss scale a broken gradient is not hidden");
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
	return arrays_end();
}
