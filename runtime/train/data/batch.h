/* SPDX-License-Identifier: Apache-2.0 */
/*
 * batch.h - the images and labels of a step, in the network's format
 */
#ifndef TRAIN_BATCH_H
#define TRAIN_BATCH_H

#include "net/net.h"
#include "set.h"

/* Samples of one rank in one step. */
struct batch {
	const uint64_t *indices; /* indices of the samples in the set */
	const uint64_t *orders;	 /* positions in the epoch's order, for random numbers */
	size_t count;
	uint64_t seed, epoch;
	bool augment; /* crop and mirror at random, as the network's table says */
};

/* Argument [layer] of ddp_random() for random crops. A network's layers have smaller numbers. */
enum { BATCH_LAYER_CROP = 0x10000 };

/*
 * Random crop of sample [i] of [batch]. [top] and [left] are the offset, -pad to pad. The crop
 * depends on the seed, the epoch and the sample's order only. Unless batch->augment is set, all
 * members are zero.
 */
struct batch_crop {
	int top, left;
	bool mirrored;
};
struct batch_crop batch_crop(const struct net *net, const struct batch *batch, size_t i);

/*
 * Writes the images of [batch] in the order N, H, W, C, normalised with [net]'s mean and deviation.
 * Pixels outside of the image are black before they are normalised, as in torchvision. [type] is
 * DDP_F32 or DDP_BF16.
 */
void batch_images(const struct net *net, struct set *set, const struct batch *batch, void *images,
		  enum ddp_type type);
void batch_labels(const struct set *set, const struct batch *batch, int32_t *labels);

#endif /* TRAIN_BATCH_H */
