/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_math.c - layers of ddp_onednn.so and of the plain loops, compared with loops in double
 * precision
 */
#include "config.h"

#include <math.h>
#include <stdio.h>

#include "cpu/math.h"
#include "unit.h"

/*
 * Tolerances relative to the largest value: EXACT for sums in f32, the other for Winograd, whose
 * transforms round more.
 */
#define EXACT 1e-5
#define WINOGRAD 2e-4
/* Tolerance relative to each value, for results that are rounded to bf16. */
#define BF16 (1.0 / 256)

/*
 * LeakSanitizer crashes when it scans the threads of libgomp, which oneDNN uses, so valgrind finds
 * leaks instead. AddressSanitizer calls this function in every program.
 */
const char *__asan_default_options(void);
__attribute__((visibility("default"))) const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}

struct row {
	const char *name;
	int height, width, in, out, size, stride, pad;
	bool dense, bias, relu, first;
};

static const struct row rows[] = {
	{"one channel", 28, 28, 1, 32, 3, 1, 0, false, true, true, true},
	{"three channels", 16, 16, 3, 64, 3, 1, 1, false, false, false, true},
	{"32 to 64", 14, 14, 32, 64, 3, 1, 0, false, true, true, false},
	{"64, padded", 8, 8, 64, 64, 3, 1, 1, false, false, false, false},
	{"64, padded, ReLU", 8, 6, 64, 64, 3, 1, 1, false, true, true, false},
	{"odd image", 7, 9, 16, 32, 3, 1, 1, false, true, false, false},
	{"odd image, stride 2", 9, 7, 16, 16, 3, 2, 1, false, false, false, false},
	{"stride 2", 16, 16, 32, 64, 3, 2, 1, false, false, true, false},
	{"stride 2, no pad", 12, 12, 16, 32, 3, 2, 0, false, true, false, false},
	{"1 x 1", 8, 8, 32, 16, 1, 1, 0, false, true, true, false},
	{"1 x 1, stride 2", 8, 8, 32, 64, 1, 2, 0, false, false, false, false},
	{"1 x 1, stride 2, odd", 7, 7, 64, 32, 1, 2, 0, false, true, false, false},
	{"ten channels", 6, 6, 10, 10, 3, 1, 1, false, true, true, false},
	{"one to one", 5, 5, 1, 1, 3, 1, 1, false, true, false, false},
	{"dense", 1, 1, 64, 32, 1, 1, 0, true, true, true, false},
	{"dense, to ten", 1, 1, 128, 10, 1, 1, 0, true, true, false, false},
	{"dense, large", 1, 1, 2304, 128, 1, 1, 0, true, true, true, false},
	{"dense, odd, no bias", 1, 1, 33, 7, 1, 1, 0, true, false, false, false},
	{"one pixel", 1, 1, 1, 1, 1, 1, 0, false, true, false, false},
	{"strided, uneven", 7, 9, 4, 3, 3, 2, 0, false, true, true, false},
	{"shortcut", 8, 6, 16, 33, 1, 2, 0, false, false, false, false},
	{"large window", 9, 9, 2, 5, 5, 3, 2, false, true, true, false},
};

#define BATCH 5

/* A layer, its input, and the expected results in double precision. */
struct trial {
	const struct math *math;
	const struct row *row;
	enum ddp_type type;
	int out_height, out_width;
	size_t image_in, image_out, weight_count; /* number of elements */
	double *x, *dy, *weights, *bias;
	double *y, *dx, *dweights, *dbias; /* results for the number of images that expect() got */
	float *own_weights, *own_bias;
};

static const struct math *module(void)
{
	struct ddp_error error = {0};
	const struct math *math =
		ddp_module_open("onednn", "math", MATH_VERSION, sizeof(struct math), NULL, &error);

	ck_assert_msg(math, "%s", error.text);
	return math;
}

/* --- Random numbers --------------------------------------------------------------------- */

static uint64_t seed;

static float round_bf16(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	bits += 0x7fff + (bits >> 16 & 1);
	bits &= 0xffff0000;
	memcpy(&value, &bits, sizeof(bits));
	return value;
}

