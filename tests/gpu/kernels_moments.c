/* SPDX-License-Identifier: Apache-2.0 */
/* BatchNorm's statistics, of one rank and of several, against plain sums in doubles. */
#include "shapes.h"

/* --- Moments ------------------------------------------------------------------------------ */

/* Of the first [rows] rows of column [c], in doubles. */
static void plain_moments(const struct array *x, size_t rows, size_t channels, size_t c,
			  double *mean, double *m2)
{
	*mean = *m2 = 0;
	for (size_t r = 0; r < rows; r++)
		*mean += (double)x->values[r * channels + c] / (double)rows;
	for (size_t r = 0; r < rows; r++)
		*m2 += pow((double)x->values[r * channels + c] - *mean, 2);
}

/*
 * Once more, where blocks may end in another order: the same bits. And as statistics at once: those that
 * kernel_norm_combine() makes.
 */
static void check_again(const struct kernel_norm *norm, const struct shape *shape,
			const struct kernel_order *order, const struct array *x,
			const struct kernel_scratch *scratch, const struct array *first)
{
	struct array moments = array_make(DDP_F32, first->count, 0);
	struct array got = array_make(DDP_F32, first->count, 0);
	struct array want = array_make(DDP_F32, first->count, 0);
	struct kernel_measured to[3] = {{NULL, NULL, NULL, NULL}};
	struct array running[4];

	for (int i = 0; i < 4; i++) {
		running[i] = array_make(DDP_F32, norm->channels, 0);
		array_fill_with(&running[i], 3);
	}
	to[0].moments = moments.data;
	to[1] = (struct kernel_measured){NULL, want.data, running[0].data, running[1].data};
	to[2] = (struct kernel_measured){NULL, got.data, running[2].data, running[3].data};
	kernel_norm_measure(arrays_stream, norm, order, shape->batch, x->data, scratch, &to[0],
			    x->type);
	kernel_norm_combine(arrays_stream, norm, moments.data, 1, &to[1]);
	kernel_norm_measure(arrays_stream, norm, order, shape->batch, x->data, scratch, &to[2],
			    x->type);
	array_fetch(&moments);
	array_fetch(&want);
	array_fetch(&got);
	for (int i = 0; i < 4; i++)
		array_fetch(&running[i]);
	for (size_t i = 0; i < first->count; i++) {
		array_exact("moments again", &moments, i, (double)first->values[i]);
		array_exact("statistics at once", &got, i, (double)want.values[i]);
	}
	for (size_t c = 0; c < norm->channels; c++) {
		array_exact("a mean at once", &running[2], c, (double)running[0].values[c]);
		array_exact("a variance at once", &running[3], c, (double)running[1].values[c]);
	}
	for (int i = 0; i < 4; i++)
		array_free(&running[i]);
	array_free(&want);
	array_free(&got);
	array_free(&moments);
}

/* With a mean of 1000 deviations sums of squares in f32 would say nothing. Images that are not there
 * hold 1e4: they must not count. */
static void test_moments(const struct shape *shape, enum ddp_type type, size_t skew)
{
	size_t channels = shape->channels, all = shape->batch * shape->rows;
	size_t rows = shape->count * shape->rows;
	struct kernel_norm norm = {shape->rows, channels, 1e-5f, 0.1f};
	struct array x = array_make(type, all * channels, skew);
	struct array moments = array_make(DDP_F32, 1 + 2 * channels, 0);
	const struct kernel_measured to = {moments.data, NULL, NULL, NULL};
	struct kernel_order *order = order_make(shape->count);
	struct kernel_scratch scratch = scratch_make(kernel_sums_bytes(all, channels));
	uint64_t random = arrays_seed;

	array_fill(&x, type == DDP_F32 ? 600 : 2, &random);
	for (size_t i = rows * channels; i < x.count; i++)
		array_put(&x, i, 1e4);
	array_send(&x);
	array_fill_with(&moments, -1);
	kernel_norm_measure(arrays_stream, &norm, order, shape->batch, x.data, &scratch, &to, type);
	array_fetch(&moments);
	array_exact("n", &moments, 0, (double)rows);
	for (size_t c = 0; c < channels; c++) {
		double mean, m2;

		plain_moments(&x, rows, channels, c, &mean, &m2);
		array_near("a mean", &moments, 1 + c, mean, 1.2e-7 * fabs(mean) + 1e-7);
		array_near("a sum of squares", &moments, 1 + channels + c, m2, 1e-6 * m2 + 1e-12);
	}
	check_again(&norm, shape, order, &x, &scratch, &moments);
	scratch_free(&scratch);
	array_row("moments: %s", shape_name(shape, type, skew));
	device_free(arrays_device, order);
	array_free(&moments);
	array_free(&x);
}

