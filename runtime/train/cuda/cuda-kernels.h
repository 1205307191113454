/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda-kernels.h - what the CUDA engine computes itself
 *
 * Each function enqueues on [stream] and returns; device_check() tells whether it could. Pointers are to
 * device memory unless they say otherwise. Activations are N, H, W, C in [type] (f32, bf16, f16);
 * arithmetic is f32 and results are rounded once. All are deterministic: sums in a fixed order, no atomic
 * additions.
 *
 * A STEP'S NUMBERS lie in device memory, in struct kernel_step, and not in
 * arguments: a captured graph is launched for every step. A batch has room for [batch] samples, of which
 * order->count are there; what belongs to the others is computed too, but their images are black, their
 * gradients zero, and they do not count in means: so they leave no trace.
 *
 * The sources (*.cu) are CUDA C++ with gpu/launch.cuh's macros, so that tests can compile them for the host.
 */
#ifndef TRAIN_CUDA_KERNELS_H
#define TRAIN_CUDA_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ddp.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Memory that kernels need for themselves, and counters for blocks to see which of them is last: zeros, as each
 * kernel leaves them. Of one kernel at a time.
 */
enum { KERNEL_TICKETS = 33 };
struct kernel_scratch {
	void *memory;
	unsigned *tickets;
};

/* --- What a step is told, and what it tells ----------------------------------------------------- */

/*
 * Steps that are known lie in tables on the device: of each step an entry, of each of its samples an index in the set
 * and a place in the epoch's order. The first kernel of a step, kernel_gather(), makes what comes next the step under
 * way, and the last, kernel_optimize(), leaves behind what comes then. So the host need not tell a step anything but
 * whether it wants to stop.
 */
struct kernel_entry {
	double rate;	/* the learning rate */
	float shrink;	/* AdamW's, of this rate: optim_shrink() */
	float share;	/* 1 / samples of all ranks */
	uint32_t count; /* samples of this rank */
};

/* By the host's pow(), which a device does not repeat to the bit. */
struct optim_correction;

/* Of the step under way. */
struct kernel_order {
	uint64_t seed, epoch;
	float share;
	uint32_t count, stop; /* this rank wants to stop */
	struct {
		float rate, root, shrink; /* struct optim_numbers' */
	} pace;
};

/* From step to step. The scale is 1 where there is no loss scaling. */
struct kernel_state {
	float scale;
	double growth, backoff;
	int32_t interval, good_steps; /* as struct ddp_scaler; interval 0: no loss scaling */
	uint64_t updates;	      /* optimizer steps done */
};

struct kernel_next {
	uint64_t seed, epoch, sequence; /* steps from 1 */
	uint32_t augment;
	struct kernel_entry entry;
	/* On the device: its samples, and the entries of the steps behind it. */
	const uint32_t *indices;
	const uint64_t *places;
	const struct kernel_entry *rest;
	/* [i] is of optimizer step first + i: when steps may be skipped, only the device knows which one this
	 * is. NULL: nothing is optimized. */
	const struct optim_correction *corrections;
	uint64_t first;
	struct kernel_state state;
};

/* On the device. Kernels read what is under way alone, but for the first and the last, which write in turn. */
struct kernel_step {
	struct kernel_order order;
	struct kernel_state state;
	struct kernel_next next;
};

/* Between host and device, in memory of device_alloc_host(): of the last so many steps. */
enum { KERNEL_WORD = 4 }; /* stop, loss, hits, samples: the beginning of model.h's word */
enum { KERNEL_SLOTS = 16 };
struct kernel_result {
	uint32_t stop;		 /* from the host, before the step: this rank wants to stop */
	float word[KERNEL_WORD]; /* sums over all ranks */
	uint32_t skipped;
	float scale;
	int32_t good_steps;
	uint64_t updates;  /* optimizer steps done, with this one */
	uint64_t sequence; /* written last */
};

/* --- Samples ------------------------------------------------------------------------------------ */

struct kernel_images {
	int channels, height, width;
	float mean[4], deviation[4];
	int pad;
	bool flip;
	const uint8_t *pixels; /* of the whole set: N, C, H, W */
	const uint8_t *labels;
};

/*
 * step->next becomes the step under way, and its images x, as batch_images() makes them, to the bit in f32: crop and
 * mirror by ddp_random(), normalised, N, H, W, C. So do its samples' labels and places in the epoch's order become
 * [labels] and [orders]; those of samples that are not there are 0. The results' slot of the step says whether this
 * rank wants to stop; NULL: nobody does.
 */
void kernel_gather(void *stream, const struct kernel_images *images, struct kernel_step *step,
		   const struct kernel_result *results, size_t batch, void *x, int32_t *labels,
		   uint64_t *orders, enum ddp_type type);

/* --- Loss --------------------------------------------------------------------------------------- */

/* Softmax and cross entropy, as kernels.h of the CPU has them. */
struct kernel_loss {
	const struct kernel_order *order;
	const struct kernel_state *state;
	const int32_t *labels;
	uint32_t batch, classes;
	float smoothing;
	float *word; /* {stop, loss, hits, count} of this rank, unscaled: written */
};
/*
 * [gradients] is the gradient of the sum of losses times order->share and state->scale, 0 for samples that are not
 * there. kernel_loss_bytes(): of [scratch].
 */
