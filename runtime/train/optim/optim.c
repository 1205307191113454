/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/simd.h"
#include "loop.h"

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

const struct optim_loops *optim_loops(void)
{
	enum ddp_simd simd;

	/* What is wrong with DDP_SIMD has been told by then. */
	ddp_simd_choose(&simd, NULL);
#if DDP_SIMD_X86
	if (simd >= DDP_SIMD_AVX2)
		return &optim_avx2;
#endif
	return &optim_plain;
}

void optim_step(const struct optim *optim, uint64_t step, double rate, float *values,
		const float *gradients, float *const slots[2], size_t count)
{
	const struct optim_loops *loops = optim_loops();
	struct optim_numbers numbers = optim_numbers_of(optim, step, rate);

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
