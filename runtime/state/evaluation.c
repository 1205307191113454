/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <stdlib.h>

#include "comm/context.h"
#include "evaluation.h"

/* log(sum(exp(logits))) - logits[label], without overflow; nan where the logits have one. */
static double cross_entropy(const float *logits, size_t classes, size_t label)
{
	double largest = -INFINITY, sum = 0;

	for (size_t i = 0; i < classes; i++)
		largest = fmax(largest, (double)logits[i]);
	for (size_t i = 0; i < classes; i++)
		sum += exp((double)logits[i] - largest);
	return log(sum) + largest - (double)logits[label];
}

/* Classes before [label]: a larger logit, or an equal one and a lower index; nan is largest. */
static size_t place_of(const float *logits, size_t classes, size_t label)
{
	float mine = logits[label];
	size_t before = 0;

	for (size_t i = 0; i < classes; i++) {
		bool equal = logits[i] == mine || (isnan(logits[i]) && isnan(mine));
		bool larger = logits[i] > mine || (isnan(logits[i]) && !isnan(mine));

		before += larger || (equal && i < label);
	}
	return before;
}

void ddp_evaluation_add(struct ddp_evaluation *evaluation, const float *logits,
			const int32_t *labels, size_t samples, size_t classes)
{
	for (size_t i = 0; i < samples; i++) {
		const float *row = logits + i * classes;
		size_t label = (size_t)labels[i], place;

		if (labels[i] < 0 || label >= classes)
			continue;
		place = place_of(row, classes, label);
		evaluation->loss += cross_entropy(row, classes, label);
		evaluation->top1 += place < 1;
		evaluation->top5 += place < 5;
		evaluation->samples++;
	}
}

struct ddp_evaluation ddp_evaluation_sum(const struct ddp_evaluation *parts, size_t count)
{
	struct ddp_evaluation sum = {0, 0, 0, 0};

	for (size_t i = 0; i < count; i++) {
		sum.loss += parts[i].loss;
		sum.top1 += parts[i].top1;
		sum.top5 += parts[i].top5;
		sum.samples += parts[i].samples;
	}
	return sum;
}

int ddp_evaluation_reduce(struct ddp *ddp, struct ddp_evaluation *evaluation)
{
	size_t size = (size_t)ddp->world.size;
	struct ddp_evaluation *all = calloc(size, sizeof(*all));
	int status;

	if (!all) {
		ddp_error_set(&ddp->error, DDP_ERR_MEMORY, "evaluation: out of memory");
		return ddp_fail_call(ddp, DDP_ERR_MEMORY);
	}
	status = ddp_all_gather(ddp, evaluation, all, sizeof(*all));
	if (status == 0)
		*evaluation = ddp_evaluation_sum(all, size);
	free(all);
	return status;
}