/* --- Statistics --------------------------------------------------------------------------- */

/* What each rank has, and what all have together. */
static const struct {
	const char *name;
	int ranks;
	double counts[4];
} worlds[] = {
	{"one rank", 1, {96}},
	{"one rank with one value", 1, {1}},
	{"one rank with nothing", 1, {0}},
	{"four ranks", 4, {96, 32, 1, 64}},
	{"ranks without samples between others", 4, {0, 40, 0, 7}},
	{"four ranks with nothing", 4, {0, 0, 0, 0}},
};

enum { CHANNELS = 300 };

/* Deviations are less than 2; the ranks' means are apart. */
static void worlds_fill(int w, struct array *moments, uint64_t *random)
{
	array_fill(moments, 1000, random);
	for (int rank = 0; rank < worlds[w].ranks; rank++) {
		size_t at = (size_t)rank * (1 + 2 * CHANNELS);

		array_put(moments, at, worlds[w].counts[rank]);
		for (size_t c = 0; c < 2 * CHANNELS; c++)
			if (worlds[w].counts[rank] == 0)
				array_put(moments, at + 1 + c, 0);
			else if (c >= CHANNELS)
				array_put(moments, at + 1 + c,
					  draw(random, 1000) * worlds[w].counts[rank] / 500.);
	}
	array_send(moments);
}

/* All of a channel as if it were one array: the mean of means, then all deviations from it. */
static void plain_combine(int w, const struct array *moments, size_t c, double *n, double *mean,
			  double *m2)
{
	size_t pitch = 1 + 2 * CHANNELS, ranks = (size_t)worlds[w].ranks;

	*n = *mean = *m2 = 0;
	for (size_t rank = 0; rank < ranks; rank++)
		*n += worlds[w].counts[rank];
	if (*n < 1)
		return;
	for (size_t rank = 0; rank < ranks; rank++)
		*mean +=
			worlds[w].counts[rank] * (double)moments->values[rank * pitch + 1 + c] / *n;
	for (size_t rank = 0; rank < ranks; rank++)
		*m2 += (double)moments->values[rank * pitch + 1 + CHANNELS + c] +
		       worlds[w].counts[rank] *
			       pow((double)moments->values[rank * pitch + 1 + c] - *mean, 2);
}

/* The CPU's engine moves running values by these operations, each rounded. */
static float moved(float running, double value)
{
	volatile float kept = (1 - 0.1f) * running, new = 0.1f * (float)value;

	return kept + new;
}

