/* SPDX-License-Identifier: Apache-2.0 */
/* Pools against loops that say the same: all results are exact but means. */
#include "arrays.h"

static const struct {
	size_t batch;
	struct kernel_pool pool;
} shapes[] = {
	{1, {2, 2, 1, 2}},   {3, {5, 7, 3, 2}},	  {2, {9, 8, 10, 2}},	{2, {24, 24, 64, 2}},
	{2, {7, 7, 100, 2}}, {1, {4, 3, 512, 2}}, {2, {10, 11, 16, 3}}, {2, {3, 9, 5, 1}},
	{1, {14, 13, 8, 4}}, {2, {1, 5, 8, 2}},	  {3, {6, 6, 24, 6}},	{9, {48, 47, 512, 2}},
};

static const char *shape_name(int s, enum ddp_type type, size_t skew)
{
	const struct kernel_pool *pool = &shapes[s].pool;
	static char text[128];

	snprintf(text, sizeof(text), "%s, %zu images of %d x %d x %d, windows of %d%s",
		 arrays_name(type), shapes[s].batch, pool->height, pool->width, pool->channels,
		 pool->size, skew ? ", unaligned" : "");
	return text;
}

struct layer {
	struct kernel_pool pool;
	size_t batch, rows, columns;
	struct array x, y, dy, dx;
	uint8_t *which, *at; /* of the device, and here */
};

/* Small integers, which are often equal, and now and then what compares like nothing else. */
static void fill_rare(struct array *array, uint64_t *random)
{
	const double rare[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, -0.0};

	for (size_t i = 0; i < array->count; i++)
		array_put(array, i,
			  draw(random, 20) ? (double)draw(random, 7) - 3
					   : rare[draw(random, ROWS(rare))]);
	array_send(array);
}

static void layer_make(struct layer *l, int s, enum ddp_type type, size_t skew)
{
	struct kernel_pool pool = shapes[s].pool;
	size_t batch = shapes[s].batch, channels = (size_t)pool.channels, results;
	uint64_t random = arrays_seed + (uint64_t)s;

	*l = (struct layer){.pool = pool, .batch = batch};
	l->rows = (size_t)(pool.height / pool.size);
	l->columns = (size_t)(pool.width / pool.size);
	results = batch * l->rows * l->columns * channels;
	l->x = array_make(type, batch * (size_t)pool.height * (size_t)pool.width * channels, skew);
	l->dx = array_make(type, l->x.count, skew);
	l->y = array_make(type, results, skew);
	l->dy = array_make(type, results, skew);
	fill_rare(&l->x, &random);
	array_fill(&l->dy, 0, &random);
	array_fill_with(&l->dx, 77);
	array_fill_with(&l->y, 77);
	l->at = calloc(results + 1, 1);
	l->which = bytes_make(results, NULL);
}

static void layer_free(struct layer *l)
{
	array_free(&l->x);
	array_free(&l->y);
	array_free(&l->dy);
	array_free(&l->dx);
	device_free(arrays_device, l->which);
	free(l->at);
}

/* Where element [k] of the window of result [i] is in x. */
static size_t pixel(const struct layer *l, size_t i, size_t k)
{
	size_t channels = (size_t)l->pool.channels, size = (size_t)l->pool.size;
	size_t c = i % channels, column = i / channels % l->columns;
	size_t row = i / channels / l->columns % l->rows;
	size_t image = i / channels / l->columns / l->rows;

	row = row * size + k / size;
	column = column * size + k % size;
	return ((image * (size_t)l->pool.height + row) * (size_t)l->pool.width + column) *
		       channels +
	       c;
}

/* As PyTorch's loop: a later one wins if it is greater, or NaN. */
static size_t plain_which(const struct layer *l, size_t i)
{
	size_t best = 0;

	for (size_t k = 1; k < (size_t)(l->pool.size * l->pool.size); k++) {
		float next = l->x.values[pixel(l, i, k)];

		if (next > l->x.values[pixel(l, i, best)] || isnan(next))
			best = k;
	}
	return best;
}

static void test_max_pool(int s, enum ddp_type type, size_t skew)
{
	struct layer l;

	layer_make(&l, s, type, skew);
	kernel_max_pool(arrays_stream, &l.pool, NULL, NULL, NULL, l.batch, l.x.data, l.y.data,
			l.which, type);
	array_fetch(&l.y);
	bytes_fetch(l.at, l.which, l.y.count);
	for (size_t i = 0; i < l.y.count; i++) {
		size_t best = plain_which(&l, i);

		array_exact("y", &l.y, i, (double)l.x.values[pixel(&l, i, best)]);
		if (l.at[i] != best)
			array_differs("which", i, l.at[i], (double)best, 0);
	}
	array_row("max-pool: %s", shape_name(s, type, skew));
	layer_free(&l);
}

