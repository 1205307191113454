/* SPDX-License-Identifier: Apache-2.0 */
/*
 * philox.h - the generator under ddp_random(): Philox4x32 with ten rounds, of Salmon, Moraes,
 * Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3"
 */
#ifndef DDP_SAMPLING_PHILOX_H
#define DDP_SAMPLING_PHILOX_H

#include "base/error.h"

/* Four random words from [counter] and [key], the same for the same. */
void ddp_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

#endif /* DDP_SAMPLING_PHILOX_H */
