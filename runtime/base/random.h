/* SPDX-License-Identifier: Apache-2.0 */
/*
 * random.h - the Mersenne Twister, as PyTorch's CPU generator draws from it
 *
 * Beside it is ddp_random() of ddp.h, whose numbers need no order.
 */
#ifndef DDP_BASE_RANDOM_H
#define DDP_BASE_RANDOM_H

#include <stdint.h>

#define DDP_MT19937_WORDS 624

struct ddp_mt19937 {
	uint32_t state[DDP_MT19937_WORDS];
	int next;
};

/* Begin with [seed], of which only the low 32 bits count: PyTorch's rule. */
void ddp_mt19937_seed(struct ddp_mt19937 *generator, uint64_t seed);

uint32_t ddp_mt19937_next(struct ddp_mt19937 *generator);

/* Two draws, the first one in the high half. */
uint64_t ddp_mt19937_next64(struct ddp_mt19937 *generator);

#endif /* DDP_BASE_RANDOM_H */
