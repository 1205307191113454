/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels_first.c - kernels of the first convolution and its gradients, compared with sums in
 * double precision
 */
#include "harness.h"

enum { SIZE = KERNEL_FIRST_SIZE, TAPS = SIZE * SIZE };

static const struct {
	size_t batch;
	struct kernel_first first;
} shapes[] = {
	{2, {28, 28}}, {1, {3, 3}},  {3, {9, 12}},   {2, {7, 8}},
	{2, {13, 10}}, {2, {6, 30}}, {170, {28, 3}},
};

struct layer {
	struct kernel_first first;
	size_t batch, rows, columns, out; /* rows and columns are those of the results */
	struct array *x, *y, *dy, *weights, *bias;
	struct kernel_scratch scratch;
};

static struct layer layer_new(const struct point *p)
{
	struct kernel_first first = shapes[p->size].first;
	struct layer l = {first, shapes[p->size].batch, .out = KERNEL_FIRST_OUT,
			  .rows = (size_t)(first.height - SIZE + 1),
			  .columns = (size_t)(first.width - SIZE + 1)};

	l.x = array_random(p->type, l.batch * (size_t)(first.height * first.width), p->skew, 0);
	l.y = array_random(p->type, l.batch * l.rows * l.columns * l.out, 0, 0);
	l.dy = array_random(p->type, l.y->count, 0, 0);
	l.weights = array_random(DDP_F32, l.out * TAPS, 0, 0);
	l.bias = array_random(DDP_F32, l.out, 0, 0);
	l.scratch = scratch_new(kernel_first_bytes(&first, l.batch));
	return l;
}

/* Returns the pixel at position [tap] of the window of result [i]. */
static double pixel(const struct layer *l, size_t i, size_t tap)
{
	size_t place = i / l->out, column = place % l->columns + tap % SIZE;
	size_t row = place / l->columns % l->rows + tap / SIZE;
	size_t image = place / l->columns / l->rows;

	return (double)l->x
		->values[(image * (size_t)l->first.height + row) * (size_t)l->first.width + column];
}

static void check_forward(const struct point *p)
{
	struct layer l = layer_new(p);

	for (int relu = 0; relu < 2; relu++) {
		kernel_first(stream, &l.first, l.batch, l.x->data, l.weights->data, l.bias->data,
			     relu, l.y->data, p->type);
		array_fetch(l.y);
		for (size_t i = 0; i < l.y->count; i++) {
			size_t o = i % l.out;
			double sum = (double)l.bias->values[o];

			for (size_t k = 0; k < TAPS; k++)
				sum += (double)l.weights->values[o * TAPS + k] * pixel(&l, i, k);
			expect_near("result", l.y, i, relu && sum < 0 ? 0 : sum, 3e-6);
		}
	}
}

static void check_back(const struct point *p)
{
	struct layer l = layer_new(p);
	size_t weights = l.weights->count;

	for (int relu = 0; relu < 2; relu++) {
		double *sums = host_new((weights + l.out) * sizeof(*sums));
		double *sizes = host_new((weights + l.out) * sizeof(*sizes));

		kernel_first_back(stream, &l.first, l.batch, l.x->data, l.dy->data,
				  relu ? l.y->data : NULL, &l.scratch, l.weights->data,
				  l.bias->data, p->type);
		array_fetch(l.weights);
		array_fetch(l.bias);
		for (size_t i = 0; i < l.dy->count; i++) {
			bool passes = !relu || l.y->values[i] > 0;
			double dy = passes ? (double)l.dy->values[i] : 0;
			size_t o = i % l.out;

			sums[weights + o] += dy;
			sizes[weights + o] += fabs(dy);
			for (size_t k = 0; k < TAPS; k++) {
				sums[o * TAPS + k] += dy * pixel(&l, i, k);
				sizes[o * TAPS + k] += fabs(dy * pixel(&l, i, k));
			}
		}
		for (size_t i = 0; i < weights; i++)
			expect_near("gradient of weight", l.weights, i, sums[i], 3e-7 * sizes[i]);
		for (size_t i = 0; i < l.out; i++)
			expect_near("gradient of bias", l.bias, i, sums[weights + i],
				    3e-7 * sizes[weights + i]);
	}
}

static const struct test tests[] = {
	{"first convolution", check_forward, ROWS(shapes), .skews = 2},
	{"gradients of the first convolution", check_back, ROWS(shapes), .skews = 2},
};

int main(int argc, char **argv)
{
	return harness_run(argc, argv, tests, ROWS(tests));
}
