/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels_norm.c - kernels of BatchNorm: statistics of one rank and of several ranks, values and
 * gradients, sums of columns; compared with sums in double precision
 */
#include "harness.h"

/* Shapes: images in memory, rows of each image, channels, and images that are part of the batch. */
static const struct shape {
	size_t batch, rows, channels;
	uint32_t count;
} shapes[] = {
	{1, 1, 8, 1},	  {3, 1, 24, 3},    {4, 5, 16, 3},   {8, 16, 64, 8},	{8, 15, 64, 5},
	{5, 7, 104, 2},	  {4, 4, 512, 4},   {9, 2, 2104, 8}, {64, 49, 8, 33},	{4, 4, 64, 0},
	{30, 81, 64, 29}, {70, 64, 16, 55}, {3, 1025, 8, 3}, {20, 10, 248, 19},
};

static struct kernel_order *order_new(uint32_t count)
{
	const struct kernel_order order = {.count = count};

	return device_new(sizeof(order), &order);
}

/* --- Moments ---------------------------------------------------------------------------- */

/*
 * Running statistics, and the memory to which kernel_norm_measure() and kernel_norm_combine()
 * write.
 */
struct measured {
	struct array *statistics, *running[2];
	struct kernel_measured to;
};

static struct measured measured_new(size_t channels)
{
	struct measured m = {array_new(DDP_F32, 1 + 2 * channels, 0),
			     {array_random(DDP_F32, channels, 0, 3),
			      array_random(DDP_F32, channels, 0, 3)},
			     {NULL, NULL, NULL, NULL}};

	m.to = (struct kernel_measured){NULL, m.statistics->data, m.running[0]->data,
					m.running[1]->data};
	return m;
}

static void measured_fetch(struct measured *m)
{
	array_fetch(m->statistics);
	array_fetch(m->running[0]);
	array_fetch(m->running[1]);
}

/*
 * Values are around 600 with deviations below 1, so that sums of squares in f32 would lose the
 * variance. Values of images outside the batch are 1e4. Blocks of a second launch may end in
 * another order, but must give the same bits. Statistics from one launch must equal those of
 * kernel_norm_combine().
 */
static void check_moments(const struct point *p)
{
	const struct shape *shape = &shapes[p->size];
	size_t channels = shape->channels, all = shape->batch * shape->rows;
	size_t rows = shape->count * shape->rows;
	struct kernel_norm norm = {shape->rows, channels, 1e-5f, 0.1f};
	struct array *x = array_random(p->type, all * channels, 0, p->type == DDP_F32 ? 600 : 2);
	struct array *moments = array_new(DDP_F32, 1 + 2 * channels, 0);
	struct array *again = array_new(DDP_F32, moments->count, 0);
	struct measured one = measured_new(channels), two = measured_new(channels);
	const struct kernel_measured to[] = {{moments->data, NULL, NULL, NULL},
					     {again->data, NULL, NULL, NULL}};
	struct kernel_order *order = order_new(shape->count);
	struct kernel_scratch scratch = scratch_new(kernel_sums_bytes(all, channels));

	for (size_t i = rows * channels; i < x->count; i++)
		array_put(x, i, 1e4);
	array_send(x);
	for (int i = 0; i < 2; i++) {
		device_move(two.running[i]->data, one.running[i]->values, channels * sizeof(float));
		kernel_norm_measure(stream, &norm, order, shape->batch, x->data, &scratch, &to[i],
				    p->type);
	}
	kernel_norm_combine(stream, &norm, moments->data, 1, &one.to);
	kernel_norm_measure(stream, &norm, order, shape->batch, x->data, &scratch, &two.to,
			    p->type);
	array_fetch(moments);
	array_fetch(again);
	measured_fetch(&one);
	measured_fetch(&two);
	expect_exact("number", moments, 0, (double)rows);
	for (size_t c = 0; c < channels; c++) {
		double mean = 0, m2 = 0;

		for (size_t r = 0; r < rows; r++)
			mean += (double)x->values[r * channels + c] / (double)rows;
		for (size_t r = 0; r < rows; r++)
			m2 += pow((double)x->values[r * channels + c] - mean, 2);
		/* the results are rounded to f32, and nothing else */
		expect_near("mean", moments, 1 + c, mean, 6e-8 * fabs(mean) + 1e-12);
		expect_near("sum of squares", moments, 1 + channels + c, m2, 6e-8 * m2 + 1e-12);
	}
	expect_all("moment of a second launch", again, moments->values);
	expect_all("statistic in one launch", two.statistics, one.statistics->values);
	for (int i = 0; i < 2; i++)
		expect_all("running value in one launch", two.running[i], one.running[i]->values);
}

/* --- Statistics of several ranks -------------------------------------------------------- */

