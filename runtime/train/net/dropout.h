/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dropout.h - random masks of dropout layers
 *
 * The mask is a function of the seed, the epoch, the sample's position in the epoch's order, the
 * layer and the element. It does not depend on the number of ranks, the batch size, the machine or
 * the engine. Every engine must draw the mask by these rules:
 *
 * The rate is rounded to T / 2^16 with an integer T from 1 to 65535. T is divided by two until it
 * is odd, which gives T = t x 2^z. With d = 16 - z, the rate is then t / 2^d, and has d binary
 * digits. The elements of a sample, in the order H, W, C, are divided into groups of 128. Group g
 * has d planes of 128 random bits each:
 *
 *   plane p = ddp_random(seed, epoch, order, layer, g x d + p)
 *
 * where layer is the node's number. The bit of element e is bit e % 32 of word e % 128 / 32. An
 * element's bits in planes 0 to d - 1, plane 0 first, are the binary digits of a number u < 2^d.
 * The element is dropped if u < t. So a rate of 1/2 needs one random bit per element, and a rate of
 * 1/4 needs two.
 */
#ifndef TRAIN_DROPOUT_H
#define TRAIN_DROPOUT_H

#include <stddef.h>
#include <stdint.h>

struct dropout {
	uint32_t limit; /* t */
	int planes;	/* d */
	float scale;	/* 1 / (1 - rate), where rate is the rounded rate */
	uint32_t layer;
};

/* Sets [dropout] for a [rate] between 0 and 1, and for the node with number [layer]. */
void dropout_set(struct dropout *dropout, float rate, int layer);

/*
 * Draws the masks for [count] elements of each sample in [orders]. The bit of element e of sample i
 * is bit k % 8 of byte k / 8, where k = i x count + e. The bit is 1 if the element is kept. Bits
 * after the last element are 0.
 */
void dropout_draw(const struct dropout *dropout, uint64_t seed, uint64_t epoch,
		  const uint64_t *orders, size_t samples, size_t count, uint8_t *keep);

#endif /* TRAIN_DROPOUT_H */
