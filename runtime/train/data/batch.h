/* SPDX-License-Identifier: Apache-2.0 */
/*
 * batch.h - samples as a network reads them
 */
#ifndef TRAIN_BATCH_H
#define TRAIN_BATCH_H

#include "net/net.h"
#include "set.h"

/* Samples of one step and rank. */
struct batch {
	const uint64_t *indices; /* in the set */
	const uint64_t *orders;	 /* their places in the epoch's order: counters of random numbers */
	size_t count;
	uint64_t seed, epoch;
	bool augment; /* crop and flip, as the network's table says */
};

/* Layers of random numbers (ddp_random) that are not a network's: see ddp.h. */
enum { BATCH_LAYER_CROP = 0x10000 };

/*
 * Which part of sample [i] of [batch] is taken: the offset of the crop, -pad to pad, and whether
 * it is mirrored. Depends on (seed, epoch, order) alone; zeros without augment.
 */
struct batch_crop {
	int top, left;
	bool mirrored;
};
struct batch_crop batch_crop(const struct net *net, const struct batch *batch, size_t i);

/*
 * The images of [batch], N, H, W, C, normalised by [net]'s mean and deviation; pixels beyond the
 * edge are black before normalising, as in torchvision. [type] is DDP_F32 or DDP_BF16.
 */
void batch_images(const struct net *net, struct set *set, const struct batch *batch, void *images,
		  enum ddp_type type);
void batch_labels(const struct set *set, const struct batch *batch, int32_t *labels);

#endif /* TRAIN_BATCH_H */
