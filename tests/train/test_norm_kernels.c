/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of BatchNorm against sums in f64. */
#include "config.h"

#include "array.h"

/* Rows and channels. */
static const size_t shapes[][2] = {
	{1, 1},	 {2, 3},    {17, 16},  {16, 512}, {300, 17}, {700, 64},
	{5, 65}, {33, 512}, {40, 513}, {3, 1100}, {64, 0},   {1027, 5},
};

struct norms {
	struct array x, y, dy, dx, out;
	struct array scale, shift, mean, inverse, sums;
	struct kernel_norm norm;
};

static void norms_make(struct norms *t, enum ddp_type type, size_t rows, size_t channels)
{
	struct array *arrays[] = {&t->x, &t->y, &t->dy, &t->dx, &t->out};
	struct array *values[] = {&t->scale, &t->shift, &t->mean, &t->inverse};
	uint64_t random = kernels_seed;

	for (int i = 0; i < ROWS(arrays); i++) {
		*arrays[i] = array_make(type, rows * channels);
		array_fill(arrays[i], i ? 0 : 10, &random);
	}
	for (int i = 0; i < ROWS(values); i++) {
		*values[i] = array_make(DDP_F32, channels);
		array_fill(values[i], i == 2 ? 10 : 2, &random);
	}
	t->sums = array_make(DDP_F32, 2 * channels);
	t->norm = (struct kernel_norm){rows,	      channels,	    t->scale.data,
				       t->shift.data, t->mean.data, t->inverse.data};
}

static void norms_free(struct norms *t)
{
	struct array *arrays[] = {&t->x,     &t->y,	&t->dy,	  &t->dx,      &t->out,
				  &t->scale, &t->shift, &t->mean, &t->inverse, &t->sums};

	for (int i = 0; i < ROWS(arrays); i++)
		array_free(arrays[i]);
}

static double norms_hat(const struct norms *t, size_t i)
{
	size_t c = i % t->norm.channels;

	return ((double)array_get(&t->x, i) - (double)t->norm.mean[c]) * (double)t->norm.inverse[c];
}

/* With a mean of 1000 deviations, sums of squares in f32 would say nothing. */
START_TEST(test_moments)
{
	enum ddp_type type;
	const struct kernels *kernels = kernels_of(_i, &type);
	uint64_t random = kernels_seed;
	char row[128];

	for (int s = 0; s < ROWS(shapes); s++) {
		size_t rows = shapes[s][0], channels = shapes[s][1];
		struct array x = array_make(type, rows * channels);
		struct array mean = array_make(DDP_F32, channels);
		struct array m2 = array_make(DDP_F32, channels);

		kernels_row(row, kernels, type, "moments");
		array_fill(&x, type == DDP_F32 ? 600 : 2, &random);
		kernels->moments(x.data, rows, channels, mean.data, m2.data, type);
		for (size_t c = 0; c < channels; c++) {
			double sum = 0, squares = 0;

			for (size_t r = 0; r < rows; r++)
				sum += (double)array_get(&x, r * channels + c);
			sum /= (double)rows;
			for (size_t r = 0; r < rows; r++)
				squares += pow((double)array_get(&x, r * channels + c) - sum, 2);
			array_near(row, &mean, c, sum, sum, 2e-7);
			array_near(row, &m2, c, squares, squares, 2e-6);
		}
		array_free(&x);
		array_free(&mean);
		array_free(&m2);
	}
}
END_TEST

START_TEST(test_norm)
{
	enum ddp_type type;
	const struct kernels *kernels = kernels_of(_i / 4, &type);
	bool relu = _i & 1, plus = _i & 2;
	char row[128];

	for (int s = 0; s < ROWS(shapes); s++) {
		struct norms t;

		norms_make(&t, type, shapes[s][0], shapes[s][1]);
		kernels_row(row, kernels, type, relu ? "norm and relu" : "norm");
		kernels->norm(&t.norm, t.x.data, plus ? t.dy.data : NULL, t.out.data, relu, type);
		for (size_t i = 0; i < t.x.count; i++) {
			size_t c = i % t.norm.channels;
			double want = norms_hat(&t, i) * (double)t.norm.scale[c] +
				      (double)t.norm.shift[c] +
				      (plus ? (double)array_get(&t.dy, i) : 0);

			array_near(row, &t.out, i, relu && want < 0 ? 0 : want, 20, 1e-6);
		}
		norms_free(&t);
	}
}
END_TEST

/* The gradient that counts. */
static double norms_passed(const struct norms *t, size_t i, bool relu)
{
	return !relu || array_get(&t->y, i) > 0 ? (double)array_get(&t->dy, i) : 0;
}

static void check_sums(const char *row, const struct norms *t, bool relu)
{
	size_t channels = t->norm.channels;

	for (size_t c = 0; c < channels; c++) {
		double sum = 0, dot = 0, scale = 0;

		for (size_t i = c; i < t->x.count; i += channels) {
			sum += norms_passed(t, i, relu);
			dot += norms_passed(t, i, relu) * norms_hat(t, i);
			scale += fabs(norms_passed(t, i, relu));
		}
		array_near(row, &t->sums, c, sum, scale, 1e-6);
		array_near(row, &t->sums, channels + c, dot, 10 * scale, 1e-6);
	}
}

static void check_norm_back(const char *row, const struct norms *t, double n, bool relu)
{
	size_t channels = t->norm.channels;

	for (size_t i = 0; i < t->x.count; i++) {
		size_t c = i % channels;
		double sum = (double)array_get(&t->sums, c);
		double dot = (double)array_get(&t->sums, channels + c);
		double want = norms_passed(t, i, relu) - sum / n - norms_hat(t, i) * dot / n;

		array_near(row, &t->dx, i,
			   want * (double)t->norm.scale[c] * (double)t->norm.inverse[c], 1000,
			   1e-6);
	}
}

START_TEST(test_norm_back)
{
	enum ddp_type type;
	const struct kernels *kernels = kernels_of(_i, &type);
	char row[128];

	for (int s = 0; s < ROWS(shapes); s++)
		for (int relu = 0; relu < 2; relu++) {
			double n = 2 * (double)shapes[s][0];
			struct norms t;

			norms_make(&t, type, shapes[s][0], shapes[s][1]);
			kernels_row(row, kernels, type, "norm_sums");
			kernels->norm_sums(&t.norm, t.x.data, relu ? t.y.data : NULL, t.dy.data,
					   t.sums.data, type);
			check_sums(row, &t, relu);
			kernels_row(row, kernels, type, "norm_back");
			kernels->norm_back(&t.norm, t.x.data, relu ? t.y.data : NULL, t.dy.data,
					   t.sums.data, n, t.dx.data, relu ? t.out.data : NULL,
					   type);
			check_norm_back(row, &t, n, relu);
			for (size_t i = 0; i < t.x.count && relu; i++)
				array_exact(row, &t.out, i, (float)norms_passed(&t, i, relu));
			norms_free(&t);
		}
}
END_TEST

static void fill(TCase *tcase)
{
	KERNELS_ROWS(tcase, test_moments);
	tcase_add_loop_test(tcase, test_norm, 0, 8 * ((int)kernels_best + 1));
	KERNELS_ROWS(tcase, test_norm_back);
}

int main(void)
{
	kernels_begin();
	return unit_run("norm kernels", fill);
}
