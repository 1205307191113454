/* SPDX-License-Identifier: Apache-2.0 */
/* cards.h - decide whether all ranks can use NCCL, or sums are staged through host memory */
#ifndef DDP_DEVICE_CARDS_H
#define DDP_DEVICE_CARDS_H

#include "base/error.h"
#include "device-engine.h"

/*
 * Choose a path from the [cards] of all [size] ranks; every rank gets the same result. Returns 0:
 * NCCL; 1: staged, with the reason in [why], such as "2 ranks share GPU 0 on n1"; DDP_ERR_MISMATCH:
 * ranks have different versions of NCCL.
 */
int ddp_cards_choose(const struct ddp_device_card *cards, int size, char *why, size_t why_size,
		     struct ddp_error *error);

#endif /* DDP_DEVICE_CARDS_H */
