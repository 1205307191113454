/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>

#include "graph.h"
#include "sampling/mt19937.h"

/*
 * Uniform in [-bound, bound), as Tensor.uniform_ draws. The last multiplication and addition are
 * rounded once, as PyTorch's code for CPUs with AVX2 does it; that for others rounds twice, which
 * is one rounding of a number as large as the bound apart.
 */
static void draw(struct ddp_mt19937 *random, double bound, float *to, size_t count)
{
	float from = (float)-bound, range = (float)bound - from;

	for (size_t i = 0; i < count; i++) {
		uint32_t bits = ddp_mt19937_next(random) & 0xffffffu;

		to[i] = fmaf((float)bits * 0x1p-24f, range, from);
	}
}

static void fill(float *to, size_t count, float value)
{
	for (size_t i = 0; i < count; i++)
		to[i] = value;
}

/* kaiming_uniform_(a=sqrt(5)), in the steps in which PyTorch computes it. */
static double weight_bound(size_t fan)
{
	double slope = sqrt(5), gain = sqrt(2 / (1 + slope * slope));

	return sqrt(3) * (gain / sqrt((double)fan));
}

void graph_init(const struct graph *graph, size_t index, struct ddp_mt19937 *random, float *to)
{
	const struct graph_parameter *parameter = &graph->parameters[index];
	size_t fan = graph_size(parameter->fan);

	switch (parameter->role) {
	case GRAPH_CONV_WEIGHT:
	case GRAPH_DENSE_WEIGHT:
		draw(random, weight_bound(fan), to, parameter->count);
		break;
	case GRAPH_BIAS:
		draw(random, 1 / sqrt((double)fan), to, parameter->count);
		break;
	case GRAPH_SCALE:
		fill(to, parameter->count, 1);
		break;
	case GRAPH_SHIFT:
		fill(to, parameter->count, 0);
		break;
	}
}
