/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agree.h - the same tensors on all ranks
 */
#ifndef DDP_STATE_AGREE_H
#define DDP_STATE_AGREE_H

#include "comm/context.h"

/*
 * Check that all ranks have [tensors], with data, and [pairs] of the same names, types, shapes
 * and keys, in the same order. Collective.
 * Returns the same on all ranks, with one rank's text: 0; DDP_ERR_MISMATCH; DDP_ERR_ARGUMENT.
 */
int ddp_tensors_agree(struct ddp *ddp, const struct ddp_tensor *tensors, size_t count,
		      const struct ddp_pair *pairs, size_t pair_count);

/*
 * Copy the data of rank 0 to all: that of [file], which is rank 0's alone, or, where that is NULL
 * on rank 0, what it has itself. They agree. Collective.
 */
int ddp_tensors_send(struct ddp *ddp, const struct ddp_tensor *tensors, size_t count,
		     const struct ddp_tensors *file);

/*
 * Let all ranks end a call with what rank [root] has in [error]. Collective.
 * Returns its status, which may be 0 and then is no end.
 */
int ddp_error_share(struct ddp *ddp, const struct ddp_error *error, int root);

#endif /* DDP_STATE_AGREE_H */
