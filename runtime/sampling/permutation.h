/* SPDX-License-Identifier: Apache-2.0 */
/*
 * permutation.h - random permutations, equal to those of torch.randperm on the CPU
 *
 * sampling/ implements ddp.h's samplers. It calls base/ only. Start reading in sampler.c.
 */
#ifndef DDP_SAMPLING_PERMUTATION_H
#define DDP_SAMPLING_PERMUTATION_H

#include "base/error.h"

/*
 * From this many entries on, PyTorch uses another algorithm, with 64 random bits per entry. Older
 * releases of PyTorch such as 1.13 do not, so for such large sets their orders differ from ours.
 */
#define DDP_PERMUTATION_LARGE (UINT32_MAX / 20)

struct ddp_permutation {
	uint64_t count;
	uint32_t *narrow; /* entries, if each of them fits into 32 bits; else NULL */
	uint64_t *wide;	  /* the entries otherwise */
};

/*
 * Allocate [count] entries. An entry has 4 bytes if [count] is at most 2^32, else 8 bytes.
 * Returns 0, or DDP_ERR_MEMORY with a text that names the size.
 */
int ddp_permutation_create(struct ddp_permutation *permutation, uint64_t count,
			   struct ddp_error *error);

/* Free the entries; a permutation of zeros is legal. */
void ddp_permutation_destroy(struct ddp_permutation *permutation);

/* For tests: draw with the algorithm for few or for many entries, without regard to the count. */
void ddp_permutation_draw_small(struct ddp_permutation *permutation, uint64_t seed);
void ddp_permutation_draw_large(struct ddp_permutation *permutation, uint64_t seed);

/* Entry [position], which must be below the count. */
static inline uint64_t ddp_permutation_get(const struct ddp_permutation *permutation,
					   uint64_t position)
{
	return permutation->narrow ? permutation->narrow[position] : permutation->wide[position];
}

#endif /* DDP_SAMPLING_PERMUTATION_H */
