/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.h - what the CPU engine computes itself, for each instruction set
 *
 * Activations are N, H, W, C; [type] is f32 or bf16, in which case arithmetic is f32 and results
 * are rounded once. "rows" are N x H x W. Written once in kernels-vector.c; DDP_SIMD chooses as
 * it does for sums. All are pure functions of their arguments, with one thread.
 */
#ifndef TRAIN_KERNELS_H
#define TRAIN_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "base/simd.h"

/* A convolution with stride 1 and no padding, before max-pooling of 2 x 2. */
struct kernel_window {
	int height, width, in; /* of what the convolution reads, one image */
	int out, size;
};

/* Elements that fill whole vectors of every instruction set. */
#define KERNEL_WHOLE(count) (((size_t)(count) + 15) / 16 * 16)

/* Channels that a word of bits stands for. */
enum { KERNEL_WORD = 64 };

/*
 * The gradients of a convolution's results that are not zero after max-pooling, ReLU and dropout:
 * at most a quarter. They are made and read with kernels of one instruction set, whose own their
 * order is: gradients of pooled results, [pitch] for each pixel, 0 where nothing came through; and for each
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

/*
 * Memory for lists of [images] at most with [window], for one thread at a time.
 * Returns 0, DDP_ERR_MEMORY, or DDP_ERR_UNSUPPORTED where kernels_has_list() says no.
 */
int kernel_list_create(struct kernel_list **list, const struct kernel_window *window, size_t images,
		       struct ddp_error *error);
void kernel_list_destroy(struct kernel_list *list);

/* How many entries the list has. */
size_t kernel_list_count(const struct kernel_list *list);

/* BatchNorm's per channel values; arrays of [channels]. */
struct kernel_norm {
	size_t rows, channels;
	const float *scale, *shift;
	float *mean, *inverse; /* of the batch, or for evaluation of the running statistics */
};

struct kernels {
	const char *name;

	/* Max-pooling of windows of 2 x 2 with stride 2, of [images] x height x width x channels;
	 * an odd last row or column is left out. [which] says for each result which of the four it
	 * was: the first of equal ones, and NaN beats all, as in PyTorch. */
	void (*max_pool)(const void *x, void *y, uint8_t *which, size_t images, int height,
			 int width, int channels, enum ddp_type type);
	/* dx is all zeros but for dy where it came from. */
	void (*max_pool_back)(const void *dy, const uint8_t *which, void *dx, size_t images,
			      int height, int width, int channels, enum ddp_type type);

	/* y = x * scale where [keep] has a 1, else 0: of element i that is bit i % 8 of byte i / 8.
	 * May be in place. */
	void (*mask)(const void *x, void *y, const uint8_t *keep, float scale, size_t count,
		     enum ddp_type type);

	/* dx = dy where y > 0, else 0. May be in place. */
	void (*relu_back)(const void *dy, const void *y, void *dx, size_t count,
			  enum ddp_type type);
	/* y = max(0, x); NaN stays. May be in place, as may the sum. */
	void (*relu)(const void *x, void *y, size_t count, enum ddp_type type);

	/* y = a + b, and with [relu] max(0, that). */
	void (*add)(const void *a, const void *b, void *y, size_t count, bool relu,
		    enum ddp_type type);

	/* Means and sums of squared deviations over rows, without the cancellation of sums of
	 * squares. */
	void (*moments)(const void *x, size_t rows, size_t channels, float *mean, float *m2,
			enum ddp_type type);
	/* y = (x - mean) * inverse * scale + shift, and with [relu] max(0, that). With [add], that
	 * array is added before the ReLU. May be in place. */
	void (*norm)(const struct kernel_norm *norm, const void *x, const void *add, void *y,
		     bool relu, enum ddp_type type);
	/* sums[c] = sum of dy, sums[channels + c] = sum of dy * (x - mean) * inverse; where [y] is
	 * not NULL dy counts only where y > 0 (the ReLU behind). */
	void (*norm_sums)(const struct kernel_norm *norm, const void *x, const void *y,
			  const void *dy, float *sums, enum ddp_type type);
	/* dx = scale * inverse * (dy - sums[c] / n - xhat * sums[channels + c] / n) with n samples
	 * behind the sums; [dy_out], if not NULL, gets dy masked by y > 0 (for the other way
	 * round an addition). */
	void (*norm_back)(const struct kernel_norm *norm, const void *x, const void *y,
			  const void *dy, const float *sums, double n, void *dx, void *dy_out,
			  enum ddp_type type);

	/* Means over the rows of each image, and back. */
	void (*average_pool)(const void *x, void *y, size_t images, size_t rows, size_t channels,
			     enum ddp_type type);
	void (*average_pool_back)(const void *dy, void *dx, size_t images, size_t rows,
				  size_t channels, enum ddp_type type);

	/*
	 * From the gradient [dy] of pooled, ReLU'd and dropped-out results to the list of those
	 * that are not zero: y is the convolution's pooled result (after the ReLU), [keep] dropout's
	 * bits (NULL: none), [scale] its factor. bias[c] = the sum of channel c's.
	 */
	void (*list)(const struct kernel_window *window, size_t images, const void *dy,
		     const void *y, const uint8_t *which, const uint8_t *keep, float scale,
		     struct kernel_list *list, float *bias, enum ddp_type type);

	/*
	 * The convolution's gradients from the list of these [images]: exact, only the zeros are
	 * left out. [weights]: O, H, W, I. All of weights (written by the first, read by the
	 * second) is f32, all of dx is written. Where what was read came out of a ReLU, [y] is that
	 * again and dx goes on as relu_back() would make it; else NULL. The list's scratch memory
	 * is used, the list is not changed.
	 */
	void (*list_weights)(const struct kernel_window *window, struct kernel_list *list,
			     size_t images, const void *x, float *weights, enum ddp_type type);
	void (*list_data)(const struct kernel_window *window, struct kernel_list *list,
			  size_t images, const float *weights, const void *y, void *dx,
			  enum ddp_type type);

	/* f32 to [type] and back. */
	void (*narrow)(const float *from, void *to, size_t count, enum ddp_type type);
	void (*widen)(const void *from, float *to, size_t count, enum ddp_type type);
};

/*
 * Softmax and cross entropy of [count] rows of [classes] f32 logits with label [smoothing]
 * as PyTorch's: returns the sum of losses, adds to [hits] the rows whose largest logit is
 * the label's (the first of equal ones), and writes [scale] times the gradient to
 * [gradient] (f32), unless that is NULL.
 */
double kernels_loss(const float *logits, const int32_t *labels, size_t count, size_t classes,
		    float smoothing, float scale, float *gradient, uint64_t *hits);

/* Of each instruction set, by enum ddp_simd. */
extern const struct kernels kernels_plain, kernels_avx2, kernels_avx512;
extern const struct kernels *const kernels_tables[DDP_SIMD_COUNT];

/*
 * The best for this CPU, or what DDP_SIMD says.
 * Returns NULL with DDP_ERR_ENVIRONMENT where DDP_SIMD names what the CPU lacks.
 */
const struct kernels *kernels_choose(struct ddp_error *error);

/* Whether the list's kernels can do [window]: a size of 3, channels read a multiple of 16. */
bool kernels_has_list(const struct kernel_window *window);

#endif /* TRAIN_KERNELS_H */
