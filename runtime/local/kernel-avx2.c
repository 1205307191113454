/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define VECTOR 32
#define TARGET __attribute__((target("avx2,f16c,prfchw")))
#define TABLE ddp_kernels_avx2

#define F16_WIDEN(half) ((v_f32)_mm256_cvtph_ps((__m128i)(half)))
#define F16_NARROW(value) \
	((v_half)_mm256_cvtps_ph((__m256)(value), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))

#include "kernel-vector.h"

#endif
