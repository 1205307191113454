/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vector.h - loops that are written once for vectors of any width
 *
 * A source file with such loops is compiled for the baseline machine. Two small files beside it
 * define VECTOR, the bytes of a vector, and include the source file, to compile it again for AVX2
 * and AVX-512. The loops use the compiler's vector types (gcc and clang, any machine). The result
 * for one element does not depend on the width. Functions are INLINE, or static and TARGET.
 * SIMD(name) is the table of a file's functions for one instruction set; simd.h chooses among the
 * tables.
 */
#ifndef DDP_BASE_VECTOR_H
#define DDP_BASE_VECTOR_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "simd.h"

#ifndef VECTOR
#define VECTOR 16
#endif

#if VECTOR == 64
#define SIMD(name) name##_avx512
#define SIMD_NAME "avx512"
#define INSTRUCTIONS "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c,prfchw"
#elif VECTOR == 32
#define SIMD(name) name##_avx2
#define SIMD_NAME "avx2"
#define INSTRUCTIONS "avx2,fma,f16c,prfchw"
#else
#define SIMD(name) name##_plain
#define SIMD_NAME "plain"
#endif

/* For machines other than x86, only the plain table exists. */
#if DDP_SIMD_X86 && VECTOR > 16
#include <immintrin.h>
#define TARGET __attribute__((target(INSTRUCTIONS)))
#else
#define TARGET
#endif
#define SIMD_AVX512 (DDP_SIMD_X86 && VECTOR == 64)
#define SIMD_AVX2 (DDP_SIMD_X86 && VECTOR == 32)

#define INLINE static inline __attribute__((always_inline)) TARGET

#define WIDTH(bytes) __attribute__((vector_size(bytes)))
#define LOOSE(bytes) __attribute__((vector_size(bytes), aligned(1), may_alias))

/*
 * Hide the origin of [pointer] from the compiler, so that the compiler computes all addresses that
 * are derived from it from this one pointer.
 */
#define KEEP(pointer) __asm__("" : "+r"(pointer))

/* Unrolls the following loop, so that its arrays can stay in registers. */
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 18")
#endif

/* Number of 32-bit elements in a vector. */
enum { LANES = VECTOR / 4 };

typedef float v_f32 WIDTH(VECTOR);
typedef double v_f64 WIDTH(VECTOR);
typedef int32_t v_i32 WIDTH(VECTOR);
typedef uint32_t v_u32 WIDTH(VECTOR);
typedef int64_t v_i64 WIDTH(VECTOR);
typedef uint64_t v_u64 WIDTH(VECTOR);
typedef uint8_t v_u8 WIDTH(VECTOR);
typedef uint16_t v_half WIDTH(VECTOR / 2); /* as many elements as v_f32 */
typedef uint8_t v_byte WIDTH(VECTOR / 4);
typedef float v_f32_few WIDTH(VECTOR / 2); /* as many elements as v_f64 */

typedef float v_f32_loose LOOSE(VECTOR);
typedef double v_f64_loose LOOSE(VECTOR);
typedef uint16_t v_half_loose LOOSE(VECTOR / 2);
typedef uint8_t v_byte_loose LOOSE(VECTOR / 4);
typedef float v_f32_few_loose LOOSE(VECTOR / 2);

/* --- Elements ----------------------------------------------------------------------------- */

INLINE v_f32 all(float value)
{
	return value - (v_f32){0};
}

/*
 * Returns an element of [yes] if the element of [mask] is all ones, and of [no] if it is all zeros.
 */
INLINE v_u32 choose(v_i32 mask, v_u32 yes, v_u32 no)
{
	return ((v_u32)mask & yes) | (~(v_u32)mask & no);
}

INLINE v_f32 only(v_i32 mask, v_f32 value)
{
	return (v_f32)(mask & (v_i32)value);
}

/* Returns a * b + c, rounded once. */
INLINE v_f32 fused(v_f32 a, v_f32 b, v_f32 c)
{
#if SIMD_AVX512
	return (v_f32)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif SIMD_AVX2
	return (v_f32)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
	UNROLL
	for (int i = 0; i < LANES; i++)
		c[i] = fmaf(a[i], b[i], c[i]);
	return c;
#endif
}

INLINE v_f32 root(v_f32 value)
{
#if SIMD_AVX512
	return (v_f32)_mm512_sqrt_ps((__m512)value);
#elif SIMD_AVX2
	return (v_f32)_mm256_sqrt_ps((__m256)value);
#else
	UNROLL
	for (int i = 0; i < LANES; i++)
		value[i] = sqrtf(value[i]);
	return value;
#endif
}

/* --- Masks and bits ----------------------------------------------------------------------- */

/* Returns a vector whose element i has the value i. */
INLINE v_i32 lanes(void)
{
	v_i32 lanes;

	for (int i = 0; i < LANES; i++)
		lanes[i] = i;
	return lanes;
}

/* Returns a vector whose element i is all ones if bit i of [bits] is 1, else 0. */
INLINE v_i32 spread(uint32_t bits)
{
#if SIMD_AVX512
	return (v_i32)_mm512_movm_epi32((__mmask16)bits);
#else
	return (((v_i32){0} + (int32_t)bits) & ((v_i32){0} + 1) << lanes()) != 0;
#endif
}

/* Returns a number whose bit i is 1 if element i of [mask] is all ones. */
INLINE uint32_t bits_of(v_i32 mask)
{
#if SIMD_AVX512
	return (uint32_t)_mm512_movepi32_mask((__m512i)mask);
#elif SIMD_AVX2
	return (uint32_t)_mm256_movemask_ps((__m256)mask);
#else
	uint32_t bits = 0;

	for (int i = 0; i < LANES; i++)
		bits |= (uint32_t)(mask[i] & 1) << i;
	return bits;
#endif
}

