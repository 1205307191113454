/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cards.h - whether NCCL can sum on the devices of all ranks, or sums are staged through host memory
 */
#ifndef DDP_DEVICE_CARDS_H
#define DDP_DEVICE_CARDS_H

#include "base/error.h"
#include "device-engine.h"

/*
 * Choose a path for the [cards] of all [size] ranks; the same on all. Pure.
 * Returns 0: NCCL; 1: staged, with the reason in [why], "2 ranks share GPU 0 on n1";
 * DDP_ERR_MISMATCH: NCCL, but of two versions.
 */
int ddp_cards_choose(const struct ddp_device_card *cards, int size, char *why, size_t why_size,
		     struct ddp_error *error);

#endif /* DDP_DEVICE_CARDS_H */
