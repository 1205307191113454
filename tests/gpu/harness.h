/* SPDX-License-Identifier: Apache-2.0 */
/*
 * harness.h - tables of tests that compare kernels with plain C, for each type, size and alignment
 *
 * Each program kernels_X.c has a table of struct test. harness_run() calls a test's check() for
 * each point: a type, a size (an index whose meaning the test defines) and a skew (0: arrays begin
 * at multiples of 256 bytes). After each point it frees the arrays, device memory and host memory
 * that check() created. expect_x() records the first wrong element. harness_run() prints one TAP
 * line for each test and type.
 *
 * The host has an array's values as floats that the array's type can represent. On the device an
 * array ends at the end of its allocation, so that a sanitizer finds accesses beyond it.
 *
 * Environment variables:
 *
 *   DDP_SEED   seed of all random data [1]
 *   DDP_SHORT  set: tests only every third size, for sanitizers
 */
#ifndef DDP_TESTS_HARNESS_H
#define DDP_TESTS_HARNESS_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "cuda-kernels.h"
#include "device.h"
#include "number-host.h"
#include "tap.h"

#define ROWS(array) ((int)(sizeof(array) / sizeof((array)[0])))

struct point {
	enum ddp_type type;
	int size;
	size_t skew;
	int kind; /* a number for the test's own use */
};

struct test {
	const char *name;
	void (*check)(const struct point *point);
	int sizes;	/* check() is called for sizes 0 to sizes - 1 */
	size_t skews;	/* and for skews 0 to skews - 1 */
	bool f32_alone; /* only f32 is tested, not bf16 and f16 */
	int kind;
};

static struct device *device;
static void *stream;
static uint64_t random_state;
static char harness_wrong[256]; /* text of the first difference at a point */

/* --- Errors and memory ------------------------------------------------------------------ */

/* Ends the program if a call of device.h failed, because later results would be meaningless. */
static inline void must(int status, const struct ddp_error *error)
{
	if (status >= 0)
		return;
	ok(false, "%s", error->text);
	exit(tap_end());
}

/* Memory of the current point, which is freed after the point. */
enum harness_kind { ON_HOST, ON_DEVICE, TICKETS };
enum { HARNESS_OWNED = 256 };
static struct {
	void *memory;
	enum harness_kind kind;
} harness_owned[HARNESS_OWNED];
static int harness_owned_count;

static inline void *harness_own(void *memory, enum harness_kind kind)
{
	if (!memory || harness_owned_count == HARNESS_OWNED)
		abort();
	harness_owned[harness_owned_count].memory = memory;
	harness_owned[harness_owned_count++].kind = kind;
	return memory;
}

/* Allocates zeroed host memory. */
static inline void *host_new(size_t bytes)
{
	return harness_own(calloc(bytes + 1, 1), ON_HOST);
}

static inline void *host_copy(const void *from, size_t bytes)
{
	return memcpy(host_new(bytes), from, bytes);
}

/* Waits for all submitted work. */
static inline void device_finish(void)
{
	struct ddp_error error = {0, ""};

	must(device_check(device, "kernels", &error), &error);
	must(device_wait(device, DEVICE_COMPUTE, &error), &error);
}

/*
 * Copies between host and device, in either direction. Waits for all submitted work and for the
 * copy.
 */
static inline void device_move(void *to, const void *from, size_t bytes)
{
	struct ddp_error error = {0, ""};

	must(device_copy(device, DEVICE_COMPUTE, to, from, bytes, &error), &error);
	device_finish();
}

/* Allocates device memory with the bytes at [from]; NULL: with zeros. */
static inline void *device_new(size_t bytes, const void *from)
{
	struct ddp_error error = {0, ""};
	void *memory = NULL;

	must(device_alloc(device, &memory, bytes + !bytes, "a test", NULL, &error), &error);
	if (from)
		device_move(memory, from, bytes);
	return harness_own(memory, ON_DEVICE);
}

/* Allocates zeroed host memory that the device can access. */
static inline void *pinned_new(size_t bytes)
{
	struct ddp_error error = {0, ""};
	void *memory = NULL;

	must(device_alloc_host(device, &memory, bytes, "a test", &error), &error);
	memset(memory, 0, bytes);
	return harness_own(memory, ON_DEVICE);
}

/*
 * Allocates scratch memory for a kernel. The harness checks that the kernel leaves its counters at
 * zero.
 */
static inline struct kernel_scratch scratch_new(size_t bytes)
{
	void *tickets = device_new(KERNEL_TICKETS * sizeof(unsigned), NULL);

	harness_owned[harness_owned_count - 1].kind = TICKETS;
	return (struct kernel_scratch){device_new(bytes, NULL), tickets};
}

