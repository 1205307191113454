/* SPDX-License-Identifier: Apache-2.0 */
/*
 * array.h - arrays with guards at both ends, for tests of kernels
 *
 * After the last element there is an inaccessible page. Before the first element there are bytes
 * that must not change. So the address of an array, and its alignment, depend on its size.
 */
#ifndef DDP_TESTS_ARRAY_H
#define DDP_TESTS_ARRAY_H

#include <math.h>
#include <stdio.h>
#include <sys/mman.h>

#include "cpu/kernels.h"
#include "unit.h"

enum { GUARD = 0x5a, GUARDS = 128, PAGE = 4096 };

/*
 * For inner loops: like ck_assert_msg(), but without the message that Check sends for every
 * assertion.
 */
#define REQUIRE(condition, ...)                    \
	do {                                       \
		if (!(condition))                  \
			ck_abort_msg(__VA_ARGS__); \
	} while (0)

struct array {
	void *data;
	enum ddp_type type;
	size_t count;
	char *map;
	size_t mapped;
};

static inline struct array array_make(enum ddp_type type, size_t count)
{
	size_t bytes = count * ddp_type_size(type);
	size_t pages = (bytes + GUARDS + PAGE - 1) / PAGE * PAGE;
	struct array array = {NULL, type, count, NULL, pages + PAGE};

	array.map = mmap(NULL, array.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			 -1, 0);
	ck_assert_ptr_ne(array.map, MAP_FAILED);
	ck_assert_int_eq(mprotect(array.map + pages, PAGE, PROT_NONE), 0);
	memset(array.map, GUARD, pages);
	array.data = array.map + pages - bytes;
	return array;
}

static inline void array_free(struct array *array)
{
	for (const char *byte = array->map; byte < (char *)array->data; byte++)
		REQUIRE(*byte == GUARD, "a byte in front of an array was written");
	munmap(array->map, array->mapped);
}

static inline float bf16_value(uint16_t bits)
{
	uint32_t wide = (uint32_t)bits << 16;
	float value;

	memcpy(&value, &wide, sizeof(value));
	return value;
}

/* Rounds to nearest, ties to even. */
static inline uint16_t bf16_bits(float value)
{
	uint32_t bits, low;

	memcpy(&bits, &value, sizeof(bits));
	if (isnan(value))
		return (uint16_t)(bits >> 16 | 0x40);
	low = bits & 0xffff;
	bits >>= 16;
	return (uint16_t)(bits + (low > 0x8000 || (low == 0x8000 && (bits & 1))));
}

static inline float array_get(const struct array *array, size_t i)
{
	REQUIRE(i < array->count, "element %zu of %zu", i, array->count);
	if (array->type == DDP_BF16)
		return bf16_value(((const uint16_t *)array->data)[i]);
	return ((const float *)array->data)[i];
}

static inline void array_put(struct array *array, size_t i, float value)
{
	REQUIRE(i < array->count, "element %zu of %zu", i, array->count);
	if (array->type == DDP_BF16)
		((uint16_t *)array->data)[i] = bf16_bits(value);
	else
		((float *)array->data)[i] = value;
}

/* Fills the array with random values between [middle] - 1 and [middle] + 1. */
static inline void array_fill(struct array *array, float middle, uint64_t *random)
{
	for (size_t i = 0; i < array->count; i++)
		array_put(array, i, middle + (float)unit_random(random, 1 << 24) / (1 << 23) - 1);
}

/*
 * Fills the array with small integers, which are often equal. Some elements get the value [rare].
 */
static inline void array_fill_rare(struct array *array, float rare, uint64_t *random)
{
	for (size_t i = 0; i < array->count; i++)
		array_put(array, i,
			  unit_random(random, 20) == 0 ? rare : (float)unit_random(random, 7) - 3);
}

static inline void array_exact(const char *row, const struct array *array, size_t i, float want)
{
	float got = array_get(array, i);

	if (array->type == DDP_BF16)
		want = bf16_value(bf16_bits(want));
	REQUIRE(got == want || (isnan(got) && isnan(want)), "%s: element %zu is %.9g, want %.9g",
		row, i, (double)got, (double)want);
}

/*
 * Fails unless element [i] is [want] within [part] * [scale]. bf16 may differ by one more rounding.
 */
static inline void array_near(const char *row, const struct array *array, size_t i, double want,
			      double scale, double part)
{
	double got = (double)array_get(array, i), off = fabs(got - want);
	double bound = part * scale + (array->type == DDP_BF16 ? fabs(want) / 256 : 0);

	REQUIRE(off <= bound, "%s: element %zu is %.9g, want %.9g (off by %.3g, bound %.3g)", row,
		i, got, want, off, bound);
}

/* --- Kernels and types ---------------------------------------------------------------------- */

static enum ddp_simd kernels_best;
static uint64_t kernels_seed = 1;

/*
 * Returns the kernels of an instruction set that this CPU (or valgrind) supports, and sets [type].
 * A loop test's _i selects both.
 */
static inline const struct kernels *kernels_of(int i, enum ddp_type *type)
{
	*type = i % 2 ? DDP_BF16 : DDP_F32;
	return kernels_tables[i / 2];
}

static inline const char *kernels_row(char row[128], const struct kernels *kernels,
				      enum ddp_type type, const char *text)
{
	snprintf(row, 128, "%s, %s, %s (DDP_SEED=%llu)", kernels->name,
		 type == DDP_BF16 ? "bf16" : "f32", text, (unsigned long long)kernels_seed);
	return row;
}

#define KERNELS_ROWS (2 * ((int)kernels_best + 1))

static inline void kernels_begin(void)
{
	const char *text = getenv("DDP_SEED");

	if (text)
		kernels_seed = strtoull(text, NULL, 0) | 1;
	printf("DDP_SEED=%llu\n", (unsigned long long)kernels_seed);
	fflush(stdout);
	if (ddp_simd_choose(&kernels_best, NULL) < 0)
		kernels_best = DDP_SIMD_PLAIN;
}

#endif /* DDP_TESTS_ARRAY_H */
