/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels_gradients.c - kernels of gradients: conversions for all-reduces, the 2-norm, and the end
 * of a step
 *
 * The optimizer's results have the same bits as those of the CPU's optim_step(),
 * ddp_scaler_unscale(), ddp_scaler_update() and clipping.
 */
#include "device/wire.h"
#include "gradient/statistics.h"
#include "harness.h"
#include "optim/loop.h"

/* --- Conversions ------------------------------------------------------------------------ */

static const size_t lengths[] = {1, 2, 3, 4, 5, 7, 8, 1023, 1024, 1029};

static void expect_converted(struct array *from, struct array *to, float factor)
{
	const float *before = host_copy(from->values, from->count * sizeof(*before));

	ddp_wire_kernel_convert(stream, to->data, to->type, from->data, from->type, from->count,
				factor);
	array_fetch(to);
	for (size_t i = 0; i < to->count; i++)
		expect_exact("element", to, i, (double)(before[i] * factor));
}

/* Converts from f32 and to f32, and from f32 to f32 in place. */
static void check_convert(const struct point *p)
{
	static const float factors[] = {1, 1.0f / 3, 8};
	size_t count = lengths[p->size];

	for (int i = 0; i < ROWS(factors); i++) {
		struct array *wide = array_rare(DDP_F32, count, 0);
		struct array *narrow = array_rare(p->type, count, 0);

		for (size_t k = 0; k < count; k += 5)
			array_put(wide, k, draw_unit() * ldexp(1, (int)draw(40)));
		array_send(wide);
		if (p->type == DDP_F32) {
			expect_converted(wide, wide, factors[i]);
			continue;
		}
		expect_converted(narrow, array_new(DDP_F32, count, 0), factors[i]);
		expect_converted(wide, narrow, factors[i]);
	}
}

/* Checks the count of finished sums, which the host reads. */
static void check_count(const struct point *p)
{
	uint64_t *word = pinned_new(2 * sizeof(*word));

	(void)p;
	word[0] = 40;
	word[1] = 7;
	for (uint64_t i = 1; i <= 3; i++) {
		ddp_wire_kernel_count(stream, word);
		device_finish();
		expect(__atomic_load_n(word, __ATOMIC_ACQUIRE) == 40 + i, "count %d is wrong",
		       (int)i);
	}
	expect(word[1] == 7, "the word behind the count was written");
}

/* --- The 2-norm ------------------------------------------------------------------------- */

static const size_t norm_counts[] = {0, 1, 3, 255, 4096, 4097, 100003, 3 * 1024 * 1024};

static struct kernel_norm2 norm_of(const float *values, float *memory, size_t count, float scale)
{
	struct kernel_state state = {.scale = scale, .interval = 2000};
	struct kernel_norm2 result = {-1, 7}, *there = device_new(sizeof(result), &result);
	struct kernel_scratch scratch = scratch_new(kernel_norm2_bytes(count));

	device_move(memory, values, count * sizeof(*values));
	kernel_norm2(stream, memory, count, device_new(sizeof(state), &state), &scratch, there);
	device_move(&result, there, sizeof(result));
	return result;
}

/*
 * The norm does not include the loss scale, which is 3. The squares of some gradients exceed f32.
 * An infinite or NaN gradient must be detected at any position. A gradient that becomes infinite
 * only when the scale is removed is not an overflow.
 */
static void check_norm(const struct point *p)
{
	const struct ddp_scaler scaler = {3, 2, 0.5, 2000, 0};
	const float odd[] = {INFINITY, NAN, -INFINITY};
	size_t count = norm_counts[p->size];
	const size_t places[] = {0, count / 2, count - 1};
	float *values = host_new(count * sizeof(*values)), *unscaled, *memory;
	struct kernel_norm2 got;
	double want;

	for (size_t i = 0; i < count; i++)
		values[i] = ldexpf((float)draw_unit(), draw(1000) == 0 ? 70 : 2);
	unscaled = host_copy(values, count * sizeof(*values));
	memory = device_new(count * sizeof(*values), NULL);
	ddp_scaler_unscale(&scaler, unscaled, count);
	want = ddp_norm(unscaled, DDP_F32, count);
	got = norm_of(values, memory, count, scaler.scale);
	expect(fabs(got.norm - want) <= 1e-13 * want && !got.overflow, "norm %.17g, want %.17g",
	       got.norm, want);
	for (int i = 0; i < ROWS(odd) && count > 0; i++) {
		float kept = values[places[i]];

		values[places[i]] = odd[i];
		got = norm_of(values, memory, count, scaler.scale);
		expect(got.overflow && !isfinite(got.norm), "%g at %zu is not found",
		       (double)odd[i], places[i]);
		values[places[i]] = kept;
	}
	if (count == 0)
		return;
	values[count - 1] = 3e38f;
	got = norm_of(values, memory, count, 1e-3f);
	expect(!got.overflow && isinf(got.norm), "3e38 without the scale 1e-3 is an overflow");
}

