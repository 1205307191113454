/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels_elements.c - elementwise kernels, conversions, dropout and pools compared with plain C;
 * all results except means are exact
 */
#include "harness.h"
#include "net/dropout.h"

/* --- ReLU and sums ---------------------------------------------------------------------- */

/* Numbers of elements around those of one vector access, of one thread and of one block. */
static const size_t counts[] = {0, 1, 3, 4, 7, 8, 9, 255, 1024, 2048, 2049, 5003};

enum { RELU, RELU_BACK, DROPOUT_BACK, ADD, ADD_RELU };

static const float scale = 1 / 0.7f;

static float plain_act(int kind, float a, float b)
{
	float sum = kind == RELU ? a : a + b;

	if (kind == RELU_BACK || kind == DROPOUT_BACK)
		return b > 0 ? (kind == DROPOUT_BACK ? a * scale : a) : 0;
	return kind != ADD && sum < 0 ? 0 : sum;
}

/* The result replaces a or b, or is in other memory. A point's kind is an operation. */
static void act_in(const struct point *p, int place)
{
	size_t count = counts[p->size];
	struct array *a = array_rare(p->type, count, 0), *b = array_rare(p->type, count, 0);
	struct array *y = array_new(p->type, count, 0);
	const float *first = host_copy(a->values, count * sizeof(float));
	const float *second = host_copy(b->values, count * sizeof(float));

	y = place == 1 ? a : place == 2 && p->kind != RELU ? b : y;
	if (p->kind == RELU)
		kernel_relu(stream, a->data, y->data, count, p->type);
	else if (p->kind == RELU_BACK || p->kind == DROPOUT_BACK)
		kernel_relu_back(stream, a->data, b->data, p->kind == RELU_BACK ? 1 : scale,
				 y->data, count, p->type);
	else
		kernel_add(stream, a->data, b->data, y->data, count, p->kind == ADD_RELU, p->type);
	array_fetch(y);
	for (size_t i = 0; i < count; i++)
		expect_exact("element", y, i, (double)plain_act(p->kind, first[i], second[i]));
}

static void check_act(const struct point *p)
{
	for (int place = 0; place < 3; place++)
		act_in(p, place);
}

/* --- Conversions ------------------------------------------------------------------------ */

/*
 * Returns values that are hard to round: halfway between two numbers of a type, and next to such
 * values; the largest and smallest numbers; infinity and NaN.
 */
static double edge(void)
{
	const double edges[] = {
		1 + 0x1p-8,	1 + 0x3p-8,  1 + 0x1p-11, 1 + 0x3p-11,	    65504,
		65519.99,	65520,	     -65520,	  0x1p-24,	    0x1p-25,
		0x1.000002p-25, -0x1.8p-24,  0x1p-14,	  0x1p-126,	    0x1p-133,
		0x1.8p-134,	(double)NAN, -0.0,	  (double)INFINITY, (double)FLT_MAX};
	double value = edges[draw(ROWS(edges))];

	return draw(2) ? value : (double)nextafterf((float)value, 1);
}

static void check_narrow(const struct point *p)
{
	size_t count = counts[p->size];
	struct array *from = array_new(DDP_F32, count, 0), *to = array_new(p->type, count, 0);
	struct array *back = array_new(DDP_F32, count, 0);

	for (size_t i = 0; i < count; i++)
		array_put(from, i, draw(3) ? ldexp(draw_unit(), (int)draw(40) - 17) : edge());
	array_send(from);
	kernel_narrow(stream, from->data, to->data, count, p->type);
	kernel_widen(stream, to->data, back->data, count, p->type);
	array_fetch(to);
	array_fetch(back);
	expect_all("narrowed element", to, from->values);
	expect_all("widened element", back, to->values);
}

