/* SPDX-License-Identifier: Apache-2.0 */
/* test_kernels.c - the CPU engine's kernels for each instruction set, compared with simple loops */
#include "config.h"

#include "array.h"

static const size_t counts[] = {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 100, 1027};

/* --- Element by element --------------------------------------------------------------------- */

static float max0(float value)
{
	return value < 0 ? 0 : value;
}

static bool bit(const struct array *keep, size_t i)
{
	return ((const uint8_t *)keep->data)[i / 8] >> i % 8 & 1;
}

/* Three arrays of [count] elements, some of which are not finite, and a mask. */
struct elements {
	struct array a, b, y, bits;
	uint64_t random;
};

static void elements_make(struct elements *e, enum ddp_type type, size_t count)
{
	e->random = kernels_seed;
	e->a = array_make(type, count);
	e->b = array_make(type, count);
	e->y = array_make(type, count);
	e->bits = array_make(DDP_U8, (count + 7) / 8);
	array_fill(&e->a, 0, &e->random);
	array_fill_rare(&e->b, NAN, &e->random);
	if (count > 2)
		array_put(&e->a, count - 2, INFINITY);
	for (size_t i = 0; i < e->bits.count; i++)
		((uint8_t *)e->bits.data)[i] = (uint8_t)unit_random(&e->random, 256);
}

static void elements_free(struct elements *e)
{
	array_free(&e->a);
	array_free(&e->b);
	array_free(&e->y);
	array_free(&e->bits);
}

TEST_LOOP(test_mask, 0, KERNELS_ROWS)
{
	enum ddp_type type;
	const struct kernels *kernels = kernels_of(_i, &type);
	char row[128];

	for (int k = 0; k < ROWS(counts); k++) {
		struct elements e;

		elements_make(&e, type, counts[k]);
		kernels_row(row, kernels, type, "mask");
		kernels->mask(e.a.data, e.y.data, e.bits.data, 4.0f / 3, counts[k], type);
		for (size_t i = 0; i < counts[k]; i++)
			array_exact(row, &e.y, i,
				    bit(&e.bits, i) ? array_get(&e.a, i) * (4.0f / 3) : 0);
		kernels->mask(e.a.data, e.a.data, e.bits.data, 4.0f / 3, counts[k], type);
		REQUIRE(memcmp(e.a.data, e.y.data, counts[k] * ddp_type_size(type)) == 0,
			"%s: in place is different", row);
		elements_free(&e);
	}
}

TEST_LOOP(test_relu, 0, KERNELS_ROWS)
{
	enum ddp_type type;
	const struct kernels *kernels = kernels_of(_i, &type);
	char row[128];

	for (int k = 0; k < ROWS(counts); k++) {
		struct elements e;

		elements_make(&e, type, counts[k]);
		kernels_row(row, kernels, type, "relu");
		kernels->relu(e.b.data, e.y.data, counts[k], type);
		for (size_t i = 0; i < counts[k]; i++)
			array_exact(row, &e.y, i, max0(array_get(&e.b, i)));
		kernels_row(row, kernels, type, "relu_back");
		kernels->relu_back(e.b.data, e.a.data, e.y.data, counts[k], type);
		for (size_t i = 0; i < counts[k]; i++)
			array_exact(row, &e.y, i, array_get(&e.a, i) > 0 ? array_get(&e.b, i) : 0);
		kernels->relu_back(e.b.data, e.a.data, e.b.data, counts[k], type);
		REQUIRE(memcmp(e.b.data, e.y.data, counts[k] * ddp_type_size(type)) == 0,
			"%s: in place is different", row);
		elements_free(&e);
	}
}

