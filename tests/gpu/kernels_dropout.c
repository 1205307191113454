/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dropout on the device against dropout_draw(): what stays and what does not, and each value; behind a
 * pool, against one after the other. Needs train/net/dropout.c and base/random.c.
 */
#include "arrays.h"
#include "net/dropout.h"

enum { BATCH = 5 };

static const size_t sizes[] = {1, 7, 8, 127, 128, 130, 1000, 2056, 4100};
static const float rates[] = {0.5f, 0.25f, 0.1f, 0.7f, 0x1p-16f, 1 - 0x1p-16f};

/* A sample's places use all bits of an order, an epoch and a seed. */
struct draws {
	struct dropout dropout;
	struct kernel_dropout kernel;
	struct kernel_order order;
	uint64_t orders[BATCH];
};

static struct draws draws_make(float rate, size_t count, uint64_t *random)
{
	struct draws draws = {.dropout = {.layer = draw(random, 100)}};

	dropout_set_rate(&draws.dropout, rate);
	draws.dropout.seed = (uint64_t)draw(random, UINT32_MAX) << 32 | draw(random, UINT32_MAX);
	draws.dropout.epoch = (uint64_t)draw(random, UINT32_MAX) >> draw(random, 32);
	for (int i = 0; i < BATCH; i++)
		draws.orders[i] = (uint64_t)draw(random, UINT32_MAX) << draw(random, 24);
	draws.kernel = (struct kernel_dropout){draws.dropout.limit, draws.dropout.planes,
					       draws.dropout.scale, draws.dropout.layer};
	draws.order = (struct kernel_order){
		.seed = draws.dropout.seed, .epoch = draws.dropout.epoch, .count = (uint32_t)count};
	return draws;
}

/* Orders of samples that are not there are not in memory either. */
static void drop(const struct draws *draws, size_t elements, const struct array *x, struct array *y)
{
	size_t count = draws->order.count;
	void *order = bytes_make(sizeof(draws->order), &draws->order);
	void *orders = bytes_make(count * sizeof(*draws->orders), draws->orders);

	kernel_dropout(arrays_stream, &draws->kernel, order, orders, BATCH, elements, x->data,
		       y->data, y->type);
	array_fetch(y);
	device_free(arrays_device, order);
	device_free(arrays_device, orders);
}

static void check(float rate, enum ddp_type type, size_t elements, size_t count, size_t skew,
		  bool in_place)
{
	uint64_t random = arrays_seed + elements;
	struct draws draws = draws_make(rate, count, &random);
	struct array x = array_make(type, BATCH * elements, skew);
	struct array y = array_make(type, in_place ? 0 : x.count, skew);
	struct array *result = in_place ? &x : &y;
	uint8_t *keep = malloc(count * elements / 8 + 1);
	float *before = malloc(x.count * sizeof(*before));

	array_fill(&x, 0, &random);
	for (size_t i = 0; i < x.count; i += 11)
		array_put(&x, i, i >= count * elements ? 0 : (double)(i % 2 ? NAN : INFINITY));
	for (size_t i = count * elements; i < x.count; i++)
		array_put(&x, i, 0);
	array_send(&x);
	array_fill_with(&y, 77);
	memcpy(before, x.values, x.count * sizeof(*before));
	drop(&draws, elements, &x, result);
	dropout_draw(&draws.dropout, draws.orders, count, elements, keep);
	for (size_t i = 0; i < x.count; i++) {
		bool kept = i < count * elements && keep[i / 8] >> i % 8 & 1;

		array_exact("an element", result, i,
			    kept ? (double)(before[i] * draws.dropout.scale) : 0);
	}
	free(keep);
	free(before);
	array_free(&x);
	array_free(&y);
}

/* --- Behind a pool ------------------------------------------------------------------------------ */

static const struct kernel_pool pools[] = {
	{2, 2, 1, 2},	 {5, 7, 3, 2},	  {9, 8, 10, 2}, {24, 24, 64, 2},
	{12, 12, 16, 2}, {10, 11, 16, 3}, {3, 9, 5, 1},
};

/* Forward and back: at once, and one after the other. */
enum way { AT_ONCE, APART, WAYS };

struct layer {
	struct array y, dx;
	uint8_t *which;
};

