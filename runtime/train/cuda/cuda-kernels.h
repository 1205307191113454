/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda-kernels.h - the CUDA engine's own kernels
 *
 * Each function enqueues a kernel on [stream] and returns. device_check() reports launch errors.
 * Pointers are to device memory unless stated otherwise. Activations have the order N, H, W, C and
 * the type [type] (f32, bf16, f16), and are aligned to 16 bytes. Arithmetic is f32, and results are
 * rounded once. All kernels are deterministic: they sum in a fixed order, without atomic additions.
 *
 * The size of an image must be a multiple of 16 bytes. The same is true for a sample of a dropout,
 * and for the channels of a pixel in pools and BatchNorm. All networks of ddp-train satisfy this.
 *
 * STEP DATA. A captured graph is launched for every step. Therefore values that differ between
 * steps are in device memory, in struct kernel_step, and not in arguments. A batch has a capacity
 * of [batch] samples, of which order->count are used. Unused samples are computed too, but have no
 * effect: their images are black, their gradients are zero, and means do not include them.
 *
 * The sources (*.cu) are CUDA C++ with the macros of gpu/launch.cuh, so that tests can compile them
 * for the host.
 */
#ifndef TRAIN_CUDA_KERNELS_H
#define TRAIN_CUDA_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ddp.h"
#include "net/dropout.h"
#include "net/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Scratch memory for one kernel at a time. [tickets] are counters, which show a block whether it is
 * the last one. All are zero before and after each kernel.
 */
enum { KERNEL_TICKETS = 33 };
struct kernel_scratch {
	void *memory;
	unsigned *tickets;
};

/* --- Step data and results ---------------------------------------------------------------------- */

/* Values of the optimizer that differ between steps. They are members of struct optim_numbers. */
struct kernel_pace {
	float rate, root, shrink;
};

/*
 * Data that the host sends before each step (data.h). The host corrects the learning rate, since
 * pow() on the device rounds differently. If steps can be skipped, only the device knows how many
 * optimizer steps it has done, so [paces] has an element for each possible number.
 */
enum { KERNEL_SLOTS = 16 };
struct kernel_order {
	uint64_t seed, epoch, sequence;		/* sequence: number of the step, from 1 */
	uint64_t updates;			/* minimum of optimizer steps before this one */
	float share;				/* 1 / samples of all ranks */
	uint32_t count;				/* samples of this rank */
	uint32_t augment, stop;			/* stop: this rank wants to stop */
	struct kernel_pace paces[KERNEL_SLOTS]; /* [i]: after [updates] + i optimizer steps */
};

/* State kept from step to step. The scale is 1 without loss scaling. */
struct kernel_state {
	float scale;
	double growth, backoff;
	int32_t interval, good_steps; /* as in struct ddp_scaler; interval 0: no loss scaling */
	uint64_t updates;	      /* optimizer steps done */
};

/*
 * Step data on the device, followed by the step's samples. kernel_gather() copies [next] to
 * [state], and kernel_optimize() changes [next]. The host sends [order], and [next] after a push.
 * The other kernels read order and state.
 */
struct kernel_step {
	struct kernel_state state, next;
	struct kernel_order order;
};

/* Result of a step. Memory of device_alloc_host() has the last KERNEL_SLOTS results. */
enum { KERNEL_WORD = 4 }; /* stop, loss, hits, samples, as in model.h's step vector */
struct kernel_result {
	float word[KERNEL_WORD]; /* sums over all ranks */
	uint32_t skipped;
	float scale;
	int32_t good_steps;
	uint64_t updates;  /* number of optimizer steps done, including this one */
	uint64_t sequence; /* written last */
};

/* --- Samples ------------------------------------------------------------------------------------ */

struct kernel_images {
	struct net net;	       /* shape, normalisation and crop of the images */
	const uint8_t *pixels; /* images of the whole set: N, C, H, W */
	const uint8_t *labels;
};

/*
 * Sets step->state. Writes the images of the step to [x] and the labels to [labels]. [indices] and
 * [orders] are the samples' indices in the set and positions in the epoch's order. Images are
 * cropped and mirrored by ddp_random(), normalised, and in the order N, H, W, C. In f32 their bits
 * equal those of batch_images(). Labels of unused samples are 0.
 */
void kernel_gather(void *stream, const struct kernel_images *images, struct kernel_step *step,
		   const uint32_t *indices, const uint64_t *orders, size_t batch, void *x,
		   int32_t *labels, enum ddp_type type);

/* --- Loss --------------------------------------------------------------------------------------- */

/* Arguments for softmax and cross entropy, which are defined as in cpu/kernels.h. */
struct kernel_loss {
	const struct kernel_order *order;
	const struct kernel_state *state;
	const int32_t *labels;
	uint32_t batch, classes;
	float smoothing;
	float *word; /* output: {stop, loss, hits, count} of this rank, unscaled */
};
/*
 * [gradients] gets the gradient of the sum of losses, multiplied by order->share and state->scale.
 * It is 0 for unused samples. kernel_loss_bytes(): bytes of scratch memory.
 */
