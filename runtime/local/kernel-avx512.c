/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define VECTOR 64
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,prfchw")))
#define TABLE ddp_kernels_avx512

#define F16_WIDEN(half) ((v_f32)_mm512_cvtph_ps((__m256i)(half)))
#define F16_NARROW(value) \
	((v_half)_mm512_cvtps_ph((__m512)(value), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))

#include "kernel-vector.h"

#endif
