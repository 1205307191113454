/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.h - the CPU engine's own kernels, for each instruction set
 *
 * Activations are N, H, W, C in [type], f32 or bf16. With bf16 the arithmetic is f32 and results
 * are rounded once. "rows" are N x H x W. All kernels are compiled from kernels-vector.c, and
 * DDP_SIMD selects the instruction set as it does for sums. Kernels use one thread and have no
 * state.
 */
#ifndef TRAIN_KERNELS_H
#define TRAIN_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "base/simd.h"

/* A convolution with stride 1 and without padding, followed by max-pooling of 2 x 2. */
struct kernel_window {
	int height, width, in; /* shape of one input image */
	int out, size;
};

/* Rounds [count] up to whole vectors of every instruction set. */
#define KERNEL_WHOLE(count) (((size_t)(count) + 15) / 16 * 16)

/* number of channels per 64-bit word of a bit mask */
enum { KERNEL_WORD = 64 };

/*
 * List of a convolution's output gradients that are not zero after the backward pass of dropout,
 * max-pooling and ReLU. At most a quarter of all output gradients are not zero.
 *
 * [values] has one gradient for each pooled result, 0 if it was masked; pooled pixels are [pitch]
 * values apart. [bits] has four words for each pooled pixel and each KERNEL_WORD channels, one word
 * for each of the window's four pixels. A channel's bit is set in the word of the pixel to which
 * its gradient belongs. A list must be made and read by kernels of the same instruction set.
 */
struct kernel_list {
	size_t rows, columns, pitch, words;
	float *values;
	uint64_t *bits;
	int32_t *pixels; /* offset of the first input pixel of each pooled pixel */

	/* Scratch memory for one image. */
	float *image;	/* the convolution's input or its gradient, in blocks of channels */
	float *weights; /* the weights, in blocks of channels */
	size_t band, channel_size; /* pooled rows per pass, and their pixels in whole vectors */
	float *channel;	  /* gradients by channel, [channel_size] apart, in the order of pixels */
	uint32_t *place;  /* for each gradient in [channel]: first input pixel of its window */
	uint32_t *filled; /* number of gradients of each channel */
};

/*
 * Allocates a list for [window], for which kernels_has_list() is true, and at most [images] images,
 * for use by one thread at a time.
 */
struct kernel_list *kernel_list_create(const struct kernel_window *window, size_t images);
void kernel_list_destroy(struct kernel_list *list);

/* BatchNorm's values. Arrays have [channels] elements. */
struct kernel_norm {
	size_t rows, channels;
	const float *scale, *shift;
	float *mean, *inverse; /* statistics of the batch; in an evaluation, running statistics */
};

struct kernels {
	const char *name;

	/*
	 * Max-pooling with 2 x 2 windows and stride 2 of [images] x height x width x channels, with
	 * even height and width. [which] is the position of each maximum in its window, 0 to 3. As
	 * in PyTorch, NaN is larger than all numbers, and the first of equal values is the maximum.
	 */
	void (*max_pool)(const void *x, void *y, uint8_t *which, size_t images, int height,
			 int width, int channels, enum ddp_type type);
	/* dx is dy at the positions of the maxima, and zero elsewhere. */
	void (*max_pool_back)(const void *dy, const uint8_t *which, void *dx, size_t images,
			      int height, int width, int channels, enum ddp_type type);

	/*
	 * y = x * scale where [keep] has a 1, else 0. Element i has bit i % 8 of byte i / 8. x and
	 * y may be equal.
	 */
	void (*mask)(const void *x, void *y, const uint8_t *keep, float scale, size_t count,
		     enum ddp_type type);

	/* dx = dy where y > 0, else 0. dx and dy may be equal. */
	void (*relu_back)(const void *dy, const void *y, void *dx, size_t count,
			  enum ddp_type type);
	/* y = max(0, x); NaN stays NaN. x and y may be equal. */
	void (*relu)(const void *x, void *y, size_t count, enum ddp_type type);

	/* y = a + b, or with [relu] max(0, a + b). y may be equal to a or b. */
	void (*add)(const void *a, const void *b, void *y, size_t count, bool relu,
		    enum ddp_type type);