TEST_LOOP(test_add, 0, KERNELS_ROWS)
{
	enum ddp_type type;
	const struct kernels *kernels = kernels_of(_i, &type);
	char row[128];

	for (int k = 0; k < ROWS(counts); k++)
		for (int relu = 0; relu < 2; relu++) {
			struct elements e;

			elements_make(&e, type, counts[k]);
			kernels_row(row, kernels, type, relu ? "add and relu" : "add");
			kernels->add(e.a.data, e.b.data, e.y.data, counts[k], relu, type);
			for (size_t i = 0; i < counts[k]; i++) {
				float sum = array_get(&e.a, i) + array_get(&e.b, i);

				array_exact(row, &e.y, i, relu ? max0(sum) : sum);
			}
			kernels->add(e.a.data, e.b.data, e.b.data, counts[k], relu, type);
			REQUIRE(memcmp(e.b.data, e.y.data, counts[k] * ddp_type_size(type)) == 0,
				"%s: in place is different", row);
			elements_free(&e);
		}
}

TEST_LOOP(test_convert, 0, KERNELS_ROWS)
{
	enum ddp_type type;
	const struct kernels *kernels = kernels_of(_i, &type);
	char row[128];

	if (type != DDP_BF16)
		return;
	for (int k = 0; k < ROWS(counts); k++) {
		struct array from = array_make(DDP_F32, counts[k]),
			     to = array_make(type, counts[k]);
		struct array back = array_make(DDP_F32, counts[k]);
		uint64_t random = kernels_seed;

		for (size_t i = 0; i < from.count * 4; i++) /* random bits */
			((uint8_t *)from.data)[i] = (uint8_t)unit_random(&random, 256);
		if (counts[k] > 2)
			array_put(&from, counts[k] / 2, NAN);
		kernels->narrow(from.data, to.data, counts[k]);
		kernels->widen(to.data, back.data, counts[k]);
		for (size_t i = 0; i < counts[k]; i++) {
			array_exact(kernels_row(row, kernels, type, "narrow"), &to, i,
				    array_get(&from, i));
			array_exact(kernels_row(row, kernels, type, "widen"), &back, i,
				    array_get(&to, i));
		}
		array_free(&from);
		array_free(&to);
		array_free(&back);
	}
}

/* --- Pools ---------------------------------------------------------------------------------- */

static const struct {
	size_t images;
	int height, width, channels;
} pools[] = {
	{0, 4, 4, 3}, {1, 2, 2, 1}, {2, 4, 6, 3}, {1, 8, 2, 17}, {2, 2, 8, 40}, {1, 24, 24, 64},
};

/* Returns the index of pixel [k] in the window of pooled result [i]. */
static size_t pool_pixel(int p, size_t i, size_t k)
{
	size_t width = (size_t)pools[p].width, channels = (size_t)pools[p].channels;
	size_t c = i % channels, w = i / channels % (width / 2);
	size_t h = i / channels / (width / 2) % (size_t)(pools[p].height / 2);
	size_t image = i / channels / (width / 2) / (size_t)(pools[p].height / 2);

	h = image * (size_t)pools[p].height + 2 * h + k / 2;
	return (h * width + 2 * w + k % 2) * channels + c;
}

static uint8_t pool_which(int p, const struct array *x, size_t i)
{
	uint8_t best = 0;

	for (uint8_t k = 1; k < 4; k++) {
		float value = array_get(x, pool_pixel(p, i, k));

		if (value > array_get(x, pool_pixel(p, i, best)) || isnan(value))
			best = k;
	}
	return best;
}

static void check_pool_back(const char *row, int p, const struct kernels *kernels,
			    const struct array *dy, const struct array *which, struct array *dx)
{
	const uint8_t *index = which->data;
	float *want = calloc(dx->count + 1, sizeof(*want));

	for (size_t i = 0; i < dy->count; i++)
		want[pool_pixel(p, i, index[i])] = array_get(dy, i);
	kernels->max_pool_back(dy->data, index, dx->data, pools[p].images, pools[p].height,
			       pools[p].width, pools[p].channels, dx->type);
	for (size_t i = 0; i < dx->count; i++)
		array_exact(row, dx, i, want[i]);
	free(want);
}

