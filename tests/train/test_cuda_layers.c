/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions and dense layers of the GPU engine, on a GPU that is not there (pretend.h)
 *
 * What they compute is exact: small whole numbers, few of them not zero.
 */
#include "config.h"

#include "cuda/dense.h"
#include "pretend-test.h"

static const enum ddp_type types[] = {DDP_F32, DDP_BF16, DDP_F16};

/* --- Arrays --------------------------------------------------------------------------------- */

struct array {
	enum ddp_type type;
	size_t count;
	void *data;
};

static struct array array_of(enum ddp_type type, size_t count, uint64_t *seed)
{
	size_t bytes = count * (type == DDP_F32 ? 4 : 2);
	struct array it = {type, count, NULL};

	ck_assert_int_eq(posix_memalign(&it.data, 64, bytes), 0);
	memset(it.data, 0xff, bytes);
	for (size_t i = 0; seed && i < count; i++) {
		int value = (int)unit_random(seed, 12) - 2;

		pretend_store(it.data, i, type, value > 2 ? 0 : value);
	}
	return it;
}

/* Check writes a line for each assertion: here too many. */
static double at(const struct array *array, size_t index)
{
	if (index >= array->count)
		ck_abort_msg("element %zu of %zu", index, array->count);
	return pretend_load(array->data, index, array->type);
}

/* [want] is in double, and exact in [type]. */
static void check(const char *what, const struct array *got, const double *want)
{
	for (size_t i = 0; i < got->count; i++) {
		double value = at(got, i);

		/* Nor is it NaN. */
		if (!(value >= want[i] && value <= want[i]))
			ck_abort_msg("%s: element %zu is %g, want %g", what, i, value, want[i]);
	}
}

static double rectify(double value, bool relu)
{
	return relu && value < 0 ? 0 : value;
}

/* --- Layers ---------------------------------------------------------------------------------- */

static const struct conv_options convs[] = {
	{.name = "whole",
	 .height = 7,
	 .width = 6,
	 .in = 8,
	 .out = 16,
	 .size = 3,
	 .stride = 1,
	 .pad = 1,
	 .bias = true,
	 .relu = true,
	 .batch = 3,
	 .test_batch = 5},
	{.name = "bare",
	 .height = 9,
	 .width = 9,
	 .in = 16,
	 .out = 8,
	 .size = 3,
	 .stride = 2,
	 .pad = 1,
	 .batch = 2,
	 .test_batch = 2},
	{.name = "point",
	 .height = 8,
	 .width = 8,
	 .in = 8,
	 .out = 8,
	 .size = 1,
	 .stride = 2,
	 .bias = true,
	 .batch = 2},
	{.name = "odd",
	 .height = 6,
	 .width = 5,
	 .in = 3,
	 .out = 5,
	 .size = 3,
	 .stride = 1,
	 .pad = 1,
	 .bias = true,
	 .relu = true,
	 .batch = 1},
	{.name = "thin",
	 .height = 6,
	 .width = 6,
	 .in = 1,
	 .out = 8,
	 .size = 5,
	 .stride = 1,
	 .relu = true,
	 .first = true,
	 .batch = 4,
	 .test_batch = 1},
};

static const struct dense_options denses[] = {
	{.name = "fc1",
	 .in = 24,
	 .out = 16,
	 .bias = true,
	 .relu = true,
	 .batch = 5,
	 .test_batch = 9},
	{.name = "fc2", .in = 16, .out = 10, .bias = true, .batch = 3, .test_batch = 3},
	{.name = "relu", .in = 7, .out = 3, .relu = true, .batch = 1},
	{.name = "bare", .in = 5, .out = 9, .first = true, .batch = 4, .test_batch = 1},
};

/*
 * All that a layer reads and writes, with a scratch of exactly its size. A dense one is a convolution
 * of one pixel.
 */
struct layer {
	struct conv_options options;
	struct conv *conv;
	struct dense *dense;
	struct array x, weights, bias, y, dy, dx, dw, scratch;
};

static struct conv_options pixel(const struct dense_options *options)
{
	return (struct conv_options){
		.name = options->name,
		.height = 1,
		.width = 1,
		.in = (int)options->in,
		.out = (int)options->out,
		.size = 1,
		.stride = 1,
		.bias = options->bias,
		.relu = options->relu,
		.first = options->first,
		.type = options->type,
	};
}

