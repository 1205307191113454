/* SPDX-License-Identifier: Apache-2.0 */
/*
 * statistics.h - norm and clipping of gradients; means and squared deviations over all ranks
 */
#ifndef DDP_GRADIENT_STATISTICS_H
#define DDP_GRADIENT_STATISTICS_H

#include "base/error.h"

/*
 * The 2-norm of [count] elements of [type], DDP_F32 or DDP_F64. It is summed in double, in an order
 * that depends on [count] alone, so that equal data gives equal bits. Inf and NaN propagate.
 */
double ddp_norm(const void *data, enum ddp_type type, size_t count);

/* Multiply each element by [factor], which is rounded to [type] first. */
void ddp_scale(void *data, enum ddp_type type, size_t count, double factor);

/*
 * The factor of PyTorch's clip_grad_norm_: [limit] / ([norm] + 1e-6), at most 1; NaN if the norm is
 * NaN, so that NaN gradients stay NaN.
 */
double ddp_clip_factor(double norm, double limit);

/*
 * Bytes of one part: the number of values as a double, then [channels] means and [channels] sums of
 * squared deviations (m2) as floats.
 */
size_t ddp_moments_bytes(size_t channels);

/*
 * Combine the parts in [data] in their order, in double (Chan, Golub and LeVeque). Parts with a
 * count of 0 are ignored. If all are empty, means and m2 become 0.
 */
void ddp_moments_combine(const void *data, size_t parts, size_t channels, double *count,
			 float *mean, float *m2);

#endif /* DDP_GRADIENT_STATISTICS_H */