TEST_LOOP(test_max_pool, 0, KERNELS_ROWS)
{
	enum ddp_type type;
	const struct kernels *kernels = kernels_of(_i, &type);
	uint64_t random = kernels_seed;
	char row[128];

	for (int p = 0; p < ROWS(pools); p++) {
		size_t pixels = pools[p].images * (size_t)(pools[p].height * pools[p].width);
		size_t pooled =
			pools[p].images * (size_t)((pools[p].height / 2) * (pools[p].width / 2));
		size_t channels = (size_t)pools[p].channels;
		struct array x = array_make(type, pixels * channels);
		struct array y = array_make(type, pooled * channels);
		struct array which = array_make(DDP_U8, pooled * channels);

		array_fill_rare(&x, NAN, &random);
		kernels_row(row, kernels, type, "max_pool");
		kernels->max_pool(x.data, y.data, which.data, pools[p].images, pools[p].height,
				  pools[p].width, pools[p].channels, type);
		for (size_t i = 0; i < y.count; i++) {
			uint8_t want = pool_which(p, &x, i), got = ((uint8_t *)which.data)[i];

			REQUIRE(got == want, "%s: %zu comes from %d, want %d", row, i, got, want);
			array_exact(row, &y, i, array_get(&x, pool_pixel(p, i, want)));
		}
		array_fill(&y, 0, &random);
		kernels_row(row, kernels, type, "max_pool_back");
		check_pool_back(row, p, kernels, &y, &which, &x);
		array_free(&x);
		array_free(&y);
		array_free(&which);
	}
}

static const size_t means[][2] = {{1, 1}, {2, 3}, {16, 512}, {300, 17}, {5, 65}, {64, 0}};

TEST_LOOP(test_average_pool, 0, KERNELS_ROWS)
{
	enum ddp_type type;
	const struct kernels *kernels = kernels_of(_i, &type);
	uint64_t random = kernels_seed;
	enum { IMAGES = 2 };
	char row[128];

	for (int s = 0; s < ROWS(means); s++) {
		size_t rows = means[s][0], channels = means[s][1];
		struct array x = array_make(type, IMAGES * rows * channels);
		struct array y = array_make(type, IMAGES * channels);

		array_fill(&x, 1, &random);
		kernels_row(row, kernels, type, "average_pool");
		kernels->average_pool(x.data, y.data, IMAGES, rows, channels, type);
		for (size_t i = 0; i < y.count; i++) {
			double sum = 0;

			for (size_t r = 0; r < rows; r++)
				sum += (double)array_get(&x, (i / channels * rows + r) * channels +
								     i % channels);
			array_near(row, &y, i, sum / (double)rows, 2, 1e-6);
		}
		kernels_row(row, kernels, type, "average_pool_back");
		kernels->average_pool_back(y.data, x.data, IMAGES, rows, channels, type);
		for (size_t i = 0; i < x.count; i++)
			array_near(row, &x, i,
				   (double)array_get(&y, i / channels / rows * channels +
								 i % channels) /
					   (double)rows,
				   2, 1e-6);
		array_free(&x);
		array_free(&y);
	}
}

/* --- Loss ----------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	size_t count, classes;
	float smoothing, spread;
} losses[] = {
	{"plain", 5, 10, 0, 3},	      {"smoothed", 64, 10, 0.1f, 3},	{"none", 0, 10, 0, 1},
	{"one class", 3, 1, 0.1f, 1}, {"large logits", 9, 100, 0, 300},
};

/* As in PyTorch, the loss is (1 - s) * nll + s * mean of -log p. */
static double want_loss(const float *row, size_t label, size_t classes, double s, double *p)
{
	double top = -INFINITY, sum = 0, smooth = 0;

	for (size_t k = 0; k < classes; k++)
		top = fmax(top, (double)row[k]);
	for (size_t k = 0; k < classes; k++)
		sum += exp((double)row[k] - top);
	for (size_t k = 0; k < classes; k++) {
		p[k] = exp((double)row[k] - top) / sum;
		smooth += top + log(sum) - (double)row[k];
	}
	return (1 - s) * (top + log(sum) - (double)row[label]) + s * smooth / (double)classes;
}

