/* SPDX-License-Identifier: Apache-2.0 */
/*
 * math-plain.c - convolutions and dense layers as loops in plain C, over vectors of output channels
 *
 * All arithmetic is f32. Images of another type are converted before use.
 *
 * The forward pass and the gradient of the input share one loop, gather(). A position of the
 * convolution's window is called a tap. Each tap has a matrix of weights, which plain_load() packs.
 * Each result is a sum over taps: the source pixel at the tap times the tap's matrix.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/type.h"
#include "base/xalloc.h"
#include "math.h"

enum { WIDTH = 16 };

/*
 * The compiler maps these vectors to the instructions of the target CPU. Results do not depend on
 * these instructions.
 */
typedef float vector __attribute__((vector_size(WIDTH * sizeof(float))));

/*
 * Weights of one direction, forward or backward. Each position of the window has a matrix of [from]
 * x [to] channels. The [to] channels are padded to whole vectors.
 */
struct side {
	int from, to;
	size_t vectors;	 /* number of vectors that hold [to] channels */
	vector *weights; /* matrices, indexed by vector, tap and [from] channel */
};

struct math_layer {
	struct math_options options;
	int height, width; /* size of a result image */
	struct side forward, back;
	vector *bias;	/* forward.vectors vectors */
	vector *sums;	/* weight gradients of one output vector, by tap and input channel */
	float *image;	/* an input image as f32 */
	float *results; /* results of one image, or their gradient, as f32 */
};

/* --- Types of activations ---------------------------------------------------------------- */

static void widen(const void *from, float *to, size_t count, enum ddp_type type)
{
	const uint16_t *halves = from;

	if (type == DDP_F32) {
		memcpy(to, from, count * sizeof(float));
		return;
	}
	for (size_t i = 0; i < count; i++) {
		uint32_t bits = (uint32_t)halves[i] << 16;

		memcpy(&to[i], &bits, sizeof(bits));
	}
}

/* Rounds to nearest even. */
static void narrow(const float *from, void *to, size_t count, enum ddp_type type)
{
	uint16_t *halves = to;

	if (type == DDP_F32) {
		memcpy(to, from, count * sizeof(float));
		return;
	}
	for (size_t i = 0; i < count; i++)
		halves[i] = ddp_to_bf16(from[i]);
}

static const char *const_bytes(const void *base, size_t elements, enum ddp_type type)
{
	return (const char *)base + elements * ddp_type_size(type);
}

/* --- Create and load ---------------------------------------------------------------------- */

static size_t window(const struct math_layer *layer)
{
	return (size_t)(layer->options.size * layer->options.size);
}

static size_t read_size(const struct math_layer *layer)
{
	return (size_t)layer->options.height * (size_t)layer->options.width *
	       (size_t)layer->options.in;
}

static size_t result_size(const struct math_layer *layer)
{
	return (size_t)layer->height * (size_t)layer->width * (size_t)layer->options.out;
}

static void *zeros(size_t bytes)
{
	return ddp_xaligned(bytes, "a layer");
}

static void create_side(struct side *side, int from, int to, size_t places)
{
	side->from = from;
	side->to = to;
	side->vectors = (size_t)(to + WIDTH - 1) / WIDTH;
	side->weights = zeros(side->vectors * places * (size_t)from * sizeof(vector));
}

static void plain_destroy(struct math_layer *layer)
{
	if (!layer)
		return;
	free(layer->forward.weights);
	free(layer->back.weights);
	free(layer->bias);
	free(layer->sums);
	free(layer->image);
	free(layer->results);
	free(layer);
}

static int plain_create(struct math_layer **result, const struct math_options *options,
			struct ddp_error *error)
{
	struct math_layer *layer = *result = ddp_xcalloc(1, sizeof(*layer), "a layer");
	size_t in = (size_t)options->in;

	(void)error;
	layer->options = *options;
	layer->height = math_out_size(options, options->height);
	layer->width = math_out_size(options, options->width);
	create_side(&layer->forward, options->in, options->out, window(layer));
	if (!options->first)
		create_side(&layer->back, options->out, options->in, window(layer));
	layer->bias = zeros((layer->forward.vectors + 1) * sizeof(vector));
	layer->sums = zeros(window(layer) * in * sizeof(vector));
	layer->image = zeros((read_size(layer) + WIDTH) * sizeof(float));
	layer->results = zeros((result_size(layer) + WIDTH) * sizeof(float));
	return 0;
}