enum { RANKS = 4, CHANNELS = 300, PITCH = 1 + 2 * CHANNELS };

static const struct kernel_norm wide_norm = {7, CHANNELS, 1e-5f, 0.1f};

/* Number of values of each rank. */
static const struct {
	int ranks;
	double counts[RANKS];
} worlds[] = {
	{1, {96}}, {1, {1}}, {1, {0}}, {4, {96, 32, 1, 64}}, {4, {0, 40, 0, 7}}, {4, {0, 0, 0, 0}},
};

/*
 * Computes a running value with the same operations as the CPU engine. Each operation is rounded.
 */
static float moved(float running, double value)
{
	volatile float kept = (1 - 0.1f) * running, new = 0.1f * (float)value;

	return kept + new;
}

/* Creates the moments of all ranks. The ranks' means differ. */
static struct array *moments_new(int world)
{
	size_t ranks = (size_t)worlds[world].ranks;
	struct array *moments = array_random(DDP_F32, ranks * PITCH, 0, 1000);

	for (size_t i = 0; i < moments->count; i++) {
		double count = worlds[world].counts[i / PITCH];

		if (i % PITCH == 0)
			array_put(moments, i, count);
		else if (count == 0)
			array_put(moments, i, 0);
		else if (i % PITCH > CHANNELS)
			array_put(moments, i, draw(1000) * count / 500.);
	}
	array_send(moments);
	return moments;
}

/*
 * Computes mean and m2 of channel [c] as if one rank had all values. Returns the number of values.
 */
static double plain_combine(int world, const float *moments, size_t c, double *mean, double *m2)
{
	double n = 0;

	*mean = *m2 = 0;
	for (int rank = 0; rank < worlds[world].ranks; rank++)
		n += worlds[world].counts[rank];
	for (int rank = 0; rank < worlds[world].ranks && n > 0; rank++)
		*mean +=
			worlds[world].counts[rank] * (double)moments[rank * PITCH + 1 + (int)c] / n;
	for (int rank = 0; rank < worlds[world].ranks; rank++) {
		const float *own = moments + rank * PITCH + 1 + c;

		*m2 += (double)own[CHANNELS] +
		       worlds[world].counts[rank] * pow((double)own[0] - *mean, 2);
	}
	return n;
}

/*
 * With skew 1 there are no running values (NULL). If no rank has a value, running values do not
 * change.
 */
static void check_combine(const struct point *p)
{
	struct array *moments = moments_new(p->size);
	struct measured m = measured_new(CHANNELS);
	const float *before[] = {host_copy(m.running[0]->values, CHANNELS * sizeof(float)),
				 host_copy(m.running[1]->values, CHANNELS * sizeof(float))};

	if (p->skew)
		m.to.running_mean = m.to.running_variance = NULL;
	kernel_norm_combine(stream, &wide_norm, moments->data, worlds[p->size].ranks, &m.to);
	measured_fetch(&m);
	for (size_t c = 0; c < CHANNELS; c++) {
		double mean, m2, n = plain_combine(p->size, moments->values, c, &mean, &m2);
		bool moves = !p->skew && n > 0;

		expect_exact("number", m.statistics, 0, n);
		expect_near("mean", m.statistics, 1 + c, mean, 1e-7 * fabs(mean));
		expect_near("inverse", m.statistics, 1 + CHANNELS + c,
			    n > 0 ? 1 / sqrt(m2 / n + (double)1e-5f) : 0, n > 0 ? 4e-5 : 0);
		m2 /= n > 1 ? n - 1 : 1;
		expect_near("running mean", m.running[0], c,
			    (double)(moves ? moved(before[0][c], mean) : before[0][c]),
			    moves ? 3e-5 : 0);
		expect_near("running variance", m.running[1], c,
			    (double)(moves ? moved(before[1][c], m2) : before[1][c]),
			    moves ? 2e-7 * (1 + m2) : 0);
	}
}

static void check_fixed(const struct point *p)
{
	struct measured m = measured_new(CHANNELS);

	(void)p;
	kernel_norm_combine(stream, &wide_norm, NULL, 0, &m.to);
	array_fetch(m.statistics);
	for (size_t c = 0; c < CHANNELS; c++) {
		double inverse = 1 / sqrt((double)m.running[1]->values[c] + (double)1e-5f);

		expect_exact("mean", m.statistics, 1 + c, (double)m.running[0]->values[c]);
		expect_near("inverse", m.statistics, 1 + CHANNELS + c, inverse, 1e-7 * inverse);
	}
}

/* --- Values and gradients --------------------------------------------------------------- */

struct layer {
	struct kernel_norm norm;
	size_t batch;
	struct array *x, *y, *dy, *out, *statistics, *scale, *shift, *sums;
	struct kernel_normed normed;
	struct kernel_scratch scratch;
};

