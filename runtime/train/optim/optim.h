/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optim.h - PyTorch's optimizers and learning rate schedules, over flat arrays
 *
 * optim/ calls base/ only. Start reading here. loop.h declares the steps for each instruction set.
 */
#ifndef TRAIN_OPTIM_H
#define TRAIN_OPTIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum optim_kind { OPTIM_SGD, OPTIM_ADAMW, OPTIM_ADADELTA, OPTIM_KINDS };

/*
 * An optimizer and its parameters, which are double, as in Python. Only results such as 1 - beta1
 * are rounded to f32.
 */
struct optim {
	enum optim_kind kind;
	double decay; /* weight decay: added to the gradient or, in AdamW, applied to the weight */
	double momentum;     /* SGD */
	bool nesterov;	     /* SGD */
	double beta1, beta2; /* AdamW */
	double rho;	     /* Adadelta */
	double epsilon;	     /* AdamW, Adadelta */
};

/* Names for --optimizer: "sgd", "adamw", "adadelta"; NULL-terminated. */
const char *const *optim_names(void);

/* PyTorch's defaults for [kind]. */
struct optim optim_default(enum optim_kind kind);

/* Number of slots that [optim] needs, 0 to 2. A slot is an additional value per element. */
int optim_slots(const struct optim *optim);

/*
 * Runs one step with learning rate [rate]. [step] counts from 1; slots must be zero before the
 * first step. The results equal PyTorch's, element by element in f32, for any order of elements and
 * any instruction set. If value, gradient and slots of an element are zero, they stay zero. Arrays
 * must not overlap. Arrays aligned to 64 bytes are fastest.
 */
void optim_step(const struct optim *optim, uint64_t step, double rate, float *values,
		const float *gradients, float *const slots[2], size_t count);

enum schedule_kind { SCHEDULE_CONSTANT, SCHEDULE_STEP, SCHEDULE_COSINE, SCHEDULE_KINDS };

struct schedule {
	enum schedule_kind kind;
	double rate;	 /* initial rate */
	double gamma;	 /* STEP: factor */
	unsigned every;	 /* epochs per multiplication by gamma */
	unsigned epochs; /* COSINE: number of epochs until the rate is zero */
	double warmup;	 /* epochs of linear warmup */
};

/*
 * Returns the learning rate of step [step] of [steps] in epoch [epoch], both counted from 0. It is
 * the rate of PyTorch's StepLR (a product in double) or CosineAnnealingLR, stepped once per epoch.
 * During warmup it is a growing fraction of that rate.
 */
double schedule_rate(const struct schedule *schedule, unsigned epoch, uint64_t step,
		     uint64_t steps);

#endif /* TRAIN_OPTIM_H */
