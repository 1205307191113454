/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference.h"

static void *new_array(size_t count, size_t size)
{
	void *array = calloc(count + 1, size);

	if (!array)
		abort();
	return array;
}

struct reference *reference_create(const struct model *model, struct set *set,
				   const struct batch *batch, const int32_t *labels)
{
	const struct graph *graph = model->graph;
	const struct net *net = graph->net;
	size_t pixels = batch->count * (size_t)(net->height * net->width * net->channels);
	struct reference *reference = new_array(1, sizeof(*reference));
	float *images = new_array(pixels, sizeof(float));

	*reference = (struct reference){.graph = graph,
					.count = batch->count,
					.batch = batch,
					.labels = labels,
					.dropout = true,
					.running_offsets = model->buffer_offsets};
	reference->parameters = new_array(graph->parameter_count, sizeof(double *));
	for (size_t i = 0; i < graph->parameter_count; i++) {
		const float *from = model_value(model, i);

		reference->parameters[i] = new_array(graph->parameters[i].count, sizeof(double));
		for (size_t k = 0; k < graph->parameters[i].count; k++)
			reference->parameters[i][k] = (double)from[k];
	}
	reference->values = new_array(graph->node_count, sizeof(double *));
	for (size_t i = 0; i < graph->node_count; i++)
		reference->values[i] =
			new_array(batch->count * graph_size(graph->nodes[i].out), sizeof(double));
	reference->images = new_array(pixels, sizeof(double));
	batch_images(net, set, batch, images, DDP_F32);
	for (size_t i = 0; i < pixels; i++)
		reference->images[i] = (double)images[i];
	free(images);
	return reference;
}

void reference_destroy(struct reference *reference)
{
	if (!reference)
		return;
	for (size_t i = 0; i < reference->graph->parameter_count; i++)
		free(reference->parameters[i]);
	for (size_t i = 0; i < reference->graph->node_count; i++)
		free(reference->values[i]);
	free(reference->parameters);
	free(reference->values);
	free(reference->images);
	free(reference);
}

/* --- Layers ------------------------------------------------------------------------------- */

struct layer {
	const struct reference *reference;
	const struct graph_node *node;
	int number;
	const double *x, *other, *weight, *bias;
	double *y;
};

static size_t place(struct graph_shape shape, size_t image, int row, int column, int channel)
{
	return ((image * (size_t)shape.height + (size_t)row) * (size_t)shape.width +
		(size_t)column) *
		       (size_t)shape.channels +
	       (size_t)channel;
}

static double window_sum(const struct layer *layer, size_t image, int row, int column, int out)
{
	const struct net_layer *table = layer->node->layer;
	struct graph_shape in = layer->node->in;
	double sum = layer->bias ? layer->bias[out] : 0;
	int stride = table->stride > 0 ? table->stride : 1;

	for (int h = 0; h < table->size; h++)
		for (int w = 0; w < table->size; w++)
			for (int c = 0; c < in.channels; c++) {
				int y = row * stride + h - table->pad;
				int x = column * stride + w - table->pad;
				int at = ((out * table->size + h) * table->size + w) * in.channels;

				if (y >= 0 && y < in.height && x >= 0 && x < in.width)
					sum += layer->x[place(in, image, y, x, c)] *
					       layer->weight[at + c];
			}
	return sum;
}

static double window_maximum(const struct layer *layer, size_t image, int row, int column,
			     int channel)
{
	struct graph_shape in = layer->node->in;
	int size = layer->node->layer->size;
	double most = -INFINITY;

	for (int h = 0; h < size; h++)
		for (int w = 0; w < size; w++)
			most = fmax(most, layer->x[place(in, image, row * size + h,
							 column * size + w, channel)]);
	return most;
}

static void run_windows(const struct layer *layer)
{
	struct graph_shape out = layer->node->out;
	double (*one)(const struct layer *, size_t, int, int, int) =
		layer->node->layer->kind == NET_CONV ? window_sum : window_maximum;

	for (size_t i = 0; i < layer->reference->count; i++)
		for (int h = 0; h < out.height; h++)
			for (int w = 0; w < out.width; w++)
				for (int c = 0; c < out.channels; c++)
					layer->y[place(out, i, h, w, c)] = one(layer, i, h, w, c);
}

static void run_dense(const struct layer *layer)
{
	size_t in = graph_size(layer->node->in), out = graph_size(layer->node->out);

	for (size_t i = 0; i < layer->reference->count; i++)
		for (size_t o = 0; o < out; o++) {
			double sum = layer->bias ? layer->bias[o] : 0;

			for (size_t k = 0; k < in; k++)
				sum += layer->x[i * in + k] * layer->weight[o * in + k];
			layer->y[i * out + o] = sum;
		}
}

static void run_norm(const struct layer *layer)
{
	const struct reference *reference = layer->reference;
	size_t channels = (size_t)layer->node->in.channels;
	size_t rows = reference->count * graph_size(layer->node->in) / channels;

	for (size_t c = 0; c < channels; c++) {
		double mean = 0, variance = 0;

		for (size_t r = 0; r < rows; r++)
			mean += layer->x[r * channels + c] / (double)rows;
		for (size_t r = 0; r < rows; r++)
			variance += pow(layer->x[r * channels + c] - mean, 2) / (double)rows;
		if (reference->running) {
			const size_t *offsets = reference->running_offsets;

			mean = (double)reference->running[offsets[layer->node->mean] + c];
			variance = (double)reference->running[offsets[layer->node->variance] + c];
		}
		for (size_t r = 0; r < rows; r++)
			layer->y[r * channels + c] = (layer->x[r * channels + c] - mean) /
							     sqrt(variance + 1e-5) *
							     layer->weight[c] +
						     layer->bias[c];
	}
}

