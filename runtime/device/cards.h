/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cards.h - whether the devices of all ranks go together, and which ranks are on one device
 *
 * A shard is the ranks of one GPU, or of one MIG slice, in the order of the world; its member 0 leads. Shards
 * are numbered by their leaders, so rank 0 leads shard 0. Pure.
 *
 * One device, or one MIG slice, is one kernel and one UUID, whatever names containers have. ddp-train, before
 * devices are opened (train/gpu-sharing.h), and ddp-info, without any (info/info.h), come as near to that as what
 * they know lets them.
 */
#ifndef DDP_DEVICE_CARDS_H
#define DDP_DEVICE_CARDS_H

#include "comm/topology.h"
#include "device-engine.h"

/*
 * Build from the [cards] of all [size] ranks, if these can sum on their devices: they have the same version of the
 * engine, and those of one device share memory and are not too many. [groups]: which ranks share memory; NULL: all.
 * Returns 0 with the shards as groups, as many as ranks where none is shared; DDP_ERR_MISMATCH naming both ranks and
 * what differs or is shared; DDP_ERR_MEMORY.
 */
int ddp_sharing_create(struct ddp_topology **sharing, const struct ddp_device_card *cards,
		       const struct ddp_place *groups, int size, struct ddp_error *error);

#endif /* DDP_DEVICE_CARDS_H */
