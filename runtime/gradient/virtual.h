/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtual.h - sums of gradients that are the same bits on any number of ranks
 *
 * What is summed are the gradients of virtual ranks, of which each rank has equally many, one after the other. A sum of
 * floating point numbers depends on order and grouping because each addition rounds. Here none does: for each parameter
 * all ranks agree on the exponent of the largest gradient of all virtual ranks; each gradient is rounded to a multiple
 * of one step, so much smaller than that that the sum of all is a whole number of steps below 2^53; and doubles
 * add such numbers exactly. So whoever adds them, in whatever order and groups, gets the same: shared memory, UCX, MPI.
 * The exponent is that of the step that is summed, not of the one before, so no history matters.
 *
 * The step is 2^-51 of the largest gradient with up to 4 virtual ranks, a bit more for each doubling: a gradient 2^-27
 * of the largest one in its tensor still has all its 24 bits. Inf and nan stay what they are.
 */
#ifndef DDP_GRADIENT_VIRTUAL_H
#define DDP_GRADIENT_VIRTUAL_H

#include "buckets.h"

struct ddp_virtual;

/* So many virtual ranks at most: each halves the numbers that fit; the step is then 2^-43. */
enum { DDP_VIRTUAL_MOST = 1024 };

/*
 * Sums of [ranks] virtual ranks for the buckets of [layout], which outlives it, whose elements are of [type], DDP_F32
 * or DDP_F64. Collective.
 * Returns 0; DDP_ERR_ARGUMENT where the ranks cannot share them evenly; or what a collective says.
 */
int ddp_virtual_create(struct ddp_virtual **result, struct ddp *ddp,
		       const struct ddp_layout *layout, enum ddp_type type, size_t ranks);

/* NULL is legal. */
void ddp_virtual_destroy(struct ddp_virtual *it);

/* Whether the virtual rank that is at work now is this rank's last one, with which sums are due. */
bool ddp_virtual_is_last(const struct ddp_virtual *it);

/* Keep what this virtual rank, not the last one, has in [bucket] of the gradients in [arena]. */
void ddp_virtual_keep(struct ddp_virtual *it, size_t bucket, const void *arena);

/*
 * With what the last one has in [bucket] of [arena], sum that of all virtual ranks, times [scale], into the same place.
 * Collective.
 */
int ddp_virtual_sum(struct ddp_virtual *it, size_t bucket, void *arena, double scale);

/* Go on to this rank's next virtual rank, or to the first one of the next step. */
void ddp_virtual_next(struct ddp_virtual *it);

#endif /* DDP_GRADIENT_VIRTUAL_H */
