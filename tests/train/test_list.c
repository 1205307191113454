/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "array.h"

static const struct {
	const char *name;
	size_t images;
	struct kernel_window window;
	unsigned part; /* sixteenths of the gradients that are not zero, before ReLU and dropout */
	bool keep;
} lists[] = {
	{"none", 0, {6, 6, 32, 5, 3}, 16, true},
	{"smallest", 1, {4, 4, 32, 1, 3}, 16, false},
	{"odd", 3, {7, 9, 32, 5, 3}, 16, true},
	{"16 channels", 2, {8, 6, 16, 16, 3}, 16, false},
	{"48 channels", 2, {6, 12, 48, 33, 3}, 16, true},
	{"64 channels", 2, {9, 8, 64, 17, 3}, 12, true},
	{"empty", 2, {8, 8, 32, 19, 3}, 0, false},
	{"sparse", 5, {14, 14, 32, 64, 3}, 1, true},
	{"mnist", 3, {26, 26, 32, 64, 3}, 16, true},
	{"wide", 1, {8, 70, 32, 70, 3}, 16, false},
};

/* The list's input, and dense gradients for comparison. */
struct dense {
	struct kernel_window window;
	size_t images, rows, columns; /* size of the pooled result */
	struct array x, dy, y, which, keep, weights;

	double *dw, *dx, *bias, *bias_scale;
	size_t count;
};

static double *zeros(size_t count)
{
	return calloc(count + 1, sizeof(double));
}

static void dense_fill(struct dense *d, int i, uint64_t *random)
{
	array_fill(&d->x, 0, random);
	array_fill(&d->weights, 0, random);
	for (size_t k = 0; k < d->dy.count; k++) {
		bool some = unit_random(random, 16) < lists[i].part;

		array_put(&d->dy, k, some ? (float)unit_random(random, 2001) / 1000 - 1 : 0);
		array_put(&d->y, k,
			  unit_random(random, 4)   ? 1.5f
			  : unit_random(random, 2) ? 0
						   : -1);
		((uint8_t *)d->which.data)[k] = (uint8_t)unit_random(random, 4);
	}
	for (size_t k = 0; k < d->keep.count; k++)
		((uint8_t *)d->keep.data)[k] =
			(uint8_t)(unit_random(random, 256) | unit_random(random, 256));
}

/*
 * Returns the value of pooled gradient [k], and the place of the convolution's result that gets it.
 */
static float dense_value(const struct dense *d, size_t k, bool keep, float scale, size_t *place)
{
	size_t out = (size_t)d->window.out, which = ((uint8_t *)d->which.data)[k];
	size_t c = k % out, w = k / out % d->columns, h = k / out / d->columns % d->rows;
	size_t image = k / out / d->columns / d->rows;
	bool kept = !keep || ((uint8_t *)d->keep.data)[k / 8] >> k % 8 & 1;

	h = image * (size_t)(d->window.height - 2) + 2 * h + which / 2;
	*place = (h * (size_t)(d->window.width - 2) + 2 * w + which % 2) * out + c;
	return kept && array_get(&d->y, k) > 0 ? array_get(&d->dy, k) * scale : 0;
}

/* Adds one result of the convolution to the three sums. */
static void dense_add(struct dense *d, size_t place, double value)
{
	size_t out = (size_t)d->window.out, in = (size_t)d->window.in, c = place % out;
	size_t width = (size_t)d->window.width, pixel = place / out;
	size_t image = pixel / (width - 2) / (size_t)(d->window.height - 2);
	size_t h = pixel / (width - 2) % (size_t)(d->window.height - 2), w = pixel % (width - 2);

	d->bias[c] += value;
	d->bias_scale[c] += fabs(value);
	for (size_t t = 0; t < 9; t++) {
		size_t row = image * (size_t)d->window.height + h + t / 3;
		size_t at = (row * width + w + t % 3) * in;

		for (size_t k = 0; k < in; k++) {
			size_t weight = (c * 9 + t) * in + k;

			d->dw[weight] += value * (double)array_get(&d->x, at + k);
			d->dx[at + k] += value * (double)array_get(&d->weights, weight);
		}
	}
}

static void dense_make(struct dense *d, int i, enum ddp_type type, float scale)
{
	const struct kernel_window *window = &lists[i].window;
	size_t rows = (size_t)(window->height - 2) / 2, columns = (size_t)(window->width - 2) / 2;
	size_t out = (size_t)window->out, in = (size_t)window->in, images = lists[i].images;
	size_t pooled = images * rows * columns * out;
	size_t read = images * (size_t)(window->height * window->width) * in;
	uint64_t random = kernels_seed + (uint64_t)i;

	*d = (struct dense){*window, images, rows, columns, .count = 0};
	d->x = array_make(type, read);
	d->dy = array_make(type, pooled);
	d->y = array_make(type, pooled);
	d->which = array_make(DDP_U8, pooled);
	d->keep = array_make(DDP_U8, (pooled + 7) / 8);
	d->weights = array_make(DDP_F32, out * 9 * in);
	d->dw = zeros(out * 9 * in);
	d->dx = zeros(read);
	d->bias = zeros(out);
	d->bias_scale = zeros(out);
	dense_fill(d, i, &random);
	for (size_t k = 0; k < pooled; k++) {
		size_t place;
		float value = dense_value(d, k, lists[i].keep, scale, &place);

		d->count += value != 0;
		if (value != 0)
			dense_add(d, place, (double)value);
	}
}