static void *zeros(size_t count, size_t size)
{
	void *array = calloc(count ? count : 1, size);

	ck_assert(array);
	return array;
}

static double *draw(size_t count, bool bf16)
{
	double *values = zeros(count, sizeof(*values));

	for (size_t i = 0; i < count; i++) {
		float value = (float)unit_random(&seed, 20001) / 10000.0f - 1.0f;

		values[i] = bf16 ? round_bf16(value) : value;
	}
	return values;
}

static void *pack(const double *values, size_t count, enum ddp_type type)
{
	char *packed = zeros(count, ddp_type_size(type));

	for (size_t i = 0; i < count; i++) {
		float value = (float)values[i];

		if (type == DDP_F32)
			memcpy(packed + 4 * i, &value, 4);
		else
			memcpy(packed + 2 * i, (char *)&value + 2, 2);
	}
	return packed;
}

static double unpack(const void *packed, size_t i, enum ddp_type type)
{
	float value = 0;

	if (type == DDP_F32)
		memcpy(&value, (const char *)packed + 4 * i, 4);
	else
		memcpy((char *)&value + 2, (const char *)packed + 2 * i, 2);
	return value;
}

/* --- Expected results ------------------------------------------------------------------- */

/* Draws weights in f32. For bf16, the expected results use rounded weights, as oneDNN does. */
static void trial_draw(struct trial *trial)
{
	const struct row *row = trial->row;
	bool bf16 = trial->type == DDP_BF16 && trial->math != &math_plain;

	free(trial->weights);
	free(trial->bias);
	free(trial->own_weights);
	free(trial->own_bias);
	trial->weights = draw(trial->weight_count, false);
	trial->bias = draw((size_t)row->out, false);
	trial->own_weights = pack(trial->weights, trial->weight_count, DDP_F32);
	trial->own_bias = pack(trial->bias, (size_t)row->out, DDP_F32);
	for (size_t i = 0; i < trial->weight_count && bf16; i++)
		trial->weights[i] = round_bf16((float)trial->weights[i]);
}

static void trial_open(struct trial *trial, const struct math *math, const struct row *row,
		       enum ddp_type type)
{
	int height = (row->height + 2 * row->pad - row->size) / row->stride + 1;
	int width = (row->width + 2 * row->pad - row->size) / row->stride + 1;

	*trial = (struct trial){
		.math = math, .row = row, .type = type, .out_height = height, .out_width = width};
	trial->image_in = (size_t)(row->height * row->width * row->in);
	trial->image_out = (size_t)(height * width * row->out);
	trial->weight_count = (size_t)(row->out * row->size * row->size * row->in);
	trial->x = draw(BATCH * trial->image_in, type == DDP_BF16);
	trial->dy = draw(BATCH * trial->image_out, type == DDP_BF16);
	trial->y = zeros(BATCH * trial->image_out, sizeof(double));
	trial->dx = zeros(BATCH * trial->image_in, sizeof(double));
	trial->dweights = zeros(trial->weight_count, sizeof(double));
	trial->dbias = zeros((size_t)row->out, sizeof(double));
	trial_draw(trial);
}

static void trial_close(struct trial *trial)
{
	double *arrays[] = {trial->x, trial->dy, trial->weights,  trial->bias,
			    trial->y, trial->dx, trial->dweights, trial->dbias};

	for (int i = 0; i < ROWS(arrays); i++)
		free(arrays[i]);
	free(trial->own_weights);
	free(trial->own_bias);
}

/* Adds the terms of one output, element [i] of y, to the results of all passes. */
static void expect_one(struct trial *trial, size_t i, size_t image, int top, int left, int o)
{
	const struct row *row = trial->row;
	double sum = row->bias ? trial->bias[o] : 0;

	for (int h = 0; h < row->size; h++)
		for (int w = 0; w < row->size; w++) {
			size_t at = image * trial->image_in +
				    (size_t)(((top + h) * row->width + left + w) * row->in);
			size_t weight = (size_t)(((o * row->size + h) * row->size + w) * row->in);

			if (top + h < 0 || top + h >= row->height || left + w < 0 ||
			    left + w >= row->width)
				continue;
			for (int c = 0; c < row->in; c++, at++, weight++) {
				sum += trial->x[at] * trial->weights[weight];
				trial->dx[at] += trial->dy[i] * trial->weights[weight];
				trial->dweights[weight] += trial->dy[i] * trial->x[at];
			}
		}
	trial->y[i] = row->relu && sum < 0 ? 0 : sum;
	trial->dbias[o] += trial->dy[i];
}

