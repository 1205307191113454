/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layers.c - bytes and operations of each layer of a network in one step, for the roofline
 *
 *     layers NET BATCH BYTES       BYTES of an activation: 4 (f32) or 2 (bf16, fp16)
 *
 * Prints a line for each layer: number, kind, name, output, and then bytes and operations (a
 * multiplication and an addition are two) of the forward pass, of the gradient of the input, and of
 * the gradient of parameters. The last lines are "optimizer" and "input". Bytes are the minimum
 * that must cross the memory bus if each operation reads its operands and writes its results once
 * and nothing is cached between operations. ReLU, the normalisation of BatchNorm and additions
 * count as fused with the previous or next operation if the engine fuses them.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/graph.h"
#include "optim/optim.h"

enum pass { FORWARD, BACK_DATA, BACK_WEIGHTS, PASSES };

struct cost {
	double bytes[PASSES], flops[PASSES];
};

struct step {
	const struct graph *graph;
	double batch, size; /* number of images; bytes of an activation */
};

static const char *const kinds[NET_KINDS] = {
	[NET_CONV] = "conv",	   [NET_DENSE] = "dense",	[NET_NORM] = "norm",
	[NET_RELU] = "relu",	   [NET_MAX_POOL] = "max pool", [NET_AVERAGE_POOL] = "average pool",
	[NET_DROPOUT] = "dropout", [NET_ADD] = "add",
};

static double elements(const struct step *step, struct graph_shape shape)
{
	return step->batch * (double)graph_size(shape);
}

/* Whether the gradient of [node]'s input is needed. The gradient of the image is not. */
static bool needs_input_gradient(const struct graph_node *node)
{
	return node->input >= 0;
}

/*
 * Whether [node] is computed together with the previous node. No other node may read that node's
 * result.
 */
static bool is_fused(const struct step *step, size_t index)
{
	const struct graph_node *node = &step->graph->nodes[index], *before;

	if (index == 0 || node->input != (int)index - 1)
		return false;
	before = node - 1;
	if (before->readers != 1)
		return false;
	if (node->layer->kind == NET_RELU)
		return before->layer->kind != NET_MAX_POOL;
	return node->layer->kind == NET_ADD && before->layer->kind == NET_NORM;
}

static double parameters(const struct step *step, const struct graph_node *node)
{
	const struct graph_parameter *list = step->graph->parameters;

	return (node->weight >= 0 ? (double)list[node->weight].count : 0) +
	       (node->bias >= 0 ? (double)list[node->bias].count : 0);
}

/* Cost of a convolution or a dense layer: each output is a sum over its fan-in. */
static struct cost cost_of_product(const struct step *step, const struct graph_node *node)
{
	double in = elements(step, node->in), out = elements(step, node->out);
	double count = parameters(step, node);
	const struct graph_parameter *weight = &step->graph->parameters[node->weight];
	double flops = 2 * out * (double)graph_size(weight->fan);
	struct cost cost = {
		.bytes = {(in + out + count) * step->size, (out + in + count) * step->size,
			  (in + out) * step->size + count * 4},
		.flops = {flops, flops, flops},
	};

	if (!needs_input_gradient(node))
		cost.bytes[BACK_DATA] = cost.flops[BACK_DATA] = 0;
	return cost;
}

/*
 * Cost of BatchNorm. The statistics need a separate pass, because they must be known before
 * anything is normalised.
 */
static struct cost cost_of_norm(const struct step *step, const struct graph_node *node)
{
	double count = elements(step, node->out);

	return (struct cost){
		.bytes = {3 * count * step->size, 3 * count * step->size, 2 * count * step->size},
		.flops = {6 * count, 6 * count, 4 * count},
	};
}

/*
 * Cost of an element-wise operation: the forward pass reads the input and writes the output, and
 * the backward pass does the reverse.
 */
static struct cost cost_of_elements(const struct step *step, const struct graph_node *node)
{
	double in = elements(step, node->in), out = elements(step, node->out);
	struct cost cost = {
		.bytes = {(in + out) * step->size, (in + out) * step->size, 0},
		.flops = {in > out ? in : out, in > out ? in : out, 0},
	};