/* Converts all numbers of a type. */
static void check_widen(const struct point *p)
{
	enum { ALL = 1 << 16 };
	struct array *from = array_new(p->type, ALL, 0), *to = array_new(DDP_F32, ALL, 0);
	uint16_t *bits = host_new(ALL * sizeof(*bits));

	for (int i = 0; i < ALL; i++)
		bits[i] = (uint16_t)i;
	if (p->type == DDP_F32)
		return;
	device_move(from->data, bits, ALL * sizeof(*bits));
	kernel_widen(stream, from->data, to->data, ALL, p->type);
	array_fetch(from);
	array_fetch(to);
	expect_all("widened number", to, from->values);
}

/* --- Dropout ---------------------------------------------------------------------------- */

enum { BATCH = 5 };

static const size_t elements[] = {8, 16, 120, 128, 136, 1000, 2056, 4104};
static const float rates[] = {0.5f, 0.25f, 0.1f, 0.7f, 0x1p-16f, 1 - 0x1p-16f};

struct draws {
	struct dropout dropout;
	uint64_t seed, epoch, orders[BATCH];
	void *device_order, *device_orders;
};

/*
 * Draws seeds, epochs and orders whose bits are all used. The device has orders of the first
 * [count] samples only.
 */
static struct draws draws_new(float rate, uint32_t count)
{
	struct draws draws;
	struct kernel_order order = {.count = count};

	dropout_set(&draws.dropout, rate, (int)draw(100));
	order.seed = draws.seed = draw64();
	order.epoch = draws.epoch = (uint64_t)draw(UINT32_MAX) >> draw(32);
	for (int i = 0; i < BATCH; i++)
		draws.orders[i] = (uint64_t)draw(UINT32_MAX) << draw(24);
	draws.device_order = device_new(sizeof(order), &order);
	draws.device_orders = device_new(count * sizeof(*draws.orders), draws.orders);
	return draws;
}

/*
 * A point is a rate and a number of elements per sample. The batch has 0, 3 or BATCH samples. The
 * result replaces the input, or is in other memory.
 */
static void check_dropout(const struct point *p)
{
	static const uint32_t samples[] = {0, 3, BATCH};
	size_t each = elements[p->size % ROWS(elements)];

	for (int c = 0; c < ROWS(samples); c++) {
		size_t there = samples[c] * each;
		struct draws draws = draws_new(rates[p->size / ROWS(elements)], samples[c]);
		struct array *x = array_rare(p->type, BATCH * each, 0), *y = x;
		uint8_t *keep = host_new(there / 8 + 1);
		const float *before;

		for (size_t i = there; i < x->count; i++)
			array_put(x, i, 0);
		array_send(x);
		before = host_copy(x->values, x->count * sizeof(*before));
		if ((p->size + c) % 3)
			y = array_new(p->type, x->count, 0);
		kernel_dropout(stream, &draws.dropout, draws.device_order, draws.device_orders,
			       BATCH, each, x->data, y->data, p->type);
		array_fetch(y);
		dropout_draw(&draws.dropout, draws.seed, draws.epoch, draws.orders, samples[c],
			     each, keep);
		for (size_t i = 0; i < x->count; i++) {
			bool kept = i < there && keep[i / 8] >> i % 8 & 1;

			expect_exact("element", y, i,
				     kept ? (double)(before[i] * draws.dropout.scale) : 0);
		}
	}
}

/* --- Maximum pools ---------------------------------------------------------------------- */

static const struct {
	size_t batch;
	struct graph_shape in;
} pools[] = {
	{1, {2, 2, 8}},	  {3, {4, 6, 24}},  {2, {8, 8, 40}},	{2, {24, 24, 64}},
	{2, {6, 6, 104}}, {1, {4, 2, 512}}, {9, {48, 46, 512}},
};

struct layer {
	struct graph_shape in;
	size_t batch, rows, columns, channels, results;
	struct array *x, *y, *dy, *dx;
	uint8_t *which; /* memory on the device */
};

static struct layer layer_new(const struct point *p, size_t batch)
{
	struct graph_shape in = pools[p->size].in;
	struct layer l = {.in = in, .batch = batch, .channels = (size_t)in.channels};

