/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop.h - a step of each optimizer over flat arrays, for each instruction set
 *
 * All give the same bits: each operation is rounded as PyTorch's kernels round it on processors
 * that multiply and add in one. Arrays are as optim_step() has them.
 */
#ifndef TRAIN_OPTIM_LOOP_H
#define TRAIN_OPTIM_LOOP_H

#include "base/simd.h"
#include "optim.h"

/* What does not differ between elements; 0 and 1 where an optimizer lacks it. */
struct optim_numbers {
	float decay;		/* added to the gradient, times the value */
	float momentum;		/* SGD */
	bool nesterov;		/* SGD */
	float shrink;		/* AdamW: of the value */
	float keep[2], take[2]; /* of running means: of the old mean, of the new value */
	float root;		/* AdamW: the square root of the second bias correction */
	float epsilon;
	float rate; /* negative */
};

/*
 * What AdamW's numbers have of the step alone, and of the rate alone; those of others: 1, 0 and 0. [first]
 * divides the rate.
 */
struct optim_correction {
	double first;
	float root;
};
struct optim_correction optim_correction(const struct optim *optim, uint64_t step);
float optim_shrink(const struct optim *optim, double rate);

/*
 * Those of [step], computed as Python does it, and each rounded to f32 where a tensor meets it. Only
 * shrink, root and rate depend on the step and the rate.
 */
struct optim_numbers optim_numbers_of(const struct optim *optim, uint64_t step, double rate);

typedef void optim_loop(const struct optim_numbers *numbers, float *values, const float *gradients,
			float *const slots[2], size_t count);

struct optim_loops {
	optim_loop *sgd, *momentum, *adamw, *adadelta;
};

extern const struct optim_loops optim_plain, optim_avx2, optim_avx512;

/* Of each instruction set, by enum ddp_simd. */
extern const struct optim_loops *const optim_loops[DDP_SIMD_COUNT];

#endif /* TRAIN_OPTIM_LOOP_H */
