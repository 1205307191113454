/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu-sharing.h - which ranks share a GPU, how much of it each may have, and how to say so
 *
 * Pure, but for sharing_look(): all ranks have the same seats and find the same. What one GPU is goes by its
 * UUID and NCCL_HOSTID, as libddp, which forms the sums, has it of opened devices (device/cards.h).
 */
#ifndef TRAIN_GPU_SHARING_H
#define TRAIN_GPU_SHARING_H

#include "engine.h"

/* Where a rank computes, if on a GPU. */
struct sharing_seat {
	char device[ENGINE_DEVICE_NAME]; /* the same for who has the same; "": not known */
	char posing[64];		 /* NCCL_HOSTID, which tells one GPU's ranks apart */
	char host[64];
	double share;  /* of its memory, 0: nobody said */
	int32_t index; /* as the rank sees it */
	int32_t node;
	int32_t memory; /* it shares memory with the ranks of its node */
	int32_t mps;	/* a daemon of NVIDIA's serves there */
};

/* All but the device of this rank's, of [world]. */
void sharing_look(struct sharing_seat *seat, const struct ddp_world *world);

/* How many of [seats] have the GPU of [seat], itself included. */
int sharing_ranks(const struct sharing_seat *seats, int size, const struct sharing_seat *seat);

/*
 * Why two of [seats] cannot sum on the GPU that they share, in [text].
 * Returns whether there is such a reason.
 */
bool sharing_hinders(const struct sharing_seat *seats, int size, char *text, size_t room);

/* Where nobody said how much of a shared GPU a rank may have, it is as much as the others. */
void sharing_divide(struct sharing_seat *seats, int size);

/* "4 ranks share GPU 0, a quarter of its memory each, by time-slicing", or "". */
void sharing_tell(const struct sharing_seat *seats, int size, char *text, size_t room);

#endif /* TRAIN_GPU_SHARING_H */
