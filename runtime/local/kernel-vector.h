/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel-vector.h - the reductions, written once for vectors of any width
 *
 * Included by one file for each instruction set, which defines before:
 *
 *	VECTOR	bytes of a vector
 *	TARGET	the function attribute that lets the compiler use the instructions
 *	TABLE	the name of the table to define
 *
 * and optionally F16_WIDEN(half vector) and F16_NARROW(float vector), where the instruction set
 * converts in hardware. These are the compiler's vectors (gcc and clang, any machine): what an
 * operator does to one element does not depend on their width, so all files give the same bits.
 */
#include <string.h>

#include "kernel-table.h"

#define WIDTH(bytes) __attribute__((vector_size(bytes)))
#define LOOSE(bytes) __attribute__((vector_size(bytes), aligned(1), may_alias))
#define INLINE static inline __attribute__((always_inline)) TARGET

typedef float v_f32 WIDTH(VECTOR);
typedef double v_f64 WIDTH(VECTOR);
typedef int32_t v_i32 WIDTH(VECTOR);
typedef uint32_t v_u32 WIDTH(VECTOR);
typedef int64_t v_i64 WIDTH(VECTOR);
typedef uint64_t v_u64 WIDTH(VECTOR);
typedef uint8_t v_u8 WIDTH(VECTOR);
typedef uint16_t v_half WIDTH(VECTOR / 2); /* as many 16-bit elements as v_f32 has */

typedef float v_f32_loose LOOSE(VECTOR);
typedef double v_f64_loose LOOSE(VECTOR);
typedef int32_t v_i32_loose LOOSE(VECTOR);
typedef int64_t v_i64_loose LOOSE(VECTOR);
typedef uint8_t v_u8_loose LOOSE(VECTOR);
typedef uint16_t v_half_loose LOOSE(VECTOR / 2);

/* Of a cache line; and how far ahead of the loads lines are asked for. */
enum { LINE = 64, AHEAD = 512 };

/* --- Memory to vectors and back ---------------------------------------------------------- */

INLINE v_f32 load_f32(const char *from)
{
	return *(const v_f32_loose *)from;
}

INLINE void store_f32(char *to, v_f32 value)
{
	*(v_f32_loose *)to = value;
}

INLINE v_f64 load_f64(const char *from)
{
	return *(const v_f64_loose *)from;
}

INLINE void store_f64(char *to, v_f64 value)
{
	*(v_f64_loose *)to = value;
}

INLINE v_i32 load_i32(const char *from)
{
	return *(const v_i32_loose *)from;
}

INLINE void store_i32(char *to, v_i32 value)
{
	*(v_i32_loose *)to = value;
}

INLINE v_i64 load_i64(const char *from)
{
	return *(const v_i64_loose *)from;
}

INLINE void store_i64(char *to, v_i64 value)
{
	*(v_i64_loose *)to = value;
}

INLINE v_u8 load_u8(const char *from)
{
	return *(const v_u8_loose *)from;
}

INLINE void store_u8(char *to, v_u8 value)
{
	*(v_u8_loose *)to = value;
}

/* [mask]'s elements are all ones or all zeros. */
INLINE v_u32 choose(v_i32 mask, v_u32 yes, v_u32 no)
{
	return ((v_u32)mask & yes) | (~(v_u32)mask & no);
}

INLINE v_f32 load_bf16(const char *from)
{
	return (v_f32)(__builtin_convertvector(*(const v_half_loose *)from, v_u32) << 16);
}

/* avx512_bf16's own conversion would flush denormals. */
INLINE void store_bf16(char *to, v_f32 value)
{
	v_u32 bits = (v_u32)value;
	v_u32 even = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
	v_u32 quiet = (bits >> 16) | 0x40;

	*(v_half_loose *)to = __builtin_convertvector(choose(value != value, quiet, even), v_half);
}

#ifdef F16_WIDEN

INLINE v_f32 load_f16(const char *from)
{
	return F16_WIDEN(*(const v_half_loose *)from);
}

INLINE void store_f16(char *to, v_f32 value)
{
	*(v_half_loose *)to = F16_NARROW(value);
}

#else

INLINE v_f32 load_f16(const char *from)
{
	v_u32 bits = __builtin_convertvector(*(const v_half_loose *)from, v_u32);
	v_u32 sign = (bits & 0x8000) << 16, rest = bits & 0x7fff;
	v_u32 normal = (rest << 13) + (112u << 23);
	v_u32 denormal = (v_u32)(__builtin_convertvector((v_i32)rest, v_f32) * 0x1p-24f);
	v_u32 special = (rest << 13) | 0x7f800000;

	special |= (v_u32)(rest > 0x7c00) & 0x00400000;
	rest = choose(rest >= 0x7c00, special, choose(rest < 0x0400, denormal, normal));
	return (v_f32)(sign | rest);
}

INLINE void store_f16(char *to, v_f32 value)
{
	v_u32 bits = (v_u32)value;
	v_u32 sign = (bits >> 16) & 0x8000, rest = bits & 0x7fffffff;
	v_u32 normal = (rest + 0xfff + ((rest >> 13) & 1) - (112u << 23)) >> 13;
	/* The last place of 0.5f is a denormal half's: adding rounds, to even. */
	v_u32 denormal = (v_u32)((v_f32)rest + 0.5f) - 0x3f000000;
	v_u32 quiet = 0x7e00 | ((rest >> 13) & 0x3ff);
	v_u32 infinite = (rest & 0) | 0x7c00;

	rest = choose(rest > 0x7f800000, quiet,
		      choose(rest >= 0x477ff000, infinite,
			     choose(rest < 0x38800000, denormal, normal)));
	*(v_half_loose *)to = __builtin_convertvector(sign | rest, v_half);
}

