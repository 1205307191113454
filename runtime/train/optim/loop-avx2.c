/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define LANES 8
#define TARGET __attribute__((target("avx2,fma")))
#define LOOPS optim_avx2
#define NAME "avx2"

typedef __m256 vector;

#define every(value) _mm256_set1_ps(value)
#define multiply_add(a, b, c) _mm256_fmadd_ps(a, b, c)
#define root(a) _mm256_sqrt_ps(a)

#include "loop-vector.h"

#endif