/* Packs the weights, which have the order O, H, W, I in [weights]. */
static void plain_load(struct math_layer *layer, const float *weights, const float *bias)
{
	size_t in = (size_t)layer->options.in, out = (size_t)layer->options.out;
	size_t places = window(layer);
	float *forward = (float *)layer->forward.weights, *back = (float *)layer->back.weights;

	for (size_t o = 0; o < out; o++) {
		for (size_t place = 0; place < places; place++) {
			const float *from = weights + (o * places + place) * in;

			for (size_t i = 0; i < in; i++) {
				forward[((o / WIDTH * places + place) * in + i) * WIDTH +
					o % WIDTH] = from[i];
				if (back)
					back[((i / WIDTH * places + place) * out + o) * WIDTH +
					     i % WIDTH] = from[i];
			}
		}
	}
	if (bias)
		memcpy(layer->bias, bias, out * sizeof(float));
}

/* --- Forward pass and gradient of the input ------------------------------------------------ */

static void add_product(vector *sum, const float *row, const vector *matrix, int count)
{
	vector even = *sum, odd = {0};
	int i = 0;

	for (; i + 1 < count; i += 2) {
		even += row[i] * matrix[i];
		odd += row[i + 1] * matrix[i + 1];
	}
	if (i < count)
		even += row[i] * matrix[i];
	*sum = even + odd;
}

/* The source position that tap [tap] of result [at] reads, or -1 if it is in the padding. */
static int source_forward(const struct math_options *options, int at, int tap, int limit)
{
	int place = at * options->stride + tap - options->pad;

	return place >= 0 && place < limit ? place : -1;
}

static int source_back(const struct math_options *options, int at, int tap, int limit)
{
	int place = at + options->pad - tap;

	if (place < 0 || place % options->stride != 0)
		return -1;
	return place / options->stride < limit ? place / options->stride : -1;
}

struct plane {
	int height, width;
};

/* Adds the products of all taps to [sum], one vector of channels of the result at (row, column). */
static void gather_one(const struct math_layer *layer, const struct side *side,
		       const vector *weights, struct plane source, const float *from, int row,
		       int column, vector *sum)
{
	const struct math_options *options = &layer->options;
	int (*place)(const struct math_options *, int, int, int) =
		side == &layer->forward ? source_forward : source_back;

	for (int y = 0; y < options->size; y++) {
		int sy = place(options, row, y, source.height);

		for (int x = 0; sy >= 0 && x < options->size; x++) {
			int sx = place(options, column, x, source.width);

			if (sx >= 0)
				add_product(sum, from + (sy * source.width + sx) * side->from,
					    weights + (y * options->size + x) * side->from,
					    side->from);
		}
	}
}

/* Computes the image [to] from the image [from]. [bias] initializes the sums. */
static void gather(const struct math_layer *layer, const struct side *side, struct plane source,
		   const float *from, struct plane result, float *to, const vector *bias, bool relu)
{
	size_t stride = window(layer) * (size_t)side->from;

	for (size_t v = 0; v < side->vectors; v++) {
		int left = side->to - (int)v * WIDTH, count = left < WIDTH ? left : WIDTH;

		for (int i = 0; i < result.height * result.width; i++) {
			vector sum = bias[v];
			float *out = to + (size_t)i * (size_t)side->to + v * WIDTH;

			gather_one(layer, side, side->weights + v * stride, source, from,
				   i / result.width, i % result.width, &sum);
			for (int c = 0; c < count; c++)
				out[c] = relu && sum[c] < 0 ? 0 : sum[c];
		}
	}
}

static int plain_forward(struct math_layer *layer, size_t count, const void *x, void *y,
			 struct ddp_error *error)
{
	const struct math_options *options = &layer->options;
	struct plane source = {options->height, options->width};
	struct plane result = {layer->height, layer->width};
	char *to = y;

	(void)error;
	for (size_t i = 0; i < count; i++) {
		widen(const_bytes(x, i * read_size(layer), options->type), layer->image,
		      read_size(layer), options->type);
		gather(layer, &layer->forward, source, layer->image, result, layer->results,
		       layer->bias, options->relu);
		narrow(layer->results, to + i * result_size(layer) * ddp_type_size(options->type),
		       result_size(layer), options->type);
	}
	return 0;
}

static int plain_back_data(struct math_layer *layer, size_t count, const void *dy, void *dx,
			   struct ddp_error *error)
{
	const struct math_options *options = &layer->options;
	struct plane source = {layer->height, layer->width};
	struct plane result = {options->height, options->width};
	vector *none = zeros((layer->back.vectors + 1) * sizeof(vector));
	char *to = dx;

