/* SPDX-License-Identifier: Apache-2.0 */
/* graph.c - compute shapes, parameters and buffers of each layer */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/xalloc.h"
#include "graph.h"

size_t graph_size(struct graph_shape shape)
{
	return (size_t)shape.height * (size_t)shape.width * (size_t)shape.channels;
}

/* --- Parameters and buffers -------------------------------------------------------------- */

static int add_parameter(struct graph *graph, int node, const char *suffix, enum graph_role role,
			 int dimensions, const int64_t *shape, struct graph_shape fan)
{
	struct graph_parameter *parameter = &graph->parameters[graph->parameter_count];

	snprintf(parameter->name, sizeof(parameter->name), "%s%s", graph->nodes[node].layer->name,
		 suffix);
	parameter->role = role;
	parameter->dimensions = dimensions;
	parameter->count = 1;
	for (int i = 0; i < dimensions; i++) {
		parameter->shape[i] = shape[i];
		parameter->count *= (size_t)shape[i];
	}
	parameter->fan = fan;
	graph->weights += parameter->count;
	return (int)graph->parameter_count++;
}

static int add_vector(struct graph *graph, int node, const char *suffix, enum graph_role role,
		      int count, struct graph_shape fan)
{
	const int64_t shape[1] = {count};

	return add_parameter(graph, node, suffix, role, 1, shape, fan);
}

static int add_buffer(struct graph *graph, int node, const char *suffix, int count, float initial)
{
	struct graph_buffer *buffer = &graph->buffers[graph->buffer_count];

	snprintf(buffer->name, sizeof(buffer->name), "%s%s", graph->nodes[node].layer->name,
		 suffix);
	buffer->count = (size_t)count;
	buffer->initial = initial;
	return (int)graph->buffer_count++;
}

/* --- Shapes of each kind of layer -------------------------------------------------------- */

/*
 * Each of these functions sets the output shape of node [i] and adds the node's parameters. It
 * returns false if the layer does not fit its input.
 */

static bool place_conv(struct graph *graph, size_t i)
{
	struct graph_node *node = &graph->nodes[i];
	const struct net_layer *layer = node->layer;
	struct graph_shape fan = {layer->size, layer->size, node->in.channels};
	const int64_t shape[4] = {layer->outputs, fan.channels, fan.height, fan.width};
	int height = node->in.height + 2 * layer->pad, width = node->in.width + 2 * layer->pad;

	if (layer->stride < 1 || layer->size > height || layer->size > width)
		return false;
	node->out.height = (height - layer->size) / layer->stride + 1;
	node->out.width = (width - layer->size) / layer->stride + 1;
	node->out.channels = layer->outputs;
	node->weight = add_parameter(graph, (int)i, ".weight", GRAPH_WEIGHT, 4, shape, fan);
	if (layer->bias)
		node->bias = add_vector(graph, (int)i, ".bias", GRAPH_BIAS, layer->outputs, fan);
	return true;
}

static bool place_dense(struct graph *graph, size_t i)
{
	struct graph_node *node = &graph->nodes[i];
	const struct net_layer *layer = node->layer;
	const int64_t shape[2] = {layer->outputs, (int64_t)graph_size(node->in)};

	node->out = (struct graph_shape){1, 1, layer->outputs};
	node->weight = add_parameter(graph, (int)i, ".weight", GRAPH_WEIGHT, 2, shape, node->in);
	if (layer->bias)
		node->bias =
			add_vector(graph, (int)i, ".bias", GRAPH_BIAS, layer->outputs, node->in);
	return true;
}

static bool place_norm(struct graph *graph, size_t i)
{
	struct graph_node *node = &graph->nodes[i];
	const struct graph_shape one = {1, 1, 1};
	int channels = node->in.channels;

	node->weight = add_vector(graph, (int)i, ".weight", GRAPH_SCALE, channels, one);
	node->bias = add_vector(graph, (int)i, ".bias", GRAPH_SHIFT, channels, one);
	node->mean = add_buffer(graph, (int)i, ".running_mean", channels, 0);
	node->variance = add_buffer(graph, (int)i, ".running_var", channels, 1);
	return true;
}

static bool place_max_pool(struct graph *graph, size_t i)
{
	struct graph_node *node = &graph->nodes[i];

	node->out.height /= 2;
	node->out.width /= 2;
	return node->layer->size == 2 && node->in.height % 2 == 0 && node->in.width % 2 == 0;
}

static bool place_average_pool(struct graph *graph, size_t i)
{
	graph->nodes[i].out.height = graph->nodes[i].out.width = 1;
	return true;
}

static bool place_add(struct graph *graph, size_t i)
{
	struct graph_node *node = &graph->nodes[i];
	struct graph_shape other;

	node->other = (int)i - node->layer->other;
	if (node->other < 0 || node->other >= (int)i)
		return false;
	graph->nodes[node->other].readers++;
	other = graph->nodes[node->other].out;
	return other.height == node->in.height && other.width == node->in.width &&
	       other.channels == node->in.channels;
}

static bool (*const places[NET_KINDS])(struct graph *graph, size_t node) = {
	[NET_CONV] = place_conv, [NET_DENSE] = place_dense,
	[NET_NORM] = place_norm, [NET_MAX_POOL] = place_max_pool,
	[NET_ADD] = place_add,	 [NET_AVERAGE_POOL] = place_average_pool,
};

/* --- Whole graph ------------------------------------------------------------------------- */

static bool place(struct graph *graph, size_t i)
{
	const struct net *net = graph->net;
	const struct net_layer *layer = &net->layers[i];
	struct graph_node *node = &graph->nodes[i];
	int back = layer->back ? layer->back : 1;

	*node = (struct graph_node){.layer = layer,
				    .input = (int)i - back,
				    .other = -1,
				    .weight = -1,
				    .bias = -1,
				    .mean = -1,
				    .variance = -1};
	if (back < 1 || (size_t)back > i + 1)
		return false;
	if (node->input >= 0) {
		node->in = graph->nodes[node->input].out;
		graph->nodes[node->input].readers++;
	} else {
		node->in = (struct graph_shape){net->height, net->width, net->channels};
	}
	node->out = node->in;
	return !places[layer->kind] || places[layer->kind](graph, i);
}

/* Whether a later layer reads layer [i]. For the last layer: whether it has one value per class. */
static bool is_read(const struct graph *graph, size_t i)
{
	return i + 1 == graph->node_count
		       ? graph_size(graph->nodes[i].out) == (size_t)graph->net->classes
		       : graph->nodes[i].readers > 0;
}

int graph_create(struct graph **result, const struct net *net, struct ddp_error *error)
{
	struct graph *graph = ddp_xcalloc(1, sizeof(*graph), "the network");
	size_t placed = 0, read = 0;

	*result = NULL;
	graph->net = net;
	graph->node_count = net->count;
	graph->nodes = ddp_xcalloc(net->count, sizeof(*graph->nodes), "the network");
	graph->parameters = ddp_xcalloc(2 * net->count, sizeof(*graph->parameters), "the network");
	graph->buffers = ddp_xcalloc(2 * net->count, sizeof(*graph->buffers), "the network");
	while (placed < net->count && place(graph, placed))
		placed++;
	while (read < placed && is_read(graph, read))
		read++;
	if (placed < net->count || read < placed) {
		graph_destroy(graph);
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "layer %zu of network %s does not fit the others",
				     placed < net->count ? placed : read, net->name);
	}
	*result = graph;
	return 0;
}

void graph_destroy(struct graph *graph)
{
	if (!graph)
		return;
	free(graph->buffers);
	free(graph->parameters);
	free(graph->nodes);
	free(graph);
}