static struct layer layer_new(const struct point *p)
{
	const struct shape *shape = &shapes[p->size];
	size_t rows = shape->batch * shape->rows, channels = shape->channels;
	struct layer l = {.norm = {shape->rows, channels, 1e-5f, 0.1f}, .batch = shape->batch};

	l.x = array_random(p->type, rows * channels, 0, 10);
	l.y = array_random(p->type, rows * channels, 0, 0);
	l.dy = array_random(p->type, rows * channels, 0, 0);
	l.out = array_new(p->type, rows * channels, 0);
	l.statistics = array_random(DDP_F32, 1 + 2 * channels, 0, 10);
	for (size_t c = 0; c < channels; c++)
		array_put(l.statistics, 1 + channels + c, 0.5 + draw(1000) / 500.);
	array_put(l.statistics, 0, (double)(2 * shape->count * shape->rows));
	array_send(l.statistics);
	l.scale = array_random(DDP_F32, channels, 0, 0);
	l.shift = array_random(DDP_F32, channels, 0, 0);
	l.sums = array_random(DDP_F32, 2 * channels, 0, 0);
	l.normed =
		(struct kernel_normed){l.x->data, l.statistics->data, l.scale->data, l.shift->data};
	l.scratch = scratch_new(kernel_sums_bytes(rows, channels));
	return l;
}

static double layer_inverse(const struct layer *l, size_t i)
{
	return (double)l->statistics->values[1 + l->norm.channels + i % l->norm.channels];
}

/* Returns element [i] of x, normalized. */
static double layer_hat(const struct layer *l, size_t i)
{
	return ((double)l->x->values[i] - (double)l->statistics->values[1 + i % l->norm.channels]) *
	       layer_inverse(l, i);
}

/* Sets y to the result of kernel_norm_apply() with a ReLU. */
static void layer_apply(struct layer *l)
{
	kernel_norm_apply(stream, &l->norm, l->batch, &l->normed, NULL, true, l->y->data,
			  l->x->type);
	array_fetch(l->y);
}

/* Tests the kernel with and without a ReLU, and with and without an addition. */
static void check_apply(const struct point *p)
{
	struct layer l = layer_new(p);

	for (int i = 0; i < 4; i++) {
		bool relu = i & 1, add = i & 2;

		kernel_norm_apply(stream, &l.norm, l.batch, &l.normed, add ? l.dy->data : NULL,
				  relu, l.out->data, p->type);
		array_fetch(l.out);
		for (size_t k = 0; k < l.out->count; k++) {
			size_t c = k % l.norm.channels;
			double want = layer_hat(&l, k) * (double)l.scale->values[c] +
				      (double)l.shift->values[c] +
				      (add ? (double)l.dy->values[k] : 0);

			expect_near("result", l.out, k, relu && want < 0 ? 0 : want, 3e-6);
		}
	}
}

/* NaN remains NaN. A result that exceeds f16 becomes infinite. Both also with a ReLU. */
static void check_apply_rare(const struct point *p)
{
	struct layer l = layer_new(p);
	size_t last = l.x->count - 1;

	array_put(l.x, 0, (double)NAN);
	array_put(l.x, last, p->type == DDP_F16 ? 65504 : 3e38);
	array_send(l.x);
	array_set(l.scale, 30);
	kernel_norm_apply(stream, &l.norm, l.batch, &l.normed, NULL, true, l.out->data, p->type);
	array_fetch(l.out);
	expect_exact("overflow", l.out, last, (double)INFINITY);
	if (last > 0)
		expect_exact("NaN", l.out, 0, (double)NAN);
}

/*
 * Checks the sums of the gradient [dy], and of its products with x. With [relu], only elements
 * whose y is above 0 count. A block adds its threads' sums in f32, up to 256 one after the other. A
 * missing row changes a sum by more than the tolerance.
 */
static void expect_sums(const struct layer *l, const float *dy, bool relu)
{
	size_t channels = l->norm.channels;

	for (size_t c = 0; c < channels; c++) {
		double sum = 0, dot = 0, size = 0;

		for (size_t i = c; i < l->x->count; i += channels) {
			double value = !relu || l->y->values[i] > 0 ? (double)dy[i] : 0;

			sum += value;
			dot += value * layer_hat(l, i);
			size += fabs(value);
		}
		expect_near("sum", l->sums, c, sum, 1e-6 * size);
		expect_near("sum with x", l->sums, channels + c, dot, 3e-6 * size);
	}
}

/*
 * Tests every combination of these: no ReLU after the layer, a ReLU that the kernel knows from y,
 * or one that it computes from x; dz in other memory, in dy's memory, or not written; the gradient
 * dy, or dy + y.
 */
