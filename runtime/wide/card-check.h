/* SPDX-License-Identifier: Apache-2.0 */
/*
 * card-check.h - whether CUDA has the GPU that a rank is to use
 */
#ifndef DDP_WIDE_CARD_CHECK_H
#define DDP_WIDE_CARD_CHECK_H

#include "base/error.h"

/*
 * Look for the GPU that CUDA numbers [index]. Messages are of [engine], and say that [who] is to use it.
 * Returns 0; DDP_ERR_UNSUPPORTED where the driver or all GPUs are missing; DDP_ERR_ENVIRONMENT: there are
 * others.
 */
int ddp_card_check(const char *engine, const char *who, int index, struct ddp_error *error);

#endif /* DDP_WIDE_CARD_CHECK_H */