	l.rows = (size_t)(in.height / 2);
	l.columns = (size_t)(in.width / 2);
	l.results = batch * l.rows * l.columns * l.channels;
	l.x = array_rare(p->type, batch * (size_t)in.height * (size_t)in.width * l.channels, 0);
	l.dx = array_new(p->type, l.x->count, 0);
	l.y = array_new(p->type, l.results, 0);
	l.dy = array_random(p->type, l.results, 0, 0);
	l.which = device_new(l.results, NULL);
	return l;
}

/* Returns the index in x of element [k] of the window of result [i]. */
static size_t pixel(const struct layer *l, size_t i, size_t k)
{
	size_t place = i / l->channels;
	size_t column = place % l->columns * 2 + k % 2;
	size_t row = place / l->columns % l->rows * 2 + k / 2;
	size_t image = place / l->columns / l->rows;

	return ((image * (size_t)l->in.height + row) * (size_t)l->in.width + column) * l->channels +
	       i % l->channels;
}

/* Like PyTorch's loop: a later element replaces the best one if it is greater or NaN. */
static size_t plain_which(const struct layer *l, size_t i)
{
	size_t best = 0;

	for (size_t k = 1; k < 4; k++) {
		float next = l->x->values[pixel(l, i, k)];

		if (next > l->x->values[pixel(l, i, best)] || isnan(next))
			best = k;
	}
	return best;
}

/*
 * Checks pools without and with a ReLU before them. With a ReLU, the sums of channels are the
 * gradient of a bias. The last shape fills a GPU.
 */
static void check_max_pool(const struct point *p)
{
	for (int relu = 0; relu < 2; relu++) {
		struct layer l = layer_new(p, pools[p->size].batch);
		struct array *sums = array_new(DDP_F32, l.channels, 0);
		float *want = host_new(l.x->count * sizeof(*want));
		double *totals = host_new(l.channels * sizeof(*totals));
		uint8_t *which = host_new(l.results);
		struct kernel_scratch scratch =
			scratch_new(kernel_sums_bytes(l.x->count / l.channels, l.channels));

		kernel_max_pool(stream, &l.in, NULL, NULL, NULL, l.batch, l.x->data, l.y->data,
				l.which, p->type);
		kernel_max_pool_back(stream, &l.in, l.batch, l.dy->data, l.which,
				     relu ? l.y->data : NULL, 1, l.dx->data, &scratch,
				     relu ? sums->data : NULL, p->type);
		array_fetch(l.y);
		array_fetch(l.dx);
		array_fetch(sums);
		device_move(which, l.which, l.results);
		for (size_t i = 0; i < l.results; i++) {
			size_t best = plain_which(&l, i), from = pixel(&l, i, best);

			expect_exact("maximum", l.y, i, (double)l.x->values[from]);
			expect(which[i] == best, "place of maximum %zu is %d, want %zu", i,
			       which[i], best);
			want[from] = !relu || l.y->values[i] > 0 ? l.dy->values[i] : 0;
		}
		expect_all("gradient", l.dx, want);
		for (size_t i = 0; i < l.dx->count; i++)
			totals[i % l.channels] += (double)want[i];
		for (size_t c = 0; relu && c < l.channels; c++)
			expect_near("sum of channel", sums, c, totals[c], 1e-4);
	}
}

