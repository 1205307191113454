/* SPDX-License-Identifier: Apache-2.0 */
#define VECTOR 32
#include "kernel-vector.c"