/* --- The end of a step ------------------------------------------------------------------ */

enum { MARGIN = 8 }; /* elements before and after each array, which kernels must not change */

static const float word[KERNEL_WORD] = {1, 2.5f, 3, 8};

enum part { VALUES, FIRST, SECOND, PARTS };

struct bench {
	struct optim optim;
	size_t count;
	enum ddp_type type;
	struct ddp_scaler scaler;
	double clip;
	uint64_t updates, sequence;
	bool overflow;
	float *slopes, *want[PARTS]; /* expected values, with margins; slopes has no margins */
	struct array *parts[PARTS], *narrow, *gradients; /* with margins */
	struct kernel_scratch scratch;
	struct kernel_step *step;   /* on the device */
	struct kernel_norm2 *norm2; /* on the device */
	float *word;		    /* on the device */
	struct kernel_result *results;
};

/* Creates an array with [value] between its margins, and -77 in the margins. */
static struct array *margins_new(enum ddp_type type, size_t count, double value)
{
	struct array *array = array_new(type, count + 2 * MARGIN, 0);

	array_set(array, -77);
	for (size_t i = MARGIN; i < MARGIN + count; i++)
		array_put(array, i, value);
	array_send(array);
	return array;
}

static void *inside(const struct array *array)
{
	return (char *)array->data + MARGIN * ddp_type_size(array->type);
}

/* Returns a random number: -1 to 1, times 2^-8 to 2^7; sometimes 0. */
static float random_value(void)
{
	return draw(32) == 0 ? 0 : ldexpf((float)draw_unit(), (int)draw(16) - 8);
}

static struct bench bench_new(const struct point *p, const struct optim *optim, size_t count,
			      struct ddp_scaler scaler, double clip)
{
	struct bench b = {
		.optim = *optim, .count = count, .type = p->type, .scaler = scaler, .clip = clip};
	struct kernel_step step = {.next = {.scale = scaler.scale,
					    .growth = scaler.growth,
					    .backoff = scaler.backoff,
					    .interval = scaler.interval,
					    .good_steps = scaler.good_steps}};

	b.slopes = host_new(count * sizeof(float));
	for (int i = 0; i < PARTS; i++) {
		b.parts[i] = margins_new(DDP_F32, count, 0);
		for (size_t k = 0; k < count && i == VALUES; k++)
			b.parts[i]->values[MARGIN + k] = random_value();
		array_send(b.parts[i]);
		b.want[i] = host_copy(b.parts[i]->values, b.parts[i]->count * sizeof(float));
	}
	b.narrow = margins_new(p->type, count, 77);
	b.gradients = margins_new(DDP_F32, count, 0);
	b.scratch = scratch_new(kernel_norm2_bytes(count));
	b.step = device_new(sizeof(step), &step);
	b.norm2 = device_new(sizeof(*b.norm2), NULL);
	b.word = device_new(sizeof(word), word);
	b.results = pinned_new(KERNEL_SLOTS * sizeof(*b.results));
	return b;
}

static void host_step(struct bench *b, uint64_t step, double rate)
{
	float *slots[2] = {b->want[FIRST] + MARGIN, b->want[SECOND] + MARGIN};

	b->overflow = false;
	if (b->scaler.interval > 0) {
		b->overflow = ddp_scaler_unscale(&b->scaler, b->slopes, b->count);
		ddp_scaler_update(&b->scaler, b->overflow);
	}
	b->updates = step - b->overflow;
	if (b->overflow)
		return;
	if (b->clip > 0)
		ddp_scale(b->slopes, DDP_F32, b->count,
			  ddp_clip_factor(ddp_norm(b->slopes, DDP_F32, b->count), b->clip));
	optim_step(&b->optim, step, rate, b->want[VALUES] + MARGIN, b->slopes, slots, b->count);
}

