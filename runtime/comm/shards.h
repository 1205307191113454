/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shards.h - sums on devices that ranks share
 *
 * An engine between devices (wide/device.h) made of two: that of one GPU's ranks (shard/engine.h), and
 * where there are several GPUs the one between these, which only the leaders are in. Only
 * all-reduce is a turn of shard/protocol.h; broadcast and all-gather are sums with zeros.
 */
#ifndef DDP_COMM_SHARDS_H
#define DDP_COMM_SHARDS_H

#include "collective.h"

extern const struct ddp_device_engine ddp_shards_engine;

/*
 * Form it, after ddp->device was opened and all ranks' [cards] were found to go together. Collective.
 * ddp->device is closed, and where all is well replaced.
 * Returns 0 or a DDP_ERR_x, the same on all ranks.
 */
int ddp_shards_join(struct ddp *ddp, const struct ddp_device_card *cards);

#endif /* DDP_COMM_SHARDS_H */