static struct layer open_layer(const struct conv_options *options, size_t batch, uint64_t seed,
			       size_t scratch)
{
	struct layer it = {.options = *options};
	size_t image = (size_t)(options->height * options->width * options->in);
	size_t result = (size_t)(conv_height(options) * conv_width(options) * options->out);
	size_t weights = (size_t)(options->out * options->size * options->size * options->in);
	enum ddp_type type = options->type;

	it.x = array_of(type, batch * image, &seed);
	it.weights = array_of(type, weights, &seed);
	it.bias = array_of(DDP_F32, (size_t)options->out, &seed);
	it.y = array_of(type, batch * result, NULL);
	it.dy = array_of(type, batch * result, &seed);
	it.dx = array_of(type, batch * image, NULL);
	it.dw = array_of(DDP_F32, weights, NULL);
	it.scratch = array_of(DDP_BF16, (scratch + 1) / 2, NULL);
	return it;
}

static struct layer open_conv(const struct conv_options *options, size_t batch, uint64_t seed)
{
	struct ddp_error error = {0};
	struct conv *conv = NULL;
	struct layer it;

	pretend.idle = true;
	ck_assert_msg(conv_create(&conv, pretend_device(), options, NULL, &error) == 0, "%s",
		      error.text);
	pretend.idle = false;
	it = open_layer(options, batch, seed, conv_scratch(conv));
	it.conv = conv;
	return it;
}

static struct layer open_dense(const struct dense_options *options, size_t batch, uint64_t seed)
{
	struct conv_options same = pixel(options);
	struct ddp_error error = {0};
	struct dense *dense = NULL;
	struct layer it;

	ck_assert_msg(dense_create(&dense, pretend_device(), options, &error) == 0, "%s",
		      error.text);
	it = open_layer(&same, batch, seed, dense_scratch(dense));
	it.dense = dense;
	return it;
}

static void close_layer(struct layer *layer)
{
	struct array *list[] = {&layer->x,  &layer->weights, &layer->bias, &layer->y,
				&layer->dy, &layer->dx,	     &layer->dw,   &layer->scratch};

	for (int i = 0; i < ROWS(list); i++)
		free(list[i]->data);
	conv_destroy(layer->conv);
	dense_destroy(layer->dense);
}

/* --- Passes ---------------------------------------------------------------------------------- */

/* Call [term] with each product that a convolution is a sum of: places in x, in the weights and in y. */
static void each_product(const struct layer *layer,
			 void (*term)(const struct layer *layer, size_t x, size_t w, size_t y,
				      double *sums),
			 double *sums)
{
	const struct conv_options *o = &layer->options;
	int rows = conv_height(o), columns = conv_width(o), in = o->in;

	for (size_t y = 0; y < layer->y.count; y++) {
		int out = (int)y % o->out, column = (int)y / o->out % columns;
		int row = (int)y / o->out / columns % rows;
		int image = (int)y / o->out / columns / rows;

		for (int i = 0; i < o->size * o->size * in; i++) {
			int h = row * o->stride - o->pad + i / in / o->size;
			int v = column * o->stride - o->pad + i / in % o->size;

			if (h < 0 || v < 0 || h >= o->height || v >= o->width)
				continue;
			term(layer,
			     (size_t)(((image * o->height + h) * o->width + v) * in + i % in),
			     (size_t)(out * o->size * o->size * in + i), y, sums);
		}
	}
}

static void add_y(const struct layer *layer, size_t x, size_t w, size_t y, double *sums)
{
	sums[y] += at(&layer->x, x) * at(&layer->weights, w);
}

static void add_dx(const struct layer *layer, size_t x, size_t w, size_t y, double *sums)
{
	sums[x] += at(&layer->dy, y) * at(&layer->weights, w);
}

static void add_dw(const struct layer *layer, size_t x, size_t w, size_t y, double *sums)
{
	sums[w] += at(&layer->dy, y) * at(&layer->x, x);
}

static int forward(struct layer *l, bool test, struct ddp_error *error)
{
	return l->dense ? dense_forward(l->dense, DEVICE_COMPUTE, test, l->x.data, l->weights.data,
					l->bias.data, l->y.data, l->scratch.data, error)
			: conv_forward(l->conv, DEVICE_COMPUTE, test, l->x.data, l->weights.data,
				       l->bias.data, l->y.data, l->scratch.data, error);
}