static void check_statistics(int w, const struct array *moments, const struct array *statistics,
			     const float before[2][CHANNELS], const struct array running[2])
{
	for (size_t c = 0; c < CHANNELS; c++) {
		double n, mean, m2;

		plain_combine(w, moments, c, &n, &mean, &m2);
		array_exact("n", statistics, 0, n);
		array_near("a mean", statistics, 1 + c, mean, 1e-7 * fabs(mean));
		array_near("an inverse", statistics, 1 + CHANNELS + c,
			   n > 0 ? 1 / sqrt(m2 / n + (double)1e-5f) : 0, n > 0 ? 4e-5 : 0);
		if (n < 1) {
			array_exact("a running mean", &running[0], c, (double)before[0][c]);
			array_exact("a running variance", &running[1], c, (double)before[1][c]);
			continue;
		}
		array_near("a running mean", &running[0], c, (double)moved(before[0][c], mean),
			   3e-5);
		m2 /= n > 1 ? n - 1 : 1;
		array_near("a running variance", &running[1], c, (double)moved(before[1][c], m2),
			   2e-7 * (1 + m2));
	}
}

static void test_combine(int w, bool moves)
{
	size_t ranks = (size_t)worlds[w].ranks;
	struct kernel_norm norm = {7, CHANNELS, 1e-5f, 0.1f};
	struct array moments = array_make(DDP_F32, ranks * (1 + 2 * CHANNELS), 0);
	struct array statistics = array_make(DDP_F32, 1 + 2 * CHANNELS, 0);
	struct array running[2] = {array_make(DDP_F32, CHANNELS, 0),
				   array_make(DDP_F32, CHANNELS, 0)};
	const struct kernel_measured to = {NULL, statistics.data, moves ? running[0].data : NULL,
					   moves ? running[1].data : NULL};
	float before[2][CHANNELS];
	uint64_t random = arrays_seed + (uint64_t)w;

	worlds_fill(w, &moments, &random);
	for (int i = 0; i < 2; i++) {
		array_fill(&running[i], 3, &random);
		memcpy(before[i], running[i].values, sizeof(before[i]));
	}
	array_fill_with(&statistics, -1);
	kernel_norm_combine(arrays_stream, &norm, moments.data, worlds[w].ranks, &to);
	array_fetch(&statistics);
	array_fetch(&running[0]);
	array_fetch(&running[1]);
	if (!moves)
		for (size_t c = 0; c < CHANNELS; c++) {
			array_exact("a mean left alone", &running[0], c, (double)before[0][c]);
			array_exact("a variance left alone", &running[1], c, (double)before[1][c]);
		}
	else
		check_statistics(w, &moments, &statistics, before, running);
	array_row("statistics of %s%s", worlds[w].name, moves ? "" : ", running values are NULL");
	array_free(&running[0]);
	array_free(&running[1]);
	array_free(&statistics);
	array_free(&moments);
}

static void test_fixed(void)
{
	struct kernel_norm norm = {7, CHANNELS, 1e-5f, 0.1f};
	struct array statistics = array_make(DDP_F32, 1 + 2 * CHANNELS, 0);
	struct array mean = array_make(DDP_F32, CHANNELS, 0);
	struct array variance = array_make(DDP_F32, CHANNELS, 0);
	const struct kernel_measured to = {NULL, statistics.data, mean.data, variance.data};
	uint64_t random = arrays_seed;

	array_fill(&mean, 3, &random);
	array_fill(&variance, 1, &random);
	kernel_norm_fixed(arrays_stream, &norm, &to);
	array_fetch(&statistics);
	for (size_t c = 0; c < CHANNELS; c++) {
		double inverse = 1 / sqrt((double)variance.values[c] + (double)1e-5f);

		array_exact("a mean", &statistics, 1 + c, (double)mean.values[c]);
		array_near("an inverse", &statistics, 1 + CHANNELS + c, inverse, 1e-7 * inverse);
	}
	array_row("statistics for evaluation");
	array_free(&variance);
	array_free(&mean);
	array_free(&statistics);
}

int main(void)
{
	if (!arrays_begin("kernels of BatchNorm's statistics"))
		return tap_failed ? tap_end() : EXIT_SUCCESS;
	each_shape(test_moments);
	for (int w = 0; w < ROWS(worlds); w++)
		for (int moves = 0; moves < 2; moves++)
			test_combine(w, moves);
	test_fixed();
	return arrays_end();
}