/*
 * Begins a step with the state after the previous step, like kernel_gather(). If possible, the host
 * knows of fewer optimizer steps than the device has done.
 */
static void device_step(struct bench *b, uint64_t step, double rate)
{
	struct optim_numbers numbers = optim_numbers_of(&b->optim, step, rate);
	bool wanted = b->scaler.interval > 0 || b->clip > 0;
	struct kernel_end end = {b->step, wanted ? b->norm2 : NULL, b->clip, b->word, b->results};
	float *const slots[2] = {inside(b->parts[FIRST]), inside(b->parts[SECOND])};
	uint64_t unknown = step > 3 ? step % 3 : 0;
	struct kernel_step now;

	device_move(&now, b->step, sizeof(now));
	now.order = (struct kernel_order){.sequence = ++b->sequence, .updates = step - 1 - unknown};
	now.order.paces[unknown] = (struct kernel_pace){numbers.rate, numbers.root, numbers.shrink};
	now.state = now.next;
	device_move(b->step, &now, sizeof(now));
	if (wanted)
		kernel_norm2(stream, inside(b->gradients), b->count, &b->step->state, &b->scratch,
			     b->norm2);
	kernel_optimize(stream, &b->optim, &end, inside(b->parts[VALUES]), inside(b->gradients),
			slots, inside(b->narrow), b->count, b->type);
}

/* Checks the result that the host can poll while the GPU works. */
static void expect_result(const struct bench *b)
{
	const struct kernel_result *result = &b->results[b->sequence % KERNEL_SLOTS];
	struct ddp_error error = {0, ""};
	int status = 0;

	while (status == 0 && __atomic_load_n(&result->sequence, __ATOMIC_ACQUIRE) != b->sequence)
		status = device_ended(device, DEVICE_COMPUTE, &error);
	must(status, &error);
	expect(result->sequence == b->sequence && result->skipped == b->overflow &&
		       memcmp(result->word, word, sizeof(word)) == 0 &&
		       result->scale == b->scaler.scale &&
		       result->good_steps == b->scaler.good_steps && result->updates == b->updates,
	       "the result of step %d is wrong", (int)b->sequence);
}

/* Checks the state after this step. */
static void expect_next(const struct bench *b)
{
	struct kernel_state next;

	device_move(&next, &b->step->next, sizeof(next));
	expect(next.scale == b->scaler.scale && next.good_steps == b->scaler.good_steps &&
		       next.updates == b->updates,
	       "step %d leaves scale %g, %d good steps; want %g, %d", (int)b->sequence,
	       (double)next.scale, next.good_steps, (double)b->scaler.scale, b->scaler.good_steps);
}

/* Compares all bits. If all steps so far were skipped, the narrow copy does not exist yet. */
static void expect_arrays(const struct bench *b)
{
	for (int i = 0; i < PARTS; i++) {
		array_fetch(b->parts[i]);
		for (size_t k = 0; k < b->parts[i]->count; k++)
			expect(memcmp(&b->parts[i]->values[k], &b->want[i][k], sizeof(float)) == 0,
			       "array %d, element %td: %a, want %a", i, (ptrdiff_t)k - MARGIN,
			       (double)b->parts[i]->values[k], (double)b->want[i][k]);
	}
	array_fetch(b->narrow);
	if (b->updates > 0)
		expect_all("narrow copy: element", b->narrow, b->want[VALUES]);
}

/*
 * Runs a step on the host and on the device. If [odd] is not 0, the gradient at [odd_place] is
 * [odd].
 */
static void step(struct bench *b, double rate, float scale, float odd, size_t odd_place)
{
	uint64_t number = b->updates + 1;

	for (size_t i = 0; i < b->count; i++) {
		b->slopes[i] = odd != 0 && i == odd_place ? odd : random_value() * scale;
		b->gradients->values[MARGIN + i] = b->slopes[i];
	}
	array_send(b->gradients);
	device_step(b, number, rate);
	host_step(b, number, rate);
	expect_result(b);
	expect_next(b);
	expect_arrays(b);
}

