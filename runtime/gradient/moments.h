/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moments.h - means and squared deviations of parts, combined into those of the whole
 */
#ifndef DDP_GRADIENT_MOMENTS_H
#define DDP_GRADIENT_MOMENTS_H

#include "base/error.h"

/* Bytes of one part: a double, the count, then [channels] means and as many m2 in float. */
size_t ddp_moments_bytes(size_t channels);

/*
 * Combine [parts], one after the other in [data], in this order, in double (Chan, Golub and
 * LeVeque). Parts with a count of 0 do not matter, whatever their means; if all are empty,
 * means and m2 become 0.
 */
void ddp_moments_combine(const void *data, size_t parts, size_t channels, double *count,
			 float *mean, float *m2);

#endif /* DDP_GRADIENT_MOMENTS_H */
