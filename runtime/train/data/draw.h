/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draw.h - synthetic images, for runs without a data set
 *
 * Each image is a function of (seed, index). Digits in MNIST's format are strokes with a random
 * affine map and noise. Images in CIFAR's format have one pattern per class, with random shift,
 * contrast and noise. The images are difficult enough to show a wrong gradient: a linear model is
 * much less accurate than the networks.
 *
 * The bytes are equal on all machines: draw.c uses only functions of libm that round correctly, and
 * is compiled without fused multiply-add.
 */
#ifndef TRAIN_DRAW_H
#define TRAIN_DRAW_H

#include <stdint.h>

enum {
	DRAW_CLASSES = 100, /* maximum number of classes */
	DRAW_DIGIT = 28,    /* pixels per side */
	DRAW_OBJECT = 32
};

/*
 * The class of sample [index]. The classes are in random order, and all classes are equally
 * frequent.
 */
int draw_label(uint64_t seed, uint64_t index, int classes);

/*
 * The classes of all samples of block [block], which has [classes] samples. Block 0 starts at
 * sample 0.
 */
void draw_labels(uint64_t seed, uint64_t block, int classes, uint8_t *labels);

/* Draws the digit draw_label(seed, index, 10) in 28 x 28 bytes. */
void draw_digit(uint64_t seed, uint64_t index, uint8_t *image);

/*
 * Draws an object of class draw_label(seed, index, [classes]) in 3 x 32 x 32 bytes. [classes] is 10
 * or 100.
 */
void draw_object(uint64_t seed, uint64_t index, int classes, uint8_t *image);

#endif /* TRAIN_DRAW_H */
