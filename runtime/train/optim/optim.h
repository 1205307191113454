/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optim.h - PyTorch's optimizers and schedules, over flat arrays
 */
#ifndef TRAIN_OPTIM_H
#define TRAIN_OPTIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum optim_kind { OPTIM_SGD, OPTIM_ADAMW, OPTIM_ADADELTA, OPTIM_KINDS };

/* Numbers are in double, as Python's are: what becomes f32 is a result such as 1 - beta1. */
struct optim {
	enum optim_kind kind;
	double decay;	     /* weight decay: of the gradient, or of the weight (AdamW) */
	double momentum;     /* SGD */
	bool nesterov;	     /* SGD */
	double beta1, beta2; /* AdamW */
	double rho;	     /* Adadelta */
	double epsilon;	     /* AdamW, Adadelta */
};

/* Names as the user says them: "sgd", "adamw", "adadelta"; NULL-terminated. */
const char *const *optim_names(void);

/* PyTorch's defaults of [kind]. */
struct optim optim_default(enum optim_kind kind);

/* How many further values for each element [optim] keeps: 0 to 2. */
int optim_slots(const struct optim *optim);

/*
 * One step with learning rate [rate]: [step] counts from 1, and slots are zero before the first.
 * As PyTorch's, element by element in f32; the order of elements does not matter, nor do the
 * processor's instructions. What is zero with a gradient of zero stays zero. Arrays do not
 * overlap; it is fastest where they are aligned to 64.
 */
void optim_step(const struct optim *optim, uint64_t step, double rate, float *values,
		const float *gradients, float *const slots[2], size_t count);

enum schedule_kind { SCHEDULE_CONSTANT, SCHEDULE_STEP, SCHEDULE_COSINE, SCHEDULE_KINDS };

struct schedule {
	enum schedule_kind kind;
	double rate;	 /* the initial one */
	double gamma;	 /* STEP: factor, */
	unsigned every;	 /* once in so many epochs */
	unsigned epochs; /* COSINE: zero after so many */
	double warmup;	 /* epochs in which the rate rises linearly to the schedule's */
};

const char *const *schedule_names(void); /* "constant", "step", "cosine" */

/*
 * The rate of step [step] (from 0) of [steps] in [epoch] (from 0): PyTorch's StepLR (a product,
 * in double) or CosineAnnealingLR, stepped once an epoch; with warm-up, that linear part.
 */
double schedule_rate(const struct schedule *schedule, unsigned epoch, uint64_t step,
		     uint64_t steps);

#endif /* TRAIN_OPTIM_H */
