/* SPDX-License-Identifier: Apache-2.0 */
/*
 * permutation.h - torch.randperm on the CPU, number for number
 */
#ifndef DDP_SAMPLING_PERMUTATION_H
#define DDP_SAMPLING_PERMUTATION_H

#include "base/error.h"

/*
 * From this many entries on PyTorch draws 64 bits for each, in another way. Older releases do
 * not, 1.13 among them: with these the order of so large a set is not ours.
 */
#define DDP_PERMUTATION_LARGE (UINT32_MAX / 20)

struct ddp_permutation {
	uint64_t count;
	uint32_t *narrow; /* the entries, where they fit */
	uint64_t *wide;	  /* else */
};

/*
 * Memory for [count] entries: 4 bytes each up to 2^32 of them, else 8.
 * Returns 0, or DDP_ERR_MEMORY with a text that says how much was asked for.
 */
int ddp_permutation_create(struct ddp_permutation *permutation, uint64_t count,
			   struct ddp_error *error);

/* Free the entries; a permutation of zeros is legal. */
void ddp_permutation_destroy(struct ddp_permutation *permutation);

/* As ddp_permutation_draw, whatever the count: the two ways that it chooses from, for tests. */
void ddp_permutation_draw_small(struct ddp_permutation *permutation, uint64_t seed);
void ddp_permutation_draw_large(struct ddp_permutation *permutation, uint64_t seed);

/* Entry [position], which is below the count. */
static inline uint64_t ddp_permutation_get(const struct ddp_permutation *permutation,
					   uint64_t position)
{
	return permutation->narrow ? permutation->narrow[position] : permutation->wide[position];
}

#endif /* DDP_SAMPLING_PERMUTATION_H */
