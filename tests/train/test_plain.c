/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>

#include "cpu/math.h"
#include "unit.h"

/* Layers: sizes that fill no vector, strides that leave something over, windows of one and all. */
static const struct row {
	const char *name;
	int height, width, in, out, size, stride, pad;
	bool dense, bias, relu;
} rows[] = {
	{"one pixel", 1, 1, 1, 1, 1, 1, 0, false, true, false},
	{"first", 9, 7, 1, 32, 3, 1, 0, false, true, true},
	{"padded", 6, 5, 3, 17, 3, 1, 1, false, false, false},
	{"strided", 8, 8, 5, 16, 3, 2, 1, false, true, false},
	{"strided, uneven", 7, 9, 4, 3, 3, 2, 0, false, true, true},
	{"shortcut", 8, 6, 16, 33, 1, 2, 0, false, false, false},
	{"large", 9, 9, 2, 5, 5, 3, 2, false, true, true},
	{"dense", 1, 1, 37, 10, 1, 1, 0, true, true, true},
	{"dense, no bias", 1, 1, 64, 48, 1, 1, 0, true, false, false},
};

enum { IMAGES = 3, ROOM = 16384 };

struct numbers {
	float x[ROOM], y[ROOM], dy[ROOM], dx[ROOM], weights[ROOM], slopes[ROOM], bias[64],
		bias_slopes[64];
	uint16_t halves[4][ROOM];
	double want[ROOM], want_weights[ROOM], want_bias[64];
	int rows, columns;
};

static struct math_options options_of(const struct row *row, enum ddp_type type)
{
	return (struct math_options){row->height, row->width, row->in,	  row->out,  row->size,
				     row->stride, row->pad,   row->dense, row->bias, row->relu,
				     false,	  type,	      IMAGES,	  1};
}

static void fill(float *to, size_t count, uint64_t *state)
{
	for (size_t i = 0; i < count; i++)
		to[i] = (float)unit_random(state, 2001) / 1000 - 1;
}

/* Also what bfloat16 can hold, so that rounding of arguments is no question. */
static void fill_short(float *to, uint16_t *halves, size_t count, uint64_t *state)
{
	for (size_t i = 0; i < count; i++) {
		uint32_t bits;

		to[i] = ((float)unit_random(state, 255) - 127) / 64;
		memcpy(&bits, &to[i], sizeof(bits));
		halves[i] = (uint16_t)(bits >> 16);
	}
}

static void near(const char *row, const char *what, size_t at, double got, double want,
		 double tolerance)
{
	ck_assert_msg(fabs(got - want) <= tolerance * (1 + fabs(want)),
		      "%s: %s[%zu] is %.9g, want %.9g", row, what, at, got, want);
}

/* Forward in doubles; adds up the gradients of x and weights from dy on the way. */
static void naive(const struct row *row, struct numbers *n, const float *dy, double *dx)
{
	size_t at = 0;

	for (int i = 0; i < IMAGES; i++)
		for (int p = 0; p < n->rows * n->columns; p++)
			for (int o = 0; o < row->out; o++, at++) {
				double sum = row->bias ? (double)n->bias[o] : 0;

				for (int t = 0; t < row->size * row->size * row->in; t++) {
					int c = t % row->in, tap = t / row->in;
					int h = p / n->columns * row->stride + tap / row->size -
						row->pad;
					int w = p % n->columns * row->stride + tap % row->size -
						row->pad;
					int from =
						((i * row->height + h) * row->width + w) * row->in +
						c;
					int weight = o * row->size * row->size * row->in + t;

					if (h < 0 || h >= row->height || w < 0 || w >= row->width)
						continue;
					sum += (double)n->x[from] * (double)n->weights[weight];
					dx[from] += (double)dy[at] * (double)n->weights[weight];
					n->want_weights[weight] +=
						(double)dy[at] * (double)n->x[from];
				}
				n->want[at] = row->relu && sum < 0 ? 0 : sum;
				n->want_bias[o] += (double)dy[at];
			}
}

static size_t read_count(const struct row *row)
{
	return (size_t)(IMAGES * row->height * row->width * row->in);
}

static size_t result_count(const struct row *row, const struct numbers *n)
{
	return (size_t)(IMAGES * n->rows * n->columns * row->out);
}

static size_t weight_count(const struct row *row)
{
	return (size_t)(row->out * row->size * row->size * row->in);
}

static struct numbers *numbers_of(const struct row *row, struct math_layer **layer,
				  enum ddp_type type)
{
	struct math_options options = options_of(row, type);
	struct numbers *n = calloc(1, sizeof(*n));
	uint64_t state = 88172645463325252u;
	struct ddp_error error;

	ck_assert_ptr_nonnull(n);
	n->rows = (row->height + 2 * row->pad - row->size) / row->stride + 1;
	n->columns = (row->width + 2 * row->pad - row->size) / row->stride + 1;
	fill_short(n->x, n->halves[0], read_count(row), &state);
	fill_short(n->dy, n->halves[1], result_count(row, n), &state);
	fill(n->weights, weight_count(row), &state);
	fill(n->bias, (size_t)row->out, &state);
	ck_assert_int_eq(math_plain.create(layer, &options, &error), 0);
	ck_assert_int_eq(math_plain.load(*layer, n->weights, row->bias ? n->bias : NULL, &error),
			 0);
	return n;
}