size_t kernel_loss_bytes(size_t batch, size_t classes);
void kernel_loss(void *stream, const struct kernel_loss *loss, const void *logits, void *gradients,
		 const struct kernel_scratch *scratch, enum ddp_type type);

/*
 * A dense layer, the loss behind it, and the layer's way back, in one launch: x is batch x inputs and
 * weights are classes x inputs in [type]. With [drop] dx goes back through a dropout of that scale, which made x,
 * and the ReLU in front of it, as kernel_relu_back() does. Of what is in between nothing is
 * rounded to [type], nor is it left anywhere.
 */
struct kernel_last {
	uint32_t inputs;
	const void *x, *weights;
	const float *bias;
	void *dx;
	float *weight_gradients, *bias_gradients; /* their gradients */
	float drop;				  /* 0: none */
};
bool kernel_last_fits(size_t inputs, size_t classes);
size_t kernel_last_bytes(size_t batch, size_t inputs, size_t classes); /* of scratch */
void kernel_last(void *stream, const struct kernel_loss *loss, const struct kernel_last *layer,
		 const struct kernel_scratch *scratch, enum ddp_type type);

/* --- Elements ----------------------------------------------------------------------------------- */

/* All of these may be in place. */
void kernel_relu(void *stream, const void *x, void *y, size_t count, enum ddp_type type);
/* dx = dy * scale where y > 0, else 0: with a scale other than 1 back through dropout and the ReLU in front of it at
 * once, where y is what dropout made of the ReLU's results. Nothing is drawn again. */
void kernel_relu_back(void *stream, const void *dy, const void *y, float scale, void *dx,
		      size_t count, enum ddp_type type);
/* y = a + b, and with [relu] max(0, that). */
void kernel_add(void *stream, const void *a, const void *b, void *y, size_t count, bool relu,
		enum ddp_type type);
void kernel_narrow(void *stream, const float *from, void *to, size_t count, enum ddp_type type);
void kernel_widen(void *stream, const void *from, float *to, size_t count, enum ddp_type type);

/* Dropout as dropout.h says it; forwards and backwards alike, since what is drawn depends on the place. */
struct kernel_dropout {
	uint32_t limit;
	int planes;
	float scale;
	uint32_t layer;
};
void kernel_dropout(void *stream, const struct kernel_dropout *dropout,
		    const struct kernel_order *order, const uint64_t *orders, size_t batch,
		    size_t elements, const void *x, void *y, enum ddp_type type);

/* --- Pools -------------------------------------------------------------------------------------- */

struct kernel_pool {
	int height, width, channels, size; /* of what is read; windows side by side */
};

/*
 * [which] says which element of its window it was: the first of equal ones; NaN beats all. With [dropout], unless
 * NULL, behind it, to the bit as one after the other.
 */
void kernel_max_pool(void *stream, const struct kernel_pool *pool,
		     const struct kernel_dropout *dropout, const struct kernel_order *order,
		     const uint64_t *orders, size_t batch, const void *x, void *y, uint8_t *which,
		     enum ddp_type type);
/*
 * Back through dropout of that [scale] (1: none), pool and, with [y], which is what came out of the pool or of dropout
 * behind it, the ReLU in front: dx, all of which is written, gets dy * scale where y > 0. [sums], unless NULL: of
 * each channel of dx, the gradient of a bias in front; with kernel_sums_bytes() of scratch.
 */
void kernel_max_pool_back(void *stream, const struct kernel_pool *pool, size_t batch,
			  const void *dy, const uint8_t *which, const void *y, float scale,
			  void *dx, const struct kernel_scratch *scratch, float *sums,
			  enum ddp_type type);
void kernel_average_pool(void *stream, size_t batch, size_t rows, size_t channels, const void *x,
			 void *y, enum ddp_type type);
void kernel_average_pool_back(void *stream, size_t batch, size_t rows, size_t channels,
			      const void *dy, void *dx, enum ddp_type type);

/* --- BatchNorm ---------------------------------------------------------------------------------- */

/* [rows] of one image; [statistics]: n, then [channels] means and as many 1 / deviations. */
struct kernel_norm {
	size_t rows, channels;
	float epsilon, momentum;
};

/* Bytes of scratch that the kernels of BatchNorm and kernel_column_sums() need for so many rows. */
size_t kernel_sums_bytes(size_t rows, size_t channels);

/*
 * What becomes of a batch's values. [moments] NULL: statistics, and the running values move, unless NULL, as
 * PyTorch's do (the unbiased variance). Else moments, which other ranks get: the number of values behind each channel,
 * [channels] means, [channels] sums of squared deviations; without the cancellation of sums of squares.
 */
struct kernel_measured {
	float *moments, *statistics, *running_mean, *running_variance;
};
void kernel_norm_measure(void *stream, const struct kernel_norm *norm,
			 const struct kernel_order *order, size_t batch, const void *x,
			 const struct kernel_scratch *scratch, const struct kernel_measured *to,
			 enum ddp_type type);