/* With the sums of channels, as a bias in front wants them, in the second turn. */
static void test_max_pool_back(int s, enum ddp_type type, size_t skew)
{
	for (int relu = 0; relu < 2; relu++) {
		struct kernel_scratch scratch;
		struct layer l;
		struct array sums;
		double *totals;
		float *want;
		size_t channels = (size_t)shapes[s].pool.channels;

		layer_make(&l, s, type, skew);
		want = calloc(l.x.count, sizeof(*want));
		totals = calloc(channels, sizeof(*totals));
		sums = array_make(DDP_F32, channels, 0);
		scratch = scratch_make(kernel_sums_bytes(l.x.count / channels, channels));
		kernel_max_pool(arrays_stream, &l.pool, NULL, NULL, NULL, l.batch, l.x.data,
				l.y.data, l.which, type);
		kernel_max_pool_back(arrays_stream, &l.pool, l.batch, l.dy.data, l.which,
				     relu ? l.y.data : NULL, 1, l.dx.data, &scratch,
				     relu ? sums.data : NULL, type);
		array_fetch(&l.y);
		array_fetch(&l.dx);
		array_fetch(&sums);
		for (size_t i = 0; i < l.y.count; i++)
			if (!relu || l.y.values[i] > 0)
				want[pixel(&l, i, plain_which(&l, i))] = l.dy.values[i];
		for (size_t i = 0; i < l.dx.count; i++) {
			array_exact("dx", &l.dx, i, (double)want[i]);
			totals[i % channels] += (double)want[i];
		}
		for (size_t c = 0; relu && c < channels; c++)
			array_near("a channel's sum", &sums, c, totals[c], 1e-4);
		scratch_free(&scratch);
		array_free(&sums);
		free(totals);
		free(want);
		layer_free(&l);
	}
	array_row("max-pool backwards: %s", shape_name(s, type, skew));
}

/* --- Means -------------------------------------------------------------------------------- */

/* Images, rows of each, channels. */
static const size_t averages[][3] = {
	{1, 1, 1}, {3, 49, 3}, {2, 16, 512}, {33, 16, 64}, {5, 7, 100}, {4, 9, 10},
};

static void test_average(int s, enum ddp_type type, size_t skew)
{
	size_t batch = averages[s][0], rows = averages[s][1], channels = averages[s][2];
	struct array x = array_make(type, batch * rows * channels, skew);
	struct array y = array_make(type, batch * channels, skew);
	struct array dx = array_make(type, x.count, skew);
	uint64_t random = arrays_seed;

	array_fill(&x, 1, &random);
	array_fill_with(&y, 77);
	array_fill_with(&dx, 77);
	kernel_average_pool(arrays_stream, batch, rows, channels, x.data, y.data, type);
	kernel_average_pool_back(arrays_stream, batch, rows, channels, y.data, dx.data, type);
	array_fetch(&y);
	array_fetch(&dx);
	for (size_t i = 0; i < y.count; i++) {
		size_t first = i / channels * rows * channels + i % channels;
		double sum = 0;

		for (size_t r = 0; r < rows; r++)
			sum += (double)x.values[first + r * channels];
		array_near("a mean", &y, i, sum / (double)rows, 1e-6);
		for (size_t r = 0; r < rows; r++)
			array_near("its gradient", &dx, first + r * channels,
				   (double)y.values[i] / (double)rows, 2e-7);
	}
	array_row("average pool, there and back: %s, %zu images of %zu rows, %zu channels%s",
		  arrays_name(type), batch, rows, channels, skew ? ", unaligned" : "");
	array_free(&dx);
	array_free(&y);
	array_free(&x);
}

int main(void)
{
	if (!arrays_begin("kernels of pools"))
		return tap_failed ? tap_end() : EXIT_SUCCESS;
	for (int t = 0; t < ROWS(arrays_types); t++)
		for (size_t skew = 0; skew < 2; skew++) {
			/* The last one, which fills a GPU, once of each type. */
			for (int s = 0; s < ROWS(shapes) - (int)skew; s++) {
				test_max_pool(s, arrays_types[t], skew);
				test_max_pool_back(s, arrays_types[t], skew);
			}
			for (int s = 0; s < ROWS(averages); s++)
				test_average(s, arrays_types[t], skew);
		}
	return arrays_end();
}