/*
 * Store those elements of [value] contiguously whose bit in [bits] is 1. This can write up to LANES
 * elements, so the memory after the selected elements is undefined.
 */
INLINE void compress(void *to, v_i32 value, uint32_t bits)
{
#if SIMD_AVX512
	_mm512_storeu_si512(to, _mm512_maskz_compress_epi32((__mmask16)bits, (__m512i)value));
#else
	for (int32_t *next = to; bits; bits &= bits - 1)
		*next++ = value[__builtin_ctz(bits)];
#endif
}

/* Exchange element i of vector k with element k of vector i. */
INLINE void transpose(v_i32 vectors[LANES])
{
#if SIMD_AVX512
	/* Exchange halves of the 16 vectors, then quarters, then eighths. */
	__m512i *from = (__m512i *)vectors, to[16];

	UNROLL
	for (int i = 0; i < 16; i += 2) {
		to[i] = _mm512_unpacklo_epi32(from[i], from[i + 1]);
		to[i + 1] = _mm512_unpackhi_epi32(from[i], from[i + 1]);
	}
	UNROLL
	for (int i = 0; i < 16; i += 4)
		UNROLL
	for (int k = 0; k < 2; k++) {
		from[i + 2 * k] = _mm512_unpacklo_epi64(to[i + k], to[i + 2 + k]);
		from[i + 2 * k + 1] = _mm512_unpackhi_epi64(to[i + k], to[i + 2 + k]);
	}
	UNROLL
	for (int i = 0; i < 16; i += 8)
		UNROLL
	for (int k = 0; k < 4; k++) {
		to[i + k] = _mm512_shuffle_i32x4(from[i + k], from[i + 4 + k], 0x88);
		to[i + 4 + k] = _mm512_shuffle_i32x4(from[i + k], from[i + 4 + k], 0xdd);
	}
	UNROLL
	for (int k = 0; k < 8; k++) {
		from[k] = _mm512_shuffle_i32x4(to[k], to[8 + k], 0x88);
		from[8 + k] = _mm512_shuffle_i32x4(to[k], to[8 + k], 0xdd);
	}
#else
	int32_t all[LANES][LANES];

	memcpy(all, vectors, sizeof(all));
	for (int i = 0; i < LANES; i++)
		for (int k = 0; k < LANES; k++)
			vectors[i][k] = all[k][i];
#endif
}

/* --- Loads and stores with conversion to f32 ----------------------------------------------- */

INLINE v_f32 load_f32(const void *from)
{
	return *(const v_f32_loose *)from;
}

INLINE void store_f32(void *to, v_f32 value)
{
	*(v_f32_loose *)to = value;
}

INLINE v_f32 load_bf16(const void *from)
{
	return (v_f32)(__builtin_convertvector(*(const v_half_loose *)from, v_u32) << 16);
}

/*
 * Rounds to nearest, even, and keeps NaN. The instruction of avx512_bf16 is not used, because it
 * flushes denormals to 0.
 */
INLINE void store_bf16(void *to, v_f32 value)
{
	v_u32 bits = (v_u32)value;
	v_u32 even = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
	v_u32 quiet = (bits >> 16) | 0x40;

	*(v_half_loose *)to = __builtin_convertvector(choose(value != value, quiet, even), v_half);
}

INLINE v_f32 load_f16(const void *from)
{
	v_half half = *(const v_half_loose *)from;
#if SIMD_AVX512
	return (v_f32)_mm512_cvtph_ps((__m256i)half);
#elif SIMD_AVX2
	return (v_f32)_mm256_cvtph_ps((__m128i)half);
#else
	v_u32 bits = __builtin_convertvector(half, v_u32);
	v_u32 sign = (bits & 0x8000) << 16, magnitude = bits & 0x7fff;
	v_u32 normal = (magnitude << 13) + (112u << 23);
	v_u32 denormal = (v_u32)(__builtin_convertvector((v_i32)magnitude, v_f32) * 0x1p-24f);
	v_u32 special = (magnitude << 13) | 0x7f800000;

	special |= (v_u32)(magnitude > 0x7c00) & 0x00400000;
	magnitude =
		choose(magnitude >= 0x7c00, special, choose(magnitude < 0x0400, denormal, normal));
	return (v_f32)(sign | magnitude);
#endif
}

INLINE void store_f16(void *to, v_f32 value)
{
#if SIMD_AVX512
	*(v_half_loose *)to = (v_half)_mm512_cvtps_ph((__m512)value, _MM_FROUND_TO_NEAREST_INT |
									     _MM_FROUND_NO_EXC);
#elif SIMD_AVX2
	*(v_half_loose *)to = (v_half)_mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT |
									     _MM_FROUND_NO_EXC);
#else
	v_u32 bits = (v_u32)value;
	v_u32 sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7fffffff;
	v_u32 normal = (magnitude + 0xfff + ((magnitude >> 13) & 1) - (112u << 23)) >> 13;
	/*
	 * The addition rounds to even, because the last bit of 0.5f has the same weight as the last
	 * bit of a denormal half.
	 */
	v_u32 denormal = (v_u32)((v_f32)magnitude + 0.5f) - 0x3f000000;
	v_u32 quiet = 0x7e00 | ((magnitude >> 13) & 0x3ff);
	v_u32 infinite = (magnitude & 0) | 0x7c00;

	magnitude = choose(magnitude > 0x7f800000, quiet,
			   choose(magnitude >= 0x477ff000, infinite,
				  choose(magnitude < 0x38800000, denormal, normal)));
	*(v_half_loose *)to = __builtin_convertvector(sign | magnitude, v_half);
#endif
}

#endif /* DDP_BASE_VECTOR_H */