#endif

/* --- Two elements to one ----------------------------------------------------------------- */

INLINE v_f32 sum_f32(v_f32 a, v_f32 b)
{
	return a + b;
}

INLINE v_f64 sum_f64(v_f64 a, v_f64 b)
{
	return a + b;
}

/* Integers wrap, which only unsigned ones may. */
INLINE v_i32 sum_i32(v_i32 a, v_i32 b)
{
	return (v_i32)((v_u32)a + (v_u32)b);
}

INLINE v_i64 sum_i64(v_i64 a, v_i64 b)
{
	return (v_i64)((v_u64)a + (v_u64)b);
}

INLINE v_u8 sum_u8(v_u8 a, v_u8 b)
{
	return a + b;
}

/*
 * MAX and MIN take the later element if it is NaN or beats the earlier one; a comparison with
 * an earlier NaN is false, so that one stays.
 */
#define EXTREMES(value, bits)                                               \
	INLINE v_##value max_##value(v_##value a, v_##value b)              \
	{                                                                   \
		bits later = (bits)(b > a) | (bits)(b != b);                \
		return (v_##value)((later & (bits)b) | (~later & (bits)a)); \
	}                                                                   \
	INLINE v_##value min_##value(v_##value a, v_##value b)              \
	{                                                                   \
		bits later = (bits)(b < a) | (bits)(b != b);                \
		return (v_##value)((later & (bits)b) | (~later & (bits)a)); \
	}

EXTREMES(f32, v_u32)
EXTREMES(f64, v_u64)
EXTREMES(i32, v_u32)
EXTREMES(i64, v_u64)
EXTREMES(u8, v_u8)

INLINE v_f32 scale_f32(v_f32 value, double scale)
{
	return value * (float)scale;
}

INLINE v_f64 scale_f64(v_f64 value, double scale)
{
	return value * scale;
}

INLINE v_i32 scale_i32(v_i32 value, double scale)
{
	(void)scale;
	return value;
}

INLINE v_i64 scale_i64(v_i64 value, double scale)
{
	(void)scale;
	return value;
}

INLINE v_u8 scale_u8(v_u8 value, double scale)
{
	(void)scale;
	return value;
}

/* --- Arrays, one inclusion a type --------------------------------------------------------- */

#define TYPE f32
#define SIZE 4
#define VALUE f32
#include "kernel-loop.h"

#define TYPE f64
#define SIZE 8
#define VALUE f64
#include "kernel-loop.h"

#define TYPE bf16
#define SIZE 2
#define VALUE f32
#include "kernel-loop.h"

#define TYPE f16
#define SIZE 2
#define VALUE f32
#include "kernel-loop.h"

#define TYPE i32
#define SIZE 4
#define VALUE i32
#include "kernel-loop.h"

#define TYPE i64
#define SIZE 8
#define VALUE i64
#include "kernel-loop.h"

#define TYPE u8
#define SIZE 1
#define VALUE u8
#include "kernel-loop.h"

/* --- Conversions -------------------------------------------------------------------------- */

enum { WIDE = VECTOR, NARROW = VECTOR / 2, LANES = VECTOR / 4 };

#define CONVERSIONS(type)                                                             \
	static TARGET void widen_##type(float *to, const void *from, size_t count)    \
	{                                                                             \
		const char *next = from;                                              \
		char part[NARROW] = {0}, wide[WIDE];                                  \
                                                                                      \
		for (; count >= LANES; count -= LANES, to += LANES, next += NARROW)   \
			store_f32((char *)to, load_##type(next));                     \
		memcpy(part, next, count * 2);                                        \
		store_f32(wide, load_##type(part));                                   \
		memcpy(to, wide, count * 4);                                          \
	}                                                                             \
	static TARGET void narrow_##type(void *to, const float *from, size_t count)   \
	{                                                                             \
		char *next = to;                                                      \
		char wide[WIDE] = {0}, part[NARROW];                                  \
                                                                                      \
		for (; count >= LANES; count -= LANES, from += LANES, next += NARROW) \
			store_##type(next, load_f32((const char *)from));             \
		memcpy(wide, from, count * 4);                                        \
		store_##type(part, load_f32(wide));                                   \
		memcpy(next, part, count * 2);                                        \
	}

CONVERSIONS(bf16)
CONVERSIONS(f16)

#define ROW(type)                                                       \
	{                                                               \
		kernel_sum_##type, kernel_max_##type, kernel_min_##type \
	}

const struct ddp_kernel_table TABLE = {
	.kernels = {[DDP_F32] = ROW(f32),
		    [DDP_F64] = ROW(f64),
		    [DDP_BF16] = ROW(bf16),
		    [DDP_F16] = ROW(f16),
		    [DDP_I32] = ROW(i32),
		    [DDP_I64] = ROW(i64),
		    [DDP_U8] = ROW(u8)},
	.bf16_widen = widen_bf16,
	.f16_widen = widen_f16,
	.bf16_narrow = narrow_bf16,
	.f16_narrow = narrow_f16,
};
