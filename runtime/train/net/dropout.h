/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dropout.h - which elements dropout leaves
 *
 * A function of seed, epoch, the sample's place in the epoch's order, the layer and the element:
 * the same for every rank, batch, machine and engine. This is what each engine must draw:
 *
 * The rate is T / 2^16 with a whole T (rounded; at least 1, at most 65535). Take the zeros off the
 * end of T's binary digits: T = t x 2^z with an odd t, which has d = 16 - z digits behind the point.
 * Elements of a sample (H, W, C) go in groups of 128; group g has d planes of 128 bits,
 *
 *	plane p = ddp_random(seed, epoch, order, layer, g x d + p), layer: the node's number,
 *
 * of which element e has bit e % 32 of word e % 128 / 32. Its bits of planes 0 to d - 1, plane 0
 * first, are the digits of a number u below 2^d: the element is dropped if u < t. So rates of one
 * half and one quarter, as networks have, take one and two bits for each element.
 */
#ifndef TRAIN_DROPOUT_H
#define TRAIN_DROPOUT_H

#include <stddef.h>
#include <stdint.h>

struct dropout {
	uint32_t limit; /* t */
	int planes;	/* d */
	float scale;	/* 1 / (1 - rate), of the rate that was rounded */
	uint64_t seed, epoch;
	uint32_t layer;
};

/* The part of [dropout] that follows from [rate], between 0 and 1. */
void dropout_set_rate(struct dropout *dropout, float rate);

/*
 * A bit for each of [count] elements of the samples at [orders]: element e of sample i is bit k % 8
 * of byte k / 8 for k = i x count + e, and 1 where it stays. Bits beyond the last are 0.
 */
void dropout_draw(const struct dropout *dropout, const uint64_t *orders, size_t samples,
		  size_t count, uint8_t *keep);

#endif /* TRAIN_DROPOUT_H */
