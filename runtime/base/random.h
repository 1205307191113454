/* SPDX-License-Identifier: Apache-2.0 */
/*
 * random.h - the Mersenne Twister, compatible with PyTorch's CPU generator
 *
 * Each number depends on the calls before. Use ddp_random() of ddp.h for numbers that do not.
 */
#ifndef DDP_BASE_RANDOM_H
#define DDP_BASE_RANDOM_H

#include <stdint.h>

#define DDP_MT19937_WORDS 624

struct ddp_mt19937 {
	uint32_t state[DDP_MT19937_WORDS];
	int next;
};

/* Initialize [generator] with the low 32 bits of [seed], as PyTorch does. */
void ddp_mt19937_seed(struct ddp_mt19937 *generator, uint64_t seed);

uint32_t ddp_mt19937_next(struct ddp_mt19937 *generator);

#endif /* DDP_BASE_RANDOM_H */