	/* the position of each maximum takes a byte */
	if (node->layer->kind == NET_MAX_POOL) {
		cost.bytes[FORWARD] += out;
		cost.bytes[BACK_DATA] += out;
	}
	if (!needs_input_gradient(node))
		cost.bytes[BACK_DATA] = cost.flops[BACK_DATA] = 0;
	return cost;
}

static struct cost cost_of_fused(const struct step *step, const struct graph_node *node)
{
	double out = elements(step, node->out);
	/* the result replaces that of the previous node, and the backward pass reads its sign */
	double extra = node->layer->kind == NET_ADD ? out * step->size : 0;

	return (struct cost){
		.bytes = {extra, node->layer->kind == NET_RELU ? out * step->size : extra, 0},
		.flops = {out, out, 0},
	};
}

static struct cost cost_of(const struct step *step, size_t index)
{
	const struct graph_node *node = &step->graph->nodes[index];

	switch (node->layer->kind) {
	case NET_CONV:
	case NET_DENSE:
		return cost_of_product(step, node);
	case NET_NORM:
		return cost_of_norm(step, node);
	default:
		return is_fused(step, index) ? cost_of_fused(step, node)
					     : cost_of_elements(step, node);
	}
}

static void print(const char *number, const char *kind, const char *name, const char *shape,
		  const struct cost *cost)
{
	printf("%s\t%s\t%s\t%s", number, kind, name, shape);
	for (int pass = 0; pass < PASSES; pass++)
		printf("\t%.0f\t%.0f", cost->bytes[pass], cost->flops[pass]);
	putchar('\n');
}

static void print_layer(const struct step *step, size_t index)
{
	const struct graph_node *node = &step->graph->nodes[index];
	struct cost cost = cost_of(step, index);
	char number[24], shape[48];

	snprintf(number, sizeof(number), "%zu", index);
	snprintf(shape, sizeof(shape), "%dx%dx%d", node->out.height, node->out.width,
		 node->out.channels);
	print(number, kinds[node->layer->kind], node->layer->name ? node->layer->name : "-", shape,
	      &cost);
}

/*
 * Prints the costs of the input, whose bytes become normalised activations, and of the optimizer,
 * which reads and writes values and slots.
 */
static void print_rest(const struct step *step)
{
	const struct net *net = step->graph->net;
	enum optim_kind kind = strcmp(net->name, "mnist") == 0 ? OPTIM_ADADELTA : OPTIM_SGD;
	struct optim optim = optim_default(kind);
	double count = (double)step->graph->weights, image, slots;
	struct cost cost = {.bytes = {0}};

	optim.momentum = 0.9;
	slots = optim_slots(&optim);
	image = step->batch * net->channels * net->height * net->width;
	cost.bytes[FORWARD] = image * (1 + step->size);
	cost.flops[FORWARD] = 2 * image;
	print("-", "input", "-", "-", &cost);
	cost.bytes[FORWARD] = count * (4 * (3 + 2 * slots) + (step->size < 4 ? step->size : 0));
	cost.flops[FORWARD] = count * (4 + 4 * slots);
	print("-", "optimizer", optim_names()[kind], "-", &cost);
}

int main(int argc, char **argv)
{
	struct step step = {.batch = argc > 2 ? strtod(argv[2], NULL) : 0,
			    .size = argc > 3 ? strtod(argv[3], NULL) : 0};
	struct net *net = argc > 1 ? net_create(argv[1], 0) : NULL;
	struct graph *graph = NULL;
	struct ddp_error error = {0, ""};

	if (argc != 4 || !net || step.batch < 1 || (step.size != 2 && step.size != 4)) {
		fprintf(stderr, "usage: layers mnist|cifar BATCH 2|4\n");
		net_destroy(net);
		return 2;
	}
	if (graph_create(&graph, net, &error) < 0) {
		fprintf(stderr, "layers: %s\n", error.text);
		net_destroy(net);
		return EXIT_FAILURE;
	}
	step.graph = graph;
	for (size_t i = 0; i < graph->node_count; i++)
		print_layer(&step, i);
	print_rest(&step);
	graph_destroy(graph);
	net_destroy(net);
	return EXIT_SUCCESS;
}
