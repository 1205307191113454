/* SPDX-License-Identifier: Apache-2.0 */
/*
 * carrier.h - a thread that does jobs in order while the caller computes
 */
#ifndef DDP_GRADIENT_CARRIER_H
#define DDP_GRADIENT_CARRIER_H

#include "base/error.h"

struct ddp_carrier;

/*
 * Start a thread that calls [work] for each job that is posted, with the number of the job,
 * counted from 0. After the first that returns an error, jobs are dropped. [work] must end in
 * limited time: nothing here waits longer than for it. The thread takes no signals.
 * Returns 0, DDP_ERR_MEMORY or DDP_ERR_SYSTEM.
 */
int ddp_carrier_create(struct ddp_carrier **carrier, int (*work)(void *owner, uint64_t job),
		       void *owner, struct ddp_error *error);

/* Drop what is not begun, wait for what is, end the thread. NULL is legal. */
void ddp_carrier_destroy(struct ddp_carrier *carrier);

/* One more job. Returns 0, or the error of an earlier one. */
int ddp_carrier_post(struct ddp_carrier *carrier);

/* Wait for all that was posted. Returns 0, or the first error. */
int ddp_carrier_wait(struct ddp_carrier *carrier);

#endif /* DDP_GRADIENT_CARRIER_H */
