/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop.h - optimizer steps over flat arrays, for each instruction set
 *
 * All instruction sets give equal bits. Each operation is rounded as in PyTorch's kernels for
 * processors with fused multiply-add. The arrays are the arguments of optim_step().
 */
#ifndef TRAIN_OPTIM_LOOP_H
#define TRAIN_OPTIM_LOOP_H

#include "base/simd.h"
#include "optim.h"

/* Parameters shared by all elements. Each optimizer uses only those that it needs. */
struct optim_numbers {
	float decay;	/* weight decay: decay x value is added to the gradient */
	float momentum; /* SGD */
	bool nesterov;	/* SGD */
	float shrink;	/* AdamW: factor of the value */
	float old_factor[2], new_factor[2]; /* factors of the old mean and the new value */
	float root;			    /* AdamW: square root of the second bias correction */
	float epsilon;
	float rate; /* negative learning rate */
};

/*
 * Computes the numbers for step [step] in double, as Python does. Then rounds each number to f32,
 * as PyTorch does when it applies the number to a tensor. Only [shrink], [root] and the member
 * [rate] depend on the arguments [step] and [rate].
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
