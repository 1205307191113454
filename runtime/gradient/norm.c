/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>

#include "norm.h"

/* Sums that run side by side: enough to keep the adders of one core busy. */
#define LANES 16

static double total(const double *lane)
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
	return total(lane);
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
	return total(lane);
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
