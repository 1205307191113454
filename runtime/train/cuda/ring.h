/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring.h - what the host tells each step, and what steps tell the host
 *
 * A slot is a block of pinned memory: a step's order, and of each sample its place in the epoch's order,
 * its index in the set, its label. One copy on COMPUTE takes it to the one block on the device, which
 * has the same layout and which all kernels read; the results come back by kernel_tell() into pinned
 * memory, one place for each slot. The host may be RING_DEPTH steps ahead.
 *
 *	ring_take(ring, &block, error)		until it gives 1
 *	fill block.order, .orders, .indices, .labels (of order->count samples)
 *	ring_send(ring, error)
 *	device_launch(...)			which ends with kernel_tell(..., ring_results(ring))
 *	ring_collect(ring, &result, 1)		1 when the oldest step that was not told yet has ended
 *
 * A ring without results (for evaluation) is the same without the last.
 */
#ifndef TRAIN_CUDA_RING_H
#define TRAIN_CUDA_RING_H

#include "device.h"
#include "kernels.h"
#include "optim/optim.h"

struct ring;

/* As many steps as kernel_order has paces for: none is launched whose number is beyond them. */
enum { RING_DEPTH = KERNEL_AHEAD, RING_MARKS = RING_DEPTH };

/* Pinned, or on the device. Arrays have room for a batch. */
struct ring_block {
	struct kernel_order *order;
	uint64_t *orders;
	uint32_t *indices;
	int32_t *labels;
};

/*
 * For steps of up to [batch] samples; [optim] as the steps have it, NULL: without results. [mark]
 * is the first of RING_MARKS marks of device_mark() that nobody else uses. device and optim must outlive it.
 * Returns 0 or device_alloc()'s error.
 */
int ring_open(struct ring **ring, struct device *device, size_t batch, const struct optim *optim,
	      int mark, struct ddp_error *error);

/* When nothing is under way on COMPUTE. NULL is legal. */
void ring_close(struct ring *ring);

/* The block on the device, and where kernel_tell() puts results. Constant: for captured graphs. */
struct ring_block ring_device(const struct ring *ring);
struct kernel_result *ring_results(const struct ring *ring);

/*
 * The slot of the next step: its last copy is done, and the result of the step that had it was
 * collected. Until it is sent, the same one is given again. Its order is zeroed.
 * Returns 1, 0 (not yet: ask again, or collect results), or the device's error.
 */
int ring_take(struct ring *ring, struct ring_block *block, struct ddp_error *error);

/*
 * Enqueue the copy of the slot that was taken, on COMPUTE. Filled in here: the order's slot, sequence,
 * first and paces; arrays beyond order->count become zeros. Where order->anew, order->step must
 * be the number of this step; elsewhere the device counts.
 * Returns 0 or the device's error.
 */
int ring_send(struct ring *ring, struct ddp_error *error);

/*
 * The results of up to [most] steps that have ended, the oldest first; each is told once. Does not wait.
 * Returns how many. A step that was sent and never launched is never told, nor one that the device
 * fails in: who waits in a loop asks device_reached() or device_check() there.
 */
size_t ring_collect(struct ring *ring, struct kernel_result *results, size_t most);

/* Steps that were sent and not collected. */
size_t ring_pending(const struct ring *ring);

#endif /* TRAIN_CUDA_RING_H */
