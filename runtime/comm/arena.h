/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena.h - memory from which all-reduce works without a copy
 */
#ifndef DDP_COMM_ARENA_H
#define DDP_COMM_ARENA_H

#include "context.h"

/* Free all arenas of [ddp]; waits for nobody. */
void ddp_arenas_free(struct ddp *ddp);

#endif /* DDP_COMM_ARENA_H */
