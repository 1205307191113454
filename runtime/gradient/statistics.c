/* SPDX-License-Identifier: Apache-2.0 */
/* statistics.c - norm, clipping, loss scaling, moments and evaluation */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "statistics.h"

/* --- Norm and clipping ------------------------------------------------------------------ */

/* Number of independent partial sums. So many sums keep the adders of a core busy. */
#define LANES 16

static double sum_lanes(const double *lane)
{
	double sum = 0;

	for (int i = 0; i < LANES; i++)
		sum += lane[i];
	return sum;
}

static double squares_f32(const float *data, size_t count)
{
	double lane[LANES] = {0};
	size_t i = 0;

	for (; i + LANES <= count; i += LANES) {
		for (size_t j = 0; j < LANES; j++)
			lane[j] += (double)data[i + j] * (double)data[i + j];
	}
	for (size_t j = 0; i + j < count; j++)
		lane[j] += (double)data[i + j] * (double)data[i + j];
	return sum_lanes(lane);
}

static double squares_f64(const double *data, size_t count)
{
	double lane[LANES] = {0};
	size_t i = 0;

	for (; i + LANES <= count; i += LANES) {
		for (size_t j = 0; j < LANES; j++)
			lane[j] += data[i + j] * data[i + j];
	}
	for (size_t j = 0; i + j < count; j++)
		lane[j] += data[i + j] * data[i + j];
	return sum_lanes(lane);
}

double ddp_norm(const void *data, enum ddp_type type, size_t count)
{
	return sqrt(type == DDP_F64 ? squares_f64(data, count) : squares_f32(data, count));
}

void ddp_scale(void *data, enum ddp_type type, size_t count, double factor)
{
	double *f64 = data;
	float *f32 = data, factor32 = (float)factor;

	if (type == DDP_F64) {
		for (size_t i = 0; i < count; i++)
			f64[i] *= factor;
	} else {
		for (size_t i = 0; i < count; i++)
			f32[i] *= factor32;
	}
}

double ddp_clip_factor(double norm, double limit)
{
	double factor = limit / (norm + 1e-6);

	return factor > 1 ? 1 : factor;
}

/* --- Loss scaling ----------------------------------------------------------------------- */

/* Returns 1 if [value] is inf or NaN, else 0. There is no branch, so that loops are vectorized. */
static uint32_t is_not_finite(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return (bits & 0x7f800000u) == 0x7f800000u;
}

/* Divide the gradients by the scale. Like PyTorch, check for inf and NaN before the division. */
bool ddp_scaler_unscale(const struct ddp_scaler *scaler, float *gradients, size_t count)
{
	float inverse = (float)(1 / (double)scaler->scale);
	uint32_t found = 0;

	for (size_t i = 0; i < count; i++) {
		found |= is_not_finite(gradients[i]);
		gradients[i] *= inverse;
	}
	return found != 0;
}

void ddp_scaler_update(struct ddp_scaler *scaler, bool found_inf)
{
	float grown;

	if (found_inf) {
		scaler->scale = (float)((double)scaler->scale * scaler->backoff);
		scaler->good_steps = 0;
		return;
	}
	if (++scaler->good_steps != scaler->interval)
		return;
	grown = (float)((double)scaler->scale * scaler->growth);
	if (isfinite(grown))
		scaler->scale = grown;
	scaler->good_steps = 0;
}

/* --- Moments ----------------------------------------------------------------------------- */

struct moments {
	double count, mean, m2;
};

size_t ddp_moments_bytes(size_t channels)
{
	return sizeof(double) + 2 * channels * sizeof(float);
}

static double part_count(const char *part)
{
	double count;

	memcpy(&count, part, sizeof(count));
	return count;
}

static double part_value(const char *part, size_t index)
{
	float value;

	memcpy(&value, part + sizeof(double) + index * sizeof(value), sizeof(value));
	return (double)value;
}

static void add(struct moments *to, double count, double mean, double m2)
{
	double delta = mean - to->mean, whole = to->count + count;

	to->mean += delta * (count / whole);
	to->m2 += m2 + delta * delta * (to->count * count / whole);
	to->count = whole;
}