static void run_average(const struct layer *layer)
{
	size_t channels = (size_t)layer->node->in.channels;
	size_t rows = graph_size(layer->node->in) / channels;

	for (size_t i = 0; i < layer->reference->count; i++)
		for (size_t c = 0; c < channels; c++) {
			double sum = 0;

			for (size_t r = 0; r < rows; r++)
				sum += layer->x[(i * rows + r) * channels + c];
			layer->y[i * channels + c] = sum / (double)rows;
		}
}

/*
 * Digit after digit of the drawn number, as dropout.h says, for rates that 65536ths give exactly.
 * Returns whether element [e] of sample [image] is dropped.
 */
static bool is_dropped(const struct layer *layer, size_t image, size_t e)
{
	const struct batch *batch = layer->reference->batch;
	uint32_t limit = (uint32_t)(layer->node->layer->rate * 65536), value = 0, planes = 16;

	while (limit % 2 == 0) {
		limit /= 2;
		planes--;
	}
	for (uint32_t p = 0; p < planes; p++) {
		uint32_t words[4];

		ddp_random(batch->seed, batch->epoch, batch->orders[image], (uint32_t)layer->number,
			   (uint32_t)(e / 128) * planes + p, words);
		value = value * 2 + (words[e % 128 / 32] >> e % 32 & 1);
	}
	return value < limit;
}

static void run_elements(const struct layer *layer)
{
	size_t each = graph_size(layer->node->out);
	double rate = (double)layer->node->layer->rate;

	for (size_t i = 0; i < layer->reference->count * each; i++) {
		double x = layer->x[i];

		if (layer->node->layer->kind == NET_ADD)
			x += layer->other[i];
		else if (layer->node->layer->kind == NET_RELU)
			x = x > 0 ? x : 0;
		else if (layer->reference->dropout)
			x = is_dropped(layer, i / each, i % each) ? 0 : x / (1 - rate);
		layer->y[i] = x;
	}
}

static const double *value_of(const struct reference *reference, int node)
{
	return node < 0 ? reference->images : reference->values[node];
}

static const double *parameter_of(const struct reference *reference, int index)
{
	return index < 0 ? NULL : reference->parameters[index];
}

static void run(struct reference *reference, int number)
{
	const struct graph_node *node = &reference->graph->nodes[number];
	struct layer layer = {reference,
			      node,
			      number,
			      value_of(reference, node->input),
			      value_of(reference, node->other),
			      parameter_of(reference, node->weight),
			      parameter_of(reference, node->bias),
			      reference->values[number]};

	switch (node->layer->kind) {
	case NET_CONV:
	case NET_MAX_POOL:
		run_windows(&layer);
		break;
	case NET_DENSE:
		run_dense(&layer);
		break;
	case NET_NORM:
		run_norm(&layer);
		break;
	case NET_AVERAGE_POOL:
		run_average(&layer);
		break;
	default:
		run_elements(&layer);
	}
}

/* --- Loss ------------------------------------------------------------------------------------- */

static const double *logits_of(const struct reference *reference)
{
	return reference->values[reference->graph->node_count - 1];
}

static double row_loss(const double *logits, size_t classes, int32_t label, double smoothing)
{
	double most = logits[0], sum = 0, mean = 0;

	for (size_t c = 0; c < classes; c++)
		most = fmax(most, logits[c]);
	for (size_t c = 0; c < classes; c++)
		sum += exp(logits[c] - most);
	for (size_t c = 0; c < classes; c++)
		mean += (most + log(sum) - logits[c]) / (double)classes;
	return (1 - smoothing) * (most + log(sum) - logits[label]) + smoothing * mean;
}

double reference_loss(struct reference *reference)
{
	size_t classes = (size_t)reference->graph->net->classes;
	double sum = 0;

	for (size_t i = 0; i < reference->graph->node_count; i++)
		run(reference, (int)i);
	for (size_t i = 0; i < reference->count; i++)
		sum += row_loss(logits_of(reference) + i * classes, classes, reference->labels[i],
				reference->smoothing);
	return sum;
}

double reference_slope(struct reference *reference, size_t index, size_t at)
{
	double *value = &reference->parameters[index][at], kept = *value, step = 1e-5;
	double above, below;

	*value = kept + step;
	above = reference_loss(reference);
	*value = kept - step;
	below = reference_loss(reference);
	*value = kept;
	return (above - below) / (2 * step);
}

uint64_t reference_hits(const struct reference *reference)
{
	size_t classes = (size_t)reference->graph->net->classes;
	uint64_t hits = 0;

	for (size_t i = 0; i < reference->count; i++) {
		const double *row = logits_of(reference) + i * classes;
		size_t best = 0;

		for (size_t c = 1; c < classes; c++)
			best = row[c] > row[best] ? c : best;
		hits += best == (size_t)reference->labels[i];
	}
	return hits;
}
