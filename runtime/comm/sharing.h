/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sharing.h - which ranks are on one device
 *
 * A shard is the ranks of one GPU, or of one MIG slice, in the order of the world; its member 0 leads. Shards
 * are numbered by their leaders, so rank 0 leads shard 0. Pure.
 *
 * ddp_device_same() says what one device is. ddp-train, before devices are opened (train/sharing.h), and ddp-info,
 * without any (info/sharing.h), come as near to that as what they know lets them.
 */
#ifndef DDP_COMM_SHARING_H
#define DDP_COMM_SHARING_H

#include "topology.h"
#include "wide/device.h"

struct ddp_sharing {
	int size, shards;
	bool shared;		  /* some shard has more members than one */
	struct ddp_place *places; /* of each rank; its group is its shard */
	int32_t *first;		  /* shards + 1: where each shard begins in [ranks] */
	int32_t *ranks;		  /* by shard, then by member */
};

/*
 * Build from the [cards] of all [size] ranks, which ddp_device_preflight() found to go together.
 * Returns 0 or DDP_ERR_MEMORY.
 */
int ddp_sharing_create(struct ddp_sharing **sharing, const struct ddp_device_card *cards, int size,
		       struct ddp_error *error);

/* NULL is legal. */
void ddp_sharing_destroy(struct ddp_sharing *sharing);

/* Members of [shard], and the world rank of [member] of it. */
int ddp_sharing_members(const struct ddp_sharing *sharing, int shard);
int ddp_sharing_rank(const struct ddp_sharing *sharing, int shard, int member);

#endif /* DDP_COMM_SHARING_H */
