/* SPDX-License-Identifier: Apache-2.0 */
#define VECTOR 64
#include "kernel-vector.c"
