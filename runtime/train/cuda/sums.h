/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sums.h - sums over ranks of what lies on the device
 *
 * sums-libddp.c hands these to libddp (NCCL, and its own sums of ranks that share a GPU); with one rank there
 * is nothing to do. Tests link tests/emulated/sums-host.c in its place, where ranks share host memory.
 */
#ifndef TRAIN_CUDA_SUMS_H
#define TRAIN_CUDA_SUMS_H

#include "ddp.h"
#include "device.h"

/*
 * Join libddp's engine between devices, once; one rank needs none. An error is that of all ranks, who can do
 * without then, unless one is lost. Collective.
 */
int sums_join(struct ddp *ddp, struct ddp_error *error);

/* Memory for sums: libddp's, after sums_join(); device_alloc()'s for one rank. Collective. */
int sums_alloc(struct ddp *ddp, struct device *device, void **memory, size_t bytes,
	       struct ddp_error *error);
/* NULL is legal. */
void sums_free(struct ddp *ddp, struct device *device, void *memory);

/*
 * Whether sums may be part of a graph: not where ranks share a GPU. The same on all ranks, after the first
 * sums_alloc().
 */
bool sums_captures(const struct ddp *ddp);

/* In place; ranks in any order (docs: over NCCL bits are reported, not promised). */
int sums_reduce(struct ddp *ddp, struct device *device, enum device_stream stream, void *data,
		size_t count, enum ddp_type type, struct ddp_error *error);

/* [bytes] of each rank, in rank order. */
int sums_gather(struct ddp *ddp, struct device *device, enum device_stream stream, const void *send,
		void *recv, size_t bytes, struct ddp_error *error);

int sums_broadcast(struct ddp *ddp, struct device *device, enum device_stream stream, void *data,
		   size_t bytes, int root, struct ddp_error *error);

/* Wait for all that is on [stream], with the time limit, and an eye on the other ranks. */
int sums_wait(struct ddp *ddp, struct device *device, enum device_stream stream,
	      struct ddp_error *error);

/*
 * Whether what has come out of sums so far is good, for who read it without sums_wait(): of a sum that was given
 * up the stream goes on, with numbers that mean nothing. Never waits.
 */
int sums_check(struct ddp *ddp, struct ddp_error *error);

#endif /* TRAIN_CUDA_SUMS_H */