static void dense_free(struct dense *d)
{
	struct array *arrays[] = {&d->x, &d->dy, &d->y, &d->which, &d->keep, &d->weights};

	for (int i = 0; i < ROWS(arrays); i++)
		array_free(arrays[i]);
	free(d->dw);
	free(d->dx);
	free(d->bias);
	free(d->bias_scale);
}

/* If [relu], x is the output of a ReLU. */
static void check_data(const char *row, const struct dense *d, const struct array *dx, bool relu)
{
	for (size_t k = 0; k < dx->count; k++)
		if (relu && array_get(&d->x, k) <= 0)
			array_exact(row, dx, k, 0);
		else
			array_near(row, dx, k, d->dx[k], 100, 1e-6);
}

/* Number of entries of the first [images] images of [list]. */
static size_t count_entries(const struct kernel_list *list, size_t images)
{
	size_t words = images * list->rows * list->columns * list->words * 4, count = 0;

	for (size_t w = 0; w < words; w++)
		count += (size_t)__builtin_popcountll(list->bits[w]);
	return count;
}

static void check_list(const struct kernels *kernels, int i, enum ddp_type type)
{
	float scale = lists[i].keep ? 4.0f / 3 : 1;
	struct array dw, dx, bias;
	struct kernel_list *list;
	struct dense d;
	char row[128];

	kernels_row(row, kernels, type, lists[i].name);
	dense_make(&d, i, type, scale);
	dw = array_make(DDP_F32, d.weights.count);
	dx = array_make(type, d.x.count);
	bias = array_make(DDP_F32, (size_t)d.window.out);
	list = kernel_list_create(&d.window, d.images + 1);
	for (int again = 0; again < 2; again++) { /* the same list is used in many steps */
		kernels->list(&d.window, d.images, d.dy.data, d.y.data, d.which.data,
			      lists[i].keep ? d.keep.data : NULL, scale, list, bias.data, type);
		REQUIRE(count_entries(list, d.images) == d.count, "%s: %zu entries, want %zu", row,
			count_entries(list, d.images), d.count);
		kernels->list_weights(&d.window, list, d.images, d.x.data, dw.data, type);
		kernels->list_data(&d.window, list, d.images, d.weights.data,
				   again ? d.x.data : NULL, dx.data, type);
		check_data(row, &d, &dx, again);
	}
	for (size_t k = 0; k < bias.count; k++)
		array_near(row, &bias, k, d.bias[k], d.bias_scale[k], 1e-6);
	for (size_t k = 0; k < dw.count; k++)
		array_near(row, &dw, k, d.dw[k], d.bias_scale[k / 9 / (size_t)d.window.in], 1e-6);
	kernel_list_destroy(list);
	array_free(&dw);
	array_free(&dx);
	array_free(&bias);
	dense_free(&d);
}

/* Gradients from the list equal dense gradients that are computed in double precision. */
TEST_LOOP(test_list, 0, ROWS(lists) * 2 * ((int)kernels_best + 1))
{
	enum ddp_type type;
	const struct kernels *kernels = kernels_of(_i % (2 * ((int)kernels_best + 1)), &type);

	check_list(kernels, _i / (2 * ((int)kernels_best + 1)), type);
}

/* Gradients that are not finite stay so, and therefore a step with an overflow is skipped. */
TEST_LOOP(test_not_finite, 0, KERNELS_ROWS)
{
	enum ddp_type type;
	const struct kernels *kernels = kernels_of(_i, &type);
	struct kernel_window window = {4, 4, 32, 1, 3};
	struct array x = array_make(type, 16 * 32), one = array_make(type, 1);
	struct array weights = array_make(DDP_F32, 9 * 32);
	struct kernel_list *list;
	uint8_t which = 0;
	float bias;

	array_put(&one, 0, 1);
	for (size_t k = 0; k < x.count; k++)
		array_put(&x, k, k == 33 ? INFINITY : 1);
	list = kernel_list_create(&window, 1);
	kernels->list(&window, 1, one.data, one.data, &which, NULL, 1, list, &bias, type);
	kernels->list_weights(&window, list, 1, x.data, weights.data, type);
	ck_assert(isinf(array_get(&weights, 33)) && array_get(&weights, 34) == 1);
	array_put(&x, 0, NAN);
	kernels->list(&window, 1, x.data, one.data, &which, NULL, 1, list, &bias, type);
	ck_assert_uint_eq(count_entries(list, 1), 1);
	ck_assert(isnan(bias));
	kernels->list_data(&window, list, 1, weights.data, NULL, x.data, type);
	ck_assert(isnan(array_get(&x, 10 * 32)) && array_get(&x, 3 * 32) == 0);
	kernel_list_destroy(list);
	array_free(&x);
	array_free(&one);
	array_free(&weights);
}

static const struct {
	const char *name;
	struct kernel_window window;
	bool possible;
} windows[] = {
	{"mnist", {26, 26, 32, 64, 3}, true},	      {"size 5", {26, 26, 32, 64, 5}, false},
	{"1 channel", {28, 28, 1, 32, 3}, false},     {"24 channels", {8, 8, 24, 32, 3}, false},
	{"nothing to pool", {3, 8, 32, 4, 3}, false},
};

TEST_ROWS(test_has, windows)
{
	ck_assert_int_eq(kernels_has_list(&windows[_i].window), windows[_i].possible);
}

int main(void)
{
	kernels_begin();
	return unit_run("list", NULL);
}
