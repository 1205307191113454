/* SPDX-License-Identifier: Apache-2.0 */
/*
 * evaluation.h - what is inside ddp_evaluation_reduce()
 */
#ifndef DDP_STATE_EVALUATION_H
#define DDP_STATE_EVALUATION_H

#include "base/error.h"

/* The sum of [count] parts, in their order, so that all ranks find the same bits. */
struct ddp_evaluation ddp_evaluation_sum(const struct ddp_evaluation *parts, size_t count);

#endif /* DDP_STATE_EVALUATION_H */
