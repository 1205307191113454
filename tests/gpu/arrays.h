/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arrays.h - numbers on the device and here, for tests of kernels (kernels_X.c)
 *
 * An array's values are kept here as floats that its type can hold: array_put() rounds, array_send() and
 * array_fetch() copy. On the device an array ends where its memory does, so that a sanitizer sees what goes
 * beyond. Comparisons are with doubles; the first wrong element of a row is remembered for array_row().
 */
#ifndef DDP_TESTS_ARRAYS_H
#define DDP_TESTS_ARRAYS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "cuda-kernels.h"
#include "device.h"
#include "tap.h"

#define ROWS(array) (int)(sizeof(array) / sizeof((array)[0]))

static struct device *arrays_device;
static void *arrays_stream;
static uint64_t arrays_seed = 1;
static char arrays_wrong[256];

/* Types of activations. */
static const enum ddp_type arrays_types[] = {DDP_F32, DDP_BF16, DDP_F16};

/* Returns whether there is a device, which is open then; else says why not. */
static inline bool arrays_begin(const char *program)
{
	const char *text = getenv("DDP_SEED");
	struct ddp_error error = {0, ""};

	if (text)
		arrays_seed = strtoull(text, NULL, 0);
	printf("# DDP_SEED=%llu\n", (unsigned long long)arrays_seed);
	if (!device_available(&error)) {
		printf("1..0 # SKIP %s: %s\n", program, error.text);
		return false;
	}
	if (device_open(&arrays_device, 0, 0, &error) < 0) {
		ok(false, "%s: %s", program, error.text);
		return false;
	}
	arrays_stream = device_stream(arrays_device, DEVICE_COMPUTE);
	return true;
}

/* Returns main's value. */
static inline int arrays_end(void)
{
	device_close(arrays_device);
	return tap_end();
}

/* DDP_SHORT: of long tables each fifth row alone, for where each launch takes long (sanitizers). */
static inline int arrays_stride(void)
{
	return getenv("DDP_SHORT") ? 5 : 1;
}

/* Where an error leaves nothing to go on with. */
static inline void arrays_check(int status, const struct ddp_error *error)
{
	if (status >= 0)
		return;
	ok(false, "%s", error->text);
	exit(tap_end());
}

static inline const char *arrays_name(enum ddp_type type)
{
	return type == DDP_BF16 ? "bf16" : type == DDP_F16 ? "f16" : "f32";
}

/* --- Numbers ------------------------------------------------------------------------------ */

/* What [type] makes of [value]: to nearest, ties to even. */
static inline double rounded(double value, enum ddp_type type)
{
	int bits = type == DDP_BF16 ? 8 : type == DDP_F16 ? 11 : 24, exponent, least;
	double unit, result;

	if (!isfinite(value) || value == 0)
		return value;
	frexp(value, &exponent);
	least = type == DDP_F16 ? -24 : -149 + 24 - bits;
	unit = ldexp(1, exponent - bits > least ? exponent - bits : least);
	result = nearbyint(value / unit) * unit;
	return type == DDP_F16 && fabs(result) > 65504 ? copysign(INFINITY, value) : result;
}

/* The bits of a value that [type] holds. */
static inline uint16_t bits16(float value, enum ddp_type type)
{
	uint32_t bits, sign = signbit(value) ? 0x8000 : 0;
	int exponent;

	memcpy(&bits, &value, sizeof(bits));
	if (type == DDP_BF16)
		return (uint16_t)(bits >> 16 | (isnan(value) ? 0x40u : 0));
	if (!isfinite(value))
		return (uint16_t)(sign | (isnan(value) ? 0x7e00u : 0x7c00u));
	exponent = value == 0 ? -15 : ilogbf(value);
	if (exponent < -14)
		return (uint16_t)(sign | (uint32_t)ldexpf(fabsf(value), 24));
	return (uint16_t)(sign + ((uint32_t)(exponent + 14) << 10) +
			  (uint32_t)ldexpf(fabsf(value), 10 - exponent));
}

static inline float value16(uint16_t bits, enum ddp_type type)
{
	uint32_t wide = (uint32_t)bits << 16, exponent = bits >> 10 & 31, part = bits & 1023;
	float value;

	memcpy(&value, &wide, sizeof(value));
	if (type == DDP_BF16)
		return value;
	if (exponent == 31)
		value = part ? NAN : INFINITY;
	else if (exponent == 0)
		value = ldexpf((float)part, -24);
	else
		value = ldexpf((float)(part + 1024), (int)exponent - 25);
	return bits & 0x8000 ? -value : value;
}

/* Below [limit]; the same series for a seed everywhere. */
static inline uint32_t draw(uint64_t *random, uint32_t limit)
{
	*random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)((*random >> 32) * limit >> 32);
}

/* --- Arrays ------------------------------------------------------------------------------- */

struct array {
	void *memory; /* of the device; [data] is [skew] elements behind */
	void *data;
	float *values;
	enum ddp_type type;
	size_t count;
};

/* With a [skew] it begins where 16 bytes do not. */
static inline struct array array_make(enum ddp_type type, size_t count, size_t skew)
{
	struct array array = {NULL, NULL, calloc(count + 1, sizeof(float)), type, count};
	size_t size = ddp_type_size(type);
	struct ddp_error error = {0, ""};

	arrays_check(device_alloc(arrays_device, &array.memory, (skew + count) * size + !count,
				  "an array", NULL, &error),
		     &error);
	array.data = (char *)array.memory + skew * size;
	return array;
}

