/* SPDX-License-Identifier: Apache-2.0 */
/* What is done to each element by itself, against loops that say the same. All results are exact. */
#include <float.h>

#include "arrays.h"

/* Around a pack, and around what a block does. */
static const size_t counts[] = {0, 1, 3, 4, 7, 8, 9, 255, 1024, 2048, 2049, 5003};

/* Small numbers with many zeros, and now and then what compares like nothing else. */
static void fill_rare(struct array *array, uint64_t *random)
{
	const double rare[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, -0.0, 0x1p-24};

	for (size_t i = 0; i < array->count; i++)
		array_put(array, i,
			  draw(random, 30) ? ((double)draw(random, 1 << 12) - (1 << 11)) / 64
					   : rare[draw(random, ROWS(rare))]);
	array_send(array);
}

/* --- One or two arrays to one ------------------------------------------------------------------ */

enum act { RELU, RELU_BACK, DROPOUT_BACK, ADD, ADD_RELU, ACTS };

static const char *const acts[] = {"relu", "relu, back", "relu and dropout, back", "add",
				   "add and relu"};

static const float scale = 1 / 0.7f;

static void act(enum act act, const struct array *a, const struct array *b, const struct array *y)
{
	size_t count = y->count;
	enum ddp_type type = y->type;

	if (act == RELU)
		kernel_relu(arrays_stream, a->data, y->data, count, type);
	else if (act == RELU_BACK)
		kernel_relu_back(arrays_stream, a->data, b->data, 1, y->data, count, type);
	else if (act == DROPOUT_BACK)
		kernel_relu_back(arrays_stream, a->data, b->data, scale, y->data, count, type);
	else
		kernel_add(arrays_stream, a->data, b->data, y->data, count, act == ADD_RELU, type);
}

static float plain_act(enum act act, float a, float b)
{
	float sum = act == RELU ? a : a + b;

	if (act == RELU_BACK || act == DROPOUT_BACK)
		return b > 0 ? (act == DROPOUT_BACK ? a * scale : a) : 0;
	return act != ADD && sum < 0 ? 0 : sum;
}

/* Where the result goes: to an array of its own, or over the first or second. */
enum place { APART, FIRST, SECOND, PLACES };

/* [skew] is of a, b and y: 1, 2 and 4. */
static void check_act(enum act what, enum ddp_type type, size_t count, unsigned skew,
		      enum place place)
{
	struct array a = array_make(type, count, skew & 1),
		     b = array_make(type, count, skew >> 1 & 1);
	struct array apart = array_make(type, count, skew >> 2);
	struct array *y = place == APART ? &apart : place == FIRST ? &a : &b;
	uint64_t random = arrays_seed + count;
	float *first = malloc((count + 1) * sizeof(*first));
	float *second = malloc((count + 1) * sizeof(*second));

	fill_rare(&a, &random);
	fill_rare(&b, &random);
	array_fill_with(&apart, 77);
	memcpy(first, a.values, count * sizeof(*first));
	memcpy(second, b.values, count * sizeof(*second));
	act(what, &a, &b, y);
	array_fetch(y);
	for (size_t i = 0; i < count; i++)
		array_exact(acts[what], y, i, (double)plain_act(what, first[i], second[i]));
	free(first);
	free(second);
	array_free(&a);
	array_free(&b);
	array_free(&apart);
}

static void test_act(enum act what, enum ddp_type type)
{
	unsigned places = what == RELU ? SECOND : PLACES;

	for (int c = 0; c < ROWS(counts); c += arrays_stride())
		for (unsigned skew = 0; skew < 8; skew++)
			check_act(what, type, counts[c], skew,
				  (enum place)(((unsigned)c + skew) % places));
	array_row("%s: %s, of 0 to 5003, aligned and not, in place and not", acts[what],
		  arrays_name(type));
}

/* --- From type to type -------------------------------------------------------------------------- */

/* Halfway between two numbers of a type, on both sides of that; too large, too small, no number. */
static double edge(uint64_t *random)
{
	const double edges[] = {
		1 + 0x1p-8,	1 + 0x3p-8,  1 + 0x1p-11, 1 + 0x3p-11,	    65504,
		65519.99,	65520,	     -65520,	  0x1p-24,	    0x1p-25,
		0x1.000002p-25, -0x1.8p-24,  0x1p-14,	  0x1p-126,	    0x1p-133,
		0x1.8p-134,	(double)NAN, -0.0,	  (double)INFINITY, (double)FLT_MAX};
	double value = edges[draw(random, ROWS(edges))];

	return draw(random, 2) ? value : (double)nextafterf((float)value, 1);
}

static double narrowed(double value, enum ddp_type type)
{
	if (type == DDP_BF16 && fabs(value) >= 0x1.ffp127)
		return copysign((double)INFINITY, value);
	return value;
}

static void check_narrow(enum ddp_type type, size_t count)
{
	struct array from = array_make(DDP_F32, count, 0), to = array_make(type, count, 0);
	struct array back = array_make(DDP_F32, count, 0);
	uint64_t random = arrays_seed + count;

	for (size_t i = 0; i < count; i++)
		array_put(&from, i,
			  draw(&random, 3) ? ldexp((double)draw(&random, 1 << 24) - (1 << 23),
						   (int)draw(&random, 40) - 40)
					   : edge(&random));
	array_send(&from);
	array_fill_with(&to, 77);
	array_fill_with(&back, 77);
	kernel_narrow(arrays_stream, from.data, to.data, count, type);
	kernel_widen(arrays_stream, to.data, back.data, count, type);
	array_fetch(&to);
	array_fetch(&back);
	for (size_t i = 0; i < count; i++) {
		array_exact("narrow", &to, i, narrowed((double)from.values[i], type));
		array_exact("and wide again", &back, i, (double)to.values[i]);
	}
	array_free(&from);
	array_free(&to);
	array_free(&back);
}

static void test_narrow(enum ddp_type type)
{
	for (size_t count = 0; count < 12; count++)
		check_narrow(type, count);
	check_narrow(type, 1031);
	array_row("narrow and widen: %s", arrays_name(type));
}

/* Each number that there is. */
static void test_widen(enum ddp_type type)
{
	enum { ALL = 1 << 16 };
	uint16_t *bits = malloc(ALL * sizeof(*bits));
	struct array to = array_make(DDP_F32, ALL, 0);
	void *from;

	for (int i = 0; i < ALL; i++)
		bits[i] = (uint16_t)i;
	from = bytes_make(ALL * sizeof(*bits), bits);
	kernel_widen(arrays_stream, from, to.data, ALL, type);
	array_fetch(&to);
	for (size_t i = 0; i < ALL; i++)
		array_exact("wide", &to, i, (double)value16(bits[i], type));
	array_row("widen: %s, all 65536", arrays_name(type));
	device_free(arrays_device, from);
	array_free(&to);
	free(bits);
}

int main(void)
{
	if (!arrays_begin("kernels of elements"))
		return tap_failed ? tap_end() : EXIT_SUCCESS;
	for (int t = 0; t < ROWS(arrays_types); t++) {
		for (enum act what = RELU; what < ACTS; what++)
			test_act(what, arrays_types[t]);
		test_narrow(arrays_types[t]);
		if (arrays_types[t] != DDP_F32)
			test_widen(arrays_types[t]);
	}
	return arrays_end();
}