	(void)error;
	for (size_t i = 0; i < count; i++) {
		widen(const_bytes(dy, i * result_size(layer), options->type), layer->results,
		      result_size(layer), options->type);
		gather(layer, &layer->back, source, layer->results, result, layer->image, none,
		       false);
		narrow(layer->image, to + i * read_size(layer) * ddp_type_size(options->type),
		       read_size(layer), options->type);
	}
	free(none);
	return 0;
}

/* --- Gradient of the weights ---------------------------------------------------------------- */

/*
 * Adds the products of tap (y, x) of one image to the gradients of one vector of output channels.
 */
static void add_tap(const struct math_layer *layer, int y, int x, const float *dy, int channels,
		    vector *sums)
{
	const struct math_options *options = &layer->options;

	for (int i = 0; i < layer->height * layer->width; i++) {
		int sy = source_forward(options, i / layer->width, y, options->height);
		int sx = source_forward(options, i % layer->width, x, options->width);
		const float *from = layer->image + (sy * options->width + sx) * options->in;
		vector gradient = {0};

		if (sy < 0 || sx < 0)
			continue;
		memcpy(&gradient, dy + (size_t)i * (size_t)options->out,
		       (size_t)channels * sizeof(float));
		for (int c = 0; c < options->in; c++)
			sums[c] += from[c] * gradient;
	}
}

/* Adds the sums to the gradients of the output channels from [o] on, and clears them. */
static void flush(struct math_layer *layer, int o, int channels, float *weights)
{
	size_t count = window(layer) * (size_t)layer->options.in;

	for (int c = 0; c < channels; c++) {
		for (size_t k = 0; k < count; k++)
			weights[(size_t)(o + c) * count + k] += layer->sums[k][c];
	}
	memset(layer->sums, 0, count * sizeof(vector));
}

static void add_image(struct math_layer *layer, int o, int channels)
{
	int size = layer->options.size;

	for (int place = 0; place < size * size; place++)
		add_tap(layer, place / size, place % size, layer->results + o, channels,
			layer->sums + place * layer->options.in);
}

static void add_bias(const struct math_layer *layer, float *bias)
{
	int out = layer->options.out;

	for (int o = 0; o < out; o++) {
		float sum = 0;

		for (int i = 0; i < layer->height * layer->width; i++)
			sum += layer->results[i * out + o];
		bias[o] += sum;
	}
}

static void widen_pair(struct math_layer *layer, size_t i, const void *x, const void *dy)
{
	enum ddp_type type = layer->options.type;

	widen(const_bytes(x, i * read_size(layer), type), layer->image, read_size(layer), type);
	widen(const_bytes(dy, i * result_size(layer), type), layer->results, result_size(layer),
	      type);
}

/*
 * A convolution sums within each image first, and then over images, which reduces rounding errors.
 */
static int plain_back_weights(struct math_layer *layer, size_t count, const void *x, const void *dy,
			      float *weights, float *bias, struct ddp_error *error)
{
	const struct math_options *options = &layer->options;
	size_t all = window(layer) * (size_t)options->in * (size_t)options->out;

	(void)error;
	memset(weights, 0, all * sizeof(*weights));
	if (bias)
		memset(bias, 0, (size_t)options->out * sizeof(*bias));
	memset(layer->sums, 0, all / (size_t)options->out * sizeof(vector));
	for (int o = 0; o < options->out; o += WIDTH) {
		int channels = options->out - o < WIDTH ? options->out - o : WIDTH;

		for (size_t i = 0; i < count; i++) {
			widen_pair(layer, i, x, dy);
			add_image(layer, o, channels);
			if (bias && o == 0)
				add_bias(layer, bias);
			if (!options->dense || i + 1 == count)
				flush(layer, o, channels, weights);
		}
	}
	return 0;
}

/* --- Table of methods ---------------------------------------------------------------------- */

static const char *plain_describe(void)
{
	return "plain C";
}

const struct math math_plain = {
	.head = {DDP_MODULE_MAGIC, MATH_VERSION, sizeof(struct math), "math", "plain",
		 PACKAGE_VERSION},
	.describe = plain_describe,
	.create = plain_create,
	.load = plain_load,
	.forward = plain_forward,
	.back_data = plain_back_data,
	.back_weights = plain_back_weights,
	.destroy = plain_destroy,
};
