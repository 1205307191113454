/* SPDX-License-Identifier: Apache-2.0 */
/* The first convolution and its gradients against plain sums in doubles. */
#include "arrays.h"

static const struct {
	size_t batch;
	struct kernel_first first;
} shapes[] = {
	{2, {28, 28, 32}}, {1, {3, 3, 8}},   {3, {9, 12, 16}},	 {2, {7, 8, 64}},
	{2, {13, 10, 40}}, {2, {6, 30, 24}}, {170, {28, 3, 64}},
};
enum { SIZE = 3, TAPS = SIZE * SIZE };

struct layer {
	struct kernel_first first;
	size_t batch, rows, columns; /* of results */
	struct array x, y, dy, weights, bias;
	struct kernel_scratch scratch;
};

static const char *shape_name(int s, enum ddp_type type, size_t skew)
{
	const struct kernel_first *first = &shapes[s].first;
	static char text[128];

	snprintf(text, sizeof(text), "%s, %zu images of %d x %d, %d outputs%s", arrays_name(type),
		 shapes[s].batch, first->height, first->width, first->out,
		 skew ? ", unaligned images" : "");
	return text;
}

static void layer_make(struct layer *l, int s, enum ddp_type type, size_t skew)
{
	struct kernel_first first = shapes[s].first;
	size_t out = (size_t)first.out;
	uint64_t random = arrays_seed + (uint64_t)s;

	l->first = first;
	l->batch = shapes[s].batch;
	l->rows = (size_t)(first.height - SIZE + 1);
	l->columns = (size_t)(first.width - SIZE + 1);
	l->x = array_make(type, l->batch * (size_t)(first.height * first.width), skew);
	l->y = array_make(type, l->batch * l->rows * l->columns * out, 0);
	l->dy = array_make(type, l->y.count, 0);
	l->weights = array_make(DDP_F32, out * TAPS, 0);
	l->bias = array_make(DDP_F32, out, 0);
	l->scratch = scratch_make(kernel_first_bytes(&first, l->batch));
	array_fill(&l->x, 0, &random);
	array_fill(&l->y, 0, &random);
	array_fill(&l->dy, 0, &random);
	array_fill(&l->weights, 0, &random);
	array_fill(&l->bias, 0, &random);
}

static void layer_free(struct layer *l)
{
	struct array *arrays[] = {&l->x, &l->y, &l->dy, &l->weights, &l->bias};

	for (int i = 0; i < ROWS(arrays); i++)
		array_free(arrays[i]);
	scratch_free(&l->scratch);
}

/* The pixel that result [i] sees at [tap] of its window. */
static double pixel(const struct layer *l, size_t i, size_t tap)
{
	size_t out = (size_t)l->first.out;
	size_t column = i / out % l->columns + tap % SIZE;
	size_t row = i / out / l->columns % l->rows + tap / SIZE;
	size_t image = i / out / l->columns / l->rows;

	return (double)l->x
		.values[(image * (size_t)l->first.height + row) * (size_t)l->first.width + column];
}

static void test_forward(int s, enum ddp_type type, size_t skew)
{
	for (int relu = 0; relu < 2; relu++) {
		struct layer l;

		layer_make(&l, s, type, skew);
		kernel_first(arrays_stream, &l.first, l.batch, l.x.data, l.weights.data,
			     l.bias.data, relu, l.y.data, type);
		array_fetch(&l.y);
		for (size_t i = 0; i < l.y.count; i++) {
			size_t o = i % (size_t)l.first.out;
			double sum = (double)l.bias.values[o];

			for (size_t k = 0; k < TAPS; k++)
				sum += (double)l.weights.values[o * TAPS + k] * pixel(&l, i, k);
			array_near("y", &l.y, i, relu && sum < 0 ? 0 : sum, 3e-6);
		}
		layer_free(&l);
	}
	array_row("first convolution: %s", shape_name(s, type, skew));
}

/* Sums of products in [sums], of their sizes in [sizes]: weights, then bias. */
static void plain_back(const struct layer *l, bool relu, double *sums, double *sizes)
{
	size_t out = (size_t)l->first.out;

	for (size_t i = 0; i < l->dy.count; i++) {
		double dy = (double)l->dy.values[i];
		size_t o = i % out;

		if (relu && !(l->y.values[i] > 0))
			continue;
		sums[out * TAPS + o] += dy;
		sizes[out * TAPS + o] += fabs(dy);
		for (size_t k = 0; k < TAPS; k++) {
			sums[o * TAPS + k] += dy * pixel(l, i, k);
			sizes[o * TAPS + k] += fabs(dy * pixel(l, i, k));
		}
	}
}

static void test_back(int s, enum ddp_type type, size_t skew)
{
	for (int relu = 0; relu < 2; relu++) {
		double *sums, *sizes;
		struct layer l;

		layer_make(&l, s, type, skew);
		sums = calloc(l.weights.count + l.bias.count, sizeof(*sums));
		sizes = calloc(l.weights.count + l.bias.count, sizeof(*sizes));
		kernel_first_back(arrays_stream, &l.first, l.batch, l.x.data, l.dy.data,
				  relu ? l.y.data : NULL, &l.scratch, l.weights.data, l.bias.data,
				  type);
		array_fetch(&l.weights);
		array_fetch(&l.bias);
		plain_back(&l, relu, sums, sizes);
		for (size_t i = 0; i < l.weights.count; i++)
			array_near("a weight's gradient", &l.weights, i, sums[i], 3e-7 * sizes[i]);
		for (size_t i = 0; i < l.bias.count; i++)
			array_near("a bias's gradient", &l.bias, i, sums[l.weights.count + i],
				   3e-7 * sizes[l.weights.count + i]);
		free(sums);
		free(sizes);
		layer_free(&l);
	}
	array_row("first convolution's gradients: %s", shape_name(s, type, skew));
}

static void test_fits(void)
{
	ok(kernel_first_fits(1, 64, 3, 1, 0) && kernel_first_fits(1, 8, 3, 1, 0),
	   "one channel, up to 64 outputs, eights of them, windows of 3 x 3");
	ok(!kernel_first_fits(3, 32, 3, 1, 0) && !kernel_first_fits(1, 72, 3, 1, 0) &&
		   !kernel_first_fits(1, 60, 3, 1, 0) && !kernel_first_fits(1, 0, 3, 1, 0) &&
		   !kernel_first_fits(1, 32, 2, 1, 0) && !kernel_first_fits(1, 32, 5, 1, 0) &&
		   !kernel_first_fits(1, 32, 3, 2, 0) && !kernel_first_fits(1, 32, 3, 1, 1),
	   "no other convolution");
}

int main(void)
{
	if (!arrays_begin("kernels of the first convolution"))
		return tap_failed ? tap_end() : EXIT_SUCCESS;
	test_fits();
	for (int t = 0; t < ROWS(arrays_types); t++)
		for (size_t skew = 0; skew < 2; skew++)
			for (int s = 0; s < ROWS(shapes); s++) {
				test_forward(s, arrays_types[t], skew);
				test_back(s, arrays_types[t], skew);
			}
	return arrays_end();
}
