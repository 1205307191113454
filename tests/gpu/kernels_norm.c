/* SPDX-License-Identifier: Apache-2.0 */
/* BatchNorm's values and gradients, and the gradient of a bias, against plain sums in doubles. */
#include "shapes.h"

/* --- Values ------------------------------------------------------------------------------- */

/* All that a layer has. */
struct layer {
	struct kernel_norm norm;
	struct array x, y, dy, out, statistics, scale, shift, sums;
	struct kernel_order *order;
	struct kernel_scratch scratch;
};

static void layer_make(struct layer *l, const struct shape *shape, enum ddp_type type, size_t skew)
{
	struct array *arrays[] = {&l->x, &l->y, &l->dy, &l->out};
	size_t rows = shape->batch * shape->rows, channels = shape->channels;
	uint64_t random = arrays_seed;

	l->norm = (struct kernel_norm){shape->rows, channels, 1e-5f, 0.1f};
	for (int i = 0; i < ROWS(arrays); i++) {
		*arrays[i] = array_make(type, rows * channels, skew);
		array_fill(arrays[i], i ? 0 : 10, &random);
	}
	l->statistics = array_make(DDP_F32, 1 + 2 * channels, 0);
	l->scale = array_make(DDP_F32, channels, 0);
	l->shift = array_make(DDP_F32, channels, 0);
	l->sums = array_make(DDP_F32, 2 * channels, 0);
	array_fill(&l->statistics, 10, &random);
	for (size_t c = 0; c < channels; c++)
		array_put(&l->statistics, 1 + channels + c, 0.5 + draw(&random, 1000) / 500.);
	array_put(&l->statistics, 0, (double)(2 * shape->count * shape->rows));
	array_send(&l->statistics);
	array_fill(&l->scale, 0, &random);
	array_fill(&l->shift, 0, &random);
	array_fill(&l->sums, 0, &random);
	l->order = order_make(shape->count);
	l->scratch = scratch_make(kernel_sums_bytes(rows, channels));
}

static void layer_free(struct layer *l)
{
	struct array *arrays[] = {&l->x,	  &l->y,     &l->dy,	&l->out,
				  &l->statistics, &l->scale, &l->shift, &l->sums};

	for (int i = 0; i < ROWS(arrays); i++)
		array_free(arrays[i]);
	device_free(arrays_device, l->order);
	scratch_free(&l->scratch);
}

static double layer_inverse(const struct layer *l, size_t i)
{
	size_t channels = l->norm.channels;

	return (double)l->statistics.values[1 + channels + i % channels];
}

/* Element [i] of [x], normalised. */
static double layer_hat(const struct layer *l, const float *x, size_t i)
{
	return ((double)x[i] - (double)l->statistics.values[1 + i % l->norm.channels]) *
	       layer_inverse(l, i);
}

static struct kernel_normed layer_normed(const struct layer *l)
{
	return (struct kernel_normed){l->x.data, l->statistics.data, l->scale.data, l->shift.data};
}

/* The gradient that the ReLU lets through. */
static double layer_passed(const struct layer *l, const float *dy, size_t i, bool relu)
{
	return !relu || l->y.values[i] > 0 ? (double)dy[i] : 0;
}

static void check_apply(const struct layer *l, const struct array *y, const float *add, bool relu)
{
	for (size_t i = 0; i < y->count; i++) {
		size_t c = i % l->norm.channels;
		double want = layer_hat(l, l->x.values, i) * (double)l->scale.values[c] +
			      (double)l->shift.values[c] + (add ? (double)add[i] : 0);

		array_near("y", y, i, relu && want < 0 ? 0 : want, 3e-6);
	}
}

static void test_apply(const struct shape *shape, enum ddp_type type, size_t skew)
{
	for (int i = 0; i < 4; i++) {
		bool relu = i & 1, plus = i & 2;
		struct kernel_normed normed;
		struct layer l;

		layer_make(&l, shape, type, skew);
		normed = layer_normed(&l);
		kernel_norm_apply(arrays_stream, &l.norm, shape->batch, &normed,
				  plus ? l.dy.data : NULL, relu, l.out.data, type);
		array_fetch(&l.out);
		check_apply(&l, &l.out, plus ? l.dy.values : NULL, relu);
		layer_free(&l);
	}
	array_row("normalised: %s", shape_name(shape, type, skew));
}

/* NaN and what is too large for f16 stay what they are, with a ReLU too. */
static void test_apply_rare(void)
{
	const struct shape shape = {1, 2, 8, 1};
	struct kernel_normed normed;
	struct layer l;

	layer_make(&l, &shape, DDP_F16, 0);
	normed = layer_normed(&l);
	array_put(&l.x, 3, (double)NAN);
	array_put(&l.x, 4, 65504);
	array_send(&l.x);
	array_fill_with(&l.scale, 30);
	kernel_norm_apply(arrays_stream, &l.norm, 1, &normed, NULL, true, l.out.data, DDP_F16);
	array_fetch(&l.out);
	array_exact("NaN", &l.out, 3, (double)NAN);
	array_exact("too large", &l.out, 4, (double)INFINITY);
	array_row("normalised: NaN stays, and f16 overflows to infinity");
	layer_free(&l);
}

static void check_sums(const struct layer *l, const float *dy, bool relu)
{
	size_t channels = l->norm.channels;

	for (size_t c = 0; c < channels; c++) {
		double sum = 0, dot = 0, scale = 0;

		for (size_t i = c; i < l->x.count; i += channels) {
			double value = layer_passed(l, dy, i, relu);

			sum += value;
			dot += value * layer_hat(l, l->x.values, i);
			scale += fabs(value);
		}
		array_near("a sum", &l->sums, c, sum, 3e-7 * scale);
		array_near("a sum with x", &l->sums, channels + c, dot, 3e-6 * scale);
	}
}

