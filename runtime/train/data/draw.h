/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draw.h - images for who has no data: each a pure function of (seed, index)
 *
 * Digits in MNIST's shape are strokes under random distortion; the CIFAR-shaped set has a kind of
 * shape (with 100 classes, of shape and texture) for each class, over clutter and noise. Hard
 * enough that a wrong gradient shows: a linear model stays far behind the networks.
 *
 * The bytes are the same on all machines: of libm only what rounds correctly is used, and the
 * source is compiled without fused multiply-add.
 */
#ifndef TRAIN_DRAW_H
#define TRAIN_DRAW_H

#include <stdint.h>

enum {
	DRAW_CLASSES = 100, /* at most */
	DRAW_DIGIT = 28,    /* pixels on a side */
	DRAW_OBJECT = 32
};

/* The class of sample [index]: every class equally often, in a random order. */
int draw_label(uint64_t seed, uint64_t index, int classes);

/* The same for all samples of a block of [classes]: block 0 has samples 0 to classes - 1. */
void draw_labels(uint64_t seed, uint64_t block, int classes, uint8_t *labels);

/* 28 x 28 bytes, the digit draw_label(seed, index, 10). */
void draw_digit(uint64_t seed, uint64_t index, uint8_t *image);

/* 3 x 32 x 32 bytes, of class draw_label(seed, index, [classes]); 10 or 100 classes. */
void draw_object(uint64_t seed, uint64_t index, int classes, uint8_t *image);

#endif /* TRAIN_DRAW_H */