static void check_sums(const struct point *p)
{
	enum { NONE, FROM_Y, FROM_X, RELUS };
	enum { OTHER, SAME, NOWHERE, PLACES };
	struct layer l = layer_new(p);
	size_t bytes = l.dy->count * sizeof(float);
	const float *before = host_copy(l.dy->values, bytes);
	float *dy = host_new(bytes);
	struct kernel_normed normed = l.normed;

	for (int i = 0; i < RELUS * PLACES * 2; i++) {
		int relu = i / PLACES / 2, place = i % PLACES;
		bool more = i / PLACES % 2;
		struct array *dz = place == SAME ? l.dy : l.out;

		if (relu == FROM_X)
			layer_apply(&l);
		normed.shift = relu == FROM_X ? l.shift->data : NULL;
		memcpy(l.dy->values, before, bytes);
		array_send(l.dy);
		for (size_t k = 0; k < l.dy->count; k++)
			dy[k] = (float)(more ? rounded((double)(before[k] + l.y->values[k]),
						       p->type)
					     : (double)before[k]);
		kernel_norm_sums(stream, &l.norm, l.batch, &normed,
				 relu == FROM_Y ? l.y->data : NULL, l.dy->data,
				 more ? l.y->data : NULL, place == NOWHERE ? NULL : dz->data,
				 &l.scratch, l.sums->data, p->type);
		array_fetch(l.sums);
		array_fetch(l.dy);
		array_fetch(l.out);
		expect_sums(&l, dy, relu != NONE);
		for (size_t k = 0; k < l.dy->count; k++) {
			if (place != NOWHERE)
				expect_exact("dz", dz, k,
					     relu == NONE || l.y->values[k] > 0 ? (double)dy[k]
										: 0);
			if (place != SAME)
				expect_exact("dy", l.dy, k, (double)before[k]);
		}
	}
}

/*
 * The result replaces dy or is in other memory. The kernel computes it from dz, or from dy with a
 * ReLU that it computes from x.
 */
static void check_back(const struct point *p)
{
	size_t channels = shapes[p->size].channels;
	size_t there = shapes[p->size].count * shapes[p->size].rows * channels;
	double n = (double)(2 * shapes[p->size].count * shapes[p->size].rows);

	for (int i = 0; i < 4; i++) {
		bool same = i & 1, from_x = i & 2;
		struct layer l = layer_new(p);
		struct array *dx = same ? l.dy : l.out;
		const float *dz = host_copy(l.dy->values, l.dy->count * sizeof(float));

		layer_apply(&l);
		if (!from_x)
			l.normed.shift = NULL;
		kernel_norm_back(stream, &l.norm, order_new(shapes[p->size].count), l.batch,
				 &l.normed, l.sums->data, l.dy->data, dx->data, p->type);
		array_fetch(dx);
		for (size_t k = 0; k < dx->count; k++) {
			double sum = (double)l.sums->values[k % channels];
			double dot = (double)l.sums->values[channels + k % channels];
			double own = !from_x || l.y->values[k] > 0 ? (double)dz[k] : 0;
			double want = own - sum / n - layer_hat(&l, k) * dot / n;

			want *= (double)l.scale->values[k % channels] * layer_inverse(&l, k);
			expect_near("dx", dx, k, k < there ? want : 0, 1e-5);
		}
	}
}

/* With a skew, the number of columns is not a multiple of a pack. */
static void check_column_sums(const struct point *p)
{
	const struct shape *shape = &shapes[p->size];
	size_t rows = shape->batch * shape->rows, columns = shape->channels - p->skew;
	struct layer l = layer_new(p);

	kernel_column_sums(stream, l.dy->data, rows, columns, &l.scratch, l.sums->data, p->type);
	array_fetch(l.sums);
	for (size_t c = 0; c < columns; c++) {
		double sum = 0, size = 0;

		for (size_t i = c; i < rows * columns; i += columns) {
			sum += (double)l.dy->values[i];
			size += fabs((double)l.dy->values[i]);
		}
		expect_near("sum", l.sums, c, sum, 1e-6 * size);
	}
}

static const struct test tests[] = {
	{"moments", check_moments, ROWS(shapes), .skews = 1},
	{"statistics of ranks", check_combine, ROWS(worlds), .skews = 2, .f32_alone = true},
	{"statistics for evaluation", check_fixed, 1, .skews = 1, .f32_alone = true},
	{"values", check_apply, ROWS(shapes), .skews = 1},
	{"NaN and overflow", check_apply_rare, ROWS(shapes), .skews = 1},
	{"sums", check_sums, ROWS(shapes), .skews = 1},
	{"gradients", check_back, ROWS(shapes), .skews = 1},
	{"sums of columns", check_column_sums, ROWS(shapes), .skews = 2},
};

int main(int argc, char **argv)
{
	return harness_run(argc, argv, tests, ROWS(tests));
}
