/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu-sharing.h - which ranks share a GPU, and how much of its memory each may use
 *
 * A seat describes the GPU of one rank. All ranks have the seats of all ranks, and compute the same
 * results from them. A GPU is identified by its UUID and NCCL_HOSTID, as in device/choice.c.
 */
#ifndef TRAIN_GPU_SHARING_H
#define TRAIN_GPU_SHARING_H

#include "engine.h"

/* Where a rank computes. */
struct sharing_seat {
	char device[ENGINE_DEVICE_NAME]; /* UUID; "": unknown */
	char host_id[64]; /* NCCL_HOSTID; ranks with different values are not on one GPU */
	char host[64];
	double share;  /* fraction of the GPU's memory; 0: not given */
	int32_t index; /* number of the GPU in this rank's process */
	int32_t mps;   /* an MPS daemon serves this process */
};

/* Fills [seat], except its device, for this process. */
void sharing_fill_seat(struct sharing_seat *seat, const struct ddp_world *world);

/* Number of ranks on the GPU of [seat], including the rank of [seat]. */
int sharing_ranks(const struct sharing_seat *seats, int size, const struct sharing_seat *seat);

/* Sets the shares that were not given: all ranks of a GPU get equal parts of it. */
void sharing_divide(struct sharing_seat *seats, int size);

/*
 * Describes the sharing in [text]: "4 ranks share GPU 0, 25 % of its memory each, by time-slicing",
 * or "".
 */
void sharing_describe(const struct sharing_seat *seats, int size, char *text, size_t bytes);

#endif /* TRAIN_GPU_SHARING_H */
