/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel-table.h - what kernels.c and the files of instruction sets share
 */
#ifndef TRAIN_KERNEL_TABLE_H
#define TRAIN_KERNEL_TABLE_H

#include "base/simd.h"
#include "kernels.h"

extern const struct kernels kernels_plain;
#if DDP_SIMD_X86
extern const struct kernels kernels_avx2, kernels_avx512;
#endif

/* Elements that fill whole vectors of every instruction set. */
#define KERNEL_WHOLE(count) (((size_t)(count) + 15) / 16 * 16)

/* Channels that a word of bits stands for. */
enum { KERNEL_WORD = 64 };

/*
 * Gradients of pooled results, [pitch] for each pixel, 0 where nothing came through; and for each
 * pixel and word of channels four words of bits: those that came from the first of the window's
 * four pixels, from the second...
 */
struct kernel_list {
	size_t images; /* at most */
	size_t rows, columns, pitch, words;
	float *values;
	uint64_t *bits;
	size_t count;
	int32_t *pixels; /* of what the convolution reads: where a pooled pixel begins */

	/* For one image at a time. */
	float *image;	   /* what the convolution reads, or its gradient, in blocks of channels */
	float *weights;	   /* in blocks of channels too */
	size_t band, room; /* pooled rows that are done together; pixels of them, filled up */
	float *channel;	   /* of each channel [room] gradients, in the order of pixels */
	uint32_t *place;   /* and the pixels at which their windows begin */
	uint32_t *filled;  /* how many they are */
};

/* The same for all instruction sets. */
double kernels_loss(const float *logits, const int32_t *labels, size_t count, size_t classes,
		    float smoothing, float scale, float *gradient, uint64_t *hits);

#endif /* TRAIN_KERNEL_TABLE_H */
