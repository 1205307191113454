/* SPDX-License-Identifier: Apache-2.0 */
/* kernel-avx2.c - kernels for AVX2 */
#define VECTOR 32
#include "kernel-vector.c"
