/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop.h - optimizer steps over flat arrays, for each instruction set
 *
 * All give equal bits. Each operation is rounded like PyTorch's kernels on processors with fused
 * multiply-add. Arrays are as in optim_step().
 */
#ifndef TRAIN_OPTIM_LOOP_H
#define TRAIN_OPTIM_LOOP_H

#include "base/simd.h"
#include "optim.h"

/* Parameters shared by all elements. A parameter that the optimizer does not use has the value that changes nothing: 0 or 1. */
struct optim_numbers {
	float decay;	/* weight decay: times the value, added to the gradient */
	float momentum; /* SGD */
	bool nesterov;	/* SGD */
	float shrink;	/* AdamW: factor of the value */
	float old_factor[2], new_factor[2]; /* running means: of the old mean, of the new value */
	float root;			    /* AdamW: square root of the second bias correction */
	float epsilon;
	float rate; /* negative learning rate */
};

/*
 * AdamW: the part of the numbers that depends only on the step ([first] divides the rate), and the
 * part that depends only on the rate. Other optimizers: 1, 0 and 0.
 */
struct optim_correction {
	double first;
	float root;
};
struct optim_correction optim_correction(const struct optim *optim, uint64_t step);
float optim_shrink(const struct optim *optim, double rate);

/*
 * The numbers of [step], computed in double as in Python, and rounded to f32 where PyTorch applies
 * them to a tensor. Only shrink, root and rate depend on the step and the rate.
 */
struct optim_numbers optim_numbers_of(const struct optim *optim, uint64_t step, double rate);

typedef void optim_loop(const struct optim_numbers *numbers, float *values, const float *gradients,
			float *const slots[2], size_t count);

struct optim_loops {
	optim_loop *sgd, *momentum, *adamw, *adadelta;
};

extern const struct optim_loops optim_plain, optim_avx2, optim_avx512;

/* Indexed by enum ddp_simd. */
extern const struct optim_loops *const optim_loops[DDP_SIMD_COUNT];

#endif /* TRAIN_OPTIM_LOOP_H */