size_t kernel_loss_bytes(size_t batch);
void kernel_loss(void *stream, const struct kernel_loss *loss, const void *logits, void *gradients,
		 const struct kernel_scratch *scratch, enum ddp_type type);

/* --- Element by element ------------------------------------------------------------------------- */

/* In these functions, results and arguments may be the same array. */
void kernel_relu(void *stream, const void *x, void *y, size_t count, enum ddp_type type);
/*
 * dx = dy * scale where y > 0, else 0. If y is the result of a dropout after a ReLU, and [scale] is
 * that of the dropout, this is the backward pass of both. It needs no random numbers.
 */
void kernel_relu_back(void *stream, const void *dy, const void *y, float scale, void *dx,
		      size_t count, enum ddp_type type);
/* y = a + b, or with [relu] max(0, a + b). */
void kernel_add(void *stream, const void *a, const void *b, void *y, size_t count, bool relu,
		enum ddp_type type);
void kernel_narrow(void *stream, const float *from, void *to, size_t count, enum ddp_type type);
void kernel_widen(void *stream, const void *from, float *to, size_t count, enum ddp_type type);

/*
 * Forward and backward pass of a dropout, which are the same because the mask depends only on the
 * element's position.
 */
void kernel_dropout(void *stream, const struct dropout *dropout, const struct kernel_order *order,
		    const uint64_t *orders, size_t batch, size_t elements, const void *x, void *y,
		    enum ddp_type type);

/* --- Pools -------------------------------------------------------------------------------------- */

/*
 * Max-pool of 2 x 2 windows over images of the shape [in], whose height and width are even. [which]
 * gets the position of the maximum in its window. NaN is larger than all numbers, and the first of
 * equal values is the maximum. If [dropout] is not NULL, the results go through that dropout, with
 * the same bits as in a separate call.
 */
void kernel_max_pool(void *stream, const struct graph_shape *in, const struct dropout *dropout,
		     const struct kernel_order *order, const uint64_t *orders, size_t batch,
		     const void *x, void *y, uint8_t *which, enum ddp_type type);
/*
 * Runs the backward pass of up to three operations: a dropout with [scale], the pool, and the ReLU
 * before the pool. [scale] is 1 if there is no dropout. [y] is the result of the dropout or,
 * without dropout, of the pool. It is NULL if there is no ReLU. All of dx is written: dy * scale at
 * the maxima where y > 0, and 0 elsewhere. If [sums] is not NULL, it gets the sum of each channel
 * of dx, which is the gradient of a bias. The sums need kernel_sums_bytes() of scratch memory.
 */
void kernel_max_pool_back(void *stream, const struct graph_shape *in, size_t batch, const void *dy,
			  const uint8_t *which, const void *y, float scale, void *dx,
			  const struct kernel_scratch *scratch, float *sums, enum ddp_type type);
void kernel_average_pool(void *stream, size_t batch, size_t rows, size_t channels, const void *x,
			 void *y, enum ddp_type type);
void kernel_average_pool_back(void *stream, size_t batch, size_t rows, size_t channels,
			      const void *dy, void *dx, enum ddp_type type);

/* --- BatchNorm ---------------------------------------------------------------------------------- */

/*
 * [rows] is the number of rows (pixels) of one image. In the functions below, [statistics] has the
 * number of values per channel, then [channels] means, then [channels] values of 1 / deviation.
 */
struct kernel_norm {
	size_t rows, channels;
	float epsilon, momentum;
};

/* Bytes of scratch memory that BatchNorm's kernels and kernel_column_sums() need for [rows]. */
size_t kernel_sums_bytes(size_t rows, size_t channels);

/*
 * Outputs for a batch. If [moments] is NULL, the outputs are the statistics. The running values,
 * unless NULL, are then updated as in PyTorch (with the unbiased variance). If [moments] is not
 * NULL, it is the only output, for exchange with other ranks: the number of values per channel,
 * [channels] means, and [channels] sums of squared deviations, which are computed without the
 * cancellation of sums of squares.
 */
struct kernel_measured {
	float *moments, *statistics, *running_mean, *running_variance;
};
void kernel_norm_measure(void *stream, const struct kernel_norm *norm,
			 const struct kernel_order *order, size_t batch, const void *x,
			 const struct kernel_scratch *scratch, const struct kernel_measured *to,
			 enum ddp_type type);
/*
 * Computes the statistics from the moments of [ranks] ranks, in rank order and in double precision.
 * With one rank, the bits are equal to those from kernel_norm_measure(). For an evaluation, pass 0
 * as [ranks]: the statistics are then the running values, which do not change.
 */
