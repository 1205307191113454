/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define VECTOR 64
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")))
#define NAME avx512

#define BITS_OF(mask) ((uint32_t)_mm512_movepi32_mask((__m512i)(mask)))
#define SPREAD(bits) _mm512_movm_epi32((__mmask16)(bits))
#define COMPRESS(to, value, bits) \
	_mm512_storeu_si512(to, _mm512_maskz_compress_epi32((__mmask16)(bits), (__m512i)(value)))
#define TRANSPOSE(vectors) transpose16((__m512i *)(vectors))

#include "kernel-vector.h"

/* By halves, quarters, eighths... of 16. */
INLINE void transpose16(__m512i vectors[16])
{
	__m512i to[16];

	UNROLL
	for (int i = 0; i < 16; i += 2) {
		to[i] = _mm512_unpacklo_epi32(vectors[i], vectors[i + 1]);
		to[i + 1] = _mm512_unpackhi_epi32(vectors[i], vectors[i + 1]);
	}
	UNROLL
	for (int i = 0; i < 16; i += 4)
		UNROLL
	for (int k = 0; k < 2; k++) {
		vectors[i + 2 * k] = _mm512_unpacklo_epi64(to[i + k], to[i + 2 + k]);
		vectors[i + 2 * k + 1] = _mm512_unpackhi_epi64(to[i + k], to[i + 2 + k]);
	}
	UNROLL
	for (int i = 0; i < 16; i += 8)
		UNROLL
	for (int k = 0; k < 4; k++) {
		to[i + k] = _mm512_shuffle_i32x4(vectors[i + k], vectors[i + 4 + k], 0x88);
		to[i + 4 + k] = _mm512_shuffle_i32x4(vectors[i + k], vectors[i + 4 + k], 0xdd);
	}
	UNROLL
	for (int k = 0; k < 8; k++) {
		vectors[k] = _mm512_shuffle_i32x4(to[k], to[8 + k], 0x88);
		vectors[8 + k] = _mm512_shuffle_i32x4(to[k], to[8 + k], 0xdd);
	}
}

#include "kernel-loop.h"

#endif