static inline void array_free(struct array *array)
{
	device_free(arrays_device, array->memory);
	free(array->values);
}

static inline void array_put(struct array *array, size_t i, double value)
{
	array->values[i] = (float)rounded(value, array->type);
}

static inline void array_send(struct array *array)
{
	size_t size = ddp_type_size(array->type);
	struct ddp_error error = {0, ""};
	uint16_t *bits = malloc(array->count * sizeof(*bits) + 1);
	const void *from = size == 2 ? (const void *)bits : array->values;

	for (size_t i = 0; size == 2 && i < array->count; i++)
		bits[i] = bits16(array->values[i], array->type);
	arrays_check(device_copy(arrays_device, DEVICE_COMPUTE, array->data, from,
				 array->count * size, &error),
		     &error);
	free(bits);
}

/* After all that is enqueued. */
static inline void array_fetch(struct array *array)
{
	size_t size = ddp_type_size(array->type);
	struct ddp_error error = {0, ""};
	uint16_t *bits = malloc(array->count * sizeof(*bits) + 1);
	void *to = size == 2 ? (void *)bits : array->values;

	arrays_check(device_check(arrays_device, "kernels", &error), &error);
	arrays_check(device_copy(arrays_device, DEVICE_COMPUTE, to, array->data,
				 array->count * size, &error),
		     &error);
	arrays_check(device_wait(arrays_device, DEVICE_COMPUTE, &error), &error);
	for (size_t i = 0; size == 2 && i < array->count; i++)
		array->values[i] = value16(bits[i], array->type);
	free(bits);
}

/* From -1 to 1 around [middle], on the device too. */
static inline void array_fill(struct array *array, double middle, uint64_t *random)
{
	for (size_t i = 0; i < array->count; i++)
		array_put(array, i, middle + (double)draw(random, 1 << 24) / (1 << 23) - 1);
	array_send(array);
}

/* All [value]: what is not written is seen. */
static inline void array_fill_with(struct array *array, double value)
{
	for (size_t i = 0; i < array->count; i++)
		array_put(array, i, value);
	array_send(array);
}

/* Bytes, as they are. */
static inline void bytes_fetch(void *to, const void *from, size_t bytes)
{
	struct ddp_error error = {0, ""};

	arrays_check(device_copy(arrays_device, DEVICE_COMPUTE, to, from, bytes, &error), &error);
	arrays_check(device_wait(arrays_device, DEVICE_COMPUTE, &error), &error);
}

static inline void *bytes_make(size_t bytes, const void *from)
{
	struct ddp_error error = {0, ""};
	void *memory = NULL;

	arrays_check(device_alloc(arrays_device, &memory, bytes + !bytes, "bytes", NULL, &error),
		     &error);
	if (from)
		arrays_check(device_copy(arrays_device, DEVICE_COMPUTE, memory, from, bytes,
					 &error),
			     &error);
	return memory;
}

/* Of kernels; its counters must be zeros again in the end. */
static inline struct kernel_scratch scratch_make(size_t bytes)
{
	return (struct kernel_scratch){bytes_make(bytes, NULL),
				       bytes_make(KERNEL_TICKETS * sizeof(unsigned), NULL)};
}

static inline void scratch_free(const struct kernel_scratch *scratch)
{
	unsigned tickets[KERNEL_TICKETS];

	bytes_fetch(tickets, scratch->tickets, sizeof(tickets));
	for (int i = 0; i < KERNEL_TICKETS; i++)
		if (tickets[i] != 0 && !arrays_wrong[0])
			snprintf(arrays_wrong, sizeof(arrays_wrong), "counter %d is left at %u", i,
				 tickets[i]);
	device_free(arrays_device, scratch->tickets);
	device_free(arrays_device, scratch->memory);
}

/* --- Comparisons -------------------------------------------------------------------------- */

static inline void array_differs(const char *what, size_t i, double got, double want, double bound)
{
	if (!arrays_wrong[0])
		snprintf(arrays_wrong, sizeof(arrays_wrong),
			 "%s: element %zu is %.9g, want %.9g (off by %.3g, bound %.3g)", what, i,
			 got, want, fabs(got - want), bound);
}

/* [want] as the array's type has it; NaN is NaN. */
static inline void array_exact(const char *what, const struct array *array, size_t i, double want)
{
	double got = (double)array->values[i];

	want = rounded(want, array->type);
	if (!(got == want || (isnan(got) && isnan(want))))
		array_differs(what, i, got, want, 0);
}

/* Within [bound], and one rounding to the array's type. */
static inline void array_near(const char *what, const struct array *array, size_t i, double want,
			      double bound)
{
	double got = (double)array->values[i];

	if (array->type == DDP_BF16)
		bound += (fabs(want) + bound) / 256;
	else if (array->type == DDP_F16)
		bound += (fabs(want) + bound) / 2048 + 0x1p-25;
	if (!(fabs(got - want) <= bound))
		array_differs(what, i, got, want, bound);
}

/* A TAP line: whether all comparisons since the last one were right. */
static inline void DDP_FORMAT(1, 2) array_row(const char *format, ...)
{
	char text[256];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	if (!ok(!arrays_wrong[0], "%s", text))
		printf("# %s\n", arrays_wrong);
	arrays_wrong[0] = '\0';
}

#endif /* DDP_TESTS_ARRAYS_H */
