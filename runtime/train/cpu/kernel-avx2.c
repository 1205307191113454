/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define VECTOR 32
#define TARGET __attribute__((target("avx2,fma,f16c")))
#define NAME avx2

#define BITS_OF(mask) ((uint32_t)_mm256_movemask_ps((__m256)(mask)))

#include "kernel-loop.h"

#endif
