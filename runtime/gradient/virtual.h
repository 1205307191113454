/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtual.h - sums of gradients that give the same bits on any number of ranks
 *
 * A virtual rank is a unit of work. The number of virtual ranks does not depend on the number of
 * ranks. Each rank runs the same number of virtual ranks, one after the other. The gradients of all
 * virtual ranks are summed. A floating-point sum usually depends on the order and grouping of its
 * additions, since each addition rounds. Here no addition rounds:
 *   1. For each parameter, all ranks agree on the exponent of the largest gradient element among
 *      all virtual ranks.
 *   2. Each gradient is rounded to a multiple of one quantum, such that the sum over all virtual
 *      ranks is at most 2^53 quanta.
 *   3. The sums of such multiples are exact in double.
 * So shared memory, TCP and MPI give the same sum, although they add in different orders and
 * groupings. Each step computes its own exponents, so the result does not depend on earlier steps.
 *
 * With up to 4 virtual ranks, the quantum is 2^-51 of the largest gradient. It doubles whenever the
 * number of virtual ranks doubles. A gradient that is 2^-27 of the largest one in its tensor still
 * keeps all its 24 bits. Inf and NaN propagate.
 */
#ifndef DDP_GRADIENT_VIRTUAL_H
#define DDP_GRADIENT_VIRTUAL_H

#include "base/simd.h"
#include "buckets.h"

struct ddp_virtual;

/*
 * Largest number of virtual ranks. Doubling the number costs one bit of precision: with 1024
 * virtual ranks, the quantum is 2^-43 of the largest gradient.
 */
enum { DDP_VIRTUAL_MOST = 1024 };

/*
 * Create an object that sums the buckets of [layout] over [ranks] virtual ranks. [layout] must
 * exist until the object is destroyed. Elements have [type], which is DDP_F32 or DDP_F64. Kernels
 * use the instructions of [simd]. Collective.
 * Returns 0; DDP_ERR_ARGUMENT if the virtual ranks cannot be divided evenly among the ranks; or a
 * collective's error.
 */
int ddp_virtual_create(struct ddp_virtual **result, struct ddp *ddp,
		       const struct ddp_layout *layout, enum ddp_type type, enum ddp_simd simd,
		       size_t ranks);

void ddp_virtual_destroy(struct ddp_virtual *virtual);

/*
 * Whether the current virtual rank is this rank's last one, after which the gradients are summed.
 */
bool ddp_virtual_is_last(const struct ddp_virtual *virtual);

/*
 * Save [bucket] of the current virtual rank's gradients, which are in [arena]. Must not be called
 * for this rank's last virtual rank.
 */
void ddp_virtual_keep(struct ddp_virtual *virtual, size_t bucket, const void *arena);

/*
 * Sum [bucket] over all virtual ranks, multiply by [scale], and write the result to [arena]. Before
 * the call, [arena] has the gradients of this rank's last virtual rank. Collective.
 */
int ddp_virtual_sum(struct ddp_virtual *virtual, size_t bucket, void *arena, double scale);

/* Switch to this rank's next virtual rank, or to the first one of the next step. */
void ddp_virtual_next(struct ddp_virtual *virtual);

#endif /* DDP_GRADIENT_VIRTUAL_H */
