/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agree.h - whether all ranks lay out the same gradients
 */
#ifndef DDP_GRADIENT_AGREE_H
#define DDP_GRADIENT_AGREE_H

#include "base/error.h"

/*
 * Compare options and [parameters] of all ranks. Collective.
 * Returns 0; DDP_ERR_MISMATCH, on all ranks, with a text that names the first parameter and the
 * first rank that differ from rank 0; or what a collective says. The text is in the handle.
 */
int ddp_gradients_agree(struct ddp *ddp, const struct ddp_gradients_options *options,
			const struct ddp_parameter *parameters, size_t count);

#endif /* DDP_GRADIENT_AGREE_H */
