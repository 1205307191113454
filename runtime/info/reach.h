/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reach.h - can rank 0's endpoint be reached from every node?
 */
#ifndef DDP_INFO_REACH_H
#define DDP_INFO_REACH_H

#include "card.h"

/*
 * Rank 0 listens on the port of its endpoint, one rank of each other node connects; cards get
 * reached and why_not. Where there is no endpoint, or the port is in use, nobody tries.
 * Collective. Returns 0 or a DDP_ERR_x.
 */
int info_reach(struct ddp *ddp, struct info_card *card);

#endif /* DDP_INFO_REACH_H */
