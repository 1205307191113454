/* SPDX-License-Identifier: Apache-2.0 */
/*
 * devices.h - what the ways to sum on devices have in common
 */
#ifndef DDP_COMM_DEVICES_H
#define DDP_COMM_DEVICES_H

#include "collective.h"

/*
 * Tell all ranks how this one's part went, and hear how theirs did, so that all go on or none does.
 * The first that failed is named.
 * Returns 0 where [status] was 0 on all ranks; else what one of them failed with, the same on all.
 */
int ddp_devices_agree(struct ddp *ddp, int status);

/* The same, where some ranks come by a wait of their own, as long as the time limit. */
int ddp_devices_agree_late(struct ddp *ddp, int status);

#endif /* DDP_COMM_DEVICES_H */