static int back_data(struct layer *l, struct ddp_error *error)
{
	return l->dense ? dense_back_data(l->dense, DEVICE_COMPUTE, l->dy.data, l->weights.data,
					  l->dx.data, l->scratch.data, error)
			: conv_back_data(l->conv, DEVICE_COMPUTE, l->dy.data, l->weights.data,
					 l->dx.data, l->scratch.data, error);
}

static int back_weights(struct layer *l, struct ddp_error *error)
{
	return l->dense ? dense_back_weights(l->dense, DEVICE_COMPUTE, l->x.data, l->dy.data,
					     l->dw.data, l->scratch.data, error)
			: conv_back_weights(l->conv, DEVICE_COMPUTE, l->x.data, l->dy.data,
					    l->dw.data, l->scratch.data, error);
}

static void check_forward(struct layer *layer, bool test)
{
	const struct conv_options *options = &layer->options;
	double *want = calloc(layer->y.count, sizeof(*want));
	struct ddp_error error = {0};
	int err = forward(layer, test, &error);

	ck_assert_msg(err == 0, "%s", error.text);
	each_product(layer, add_y, want);
	for (size_t i = 0; i < layer->y.count; i++) {
		size_t channel = i % (size_t)options->out;
		double bias = options->bias ? at(&layer->bias, channel) : 0;

		want[i] = rectify(want[i] + bias, options->relu);
	}
	check(options->name, &layer->y, want);
	free(want);
}

static void check_back(struct layer *layer)
{
	double *dx = calloc(layer->dx.count, sizeof(*dx));
	double *dw = calloc(layer->dw.count, sizeof(*dw));
	struct ddp_error error = {0};
	int err = back_data(layer, &error);

	ck_assert_msg(err == (layer->options.first ? DDP_ERR_STATE : 0), "%s", error.text);
	each_product(layer, add_dx, dx);
	if (err == 0)
		check(layer->options.name, &layer->dx, dx);
	err = back_weights(layer, &error);
	ck_assert_msg(err == 0, "%s", error.text);
	each_product(layer, add_dw, dw);
	check(layer->options.name, &layer->dw, dw);
	free(dx);
	free(dw);
}

/* All passes of a layer, by whatever plan is fastest: the first, or the last. */
static void check_conv(const struct conv_options *options, enum ddp_type type, bool last)
{
	struct conv_options all = *options;
	struct layer layer;

	all.type = type;
	pretend_restart();
	for (int i = 0; i < ROWS(pretend.times); i++)
		pretend.times[i] = last ? (float)(100 - i) : (float)(1 + i);
	layer = open_conv(&all, all.batch, 1 + type);
	check_forward(&layer, false);
	check_back(&layer);
	close_layer(&layer);
	if (all.test_batch > 0) {
		pretend_restart();
		layer = open_conv(&all, all.test_batch, 9);
		check_forward(&layer, true);
		close_layer(&layer);
	}
	pretend_nothing_left();
}

START_TEST(test_conv)
{
	for (int type = 0; type < ROWS(types); type++) {
		check_conv(&convs[_i], types[type], false);
		check_conv(&convs[_i], types[type], true);
	}
}
END_TEST

static void check_dense(const struct dense_options *options, enum ddp_type type)
{
	struct dense_options all = *options;
	struct layer layer;

	all.type = type;
	layer = open_dense(&all, all.batch, 5);
	check_forward(&layer, false);
	check_back(&layer);
	close_layer(&layer);
	if (all.test_batch > 0) {
		layer = open_dense(&all, all.test_batch, 6);
		check_forward(&layer, true);
		close_layer(&layer);
	}
	pretend_nothing_left();
}

START_TEST(test_dense)
{
	for (int type = 0; type < ROWS(types); type++)
		for (int without = 0; without < 2; without++) {
			pretend.no_epilogues = without;
			pretend.plain = 0;
			check_dense(&denses[_i], types[type]);
		}
	ck_assert_int_gt(pretend.plain, 0);
}
END_TEST

static void fill(TCase *tcase)
{
	UNIT_ROWS(tcase, test_conv, convs);
	UNIT_ROWS(tcase, test_dense, denses);
}

int main(void)
{
	return pretend_run("cuda_layers", fill);
}