static void expect(struct trial *trial, size_t count)
{
	const struct row *row = trial->row;
	size_t i = 0;

	memset(trial->dx, 0, BATCH * trial->image_in * sizeof(double));
	memset(trial->dweights, 0, trial->weight_count * sizeof(double));
	memset(trial->dbias, 0, (size_t)row->out * sizeof(double));
	for (size_t image = 0; image < count; image++)
		for (int h = 0; h < trial->out_height; h++)
			for (int w = 0; w < trial->out_width; w++)
				for (int o = 0; o < row->out; o++)
					expect_one(trial, i++, image, h * row->stride - row->pad,
						   w * row->stride - row->pad, o);
}

/*
 * Fails if a value is outside the tolerances: [each] is relative to the value, [most] to the
 * largest value.
 */
static void compare(const struct trial *trial, const char *what, const void *got,
		    enum ddp_type type, const double *want, size_t count, double most)
{
	double each = type == DDP_BF16 ? BF16 : 0, largest = 0;

	for (size_t i = 0; i < count; i++)
		largest = fmax(largest, fabs(want[i]));
	for (size_t i = 0; i < count; i++) {
		double value = unpack(got, i, type);

		ck_assert_msg(fabs(value - want[i]) <= each * fabs(want[i]) + most * largest,
			      "%s: %s[%zu] is %.9g, want %.9g (largest %.9g)", trial->row->name,
			      what, i, value, want[i], largest);
	}
}

/* --- Checks ----------------------------------------------------------------------------- */

static int threads = 1;

static struct math_layer *layer_open(const struct trial *trial)
{
	const struct math *math = trial->math;
	const struct row *row = trial->row;
	struct math_options options = {.height = row->height,
				       .width = row->width,
				       .in = row->in,
				       .out = row->out,
				       .size = row->size,
				       .stride = row->stride,
				       .pad = row->pad,
				       .dense = row->dense,
				       .bias = row->bias,
				       .relu = row->relu,
				       .first = row->first,
				       .type = trial->type,
				       .batch = BATCH,
				       .threads = threads};
	struct math_layer *layer;
	struct ddp_error error = {0};

	ck_assert_msg(math->create(&layer, &options, &error) == 0, "%s: %s", row->name, error.text);
	math->load(layer, trial->own_weights, row->bias ? trial->own_bias : NULL);
	return layer;
}

/* Returns memory with values that a pass must overwrite: it must neither keep nor add to them. */
static void *dirty(size_t count, enum ddp_type type)
{
	void *array = zeros(count, ddp_type_size(type));

	memset(array, 0x7f, count * ddp_type_size(type));
	return array;
}

/* Fails if something was written after the first [count] images. */
static void check_rest(const void *array, size_t count, size_t all, enum ddp_type type)
{
	const char *bytes = array;

	for (size_t i = count * ddp_type_size(type); i < all * ddp_type_size(type); i++)
		ck_assert_int_eq(bytes[i], 0x7f);
}

static void check_forward(struct math_layer *layer, const struct trial *trial, size_t count,
			  double most)
{
	size_t size = count * trial->image_out;
	void *x = pack(trial->x, count * trial->image_in, trial->type);
	void *y = dirty(BATCH * trial->image_out, trial->type);
	struct ddp_error error = {0};

	ck_assert_msg(trial->math->forward(layer, count, x, y, &error) == 0, "%s", error.text);
	compare(trial, "y", y, trial->type, trial->y, size, most);
	check_rest(y, size, BATCH * trial->image_out, trial->type);
	free(x);
	free(y);
}

