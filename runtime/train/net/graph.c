/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/xalloc.h"
#include "graph.h"

/* Limit of sizes. The product of four sizes fits into int64_t. */
enum { LARGEST = 32767 };

/* longest suffix that a layer's parameter or buffer adds to its name */
#define LONGEST_SUFFIX ".num_batches_tracked"

size_t graph_size(struct graph_shape shape)
{
	return (size_t)shape.height * (size_t)shape.width * (size_t)shape.channels;
}

static const char *kind_name(enum net_kind kind)
{
	static const char *const names[NET_KINDS] = {
		[NET_CONV] = "convolution",  [NET_DENSE] = "dense layer",
		[NET_NORM] = "BatchNorm",    [NET_RELU] = "ReLU",
		[NET_MAX_POOL] = "max pool", [NET_AVERAGE_POOL] = "average pool",
		[NET_DROPOUT] = "dropout",   [NET_ADD] = "addition",
	};

	return kind >= 0 && kind < NET_KINDS ? names[kind] : "layer of no known kind";
}

/* Returns DDP_ERR_ARGUMENT with a text that starts with the network and layer [node]. */
static int refuse_layer(const struct graph *graph, size_t node, struct ddp_error *error,
			const char *format, ...) __attribute__((format(printf, 4, 5)));

static int refuse_layer(const struct graph *graph, size_t node, struct ddp_error *error,
			const char *format, ...)
{
	const struct net_layer *layer = &graph->net->layers[node];
	char text[256];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	return ddp_error_set(error, DDP_ERR_ARGUMENT, "network %s, layer %zu (%s%s%s): %s",
			     graph->net->name, node, kind_name(layer->kind), layer->name ? " " : "",
			     layer->name ? layer->name : "", text);
}

/* --- Parameters and buffers -------------------------------------------------------------- */

static int add_parameter(struct graph *graph, int node, const char *suffix, enum graph_role role,
			 int dimensions, const int64_t *shape, struct graph_shape fan)
{
	struct graph_parameter *parameter = &graph->parameters[graph->parameter_count];

	snprintf(parameter->name, sizeof(parameter->name), "%s%s", graph->nodes[node].layer->name,
		 suffix);
	parameter->role = role;
	parameter->node = node;
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
	buffer->node = node;
	buffer->count = (size_t)count;
	buffer->initial = initial;
	return (int)graph->buffer_count++;
}

/* --- Shapes of each kind of layer -------------------------------------------------------- */

static int place_conv(struct graph *graph, size_t i, struct ddp_error *error)
{
	struct graph_node *node = &graph->nodes[i];
	const struct net_layer *layer = node->layer;
	struct graph_shape fan = {layer->size, layer->size, node->in.channels};
	const int64_t shape[4] = {layer->outputs, fan.channels, fan.height, fan.width};
	int height = node->in.height + 2 * layer->pad, width = node->in.width + 2 * layer->pad;

	if (layer->outputs < 1 || layer->outputs > LARGEST)
		return refuse_layer(graph, i, error, "%d channels are not 1 to %d", layer->outputs,
				    LARGEST);
	if (layer->size < 1 || layer->stride < 1 || layer->pad < 0 || layer->pad >= layer->size)
		return refuse_layer(graph, i, error,
				    "window %d, stride %d and padding %d are not possible",
				    layer->size, layer->stride, layer->pad);
	if (layer->size > height || layer->size > width)
		return refuse_layer(graph, i, error, "a window of %d does not fit %d x %d",
				    layer->size, height, width);
	node->out.height = (height - layer->size) / layer->stride + 1;
	node->out.width = (width - layer->size) / layer->stride + 1;
	node->out.channels = layer->outputs;
	node->weight = add_parameter(graph, (int)i, ".weight", GRAPH_CONV_WEIGHT, 4, shape, fan);
	if (layer->bias)
		node->bias = add_vector(graph, (int)i, ".bias", GRAPH_BIAS, layer->outputs, fan);
	return 0;
}

