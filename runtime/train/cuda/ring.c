/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "optim/loop.h"
#include "ring.h"

/* Where the arrays begin in a block, and how long it is. */
struct layout {
	size_t orders, indices, labels, bytes;
};

struct ring {
	struct device *device;
	const struct optim *optim; /* NULL: without results */
	size_t batch;
	int mark;
	struct layout layout;
	uint8_t *slots;		       /* pinned: RING_DEPTH blocks */
	uint8_t *block;		       /* on the device */
	struct kernel_result *results; /* pinned: RING_DEPTH */
	uint64_t sent;		       /* the sequence of the last one; from 1 */
	uint64_t collected;	       /* likewise */
	bool taken;
	/* Optimizer steps that were done, as far as is known, and since which sequence that counts:
	 * what earlier steps tell is of before an order anew. */
	uint64_t updates, since;
};

/* --- Blocks ------------------------------------------------------------------------------- */

static size_t aligned(size_t bytes)
{
	return (bytes + 255) / 256 * 256;
}

static struct layout layout_of(size_t batch)
{
	struct layout layout;

	layout.orders = aligned(sizeof(struct kernel_order));
	layout.indices = layout.orders + aligned(batch * sizeof(uint64_t));
	layout.labels = layout.indices + aligned(batch * sizeof(uint32_t));
	layout.bytes = layout.labels + aligned(batch * sizeof(int32_t));
	return layout;
}

static struct ring_block block_at(const struct ring *ring, uint8_t *memory)
{
	return (struct ring_block){(void *)memory, (void *)(memory + ring->layout.orders),
				   (void *)(memory + ring->layout.indices),
				   (void *)(memory + ring->layout.labels)};
}

static int slot_of(uint64_t sequence)
{
	return (int)(sequence % RING_DEPTH);
}

static uint8_t *slot_memory(const struct ring *ring, uint64_t sequence)
{
	return ring->slots + (size_t)slot_of(sequence) * ring->layout.bytes;
}

/* --- Opening ------------------------------------------------------------------------------ */

static int alloc_all(struct ring *ring, struct ddp_error *error)
{
	int status;

	status = device_alloc_host(ring->device, (void **)&ring->slots,
				   RING_DEPTH * ring->layout.bytes, "what steps are told", error);
	if (status == 0)
		status = device_alloc(ring->device, (void **)&ring->block, ring->layout.bytes,
				      "what a step is told", "lower --batch", error);
	if (status == 0 && ring->optim)
		status = device_alloc_host(ring->device, (void **)&ring->results,
					   RING_DEPTH * sizeof(*ring->results), "what steps tell",
					   error);
	if (status == 0 && ring->optim)
		memset(ring->results, 0, RING_DEPTH * sizeof(*ring->results));
	return status;
}

int ring_open(struct ring **ring, struct device *device, size_t batch, const struct optim *optim,
	      int mark, struct ddp_error *error)
{
	int status;

	*ring = calloc(1, sizeof(**ring));
	if (!*ring)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for a ring of steps");
	(*ring)->device = device;
	(*ring)->optim = optim;
	(*ring)->batch = batch;
	(*ring)->mark = mark;
	(*ring)->layout = layout_of(batch);
	status = alloc_all(*ring, error);
	if (status == 0)
		return 0;
	ring_close(*ring);
	*ring = NULL;
	return status;
}

void ring_close(struct ring *ring)
{
	if (!ring)
		return;
	device_free(ring->device, ring->results);
	device_free(ring->device, ring->block);
	device_free(ring->device, ring->slots);
	free(ring);
}

struct ring_block ring_device(const struct ring *ring)
{
	return block_at(ring, ring->block);
}

struct kernel_result *ring_results(const struct ring *ring)
{
	return ring->results;
}

/* --- Sending ------------------------------------------------------------------------------ */

/* Whether the slot of step [sequence] is free. */
static int is_free(const struct ring *ring, uint64_t sequence, struct ddp_error *error)
{
	if (sequence <= RING_DEPTH)
		return 1;
	if (ring->optim && sequence - ring->collected > RING_DEPTH)
		return 0;
	return device_reached(ring->device, ring->mark + slot_of(sequence), error);
}

int ring_take(struct ring *ring, struct ring_block *block, struct ddp_error *error)
{
	uint64_t sequence = ring->sent + 1;
	int status = ring->taken ? 1 : is_free(ring, sequence, error);

	if (status <= 0)
		return status;
	*block = block_at(ring, slot_memory(ring, sequence));
	if (!ring->taken)
		memset(block->order, 0, sizeof(*block->order));
	ring->taken = true;
	return 1;
}

/* The device does at least the first of these, and the last one if no step on its way is skipped. */
static void set_paces(struct ring *ring, struct kernel_order *order)
{
	if (order->anew) {
		ring->updates = order->step - 1;
		ring->since = order->sequence;
	}
	order->first = ring->updates + 1;
	for (size_t i = 0; i < KERNEL_AHEAD; i++) {
		struct optim_numbers numbers =
			optim_numbers_of(ring->optim, order->first + i, order->rate);

		order->paces[i] = (struct kernel_pace){numbers.rate, numbers.root, numbers.shrink};
	}
}

/* What is computed of samples that are not there shall not depend on those of an earlier step. */
static void clear_rest(const struct ring *ring, const struct ring_block *block)
{
	size_t count = block->order->count, rest;

	if (count >= ring->batch)
		return;
	rest = ring->batch - count;
	memset(block->orders + count, 0, rest * sizeof(*block->orders));
	memset(block->indices + count, 0, rest * sizeof(*block->indices));
	memset(block->labels + count, 0, rest * sizeof(*block->labels));
}

int ring_send(struct ring *ring, struct ddp_error *error)
{
	uint64_t sequence = ring->sent + 1;
	uint8_t *memory = slot_memory(ring, sequence);
	struct ring_block block = block_at(ring, memory);
	int status;

	block.order->slot = (uint32_t)slot_of(sequence);
	block.order->sequence = sequence;
	if (ring->optim)
		set_paces(ring, block.order);
	clear_rest(ring, &block);
	status = device_copy(ring->device, DEVICE_COMPUTE, ring->block, memory, ring->layout.bytes,
			     error);
	if (status == 0)
		status = device_mark(ring->device, DEVICE_COMPUTE, ring->mark + slot_of(sequence),
				     error);
	if (status < 0)
		return status;
	ring->sent = sequence;
	ring->taken = false;
	return 0;
}

/* --- Results ------------------------------------------------------------------------------ */

size_t ring_collect(struct ring *ring, struct kernel_result *results, size_t most)
{
	size_t count = 0;

	while (ring->optim && count < most && ring->collected < ring->sent) {
		uint64_t sequence = ring->collected + 1;
		const struct kernel_result *result = &ring->results[slot_of(sequence)];

		/* It is written last, by the device: what is read after it is of the same step. */
		if (__atomic_load_n(&result->sequence, __ATOMIC_ACQUIRE) != sequence)
			break;
		results[count] = *result;
		if (sequence >= ring->since)
			ring->updates = result->updates;
		ring->collected = sequence;
		count++;
	}
	return count;
}

size_t ring_pending(const struct ring *ring)
{
	return ring->optim ? (size_t)(ring->sent - ring->collected) : 0;
}
