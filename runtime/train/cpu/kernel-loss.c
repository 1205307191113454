/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>

#include "kernel-table.h"

/* The first of the largest; NaN is larger than all. */
static size_t row_largest(const float *row, size_t classes)
{
	size_t best = 0;

	for (size_t k = 1; k < classes; k++)
		if (row[k] > row[best] || (isnan(row[k]) && !isnan(row[best])))
			best = k;
	return best;
}

/* Of one row; a few classes for each image of the batch, so f64 costs nothing. */
static double row_loss(const float *row, size_t label, size_t classes, double smoothing,
		       double scale, float *gradient, uint64_t *hits)
{
	size_t best = row_largest(row, classes);
	double top = (double)row[best], sum = 0, mean = 0, rest;

	for (size_t k = 0; k < classes; k++) {
		sum += exp((double)row[k] - top);
		mean += ((double)row[k] - top) / (double)classes;
	}
	rest = log(sum);
	for (size_t k = 0; k < classes && gradient; k++) {
		double want = smoothing / (double)classes + (k == label ? 1 - smoothing : 0);

		gradient[k] = (float)(scale * (exp((double)row[k] - top - rest) - want));
	}
	*hits += best == label;
	return rest - (1 - smoothing) * ((double)row[label] - top) -
	       (smoothing > 0 ? smoothing * mean : 0);
}

double kernels_loss(const float *logits, const int32_t *labels, size_t count, size_t classes,
		    float smoothing, float scale, float *gradient, uint64_t *hits)
{
	double loss = 0;

	for (size_t i = 0; i < count; i++)
		loss += row_loss(logits + i * classes, (size_t)labels[i], classes,
				 (double)smoothing, (double)scale,
				 gradient ? gradient + i * classes : NULL, hits);
	return loss;
}
