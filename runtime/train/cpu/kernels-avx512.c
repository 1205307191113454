/* SPDX-License-Identifier: Apache-2.0 */
/* kernels-avx512.c - kernels for AVX-512 */
#define VECTOR 64
#include "kernels-vector.c"