/* [y] becomes what kernel_norm_apply() makes of x. */
static void layer_apply(struct layer *l, size_t batch)
{
	const struct kernel_normed normed = layer_normed(l);

	kernel_norm_apply(arrays_stream, &l->norm, batch, &normed, NULL, true, l->y.data,
			  l->x.type);
	array_fetch(&l->y);
}

/*
 * With and without a ReLU behind, which is known from y or, AGAIN, from x; dz in another place, in dy's,
 * or nowhere; of dy alone, and of it and y.
 */
static void test_sums(const struct shape *shape, enum ddp_type type, size_t skew)
{
	enum { NONE, FROM_Y, AGAIN, RELUS };
	enum { OTHER, SAME, NOWHERE, PLACES };

	for (int i = 0; i < RELUS * PLACES * 2; i++) {
		int relu = i % RELUS, place = i / RELUS % PLACES;
		bool twice = i >= RELUS * PLACES;
		struct kernel_normed normed;
		struct array *dz;
		struct layer l;
		float *dy, *before;

		layer_make(&l, shape, type, skew);
		dz = place == SAME ? &l.dy : &l.out;
		normed = layer_normed(&l);
		if (relu == AGAIN)
			layer_apply(&l, shape->batch);
		else
			normed.shift = NULL;
		dy = malloc(l.dy.count * sizeof(*dy) + 1);
		before = malloc(l.dy.count * sizeof(*dy) + 1);
		memcpy(dy, l.dy.values, l.dy.count * sizeof(*dy));
		memcpy(before, dy, l.dy.count * sizeof(*dy));
		for (size_t k = 0; twice && k < l.dy.count; k++)
			dy[k] = (float)rounded((double)(dy[k] + l.y.values[k]), type);
		kernel_norm_sums(arrays_stream, &l.norm, shape->batch, &normed,
				 relu == FROM_Y ? l.y.data : NULL, l.dy.data,
				 twice ? l.y.data : NULL, place == NOWHERE ? NULL : dz->data,
				 &l.scratch, l.sums.data, type);
		array_fetch(&l.sums);
		array_fetch(&l.dy);
		array_fetch(&l.out);
		check_sums(&l, dy, relu);
		for (size_t k = 0; k < l.dy.count; k++) {
			if (place != NOWHERE)
				array_exact("dz", dz, k, layer_passed(&l, dy, k, relu));
			if (place != SAME)
				array_exact("dy", &l.dy, k, (double)before[k]);
		}
		free(before);
		free(dy);
		layer_free(&l);
	}
	array_row("sums: %s", shape_name(shape, type, skew));
}

static void test_back(const struct shape *shape, enum ddp_type type, size_t skew)
{
	size_t channels = shape->channels, there = shape->count * shape->rows * channels;
	double n = (double)(2 * shape->count * shape->rows);

	for (int i = 0; i < 4; i++) {
		bool same = i & 1, again = i & 2;
		struct kernel_normed normed;
		struct layer l;
		float *dz;

		layer_make(&l, shape, type, skew);
		normed = layer_normed(&l);
		if (!again)
			normed.shift = NULL;
		dz = malloc(l.dy.count * sizeof(*dz) + 1);
		memcpy(dz, l.dy.values, l.dy.count * sizeof(*dz));
		layer_apply(&l, shape->batch);
		kernel_norm_back(arrays_stream, &l.norm, l.order, shape->batch, &normed,
				 l.sums.data, l.dy.data, same ? l.dy.data : l.out.data, type);
		array_fetch(&l.dy);
		array_fetch(&l.out);
		for (size_t k = 0; k < l.dy.count; k++) {
			double sum = (double)l.sums.values[k % channels];
			double dot = (double)l.sums.values[channels + k % channels];
			double want = layer_passed(&l, dz, k, again) - sum / n -
				      layer_hat(&l, l.x.values, k) * dot / n;

			want *= (double)l.scale.values[k % channels] * layer_inverse(&l, k);
			array_near("dx", same ? &l.dy : &l.out, k, k < there ? want : 0, 1e-5);
		}
		free(dz);
		layer_free(&l);
	}
	array_row("backwards: %s", shape_name(shape, type, skew));
}

static void test_column_sums(const struct shape *shape, enum ddp_type type, size_t skew)
{
	struct layer l;

	layer_make(&l, shape, type, skew);
	kernel_column_sums(arrays_stream, l.dy.data, shape->batch * shape->rows, shape->channels,
			   &l.scratch, l.sums.data, type);
	array_fetch(&l.sums);
	for (size_t c = 0; c < shape->channels; c++) {
		double sum = 0, scale = 0;

		for (size_t i = c; i < l.dy.count; i += shape->channels) {
			sum += (double)l.dy.values[i];
			scale += fabs((double)l.dy.values[i]);
		}
		array_near("a sum", &l.sums, c, sum, 3e-7 * scale);
	}
	array_row("sums of columns: %s", shape_name(shape, type, skew));
	layer_free(&l);
}

int main(void)
{
	if (!arrays_begin("kernels of BatchNorm"))
		return tap_failed ? tap_end() : EXIT_SUCCESS;
	each_shape(test_apply);
	test_apply_rare();
	each_shape(test_sums);
	each_shape(test_back);
	each_shape(test_column_sums);
	return arrays_end();
}