void kernel_norm_combine(void *stream, const struct kernel_norm *norm, const float *moments,
			 int ranks, const struct kernel_measured *to);
/* Operands of y = (x - mean) * inverse * scale + shift. */
struct kernel_normed {
	const void *x;
	const float *statistics, *scale, *shift;
};
/*
 * Computes y of struct kernel_normed, and adds [add] unless that is NULL. With [relu], negative
 * results become 0. y may be the same array as x or add.
 */
void kernel_norm_apply(void *stream, const struct kernel_norm *norm, size_t batch,
		       const struct kernel_normed *normed, const void *add, bool relu, void *y,
		       enum ddp_type type);
/*
 * dz = dy, plus [more] unless NULL, masked by a ReLU after BatchNorm. If [y] is not NULL, the mask
 * is y > 0. If [y] is NULL and normed->shift is not, the mask is computed from x. If both are NULL,
 * there is no ReLU. dz may be equal to dy; if it is NULL, it is not written. [sums] gets [channels]
 * sums of dz, which are the gradient of shift, and [channels] sums of dz * (x - mean) * inverse,
 * which are the gradient of scale.
 */
void kernel_norm_sums(void *stream, const struct kernel_norm *norm, size_t batch,
		      const struct kernel_normed *normed, const void *y, const void *dy,
		      const void *more, void *dz, const struct kernel_scratch *scratch, float *sums,
		      enum ddp_type type);
/*
 * dx = scale * inverse * (dz - sums[c] / n - xhat * sums[channels + c] / n); 0 for unused samples.
 * [sums] are over all ranks. dx may be equal to dz. If normed->shift is not NULL, the caller passes
 * dy as [dz], and the ReLU's mask is computed from x.
 */
void kernel_norm_back(void *stream, const struct kernel_norm *norm,
		      const struct kernel_order *order, size_t batch,
		      const struct kernel_normed *normed, const float *sums, const void *dz,
		      void *dx, enum ddp_type type);

/* Sums each of [channels] channels over [rows] rows, in f32: the gradient of a bias. */
void kernel_column_sums(void *stream, const void *dy, size_t rows, size_t channels,
			const struct kernel_scratch *scratch, float *sums, enum ddp_type type);

/* --- First convolution -------------------------------------------------------------------------- */

/*
 * A convolution from one channel to 32, with 3 x 3 windows, stride 1 and no padding. It has its own
 * kernel because one channel is too few for matrix units. Outputs are aligned to 16 bytes.
 */
enum { KERNEL_FIRST_OUT = 32, KERNEL_FIRST_SIZE = 3 };
struct kernel_first {
	int height, width; /* shape of the input */
};
size_t kernel_first_bytes(const struct kernel_first *first, size_t batch); /* scratch memory */
void kernel_first(void *stream, const struct kernel_first *first, size_t batch, const void *x,
		  const float *weights, const float *bias, bool relu, void *y, enum ddp_type type);
/* Gradients of weights (O, H, W) and bias. If [y] is not NULL, dy is masked by y > 0. */
void kernel_first_back(void *stream, const struct kernel_first *first, size_t batch, const void *x,
		       const void *dy, const void *y, const struct kernel_scratch *scratch,
		       float *weights, float *bias, enum ddp_type type);

/* --- Optimizer ---------------------------------------------------------------------------------- */

/* [norm] is the 2-norm of the unscaled gradients. [overflow] is set if an element is not finite. */
struct kernel_norm2 {
	double norm;
	uint32_t overflow;
};
size_t kernel_norm2_bytes(size_t count);
void kernel_norm2(void *stream, const float *gradients, size_t count,
		  const struct kernel_state *state, const struct kernel_scratch *scratch,
		  struct kernel_norm2 *norm2);

/*
 * Updates [count] values as optim_step() does, with equal bits. Gradients are first divided by the
 * loss scale and clipped to the norm [clip], unless [clip] is 0. If there is a loss scale and
 * [norm2] reports an overflow, the values do not change. [norm2] is NULL if there is neither
 * clipping nor a loss scale. If [narrow] is not NULL, it gets a copy of the values in [type].
 *
 * Also ends the step: updates step->next as ddp_scaler_update() does, and writes [word] and the
 * state to [results], which is in host memory. The result of the step can arrive there before the
 * last values are written.
 */
struct optim;
struct kernel_end {
	struct kernel_step *step;
	const struct kernel_norm2 *norm2;
	double clip;
	const float *word;
	struct kernel_result *results;
};
void kernel_optimize(void *stream, const struct optim *optim, const struct kernel_end *end,
		     float *values, const float *gradients, float *const slots[2], void *narrow,
		     size_t count, enum ddp_type type);

#ifdef __cplusplus
}
#endif

#endif /* TRAIN_CUDA_KERNELS_H */
