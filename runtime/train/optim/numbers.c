/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>

#include "loop.h"

struct optim_numbers optim_numbers_of(const struct optim *optim, uint64_t step, double rate)
{
	struct optim_numbers numbers = {.decay = (float)optim->decay,
					.momentum = (float)optim->momentum,
					.nesterov = optim->nesterov,
					.epsilon = (float)optim->epsilon,
					.rate = (float)-rate};

	if (optim->kind == OPTIM_ADAMW) {
		double first = 1 - pow(optim->beta1, (double)step);
		double second = 1 - pow(optim->beta2, (double)step);

		numbers.shrink = (float)(1 - rate * optim->decay);
		numbers.rate = (float)-(rate / first);
		numbers.root = (float)sqrt(second);
		numbers.keep[0] = (float)optim->beta1;
		numbers.take[0] = (float)(1 - optim->beta1);
		numbers.keep[1] = (float)optim->beta2;
		numbers.take[1] = (float)(1 - optim->beta2);
	} else {
		numbers.keep[0] = numbers.keep[1] = (float)optim->rho;
		numbers.take[0] = numbers.take[1] = (float)(1 - optim->rho);
	}
	return numbers;
}
