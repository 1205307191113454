/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device-sums.h - sums in device memory, for gradient/
 *
 * device/ has all CUDA code of libddp. It implements ddp_device_*() of ddp.h, and ddp_init(), which
 * can join devices. It calls comm/ and the directories below it. Start reading in device-calls.c.
 *
 *  device-calls.c    calls of ddp.h: choose an engine and call it, or stage through host memory
 *  choice.c          the choice between NCCL and staging
 *  device-engine.h   interface of the engines, which are modules: nccl-engine.c and gpu.c
 *
 * device-engine.h describes streams, order(), convert(), count() and captured(). Call
 * ddp_device_join() before all functions but the first two. A function that returns an int returns
 * 0 or a DDP_ERR_x, with its text in the handle.
 */
#ifndef DDP_DEVICE_SUMS_H
#define DDP_DEVICE_SUMS_H

#include "comm/comm.h"

/* Returns the library's own stream, or NULL before ddp_device_join(). */
void *ddp_device_stream(struct ddp *ddp);

/* Make [later] wait for the work enqueued on [earlier]. Does nothing before ddp_device_join(). */
int ddp_device_order(struct ddp *ddp, void *later, void *earlier);
int ddp_device_convert(struct ddp *ddp, void *stream, void *to, enum ddp_type to_type,
		       const void *from, enum ddp_type from_type, size_t count, double factor);
int ddp_device_count(struct ddp *ddp, void *stream, uint64_t *word);

/* --- Staging, if ddp_device_captures() is false --------------------------------------------- */

bool ddp_device_is_captured(struct ddp *ddp, void *stream);

/*
 * As ddp_arena_create(), for memory that the device can access as well. Fails on all ranks or on
 * none. Collective.
 */
int ddp_device_arena(struct ddp *ddp, size_t bytes, void **memory);

/* A block of device memory, and memory of ddp_device_arena() in which the host sums a copy of it. */
struct ddp_stage {
	char *device, *host;
	void *stream;	   /* stream of the copies */
	uint64_t *arrived; /* completed copies to the host, counted by the device; pinned */
	uint64_t awaited;  /* copies to the host that this rank has awaited */
};

/* Enqueue the copy of [bytes] at offset [at] to the host. Can be captured into a CUDA graph. */
int ddp_stage_send(struct ddp *ddp, const struct ddp_stage *stage, size_t at, size_t bytes);

/*
 * Wait for the next copy to the host, in the order of ddp_stage_send(). [waited] is the stream that
 * contains the copy or a graph with the copy.
 */
int ddp_stage_await(struct ddp *ddp, struct ddp_stage *stage, void *waited);

/* Enqueue a copy of [bytes] at offset [at] from the host back to the device. */
int ddp_stage_return(struct ddp *ddp, const struct ddp_stage *stage, size_t at, size_t bytes);

#endif /* DDP_DEVICE_SUMS_H */