static const struct optim rules[] = {
	{.kind = OPTIM_SGD},
	{.kind = OPTIM_SGD, .decay = 5e-4},
	{.kind = OPTIM_SGD, .momentum = 0.9},
	{.kind = OPTIM_SGD, .momentum = 0.9, .decay = 5e-4},
	{.kind = OPTIM_SGD, .momentum = 0.9, .nesterov = true, .decay = 5e-4},
	{.kind = OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .decay = 0.01, .epsilon = 1e-8},
	{.kind = OPTIM_ADAMW, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-6},
	{.kind = OPTIM_ADADELTA, .rho = 0.9, .epsilon = 1e-6},
	{.kind = OPTIM_ADADELTA, .rho = 0.95, .epsilon = 1e-6, .decay = 1e-3},
};
static const struct ddp_scaler no_scaler = {1, 2, 0.5, 0, 0};

/*
 * Tests each optimizer with numbers of elements that do and do not fill the last vector or block.
 */
static void check_rule(const struct point *p)
{
	static const size_t counts[] = {1, 3, 4, 518, 1024, 1027, 4992};
	struct bench b =
		bench_new(p, &rules[p->size % ROWS(rules)],
			  counts[(p->size + p->size / ROWS(rules)) % ROWS(counts)], no_scaler, 0);

	for (int i = 1; i <= 3; i++)
		step(&b, 0.1 / i, 1, 0, 0);
}

/* At every step, AdamW's bias corrections equal those that the host's pow() gives. */
static void check_many_steps(const struct point *p)
{
	struct bench b = bench_new(p, &rules[5 + p->size], 5, no_scaler, 0);

	for (int i = 0; i < 200; i++)
		step(&b, 1e-3, 1, 0, 0);
}

/*
 * Overflows in the first step, and in two successive steps, are skipped, even if only the last
 * element overflows. With skew 1 the gradients are clipped.
 */
static void check_scaling(const struct point *p)
{
	static const float odd[] = {INFINITY, NAN, -INFINITY};
	struct bench b = bench_new(p, &rules[p->size], 1021, (struct ddp_scaler){8, 2, 0.5, 3, 1},
				   p->skew ? 0.5 : 0);

	for (size_t i = 1; i <= 12; i++)
		step(&b, 0.01, b.scaler.scale, i == 1 || i == 6 || i == 7 ? odd[i % 3] : 0,
		     i == 6 ? 1020 : 5 * i);
	expect(b.updates == 9, "%d updates, want 9", (int)b.updates);
}

/* Without a loss scale, a NaN gradient makes all values NaN. */
static void check_clipping(const struct point *p)
{
	static const double limits[] = {1e-3, 1, 1e6};
	struct bench b = bench_new(p, &rules[2], 4003, no_scaler, limits[p->size]);
	struct bench broken = bench_new(p, &rules[0], 9, no_scaler, 1);
	struct array *values = broken.parts[VALUES];

	step(&b, 0.1, 1, 0, 0);
	step(&b, 0.1, 1, 0, 0);
	array_set(broken.gradients, 1);
	array_put(broken.gradients, MARGIN + 4, (double)NAN);
	array_send(broken.gradients);
	device_step(&broken, 1, 0.1);
	array_fetch(values);
	for (size_t i = MARGIN; i < MARGIN + 9; i++)
		expect(isnan(values->values[i]), "a NaN gradient leaves value %zu finite",
		       i - MARGIN);
}

static const struct test tests[] = {
	{"conversions", check_convert, ROWS(lengths), .skews = 1},
	{"count of sums", check_count, 1, .skews = 1, .f32_alone = true},
	{"2-norm", check_norm, ROWS(norm_counts), .skews = 1, .f32_alone = true},
	{"optimizers", check_rule, 7 * ROWS(rules), .skews = 1},
	{"200 steps of AdamW", check_many_steps, 2, .skews = 1},
	{"loss scale and overflows", check_scaling, ROWS(rules), .skews = 2},
	{"clipping", check_clipping, 3, .skews = 1},
};

int main(int argc, char **argv)
{
	return harness_run(argc, argv, tests, ROWS(tests));
}