void ddp_moments_combine(const void *data, size_t parts, size_t channels, double *count,
			 float *mean, float *m2)
{
	size_t bytes = ddp_moments_bytes(channels);

	*count = 0;
	for (size_t i = 0; i < parts; i++)
		*count += part_count((const char *)data + i * bytes);
	for (size_t channel = 0; channel < channels; channel++) {
		struct moments whole = {0, 0, 0};

		for (size_t i = 0; i < parts; i++) {
			const char *part = (const char *)data + i * bytes;

			if (part_count(part) > 0)
				add(&whole, part_count(part), part_value(part, channel),
				    part_value(part, channels + channel));
		}
		mean[channel] = (float)whole.mean;
		m2[channel] = (float)whole.m2;
	}
}

int ddp_all_reduce_moments(struct ddp *ddp, double *count, float *mean, float *m2, size_t channels)
{
	size_t bytes = ddp_moments_bytes(channels), size = (size_t)ddp_world(ddp)->size;
	char *mine = NULL, *all = NULL;
	int status;

	if (!(*count >= 0))
		return ddp_fail_with(ddp, DDP_ERR_ARGUMENT,
				     "moments: the count is %g, but must be 0 or more", *count);
	mine = malloc(bytes);
	all = calloc(size, bytes);
	if (!mine || !all) {
		status = ddp_fail_with(ddp, DDP_ERR_MEMORY,
				       "moments: out of memory for %zu channels of %zu ranks",
				       channels, size);
		goto out;
	}
	memcpy(mine, count, sizeof(*count));
	if (channels > 0) {
		memcpy(mine + sizeof(*count), mean, channels * sizeof(*mean));
		memcpy(mine + sizeof(*count) + channels * sizeof(*mean), m2,
		       channels * sizeof(*m2));
	}
	status = ddp_all_gather(ddp, mine, all, bytes);
	if (status == 0)
		ddp_moments_combine(all, size, channels, count, mean, m2);
out:
	free(all);
	free(mine);
	return status;
}

/* --- Evaluation ------------------------------------------------------------------------- */

/* log(sum(exp(logits))) - logits[label], without overflow; NaN if a logit is NaN. */
static double cross_entropy(const float *logits, size_t classes, size_t label)
{
	double largest = -INFINITY, sum = 0;

	for (size_t i = 0; i < classes; i++)
		largest = fmax(largest, (double)logits[i]);
	for (size_t i = 0; i < classes; i++)
		sum += exp((double)logits[i] - largest);
	return log(sum) + largest - (double)logits[label];
}

/*
 * Returns how many classes are ranked before [label]. A class is ranked before [label] if its logit
 * is larger, or if its logit is equal and its index is lower. NaN counts as the largest logit.
 */
static size_t rank_of_label(const float *logits, size_t classes, size_t label)
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
		place = rank_of_label(row, classes, label);
		evaluation->loss += cross_entropy(row, classes, label);
		evaluation->top1 += place < 1;
		evaluation->top5 += place < 5;
		evaluation->samples++;
	}
}

/* The sums are added in the order of ranks, so that all ranks get the same bits. */
int ddp_evaluation_reduce(struct ddp *ddp, struct ddp_evaluation *evaluation)
{
	size_t size = (size_t)ddp_world(ddp)->size;
	struct ddp_evaluation *all = calloc(size, sizeof(*all));
	int status;

	if (!all)
		return ddp_fail_with(ddp, DDP_ERR_MEMORY, "evaluation: out of memory");
	status = ddp_all_gather(ddp, evaluation, all, sizeof(*all));
	if (status < 0)
		goto out;
	*evaluation = (struct ddp_evaluation){0, 0, 0, 0};
	for (size_t i = 0; i < size; i++) {
		evaluation->loss += all[i].loss;
		evaluation->top1 += all[i].top1;
		evaluation->top5 += all[i].top5;
		evaluation->samples += all[i].samples;
	}
out:
	free(all);
	return status;
}
