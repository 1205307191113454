/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.h - max-pooling of windows of any size, which no network of ours has yet
 *
 * As the kernels' for 2 x 2: N, H, W, C; strides are as large as windows; what does not fill one is
 * left out; the first of equal ones counts, and nan is larger than all. [which] is the place in
 * the window, whose size is at most 15.
 */
#ifndef TRAIN_POOL_H
#define TRAIN_POOL_H

#include "kernels.h"

struct pool {
	int height, width, channels; /* of what it reads */
	int size;
};

void pool_forward(const struct pool *pool, size_t images, const void *x, void *y, uint8_t *which,
		  enum ddp_type type);

/* dx is all zeros but for dy where it came from. */
void pool_back(const struct pool *pool, size_t images, const void *dy, const uint8_t *which,
	       void *dx, enum ddp_type type);

#endif /* TRAIN_POOL_H */
