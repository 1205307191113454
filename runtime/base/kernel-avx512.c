/* SPDX-License-Identifier: Apache-2.0 */
/* kernel-avx512.c - kernels for AVX-512 */
#define VECTOR 64
#include "kernel-vector.c"