static int place_dense(struct graph *graph, size_t i, struct ddp_error *error)
{
	struct graph_node *node = &graph->nodes[i];
	const struct net_layer *layer = node->layer;
	const int64_t shape[2] = {layer->outputs, (int64_t)graph_size(node->in)};

	if (layer->outputs < 1 || layer->outputs > LARGEST)
		return refuse_layer(graph, i, error, "%d outputs are not 1 to %d", layer->outputs,
				    LARGEST);
	node->out = (struct graph_shape){1, 1, layer->outputs};
	node->weight =
		add_parameter(graph, (int)i, ".weight", GRAPH_DENSE_WEIGHT, 2, shape, node->in);
	if (layer->bias)
		node->bias =
			add_vector(graph, (int)i, ".bias", GRAPH_BIAS, layer->outputs, node->in);
	return 0;
}

static int place_norm(struct graph *graph, size_t i, struct ddp_error *error)
{
	struct graph_node *node = &graph->nodes[i];
	const struct graph_shape one = {1, 1, 1};
	int channels = node->in.channels;

	(void)error;
	node->weight = add_vector(graph, (int)i, ".weight", GRAPH_SCALE, channels, one);
	node->bias = add_vector(graph, (int)i, ".bias", GRAPH_SHIFT, channels, one);
	node->mean = add_buffer(graph, (int)i, ".running_mean", channels, 0);
	node->variance = add_buffer(graph, (int)i, ".running_var", channels, 1);
	return 0;
}

static int place_max_pool(struct graph *graph, size_t i, struct ddp_error *error)
{
	struct graph_node *node = &graph->nodes[i];
	int size = node->layer->size;

	if (size < 1 || node->in.height % size != 0 || node->in.width % size != 0)
		return refuse_layer(graph, i, error, "windows of %d do not divide %d x %d", size,
				    node->in.height, node->in.width);
	node->out.height /= size;
	node->out.width /= size;
	return 0;
}

static int place_average_pool(struct graph *graph, size_t i, struct ddp_error *error)
{
	(void)error;
	graph->nodes[i].out.height = graph->nodes[i].out.width = 1;
	return 0;
}

static int place_dropout(struct graph *graph, size_t i, struct ddp_error *error)
{
	float rate = graph->nodes[i].layer->rate;

	if (!(rate >= 0 && rate < 1))
		return refuse_layer(graph, i, error, "rate %g is not in [0, 1)", (double)rate);
	return 0;
}

static int place_add(struct graph *graph, size_t i, struct ddp_error *error)
{
	struct graph_node *node = &graph->nodes[i];
	int back = node->layer->other;
	struct graph_shape other;

	if (back < 1 || (size_t)back > i)
		return refuse_layer(graph, i, error,
				    "the second input, %d layers back, does not exist", back);
	node->other = (int)i - back;
	graph->nodes[node->other].readers++;
	other = graph->nodes[node->other].out;
	if (other.height != node->in.height || other.width != node->in.width ||
	    other.channels != node->in.channels)
		return refuse_layer(graph, i, error, "cannot add %d x %d x %d and %d x %d x %d",
				    node->in.height, node->in.width, node->in.channels,
				    other.height, other.width, other.channels);
	return 0;
}

static const struct {
	bool named; /* has parameters, so it needs a name */
	int (*place)(struct graph *graph, size_t node, struct ddp_error *error);
} kinds[NET_KINDS] = {
	[NET_CONV] = {true, place_conv},	  [NET_DENSE] = {true, place_dense},
	[NET_NORM] = {true, place_norm},	  [NET_RELU] = {false, NULL},
	[NET_MAX_POOL] = {false, place_max_pool}, [NET_AVERAGE_POOL] = {false, place_average_pool},
	[NET_DROPOUT] = {false, place_dropout},	  [NET_ADD] = {false, place_add},
};

/* --- Whole graph ------------------------------------------------------------------------- */

static int check_name(const struct graph *graph, size_t i, struct ddp_error *error)
{
	const struct net_layer *layer = &graph->net->layers[i];

	if (layer->kind < 0 || layer->kind >= NET_KINDS)
		return refuse_layer(graph, i, error, "unknown kind %d", (int)layer->kind);
	if (!kinds[layer->kind].named)
		return 0;
	if (!layer->name || !*layer->name)
		return refuse_layer(graph, i, error, "its parameters need a name");
	if (strlen(layer->name) + sizeof(LONGEST_SUFFIX) > GRAPH_NAME)
		return refuse_layer(graph, i, error, "its name is longer than %zu characters",
				    GRAPH_NAME - sizeof(LONGEST_SUFFIX));
	for (size_t k = 0; k < i; k++) {
		const struct net_layer *other = &graph->net->layers[k];

		if (kinds[other->kind].named && strcmp(other->name, layer->name) == 0)
			return refuse_layer(graph, i, error, "layer %zu has the same name", k);
	}
	return 0;
}

