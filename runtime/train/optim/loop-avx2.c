/* SPDX-License-Identifier: Apache-2.0 */
/* loop-avx2.c - optimizer loops for AVX2 */
#define VECTOR 32
#include "loop-vector.c"
