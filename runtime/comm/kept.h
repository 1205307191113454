/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kept.h - memory that callers are given and that goes with the handle
 */
#ifndef DDP_COMM_KEPT_H
#define DDP_COMM_KEPT_H

#include "context.h"

/*
 * [size] bytes, zeroed and aligned for any type, that live until ddp_destroy().
 * Returns NULL where memory is out.
 */
void *ddp_kept_add(struct ddp *ddp, size_t size);

/* Free all of them. */
void ddp_kept_free(struct ddp *ddp);

#endif /* DDP_COMM_KEPT_H */
