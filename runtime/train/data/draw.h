/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draw.h - synthetic images, for runs without a data set
 *
 * Each image is a function of the seed and the index. Digits in MNIST's format are strokes with a
 * random affine map and noise. Images in CIFAR's format show their class's pattern with random
 * shift, contrast and noise. The images are difficult enough to reveal a wrong gradient: a linear
 * model is much less accurate than the networks.
 *
 * The bytes are equal on all machines, because draw.c uses only functions of libm that round
 * correctly, and is compiled without fused multiply-add.
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
 * Returns the class of sample [index]. Classes have a random order, and all classes are equally
 * frequent.
 */
int draw_label(uint64_t seed, uint64_t index, int classes);

/*
 * Writes the classes of all samples of block number [block] to [labels]. A block has [classes]
 * samples. Block 0 starts at sample 0.
 */
void draw_labels(uint64_t seed, uint64_t block, int classes, uint8_t *labels);

/* Draws a digit into [image], 28 x 28 bytes. The digit is draw_label(seed, index, 10). */
void draw_digit(uint64_t seed, uint64_t index, uint8_t *image);

/*
 * Draws an object into [image], 3 x 32 x 32 bytes. The object's class is draw_label(seed, index,
 * classes). [classes] must be 10 or 100.
 */
void draw_object(uint64_t seed, uint64_t index, int classes, uint8_t *image);

#endif /* TRAIN_DRAW_H */
