/* SPDX-License-Identifier: Apache-2.0 */
/*
 * statistics.h - the size of a gradient; means and squared deviations of parts, combined into those of the whole
 */
#ifndef DDP_GRADIENT_STATISTICS_H
#define DDP_GRADIENT_STATISTICS_H

#include "base/error.h"

/*
 * The 2-norm of [count] elements of [type], DDP_F32 or DDP_F64: summed in double, in an order
 * that depends on [count] alone, so equal data give equal bits. Inf and nan carry through.
 */
double ddp_norm(const void *data, enum ddp_type type, size_t count);

/* Multiply each element by [factor], which is rounded to [type] first. */
void ddp_scale(void *data, enum ddp_type type, size_t count, double factor);

/*
 * What clip_grad_norm_ multiplies by: [limit] / ([norm] + 1e-6), at most 1; nan where the norm
 * is nan, so that a broken gradient is not taken for a good one.
 */
double ddp_clip_factor(double norm, double limit);

/* Bytes of one part: a double, the count, then [channels] means and as many m2 in float. */
size_t ddp_moments_bytes(size_t channels);

/*
 * Combine [parts], one after the other in [data], in this order, in double (Chan, Golub and
 * LeVeque). Parts with a count of 0 do not matter, whatever their means; if all are empty,
 * means and m2 become 0.
 */
void ddp_moments_combine(const void *data, size_t parts, size_t channels, double *count,
			 float *mean, float *m2);

#endif /* DDP_GRADIENT_STATISTICS_H */