/* --- Numbers ---------------------------------------------------------------------------- */

static inline const char *type_name(enum ddp_type type)
{
	return type == DDP_BF16 ? "bf16" : type == DDP_F16 ? "f16" : "f32";
}

/* Returns [value] rounded to [type]: to nearest, ties to even. */
static inline double rounded(double value, enum ddp_type type)
{
	int bits = type == DDP_BF16 ? 8 : type == DDP_F16 ? 11 : 24, exponent, least;
	double unit, result,
		most = type == DDP_F16	  ? 65504
		       : type == DDP_BF16 ? 0x1.fep127
					  : (double)FLT_MAX;

	if (!isfinite(value) || value == 0)
		return value;
	frexp(value, &exponent);
	least = type == DDP_F16 ? -24 : -149 + 24 - bits;
	unit = ldexp(1, exponent - bits > least ? exponent - bits : least);
	result = nearbyint(value / unit) * unit;
	return fabs(result) > most ? copysign((double)INFINITY, value) : result;
}

static inline uint16_t bits_of(float value, enum ddp_type type)
{
	return type == DDP_BF16 ? number_to_bf16(value) : number_to_f16(value);
}

static inline float value_of(uint16_t bits, enum ddp_type type)
{
	return type == DDP_BF16 ? number_from_bf16(bits) : number_from_f16(bits);
}

/* Returns a random number below [limit]. A seed gives the same sequence on every machine. */
static inline uint32_t draw(uint32_t limit)
{
	random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)((random_state >> 32) * limit >> 32);
}

static inline uint64_t draw64(void)
{
	return (uint64_t)draw(UINT32_MAX) << 32 | draw(UINT32_MAX);
}

/* Returns a random number between -1 and 1. */
static inline double draw_unit(void)
{
	return (double)draw(1 << 24) / (1 << 23) - 1;
}

/* --- Arrays ----------------------------------------------------------------------------- */

struct array {
	void *data; /* memory on the device */
	float *values;
	enum ddp_type type;
	size_t count;
};

static inline void array_put(struct array *array, size_t i, double value)
{
	array->values[i] = (float)rounded(value, array->type);
}

static inline void array_send(struct array *array)
{
	uint16_t *bits = malloc(array->count * sizeof(*bits) + 1);

	for (size_t i = 0; i < array->count && array->type != DDP_F32; i++)
		bits[i] = bits_of(array->values[i], array->type);
	device_move(array->data,
		    array->type == DDP_F32 ? (const void *)array->values : (const void *)bits,
		    array->count * ddp_type_size(array->type));
	free(bits);
}

static inline void array_fetch(struct array *array)
{
	uint16_t *bits = malloc(array->count * sizeof(*bits) + 1);

	device_move(array->type == DDP_F32 ? (void *)array->values : (void *)bits, array->data,
		    array->count * ddp_type_size(array->type));
	for (size_t i = 0; i < array->count && array->type != DDP_F32; i++)
		array->values[i] = value_of(bits[i], array->type);
	free(bits);
}

/*
 * Sets all elements to [value]. If [value] differs from all results, the test detects elements that
 * the kernel does not write.
 */
static inline void array_set(struct array *array, double value)
{
	double rounded_value = rounded(value, array->type);

	for (size_t i = 0; i < array->count; i++)
		array->values[i] = (float)rounded_value;
	array_send(array);
}

/*
 * Creates an array that begins [skew] elements after a multiple of 256 bytes. All elements are 77.
 */
static inline struct array *array_new(enum ddp_type type, size_t count, size_t skew)
{
	struct array *array = host_new(sizeof(*array));
	size_t size = ddp_type_size(type);

	array->data = (char *)device_new((skew + count) * size, NULL) + skew * size;
	array->values = host_new(count * sizeof(float));
	array->type = type;
	array->count = count;
	array_set(array, 77);
	return array;
}

/* Creates an array of random values between [middle] - 1 and [middle] + 1. */
static inline struct array *array_random(enum ddp_type type, size_t count, size_t skew,
					 double middle)
{
	struct array *array = array_new(type, count, skew);

	for (size_t i = 0; i < count; i++)
		array_put(array, i, middle + draw_unit());
	array_send(array);
	return array;
}

/*
 * Creates an array of small numbers, which are often equal, and a few special values: NaN,
 * infinities, -0.0 and 2^-24.
 */
static inline struct array *array_rare(enum ddp_type type, size_t count, size_t skew)
{
	const double rare[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, -0.0, 0x1p-24};
	struct array *array = array_new(type, count, skew);

	for (size_t i = 0; i < count; i++)
		array_put(array, i,
			  draw(20) ? ((double)draw(33) - 16) / 8 : rare[draw(ROWS(rare))]);
	array_send(array);
	return array;
}