/* The moments of [ranks], one after the other, become statistics, in this order, in double: of one rank to the bit
 * what kernel_norm_measure() makes of it. */
void kernel_norm_combine(void *stream, const struct kernel_norm *norm, const float *moments,
			 int ranks, const struct kernel_measured *to);
/* For evaluation: statistics of the running values. */
void kernel_norm_fixed(void *stream, const struct kernel_norm *norm,
		       const struct kernel_measured *to);
/* What makes x into y = (x - mean) * inverse * scale + shift. */
struct kernel_normed {
	const void *x;
	const float *statistics, *scale, *shift;
};
/* That y [+ add], and with [relu] max(0, that). May be in place. */
void kernel_norm_apply(void *stream, const struct kernel_norm *norm, size_t batch,
		       const struct kernel_normed *normed, const void *add, bool relu, void *y,
		       enum ddp_type type);
/*
 * dz = dy, with [more], unless NULL, dy + more, as far as a ReLU let it through that came right behind: where [y],
 * unless NULL, is above 0; or, with normed->shift and no [y], where kernel_norm_apply() of [normed] is, which
 * need not be read then. With neither there was no ReLU. May be in place; NULL: not wanted.
 * sums: [channels] of dz, [channels] of dz * (x - mean) * inverse. These are the gradients of shift and scale.
 */
void kernel_norm_sums(void *stream, const struct kernel_norm *norm, size_t batch,
		      const struct kernel_normed *normed, const void *y, const void *dy,
		      const void *more, void *dz, const struct kernel_scratch *scratch, float *sums,
		      enum ddp_type type);
/* dx = scale * inverse * (dz - sums[c] / n - xhat * sums[channels + c] / n), 0 for samples that are not
 * there. [sums] are of all ranks. May be in place. With normed->shift, unless NULL, it reads dy in place of
 * dz, and does again what a ReLU without [y] did. */
void kernel_norm_back(void *stream, const struct kernel_norm *norm,
		      const struct kernel_order *order, size_t batch,
		      const struct kernel_normed *normed, const float *sums, const void *dz,
		      void *dx, enum ddp_type type);

/* sums[c] of [rows] of [channels], into f32: the gradient of a bias. */
void kernel_column_sums(void *stream, const void *dy, size_t rows, size_t channels,
			const struct kernel_scratch *scratch, float *sums, enum ddp_type type);

/* --- The first convolution ---------------------------------------------------------------------- */

/* Of one channel, windows of 3 x 3, stride 1, no padding, up to 64 outputs, eights of them, which lie at multiples of
 * 16 bytes: too thin for matrix units. */
struct kernel_first {
	int height, width, out; /* of what is read */
};
bool kernel_first_fits(int channels, int out, int size, int stride, int pad);
size_t kernel_first_bytes(const struct kernel_first *first, size_t batch); /* of scratch */
void kernel_first(void *stream, const struct kernel_first *first, size_t batch, const void *x,
		  const float *weights, const float *bias, bool relu, void *y, enum ddp_type type);
/* Gradients of weights (O, H, W) and bias; [y], unless NULL, masks dy by y > 0. */
void kernel_first_back(void *stream, const struct kernel_first *first, size_t batch, const void *x,
		       const void *dy, const void *y, const struct kernel_scratch *scratch,
		       float *weights, float *bias, enum ddp_type type);

/* --- Optimizer ---------------------------------------------------------------------------------- */

/*
 * Gradients are where they were computed: in [wide], or, of each unit of KERNEL_UNIT elements with a bit in [marks], in
 * [narrow], in [type] and at the same index. [marks] is NULL where all are wide.
 */
enum { KERNEL_UNIT = 16 };
struct kernel_gradients {
	const float *wide;
	const void *narrow;
	const uint32_t *marks;
};

/* Whether all gradients are finite, and their 2-norm before the loss scale came in. */
struct kernel_norm2 {
	double norm;
	uint32_t overflow;
};
size_t kernel_norm2_bytes(size_t count);
void kernel_norm2(void *stream, const struct kernel_gradients *gradients, size_t count,
		  const struct kernel_state *state, const struct kernel_scratch *scratch,
		  struct kernel_norm2 *norm2, enum ddp_type type);

/*
 * optim_step() for [count] elements, to the bit, of gradients divided by the loss scale and clipped to [clip] (0: not);
 * nothing where [norm2] tells of an overflow and there is a loss scale. [norm2]: NULL where there is neither. [narrow],
 * unless NULL, gets the values in [type].
 *
 * And the end of the step: scale and good_steps move as ddp_scaler_update() moves them, step->next is what comes, and
 * the step's slot of the results, host memory, gets [word] and the state: while the last values are on their way.
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
		     float *values, const struct kernel_gradients *gradients, float *const slots[2],
		     void *narrow, size_t count, enum ddp_type type);

#ifdef __cplusplus
}
#endif

#endif /* TRAIN_CUDA_KERNELS_H */