static void check_data(struct math_layer *layer, const struct trial *trial, size_t count,
		       double most)
{
	size_t size = count * trial->image_in;
	void *dy = pack(trial->dy, count * trial->image_out, trial->type);
	void *dx = dirty(BATCH * trial->image_in, trial->type);
	struct ddp_error error = {0};

	ck_assert_msg(trial->math->back_data(layer, count, dy, dx, &error) == 0, "%s", error.text);
	compare(trial, "dx", dx, trial->type, trial->dx, size, most);
	check_rest(dx, size, BATCH * trial->image_in, trial->type);
	free(dy);
	free(dx);
}

static void check_weights(struct math_layer *layer, const struct trial *trial, size_t count,
			  double most)
{
	size_t outputs = (size_t)trial->row->out;
	void *x = pack(trial->x, count * trial->image_in, trial->type);
	void *dy = pack(trial->dy, count * trial->image_out, trial->type);
	float *weights = dirty(trial->weight_count, DDP_F32), *bias = dirty(outputs, DDP_F32);
	struct ddp_error error = {0};

	ck_assert_msg(trial->math->back_weights(layer, count, x, dy, weights,
						trial->row->bias ? bias : NULL, &error) == 0,
		      "%s", error.text);
	compare(trial, "dw", weights, DDP_F32, trial->dweights, trial->weight_count, most);
	if (trial->row->bias)
		compare(trial, "db", bias, DDP_F32, trial->dbias, outputs, most);
	free(x);
	free(dy);
	free(weights);
	free(bias);
}

/* Checks each pass with each of its algorithms. */
static void check_all(struct math_layer *layer, const struct trial *trial, size_t count)
{
	const struct math *math = trial->math;
	static void (*const checks[])(struct math_layer *, const struct trial *, size_t, double) = {
		[MATH_FORWARD] = check_forward,
		[MATH_BACK_DATA] = check_data,
		[MATH_BACK_WEIGHTS] = check_weights,
	};

	for (int p = 0; p < MATH_PASSES; p++) {
		enum math_pass pass = (enum math_pass)p;

		if (pass == MATH_BACK_DATA && trial->row->first)
			continue;
		if (!math->algorithms) {
			checks[pass](layer, trial, count, EXACT);
			continue;
		}
		ck_assert_int_ge(math->algorithms(layer, pass), 1);
		for (int i = math->algorithms(layer, pass) - 1; i >= 0; i--) {
			const char *name = math->algorithm(layer, pass, i);

			math->choose(layer, pass, i);
			checks[pass](layer, trial, count,
				     strcmp(name, "winograd") == 0 ? WINOGRAD : EXACT);
		}
	}
}

/* Whether the library supports [type] on this CPU. If not, the library must give a reason. */
static bool has(const struct math *math, enum ddp_type type)
{
	struct ddp_error error = {0};
	bool it = !math->has || math->has(type, &error);

	ck_assert_msg(it || error.text[0], "refused without a reason");
	return it;
}

static void check_row(const struct math *math, const struct row *row, enum ddp_type type)
{
	struct math_layer *layer;
	struct trial trial;

	if (!has(math, type))
		return;
	seed = 0x9e3779b97f4a7c15 + (uint64_t)(row - rows);
	trial_open(&trial, math, row, type);
	expect(&trial, BATCH);
	layer = layer_open(&trial);
	check_all(layer, &trial, BATCH);
	math->destroy(layer);
	trial_close(&trial);
}

/* ONEDNN is 0 if oneDNN is not in this build, so that its tests do not run. */
#ifdef HAVE_ONEDNN
enum { ONEDNN = 1 };
#else
enum { ONEDNN = 0 };
#endif

TEST_LOOP(passes, 0, ROWS(rows) * ONEDNN)
{
	check_row(module(), &rows[_i], DDP_F32);
	check_row(module(), &rows[_i], DDP_BF16);
}

/* Idle threads sleep, so that they do not take the CPU from other tests. */
TEST_LOOP(passes_two_threads, 2, ONEDNN * 4)
{
	setenv("OMP_WAIT_POLICY", "passive", 1);
	threads = 2;
	check_row(module(), &rows[_i], DDP_F32);
	check_row(module(), &rows[_i], DDP_BF16);
	threads = 1;
}