	/*
	 * Means and sums of squared deviations over the rows. They are not computed from sums of
	 * squares, which would lose precision by cancellation.
	 */
	void (*moments)(const void *x, size_t rows, size_t channels, float *mean, float *m2,
			enum ddp_type type);
	/*
	 * y = (x - mean) * inverse * scale + shift, plus [add] unless it is NULL. With [relu],
	 * negative results become 0. x and y may be equal.
	 */
	void (*norm)(const struct kernel_norm *norm, const void *x, const void *add, void *y,
		     bool relu, enum ddp_type type);
	/*
	 * sums[c] = sum of dy; sums[channels + c] = sum of dy * (x - mean) * inverse. If [y] is not
	 * NULL, only elements with y > 0 count: the backward pass of a ReLU after BatchNorm.
	 */
	void (*norm_sums)(const struct kernel_norm *norm, const void *x, const void *y,
			  const void *dy, float *sums, enum ddp_type type);
	/*
	 * dx = scale * inverse * (dy - sums[c] / n - xhat * sums[channels + c] / n), with xhat = (x
	 * - mean) * inverse and the sums over [n] rows. If [dy_out] is not NULL, it gets dy where y
	 * > 0, else 0: the gradient of the second input of a fused addition.
	 */
	void (*norm_back)(const struct kernel_norm *norm, const void *x, const void *y,
			  const void *dy, const float *sums, double n, void *dx, void *dy_out,
			  enum ddp_type type);

	/* Compute the means over the rows of each image, and the backward pass of these means. */
	void (*average_pool)(const void *x, void *y, size_t images, size_t rows, size_t channels,
			     enum ddp_type type);
	void (*average_pool_back)(const void *dy, void *dx, size_t images, size_t rows,
				  size_t channels, enum ddp_type type);

	/*
	 * Makes the list from the gradient [dy] of the results after pooling, ReLU and dropout.
	 * [y]: pooled results after the ReLU; [keep]: dropout's mask (NULL: none); [scale]:
	 * dropout's factor. Also computes bias[c], the sum of channel c.
	 */
	void (*list)(const struct kernel_window *window, size_t images, const void *dy,
		     const void *y, const uint8_t *which, const uint8_t *keep, float scale,
		     struct kernel_list *list, float *bias, enum ddp_type type);

	/*
	 * Gradients of the convolution's weights (O, H, W, I) and input from the list of [images].
	 * The results are those of a dense pass, except for rounding. All elements of the results
	 * are written. Weights and their gradients are f32. [y] is the convolution's input if a
	 * ReLU made it, else NULL. If [y] is not NULL, dx is masked as in relu_back(). Both
	 * functions use the list's scratch memory, but do not change the list.
	 */
	void (*list_weights)(const struct kernel_window *window, struct kernel_list *list,
			     size_t images, const void *x, float *weights, enum ddp_type type);
	void (*list_data)(const struct kernel_window *window, struct kernel_list *list,
			  size_t images, const float *weights, const void *y, void *dx,
			  enum ddp_type type);

	/* Convert f32 to bf16 and back. */
	void (*narrow)(const float *from, void *to, size_t count);
	void (*widen)(const void *from, float *to, size_t count);
};

/*
 * Computes softmax and cross entropy of [count] rows of [classes] f32 logits, with label
 * [smoothing] as in PyTorch. Returns the sum of losses. Adds to [hits] the number of rows whose
 * label has the largest logit. If several logits are equal, the first of them counts as the
 * largest. Writes the gradient times [scale] to [gradient] (f32), unless [gradient] is NULL.
 */
double kernels_loss(const float *logits, const int32_t *labels, size_t count, size_t classes,
		    float smoothing, float scale, float *gradient, uint64_t *hits);

/* Indexed by enum ddp_simd. */
extern const struct kernels kernels_plain, kernels_avx2, kernels_avx512;
extern const struct kernels *const kernels_tables[DDP_SIMD_COUNT];

/*
 * The kernels for the instruction set in DDP_SIMD or, by default, the best one of this CPU. Returns
 * NULL with DDP_ERR_ENVIRONMENT if the CPU does not support DDP_SIMD.
 */
const struct kernels *kernels_choose(struct ddp_error *error);

/* Whether the list kernels support [window]: size 3, input channels a multiple of 16. */
bool kernels_has_list(const struct kernel_window *window);

#endif /* TRAIN_KERNELS_H */
