/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel-vector.h - vectors of any width, to and from memory
 *
 * Included by one file for each instruction set, which defines before:
 *
 *	VECTOR	bytes of a vector
 *	TARGET	the function attribute that lets the compiler use the instructions
 *
 * and optionally, where it has instructions for them:
 *
 *	BITS_OF(mask)			see bits_of()
 *	SPREAD(bits)			see spread()
 *	COMPRESS(to, value, bits)	see compress()
 *
 * These are the compiler's vectors (gcc and clang, any machine). [half]: what is in memory is
 * bf16; it is a constant wherever it comes from, so that no code asks.
 */
#ifndef TRAIN_KERNEL_VECTOR_H
#define TRAIN_KERNEL_VECTOR_H

#include <string.h>

#include "kernel-table.h"

#define WIDTH(bytes) __attribute__((vector_size(bytes)))
#define LOOSE(bytes) __attribute__((vector_size(bytes), aligned(1), may_alias))
#define INLINE static inline __attribute__((always_inline)) TARGET

/* So that [pointer] stays one: what is read from it then has a constant distance each. */
#define KEEP(pointer) __asm__("" : "+r"(pointer))

/* For loops over registers. */
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 18")
#endif

/* Elements of a vector. */
enum { LANES = VECTOR / 4 };

typedef float v_f32 WIDTH(VECTOR);
typedef int32_t v_i32 WIDTH(VECTOR);
typedef uint32_t v_u32 WIDTH(VECTOR);
typedef uint16_t v_half WIDTH(VECTOR / 2);
typedef uint8_t v_byte WIDTH(VECTOR / 4);
typedef float v_f32_few WIDTH(VECTOR / 2); /* as many as v_f64 has */
typedef double v_f64 WIDTH(VECTOR);

typedef float v_f32_loose LOOSE(VECTOR);
typedef float v_f32_few_loose LOOSE(VECTOR / 2);
typedef double v_f64_loose LOOSE(VECTOR);
typedef uint16_t v_half_loose LOOSE(VECTOR / 2);
typedef uint8_t v_byte_loose LOOSE(VECTOR / 4);

INLINE v_f32 all(float value)
{
	return value - (v_f32){0};
}

/* [mask]'s elements are all ones or all zeros. */
INLINE v_f32 only(v_i32 mask, v_f32 value)
{
	return (v_f32)(mask & (v_i32)value);
}

INLINE v_f32 choose(v_i32 mask, v_f32 yes, v_f32 no)
{
	return (v_f32)((mask & (v_i32)yes) | (~mask & (v_i32)no));
}

/* One rounding where the instructions have it. */
INLINE v_f32 multiply_add(v_f32 a, v_f32 b, v_f32 c)
{
	return a * b + c;
}

/* max(0, value); NaN stays. */
INLINE v_f32 positive(v_f32 value)
{
	return only(~(value <= 0), value);
}

INLINE v_f32 from_bf16(v_half value)
{
	return (v_f32)(__builtin_convertvector(value, v_u32) << 16);
}

/* avx512_bf16's own conversion would flush denormals. */
INLINE v_half to_bf16(v_f32 value)
{
	v_u32 bits = (v_u32)value;
	v_u32 even = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
	v_u32 quiet = (bits >> 16) | 0x40;
	v_u32 nan = (v_u32)(value != value);

	return __builtin_convertvector((nan & quiet) | (~nan & even), v_half);
}

/* Elements [at] and following of an array. */
INLINE v_f32 load(const void *from, size_t at, bool half)
{
	if (half)
		return from_bf16(*(const v_half_loose *)((const uint16_t *)from + at));
	return *(const v_f32_loose *)((const float *)from + at);
}

INLINE void store(void *to, size_t at, v_f32 value, bool half)
{
	if (half)
		*(v_half_loose *)((uint16_t *)to + at) = to_bf16(value);
	else
		*(v_f32_loose *)((float *)to + at) = value;
}

/* [value] came out of memory of this type: there is nothing to round. */
INLINE void store_same(void *to, size_t at, v_f32 value, bool half)
{
	if (half)
		*(v_half_loose *)((uint16_t *)to + at) =
			__builtin_convertvector((v_u32)value >> 16, v_half);
	else
		store(to, at, value, false);
}

/* Of them [n] alone, at most LANES; the others are 0. */
INLINE v_f32 load_some(const void *from, size_t at, size_t n, bool half)
{
	size_t size = half ? 2 : 4;

	if (n < LANES) {
		char part[VECTOR] = {0};

		memcpy(part, (const char *)from + at * size, n * size);
		return load(part, 0, half);
	}
	return load(from, at, half);
}

INLINE void store_some(void *to, size_t at, size_t n, v_f32 value, bool half)
{
	size_t size = half ? 2 : 4;

	if (n < LANES) {
		char part[VECTOR];

		store(part, 0, value, half);
		memcpy((char *)to + at * size, part, n * size);
	} else {
		store(to, at, value, half);
	}
}

INLINE void store_same_some(void *to, size_t at, size_t n, v_f32 value, bool half)
{
	if (n == LANES)
		store_same(to, at, value, half);
	else
		store_some(to, at, n, value, half);
}

INLINE v_i32 load_bytes(const uint8_t *from, size_t n)
{
	v_byte part = {0};

	if (n == LANES)
		part = *(const v_byte_loose *)from;
	else
		memcpy(&part, from, n);
	return __builtin_convertvector(part, v_i32);
}

INLINE void store_bytes(uint8_t *to, size_t n, v_i32 value)
{
	v_byte part = __builtin_convertvector(value, v_byte);

	memcpy(to, &part, n);
}

/* Element i is i. */
INLINE v_i32 lanes(void)
{
	v_i32 lanes;

	for (int i = 0; i < LANES; i++)
		lanes[i] = i;
	return lanes;
}

/* Bits [at] to [at] + n of [bits], and zeros; no byte is read that has none of them. */
INLINE uint32_t some_bits(const uint8_t *bits, size_t at, size_t n)
{
	uint32_t word = 0;

	for (size_t byte = at / 8; byte * 8 < at + n; byte++)
		word |= (uint32_t)bits[byte] << (byte - at / 8) * 8;
	return word >> at % 8 & ((1u << n) - 1);
}

/* All ones where a bit of [bits] is 1. */
INLINE v_i32 spread(uint32_t bits)
{
#ifdef SPREAD
	return (v_i32)SPREAD(bits);
#else
	return (((v_i32){0} + (int32_t)bits) & ((v_i32){0} + 1) << lanes()) != 0;
#endif
}

/* A bit for each element of [mask], whose elements are all ones or zeros. */
INLINE uint32_t bits_of(v_i32 mask)
{
#ifdef BITS_OF
	return BITS_OF(mask);
#else
	uint32_t bits = 0;

	for (int i = 0; i < LANES; i++)
		bits |= (uint32_t)(mask[i] & 1) << i;
	return bits;
#endif
}

/* The elements of [value] whose bit is 1 to the front; what follows, up to LANES, is any. */
INLINE void compress(void *to, v_i32 value, uint32_t bits)
{
#ifdef COMPRESS
	COMPRESS(to, value, bits);
#else
	for (int32_t *next = to; bits; bits &= bits - 1)
		*next++ = value[__builtin_ctz(bits)];
#endif
}

/* Elements that the vector from [at] on has of [count]. */
INLINE size_t some(size_t at, size_t count)
{
	return count - at < LANES ? count - at : LANES;
}

#endif /* TRAIN_KERNEL_VECTOR_H */