static struct layer layer_run(enum way way, const struct kernel_pool *pool,
			      const struct draws *draws, const struct array *x,
			      const struct array *dy, size_t skew)
{
	void *order = bytes_make(sizeof(draws->order), &draws->order);
	void *orders = bytes_make(sizeof(draws->orders), draws->orders);
	size_t elements = dy->count / BATCH;
	struct array pooled = array_make(x->type, dy->count, skew);
	struct array slopes = array_make(x->type, dy->count, skew);
	struct layer l = {array_make(x->type, dy->count, skew), array_make(x->type, x->count, skew),
			  bytes_make(dy->count, NULL)};

	array_fill_with(&l.y, 77);
	array_fill_with(&l.dx, 77);
	if (way == AT_ONCE) {
		kernel_max_pool(arrays_stream, pool, &draws->kernel, order, orders, BATCH, x->data,
				l.y.data, l.which, x->type);
		kernel_max_pool_back(arrays_stream, pool, BATCH, dy->data, l.which, l.y.data,
				     draws->kernel.scale, l.dx.data, NULL, NULL, x->type);
	} else {
		kernel_max_pool(arrays_stream, pool, NULL, NULL, NULL, BATCH, x->data, pooled.data,
				l.which, x->type);
		kernel_dropout(arrays_stream, &draws->kernel, order, orders, BATCH, elements,
			       pooled.data, l.y.data, x->type);
		kernel_dropout(arrays_stream, &draws->kernel, order, orders, BATCH, elements,
			       dy->data, slopes.data, x->type);
		kernel_max_pool_back(arrays_stream, pool, BATCH, slopes.data, l.which, pooled.data,
				     1, l.dx.data, NULL, NULL, x->type);
	}
	array_fetch(&l.y);
	array_fetch(&l.dx);
	device_free(arrays_device, order);
	device_free(arrays_device, orders);
	array_free(&pooled);
	array_free(&slopes);
	return l;
}

static void layer_compare(struct layer layers[WAYS])
{
	size_t count = layers[APART].y.count;
	uint8_t *which[WAYS];

	for (int way = 0; way < WAYS; way++) {
		which[way] = malloc(count);
		bytes_fetch(which[way], layers[way].which, count);
	}
	for (size_t i = 0; i < count; i++) {
		array_exact("a result", &layers[AT_ONCE].y, i, (double)layers[APART].y.values[i]);
		if (which[AT_ONCE][i] != which[APART][i])
			array_differs("which", i, which[AT_ONCE][i], which[APART][i], 0);
	}
	for (size_t i = 0; i < layers[APART].dx.count; i++)
		array_exact("a gradient", &layers[AT_ONCE].dx, i,
			    (double)layers[APART].dx.values[i]);
	for (int way = 0; way < WAYS; way++) {
		free(which[way]);
		array_free(&layers[way].y);
		array_free(&layers[way].dx);
		device_free(arrays_device, layers[way].which);
	}
}

static void check_pool(const struct kernel_pool *pool, float rate, enum ddp_type type, size_t skew)
{
	size_t channels = (size_t)pool->channels;
	size_t results = (size_t)(pool->height / pool->size) * (size_t)(pool->width / pool->size);
	uint64_t random = arrays_seed + channels;
	struct draws draws = draws_make(rate, BATCH, &random);
	struct array dy = array_make(type, BATCH * results * channels, skew);
	struct array x = array_make(
		type, BATCH * (size_t)pool->height * (size_t)pool->width * channels, skew);
	struct layer layers[WAYS];

	array_fill(&dy, 0, &random);
	array_fill(&x, 0, &random);
	for (size_t i = 0; i < x.count; i++)
		if (x.values[i] < 0.5f)
			array_put(&x, i, i % 37 ? 0 : (double)NAN);
	array_send(&x);
	for (enum way way = AT_ONCE; way < WAYS; way++)
		layers[way] = layer_run(way, pool, &draws, &x, &dy, skew);
	layer_compare(layers);
	array_free(&x);
	array_free(&dy);
}

static void test_pool(const struct kernel_pool *pool, enum ddp_type type)
{
	for (size_t skew = 0; skew < 2; skew++)
		check_pool(pool, skew ? 0.4f : 0.25f, type, skew);
	array_row("pool and dropout: %s, %d x %d x %d, windows of %d", arrays_name(type),
		  pool->height, pool->width, pool->channels, pool->size);
}

int main(void)
{
	static const size_t counts[] = {0, 3, BATCH};

	if (!arrays_begin("kernels of dropout"))
		return tap_failed ? tap_end() : EXIT_SUCCESS;
	for (int t = 0; t < ROWS(arrays_types); t++) {
		for (int p = 0; p < ROWS(pools); p++)
			test_pool(&pools[p], arrays_types[t]);
		for (int r = 0; r < ROWS(rates); r++) {
			for (int s = 0; s < ROWS(sizes); s++)
				for (int c = 0; c < ROWS(counts); c++)
					check(rates[r], arrays_types[t], sizes[s], counts[c],
					      (size_t)c % 2, (s + c) % 3 == 0);
			array_row("dropout: %s, a rate of %g, samples of 1 to 4100",
				  arrays_name(arrays_types[t]), (double)rates[r]);
		}
	}
	return arrays_end();
}
