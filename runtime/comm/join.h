/* SPDX-License-Identifier: Apache-2.0 */
/*
 * join.h - the way from a rank that knows its number to a world that can work
 */
#ifndef DDP_COMM_JOIN_H
#define DDP_COMM_JOIN_H

#include "context.h"

/*
 * Meet the other ranks: open the store, exchange cards, find the groups, map their memory,
 * open the engine between them, wait for everybody.
 * Returns 0; or a DDP_ERR_x with what is open left for ddp_leave().
 */
int ddp_join(struct ddp *ddp, const char *method);

/* Take down what ddp_join() set up; [clean] where all ranks agreed to end. */
void ddp_leave(struct ddp *ddp, bool clean);

/* The check of all watches of [owner], a struct ddp: has another rank given up, is one gone? */
int ddp_look_around(void *owner, struct ddp_error *error);

/* "rank 3 on n2"; the text holds until the next call. [owner] is a struct ddp. */
const char *ddp_rank_name(void *owner, int rank);

/* Tell the other ranks that this one gave up, if they can be told and do not know. */
void ddp_tell_failure(struct ddp *ddp);

/* Let one of the ranks that fail write and print the summary of all their records. */
void ddp_tell_summary(struct ddp *ddp);

#endif /* DDP_COMM_JOIN_H */
