/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cards.h - choose NCCL or, if a rank cannot use it, sums that are staged through host memory
 */
#ifndef DDP_DEVICE_CARDS_H
#define DDP_DEVICE_CARDS_H

#include "base/error.h"
#include "device-engine.h"

/*
 * Choose NCCL or staged sums from the [cards] of all [size] ranks. Every rank gets the same result.
 * Returns 0 for NCCL; 1 for staged sums, with the reason in [why], such as "2 ranks share GPU 0 on
 * n1"; DDP_ERR_MISMATCH if the ranks have different versions of NCCL.
 */
int ddp_cards_choose(const struct ddp_device_card *cards, int size, char *why, size_t why_size,
		     struct ddp_error *error);

#endif /* DDP_DEVICE_CARDS_H */