/* Check runs each test in a new process. So oneDNN has not read this variable yet. */
TEST_LOOP(passes_avx2, 0, ROWS(rows) * ONEDNN)
{
	ck_assert_int_eq(setenv("DNNL_MAX_CPU_ISA", "AVX2", 1), 0);
	UNIT_SAYS("describe", module()->describe(), "oneDNN ", ", AVX2");
	check_row(module(), &rows[_i], DDP_F32);
}

/* Runs one layer with more batch sizes than it keeps primitives for, some of them twice. */
static void check_counts(const struct math *math, const struct row *row)
{
	static const size_t counts[] = {5, 1, 3, 2, 4, 1, 5, 2};
	struct math_layer *layer;
	struct trial trial;

	seed = 7;
	trial_open(&trial, math, row, DDP_F32);
	layer = layer_open(&trial);
	for (int i = 0; i < ROWS(counts); i++) {
		expect(&trial, counts[i]);
		check_all(layer, &trial, counts[i]);
	}
	math->destroy(layer);
	trial_close(&trial);
}

static const int counted[] = {5, 6, 15};

TEST_LOOP(several_counts, 0, ROWS(counted) * ONEDNN)
{
	check_counts(module(), &rows[counted[_i]]);
}

/* All passes use the weights that were loaded last. */
static void check_reload(enum ddp_type type, int row)
{
	const struct math *math = module();
	struct math_layer *layer;
	struct trial trial;

	if (!has(math, type))
		return;
	seed = 11;
	trial_open(&trial, math, &rows[row], type);
	layer = layer_open(&trial);
	for (int i = 0; i < 3; i++) {
		expect(&trial, BATCH);
		check_all(layer, &trial, BATCH);
		trial_draw(&trial);
		math->load(layer, trial.own_weights, trial.own_bias);
	}
	math->destroy(layer);
	trial_close(&trial);
}

static const int reloaded[] = {5, 14};

TEST_LOOP(reload, 0, ROWS(reloaded) * ONEDNN)
{
	check_reload(DDP_F32, reloaded[_i]);
	check_reload(DDP_BF16, reloaded[_i]);
}

TEST_LOOP(bits, 4, ONEDNN * 5)
{
	const struct math *math = module();
	struct math_layer *layer;
	struct ddp_error error = {0};
	struct trial trial;
	float *first, *again;
	void *x, *dy;

	seed = 13;
	trial_open(&trial, math, &rows[_i], DDP_F32);
	layer = layer_open(&trial);
	x = pack(trial.x, BATCH * trial.image_in, DDP_F32);
	dy = pack(trial.dy, BATCH * trial.image_out, DDP_F32);
	first = dirty(trial.weight_count + (size_t)trial.row->out, DDP_F32);
	again = dirty(trial.weight_count + (size_t)trial.row->out, DDP_F32);
	ck_assert_int_eq(math->back_weights(layer, BATCH, x, dy, first, first + trial.weight_count,
					    &error),
			 0);
	ck_assert_int_eq(math->back_weights(layer, BATCH, x, dy, again, again + trial.weight_count,
					    &error),
			 0);
	ck_assert_mem_eq(first, again, trial.weight_count * sizeof(*first));
	math->destroy(layer);
	free(x);
	free(dy);
	free(first);
	free(again);
	trial_close(&trial);
}

/* On a CPU without bf16 instructions, oneDNN has only reference or emulated implementations. */
TEST_LOOP(refused_bf16, 0, ONEDNN * 2)
{
	static const char *const levels[] = {"AVX2", "AVX512_CORE"};
	const struct math *math;
	struct ddp_error error = {0};

	ck_assert_int_eq(setenv("DNNL_MAX_CPU_ISA", levels[_i], 1), 0);
	math = module();
	ck_assert(!math->has(DDP_BF16, &error));
	UNIT_SAYS(levels[_i], error.text, "oneDNN", "bf16");
}

/* --- Plain loops, which support every layer ----------------------------------------------- */

TEST_ROWS(plain, rows)
{
	check_row(&math_plain, &rows[_i], DDP_F32);
	check_row(&math_plain, &rows[_i], DDP_BF16);
}

TEST_LOOP(plain_counts, 17, ROWS(rows))
{
	check_counts(&math_plain, &rows[_i]);
}

UNIT_MAIN("math", NULL)