/* All three passes against sums in doubles. */
START_TEST(test_f32)
{
	const struct row *row = &rows[_i];
	static double dx[ROOM];
	struct math_layer *layer;
	struct numbers *n = numbers_of(row, &layer, DDP_F32);

	naive(row, n, n->dy, memset(dx, 0, sizeof(dx)));
	ck_assert_int_eq(math_plain.forward(layer, IMAGES, n->x, n->y, NULL), 0);
	ck_assert_int_eq(math_plain.back_data(layer, IMAGES, n->dy, n->dx, NULL), 0);
	ck_assert_int_eq(math_plain.back_weights(layer, IMAGES, n->x, n->dy, n->slopes,
						 row->bias ? n->bias_slopes : NULL, NULL),
			 0);
	for (size_t i = 0; i < result_count(row, n); i++)
		near(row->name, "y", i, (double)n->y[i], n->want[i], 1e-5);
	for (size_t i = 0; i < read_count(row); i++)
		near(row->name, "dx", i, (double)n->dx[i], dx[i], 1e-5);
	for (size_t i = 0; i < weight_count(row); i++)
		near(row->name, "weights", i, (double)n->slopes[i], n->want_weights[i], 1e-5);
	for (int i = 0; row->bias && i < row->out; i++)
		near(row->name, "bias", (size_t)i, (double)n->bias_slopes[i], n->want_bias[i],
		     1e-5);
	math_plain.destroy(layer);
	free(n);
}
END_TEST

static double wide(uint16_t half)
{
	uint32_t bits = (uint32_t)half << 16;
	float value;

	memcpy(&value, &bits, sizeof(value));
	return (double)value;
}

/* Activations that are rounded once: an error of 2^-8 at most, and what f32 sums lose. */
START_TEST(test_bf16)
{
	const struct row *row = &rows[_i];
	static double dx[ROOM];
	struct math_layer *layer;
	struct numbers *n = numbers_of(row, &layer, DDP_BF16);

	naive(row, n, n->dy, memset(dx, 0, sizeof(dx)));
	ck_assert_int_eq(math_plain.forward(layer, IMAGES, n->halves[0], n->halves[2], NULL), 0);
	ck_assert_int_eq(math_plain.back_data(layer, IMAGES, n->halves[1], n->halves[3], NULL), 0);
	ck_assert_int_eq(math_plain.back_weights(layer, IMAGES, n->halves[0], n->halves[1],
						 n->slopes, row->bias ? n->bias_slopes : NULL,
						 NULL),
			 0);
	for (size_t i = 0; i < result_count(row, n); i++)
		near(row->name, "y", i, wide(n->halves[2][i]), n->want[i], 0x1.02p-8);
	for (size_t i = 0; i < read_count(row); i++)
		near(row->name, "dx", i, wide(n->halves[3][i]), dx[i], 0x1.02p-8);
	for (size_t i = 0; i < weight_count(row); i++)
		near(row->name, "weights", i, (double)n->slopes[i], n->want_weights[i], 1e-5);
	math_plain.destroy(layer);
	free(n);
}
END_TEST

/* A count below the layer's batch touches nothing behind it. */
START_TEST(test_short)
{
	const struct row *row = &rows[_i];
	struct math_layer *layer;
	struct numbers *n = numbers_of(row, &layer, DDP_F32);
	size_t one = result_count(row, n) / IMAGES, read = read_count(row) / IMAGES;

	for (size_t i = 0; i < ROOM; i++)
		n->y[i] = n->dx[i] = 7;
	ck_assert_int_eq(math_plain.forward(layer, 1, n->x, n->y, NULL), 0);
	ck_assert_int_eq(math_plain.back_data(layer, 1, n->dy, n->dx, NULL), 0);
	for (size_t i = one; i < ROOM; i++)
		ck_assert(n->y[i] == 7);
	for (size_t i = read; i < ROOM; i++)
		ck_assert(n->dx[i] == 7);
	math_plain.destroy(layer);
	free(n);
}
END_TEST

START_TEST(test_types)
{
	struct ddp_error error = {0};

	ck_assert(math_plain.has(DDP_F32, &error));
	ck_assert(math_plain.has(DDP_BF16, &error));
	ck_assert(!math_plain.has(DDP_F16, &error));
	unit_pieces("f16", error.text, (const char *const[]){"F16", "bf16", NULL});
}
END_TEST

static void fill_tests(TCase *tcase)
{
	UNIT_ROWS(tcase, test_f32, rows);
	UNIT_ROWS(tcase, test_bf16, rows);
	UNIT_ROWS(tcase, test_short, rows);
	tcase_add_test(tcase, test_types);
}

int main(void)
{
	return unit_run("plain", fill_tests);
}
