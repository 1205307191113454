/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>

#define LANES 4
#define TARGET
#define LOOPS optim_plain
#define NAME "plain"

typedef float vector __attribute__((vector_size(16)));

static inline vector every(float value)
{
	return (vector){value, value, value, value};
}

static inline vector multiply_add(vector a, vector b, vector c)
{
	return (vector){fmaf(a[0], b[0], c[0]), fmaf(a[1], b[1], c[1]), fmaf(a[2], b[2], c[2]),
			fmaf(a[3], b[3], c[3])};
}

static inline vector root(vector a)
{
	return (vector){sqrtf(a[0]), sqrtf(a[1]), sqrtf(a[2]), sqrtf(a[3])};
}

#include "loop-vector.h"
