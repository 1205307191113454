/* SPDX-License-Identifier: Apache-2.0 */
/* optim.c - parameters and steps of the optimizers, and learning rate schedules */
#include "config.h"

#include <math.h>

#include "loop.h"
#include "optim.h"

struct optim_numbers optim_numbers_of(const struct optim *optim, uint64_t step, double rate)
{
	struct optim_numbers numbers = {.decay = (float)optim->decay,
					.momentum = (float)optim->momentum,
					.nesterov = optim->nesterov,
					.epsilon = (float)optim->epsilon,
					.rate = (float)-rate};

	if (optim->kind == OPTIM_ADAMW) {
		numbers.rate = (float)-(rate / (1 - pow(optim->beta1, (double)step)));
		numbers.root = (float)sqrt(1 - pow(optim->beta2, (double)step));
		numbers.shrink = (float)(1 - rate * optim->decay);
		numbers.old_factor[0] = (float)optim->beta1;
		numbers.new_factor[0] = (float)(1 - optim->beta1);
		numbers.old_factor[1] = (float)optim->beta2;
		numbers.new_factor[1] = (float)(1 - optim->beta2);
	} else {
		numbers.old_factor[0] = numbers.old_factor[1] = (float)optim->rho;
		numbers.new_factor[0] = numbers.new_factor[1] = (float)(1 - optim->rho);
	}
	return numbers;
}

static const char *const names[OPTIM_KINDS + 1] = {
	[OPTIM_SGD] = "sgd",
	[OPTIM_ADAMW] = "adamw",
	[OPTIM_ADADELTA] = "adadelta",
};

const char *const *optim_names(void)
{
	return names;
}

struct optim optim_default(enum optim_kind kind)
{
	struct optim optim = {.kind = kind, .beta1 = 0.9, .beta2 = 0.999, .rho = 0.9};

	optim.decay = kind == OPTIM_ADAMW ? 0.01 : 0;
	optim.epsilon = kind == OPTIM_ADAMW ? 1e-8 : 1e-6;
	return optim;
}

int optim_slots(const struct optim *optim)
{
	if (optim->kind == OPTIM_SGD)
		return optim->momentum != 0 ? 1 : 0;
	return 2;
}

const struct optim_loops *const optim_loops[DDP_SIMD_COUNT] = {&optim_plain, &optim_avx2,
							       &optim_avx512};

void optim_step(const struct optim *optim, uint64_t step, double rate, float *values,
		const float *gradients, float *const slots[2], size_t count)
{
	struct optim_numbers numbers = optim_numbers_of(optim, step, rate);
	const struct optim_loops *loops;
	enum ddp_simd simd;

	/* An invalid DDP_SIMD was reported earlier, so no error text is requested here. */
	ddp_simd_choose(&simd, NULL);
	loops = optim_loops[simd];
	switch (optim->kind) {
	case OPTIM_ADAMW:
		loops->adamw(&numbers, values, gradients, slots, count);
		break;
	case OPTIM_ADADELTA:
		loops->adadelta(&numbers, values, gradients, slots, count);
		break;
	default:
		if (optim_slots(optim) == 1)
			loops->momentum(&numbers, values, gradients, slots, count);
		else
			loops->sgd(&numbers, values, gradients, slots, count);
	}
}

/* --- Schedules --------------------------------------------------------------------------- */

/* Multiplies repeatedly, because pow() would round differently. */
static double step_rate(const struct schedule *schedule, unsigned epoch)
{
	double rate = schedule->rate;

	for (unsigned i = schedule->every > 0 ? epoch / schedule->every : 0; i > 0; i--)
		rate *= schedule->gamma;
	return rate;
}

static double cosine_rate(const struct schedule *schedule, unsigned epoch)
{
	if (schedule->epochs == 0)
		return schedule->rate;
	return schedule->rate * (1 + cos(M_PI * epoch / schedule->epochs)) / 2;
}

static double epoch_rate(const struct schedule *schedule, unsigned epoch)
{
	if (schedule->kind == SCHEDULE_STEP)
		return step_rate(schedule, epoch);
	if (schedule->kind == SCHEDULE_COSINE)
		return cosine_rate(schedule, epoch);
	return schedule->rate;
}

double schedule_rate(const struct schedule *schedule, unsigned epoch, uint64_t step, uint64_t steps)
{
	double rate = epoch_rate(schedule, epoch);
	/* Count up to the end of this step, so that the first step has a rate above zero. */
	double done = epoch + (steps > 0 ? (double)(step + 1) / (double)steps : 0);

	return done < schedule->warmup ? rate * done / schedule->warmup : rate;
}