TEST_ROWS(test_loss, losses)
{
	size_t count = losses[_i].count, classes = losses[_i].classes, hits = 0;
	double s = (double)losses[_i].smoothing, p[100], loss = 0, got;
	struct array logits = array_make(DDP_F32, count * classes);
	struct array gradient = array_make(DDP_F32, count * classes);
	uint64_t random = kernels_seed, got_hits = 7;
	int32_t labels[64];

	array_fill(&logits, 0, &random);
	for (size_t i = 0; i < logits.count; i++)
		array_put(&logits, i, array_get(&logits, i) * losses[_i].spread);
	for (size_t i = 0; i < count; i++)
		labels[i] = (int32_t)unit_random(&random, (uint32_t)classes);
	got = kernels_loss(logits.data, labels, count, classes, losses[_i].smoothing, 0.25f,
			   gradient.data, &got_hits);
	for (size_t i = 0; i < count; i++) {
		const float *row = (float *)logits.data + i * classes;
		size_t label = (size_t)labels[i], above = 0;

		loss += want_loss(row, label, classes, s, p);
		for (size_t k = 0; k < classes; k++) {
			double want = p[k] - s / (double)classes - (k == label ? 1 - s : 0);

			array_near(losses[_i].name, &gradient, i * classes + k, want / 4, 1, 1e-7);
			above += row[k] > row[label];
		}
		hits += above == 0;
	}
	ck_assert_double_eq_tol(got, loss, 1e-12 + 1e-9 * fabs(loss));
	ck_assert_uint_eq(got_hits, 7 + hits);
	array_free(&logits);
	array_free(&gradient);
}

TEST(test_loss_special)
{
	static const float rows[][4] = {
		{2, 2, 1, 2}, {1, 2, 2, 0}, {1, NAN, 3, NAN}, {1, -INFINITY, 0, 0}};
	static const int32_t first[] = {0, 1, 1, 0};

	for (int i = 0; i < ROWS(rows); i++)
		for (int32_t label = 0; label < 4; label++) {
			uint64_t hits = 0;
			double loss = kernels_loss(rows[i], &label, 1, 4, 0, 1, NULL, &hits);

			ck_assert_uint_eq(hits, label == first[i]);
			ck_assert(!isnan(loss) == (i != 2));
			ck_assert(isinf(loss) == (i == 3 && label == 1));
		}
}

/* --- Choice of the kernels ------------------------------------------------------------------ */

TEST(test_choose)
{
	struct ddp_error error = {0};

	for (int i = 0; i <= (int)kernels_best; i++) {
		setenv("DDP_SIMD", ddp_simd_name((enum ddp_simd)i), 1);
		ck_assert_ptr_eq(kernels_choose(&error), kernels_tables[i]);
		ck_assert_str_eq(kernels_tables[i]->name, ddp_simd_name((enum ddp_simd)i));
	}
	setenv("DDP_SIMD", "mmx", 1);
	ck_assert_ptr_null(kernels_choose(&error));
	UNIT_SAYS("choose", error.text, "DDP_SIMD", "mmx");
}

/* --- BatchNorm, compared with sums in double precision ------------------------------------ */

/* Numbers of rows and channels. */
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

/* The mean is 1000 times the deviation, so sums of squares in f32 would be too inexact. */
TEST_LOOP(test_moments, 0, KERNELS_ROWS)
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

TEST_LOOP(test_norm, 0, 8 * ((int)kernels_best + 1))
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

/* Returns the gradient at [i] after the ReLU's mask. */
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

TEST_LOOP(test_norm_back, 0, KERNELS_ROWS)
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

int main(void)
{
	kernels_begin();
	return unit_run("kernels", NULL);
}
