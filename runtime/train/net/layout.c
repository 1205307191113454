/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "graph.h"

/* For each of [outputs]: [rows] x [columns] turned over. */
static void transpose(float *to, const float *from, size_t outputs, size_t rows, size_t columns)
{
	for (size_t o = 0; o < outputs; o++) {
		const float *in = from + o * rows * columns;
		float *out = to + o * rows * columns;

		for (size_t column = 0; column < columns; column++)
			for (size_t row = 0; row < rows; row++)
				*out++ = in[row * columns + column];
	}
}

/* What one output reads is an image of places by channels here, of channels by places there. */
static void turn(const struct graph *graph, size_t index, float *to, const float *from, bool out)
{
	const struct graph_parameter *parameter = &graph->parameters[index];
	size_t channels = (size_t)parameter->fan.channels;
	size_t places = (size_t)parameter->fan.height * (size_t)parameter->fan.width;
	size_t outputs = (size_t)parameter->shape[0];

	if (parameter->dimensions == 1 || places == 1 || channels == 1)
		memcpy(to, from, parameter->count * sizeof(*to));
	else if (out)
		transpose(to, from, outputs, places, channels);
	else
		transpose(to, from, outputs, channels, places);
}

void graph_export(const struct graph *graph, size_t index, float *to, const float *from)
{
	turn(graph, index, to, from, true);
}

void graph_import(const struct graph *graph, size_t index, float *to, const float *from)
{
	turn(graph, index, to, from, false);
}
