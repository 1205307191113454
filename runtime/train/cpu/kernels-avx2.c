/* SPDX-License-Identifier: Apache-2.0 */
/* kernels-avx2.c - kernels for AVX2 */
#define VECTOR 32
#include "kernels-vector.c"
