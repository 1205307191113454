/* SPDX-License-Identifier: Apache-2.0 */
/* loop-avx512.c - optimizer loops for AVX-512 */
#define VECTOR 64
#include "loop-vector.c"