/* --- Comparisons ------------------------------------------------------------------------ */

/* Unless [good], records the message, if it is the first one of this point. */
static inline void DDP_FORMAT(2, 3) expect(bool good, const char *format, ...)
{
	va_list arguments;

	if (good || harness_wrong[0])
		return;
	va_start(arguments, format);
	vsnprintf(harness_wrong, sizeof(harness_wrong), format, arguments);
	va_end(arguments);
}

static inline void expect_within(const char *what, size_t i, double got, double want, double bound)
{
	expect(fabs(got - want) <= bound || got == want || (isnan(got) && isnan(want)),
	       "%s %zu is %.9g, want %.9g (difference %.3g, bound %.3g)", what, i, got, want,
	       fabs(got - want), bound);
}

/* Expects element [i] to be [want] rounded to the array's type. */
static inline void expect_exact(const char *what, const struct array *array, size_t i, double want)
{
	expect_within(what, i, (double)array->values[i], rounded(want, array->type), 0);
}

/*
 * Expects element [i] to be [want] within [bound] plus one rounding to the array's type. NaN is an
 * error.
 */
static inline void expect_near(const char *what, const struct array *array, size_t i, double want,
			       double bound)
{
	if (array->type == DDP_BF16)
		bound += (fabs(want) + bound) / 256;
	else if (array->type == DDP_F16)
		bound += (fabs(want) + bound) / 2048 + 0x1p-25;
	expect(!isnan(want), "%s %zu: the reference is NaN", what, i);
	expect_within(what, i, (double)array->values[i], want, bound);
}

/* Expects every element of [array] to be the same float as in [want]. */
static inline void expect_all(const char *what, const struct array *array, const float *want)
{
	for (size_t i = 0; i < array->count; i++)
		expect_exact(what, array, i, (double)want[i]);
}

/* --- Running ---------------------------------------------------------------------------- */

static inline void harness_free(void *memory, enum harness_kind kind)
{
	unsigned tickets[KERNEL_TICKETS] = {0};

	if (kind == ON_HOST) {
		free(memory);
		return;
	}
	if (kind == TICKETS)
		device_move(tickets, memory, sizeof(tickets));
	for (int i = 0; i < KERNEL_TICKETS; i++)
		expect(tickets[i] == 0, "counter %d is left at %u", i, tickets[i]);
	device_free(device, memory);
}

static inline void harness_check_point(const struct test *test, const struct point *point,
				       uint64_t seed)
{
	random_state = seed * 1000003 + (uint64_t)point->size;
	harness_wrong[0] = '\0';
	test->check(point);
	for (; harness_owned_count > 0; harness_owned_count--)
		harness_free(harness_owned[harness_owned_count - 1].memory,
			     harness_owned[harness_owned_count - 1].kind);
}

static inline void harness_check_type(const struct test *test, enum ddp_type type, uint64_t seed)
{
	int stride = getenv("DDP_SHORT") ? 3 : 1, points = 0;
	char first[sizeof(harness_wrong) + 64] = "";

	for (int size = 0; size < test->sizes; size += stride)
		for (size_t skew = 0; skew < test->skews; skew++, points++) {
			const struct point point = {type, size, skew, test->kind};

			harness_check_point(test, &point, seed);
			if (harness_wrong[0] && !first[0])
				snprintf(first, sizeof(first), "size %d, skew %zu: %s", size, skew,
					 harness_wrong);
		}
	if (!ok(!first[0], "%s, %s: %d sizes and alignments", test->name, type_name(type), points))
		printf("# %s\n", first);
}

/* Runs the tests whose names contain argv[1], or all tests. Returns main()'s exit status. */
static inline int harness_run(int argc, char **argv, const struct test *tests, int count)
{
	static const enum ddp_type types[] = {DDP_F32, DDP_BF16, DDP_F16};
	const char *text = getenv("DDP_SEED"), *only = argc > 1 ? argv[1] : "";
	uint64_t seed = text ? strtoull(text, NULL, 0) : 1;
	struct ddp_error error = {0, ""};

	printf("# DDP_SEED=%llu\n", (unsigned long long)seed);
	if (device_list(NULL, 0, &error) < 0) {
		ok(false, "there is no GPU: %s", error.text);
		return tap_end();
	}
	must(device_open(&device, 0, 0, &error), &error);
	stream = device_stream(device, DEVICE_COMPUTE);
	for (int i = 0; i < count; i++)
		for (int t = 0; t < (tests[i].f32_alone ? 1 : ROWS(types)); t++)
			if (strstr(tests[i].name, only))
				harness_check_type(&tests[i], types[t], seed);
	device_close(device);
	return tap_end();
}

#endif /* DDP_TESTS_HARNESS_H */
