/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph.h - shapes, parameters and buffers that follow from a table of layers
 *
 * LAYOUT. All engines store channels last: activations are N, H, W, C; weights of convolutions are
 * O, H, W, I. The columns of a dense layer that reads an image are in the order H, W, C. Files have
 * PyTorch's order (O, I, H, W and C, H, W). Only model.c converts between the two.
 */
#ifndef TRAIN_GRAPH_H
#define TRAIN_GRAPH_H

#include <stdint.h>

#include "ddp.h"
#include "net.h"

struct graph_shape {
	int height, width, channels;
};

/* A layer with its shapes and its position in the graph. */
struct graph_node {
	const struct net_layer *layer;
	int input, other; /* nodes that are read; input -1: the image; other -1: none */
	int readers;	  /* number of nodes that read this node */
	struct graph_shape in, out;
	int weight, bias;   /* indices of parameters (NORM: scale and shift); -1: none */
	int mean, variance; /* indices of NORM's buffers; -1: none */
};

enum graph_role { GRAPH_WEIGHT, GRAPH_BIAS, GRAPH_SCALE, GRAPH_SHIFT };

#define GRAPH_NAME 64

struct graph_parameter {
	char name[GRAPH_NAME]; /* "conv1.weight" */
	enum graph_role role;
	int dimensions;
	int64_t shape[4]; /* shape in PyTorch's order */
	size_t count;
	/* values that one output element depends on: window x channels, or the whole image */
	struct graph_shape fan;
};

/* Running statistics of a NORM layer. They are updated without gradients. */
struct graph_buffer {
	char name[GRAPH_NAME]; /* "bn1.running_mean" */
	size_t count;
	float initial;
};

struct graph {
	const struct net *net;
	struct graph_node *nodes;
	size_t node_count;
	struct graph_parameter *parameters; /* in PyTorch's order */
	size_t parameter_count;
	struct graph_buffer *buffers;
	size_t buffer_count;
	size_t weights; /* elements of all parameters */
};

/* Returns the number of elements of an image that has the given shape. */
size_t graph_size(struct graph_shape shape);

/*
 * Creates the graph of [net], which must stay valid as long as the graph. Returns 0, or
 * DDP_ERR_ARGUMENT with a text that names the layer at which the table is inconsistent.
 */
int graph_create(struct graph **graph, const struct net *net, struct ddp_error *error);
void graph_destroy(struct graph *graph);

#endif /* TRAIN_GRAPH_H */