/* A pool and a dropout in one launch give the same bits as in two launches. */
static void check_pool_dropout(const struct point *p)
{
	struct layer one = layer_new(p, BATCH), two = one;
	struct draws draws = draws_new(p->size % 2 ? 0.4f : 0.25f, BATCH);
	size_t each = one.results / BATCH;
	struct array *pooled = array_new(p->type, one.results, 0);
	struct array *slopes = array_new(p->type, one.results, 0);
	uint8_t *which[2] = {host_new(one.results), host_new(one.results)};

	two.y = array_new(p->type, one.results, 0);
	two.dx = array_new(p->type, one.dx->count, 0);
	two.which = device_new(one.results, NULL);
	kernel_max_pool(stream, &one.in, &draws.dropout, draws.device_order, draws.device_orders,
			BATCH, one.x->data, one.y->data, one.which, p->type);
	kernel_max_pool_back(stream, &one.in, BATCH, one.dy->data, one.which, one.y->data,
			     draws.dropout.scale, one.dx->data, NULL, NULL, p->type);
	kernel_max_pool(stream, &two.in, NULL, NULL, NULL, BATCH, two.x->data, pooled->data,
			two.which, p->type);
	kernel_dropout(stream, &draws.dropout, draws.device_order, draws.device_orders, BATCH, each,
		       pooled->data, two.y->data, p->type);
	kernel_dropout(stream, &draws.dropout, draws.device_order, draws.device_orders, BATCH, each,
		       two.dy->data, slopes->data, p->type);
	kernel_max_pool_back(stream, &two.in, BATCH, slopes->data, two.which, pooled->data, 1,
			     two.dx->data, NULL, NULL, p->type);
	array_fetch(one.y);
	array_fetch(two.y);
	array_fetch(one.dx);
	array_fetch(two.dx);
	device_move(which[0], one.which, one.results);
	device_move(which[1], two.which, one.results);
	expect_all("result", one.y, two.y->values);
	expect_all("gradient", one.dx, two.dx->values);
	expect(memcmp(which[0], which[1], one.results) == 0, "places of maxima differ");
}

/* --- Average pools ---------------------------------------------------------------------- */

/* Numbers of images, of rows in each image, and of channels. */
static const size_t averages[][3] = {
	{1, 1, 8}, {3, 49, 24}, {2, 16, 512}, {33, 16, 64}, {5, 7, 104}, {4, 9, 16},
};

static void check_average(const struct point *p)
{
	size_t batch = averages[p->size][0], rows = averages[p->size][1];
	size_t channels = averages[p->size][2];
	struct array *x = array_random(p->type, batch * rows * channels, 0, 1);
	struct array *y = array_new(p->type, batch * channels, 0);
	struct array *dx = array_new(p->type, x->count, 0);

	kernel_average_pool(stream, batch, rows, channels, x->data, y->data, p->type);
	kernel_average_pool_back(stream, batch, rows, channels, y->data, dx->data, p->type);
	array_fetch(y);
	array_fetch(dx);
	for (size_t i = 0; i < y->count; i++) {
		size_t first = i / channels * rows * channels + i % channels;
		double sum = 0;

		for (size_t r = 0; r < rows; r++) {
			sum += (double)x->values[first + r * channels];
			expect_near("gradient", dx, first + r * channels,
				    (double)y->values[i] / (double)rows, 2e-7);
		}
		expect_near("mean", y, i, sum / (double)rows, 1e-6);
	}
}

static const struct test tests[] = {
	{"relu", check_act, ROWS(counts), 1, .kind = RELU},
	{"relu backwards", check_act, ROWS(counts), 1, .kind = RELU_BACK},
	{"relu and dropout backwards", check_act, ROWS(counts), 1, .kind = DROPOUT_BACK},
	{"add", check_act, ROWS(counts), 1, .kind = ADD},
	{"add and relu", check_act, ROWS(counts), 1, .kind = ADD_RELU},
	{"narrow and widen", check_narrow, ROWS(counts), .skews = 1},
	{"widen all numbers", check_widen, 1, .skews = 1},
	{"dropout", check_dropout, ROWS(elements) * ROWS(rates), .skews = 1},
	{"maximum pool", check_max_pool, ROWS(pools), .skews = 1},
	{"maximum pool and dropout", check_pool_dropout, ROWS(pools) - 1, .skews = 1},
	{"average pool", check_average, ROWS(averages), .skews = 1},
};

int main(int argc, char **argv)
{
	return harness_run(argc, argv, tests, ROWS(tests));
}