static int place(struct graph *graph, size_t i, struct ddp_error *error)
{
	const struct net *net = graph->net;
	const struct net_layer *layer = &net->layers[i];
	struct graph_node *node = &graph->nodes[i];
	int back = layer->back ? layer->back : 1;
	int status = check_name(graph, i, error);

	if (status < 0)
		return status;
	*node = (struct graph_node){.layer = layer,
				    .input = (int)i - back,
				    .other = -1,
				    .weight = -1,
				    .bias = -1,
				    .mean = -1,
				    .variance = -1};
	if (back < 1 || (size_t)back > i + 1)
		return refuse_layer(graph, i, error,
				    "its input, %d layers back, is before the image", back);
	if (node->input >= 0) {
		node->in = graph->nodes[node->input].out;
		graph->nodes[node->input].readers++;
	} else {
		node->in = (struct graph_shape){net->height, net->width, net->channels};
	}
	node->out = node->in;
	return kinds[layer->kind].place ? kinds[layer->kind].place(graph, i, error) : 0;
}

static int check_input(const struct net *net, struct ddp_error *error)
{
	if (net->count == 0)
		return ddp_error_set(error, DDP_ERR_ARGUMENT, "network %s has no layers",
				     net->name);
	if (net->channels < 1 || net->channels > NET_CHANNELS || net->height < 1 ||
	    net->height > LARGEST || net->width < 1 || net->width > LARGEST || net->pad < 0 ||
	    net->pad > LARGEST)
		return ddp_error_set(
			error, DDP_ERR_ARGUMENT,
			"network %s: images of %d x %d x %d with padding %d are not possible",
			net->name, net->height, net->width, net->channels, net->pad);
	for (int i = 0; i < net->channels; i++) {
		if (!(net->deviation[i] > 0))
			return ddp_error_set(
				error, DDP_ERR_ARGUMENT,
				"network %s: deviation %g of channel %d is not above 0", net->name,
				(double)net->deviation[i], i);
	}
	return 0;
}

/*
 * Checks that a later layer reads each layer except the last, and that the last layer has one value
 * per class.
 */
static int check_output(const struct graph *graph, struct ddp_error *error)
{
	size_t last = graph->node_count - 1;
	struct graph_shape out = graph->nodes[last].out;

	if (graph->parameter_count == 0)
		return refuse_layer(graph, last, error, "the network has no parameters");
	for (size_t i = 0; i < last; i++) {
		if (graph->nodes[i].readers == 0)
			return refuse_layer(graph, i, error, "no layer reads it");
	}
	if (out.height != 1 || out.width != 1 || out.channels != graph->net->classes)
		return refuse_layer(
			graph, last, error,
			"its output %d x %d x %d is not one value for each of %d classes",
			out.height, out.width, out.channels, graph->net->classes);
	return 0;
}

int graph_create(struct graph **result, const struct net *net, struct ddp_error *error)
{
	struct graph *graph = NULL;
	int status;

	*result = NULL;
	status = check_input(net, error);
	if (status < 0)
		return status;
	graph = ddp_xcalloc(1, sizeof(*graph), "the network");
	graph->net = net;
	graph->node_count = net->count;
	graph->nodes = ddp_xcalloc(net->count, sizeof(*graph->nodes), "the network");
	graph->parameters = ddp_xcalloc(2 * net->count, sizeof(*graph->parameters), "the network");
	graph->buffers = ddp_xcalloc(2 * net->count, sizeof(*graph->buffers), "the network");
	for (size_t i = 0; status == 0 && i < net->count; i++)
		status = place(graph, i, error);
	if (status == 0)
		status = check_output(graph, error);
	if (status < 0) {
		graph_destroy(graph);
		return status;
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
