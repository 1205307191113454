/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm.h - the size of a gradient
 */
#ifndef DDP_GRADIENT_NORM_H
#define DDP_GRADIENT_NORM_H

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

#endif /* DDP_GRADIENT_NORM_H */
