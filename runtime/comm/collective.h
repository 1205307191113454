/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collective.h - what the collectives have in common
 */
#ifndef DDP_COMM_COLLECTIVE_H
#define DDP_COMM_COLLECTIVE_H

#include "join.h"

/*
 * Before any collective: is there a world, and is it whole?
 * Returns 0, or the error that stands.
 */
int ddp_begin_call(struct ddp *ddp);

/* The member that this rank is in its group. */
int ddp_own_member(const struct ddp *ddp);

/* Free all arenas of [ddp]; waits for nobody. */
void ddp_arenas_free(struct ddp *ddp);

#endif /* DDP_COMM_COLLECTIVE_H */
