/* SPDX-License-Identifier: Apache-2.0 */
/*
 * idx.h - IDX, the format of MNIST's files: a magic number, sizes, bytes
 */
#ifndef TRAIN_IDX_H
#define TRAIN_IDX_H

#include "source.h"

/*
 * Read the header of bytes in so many [dimensions]; all but the first must be of [side], the first
 * becomes [count]. A plain file must be as long as that says.
 * Returns 0, with the source at the first of these bytes, or DDP_ERR_FORMAT.
 */
int idx_header(struct source *source, int dimensions, uint32_t side, uint32_t *count,
	       struct ddp_error *error);

#endif /* TRAIN_IDX_H */
