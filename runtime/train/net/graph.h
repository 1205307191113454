/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph.h - what follows from a table of layers: shapes, parameters, buffers
 *
 * LAYOUT. Everything that engines share is channels last: activations are N, H, W, C; weights of
 * convolutions O, H, W, I; columns of a dense layer that reads an image are in the order H, W, C.
 * Files have PyTorch's order (O, I, H, W and C, H, W); graph_export() and graph_import() go
 * between the two, and nothing else does.
 */
#ifndef TRAIN_GRAPH_H
#define TRAIN_GRAPH_H

#include <stdint.h>

#include "ddp.h"
#include "net.h"

struct graph_shape {
	int height, width, channels;
};

/* A layer, placed. */
struct graph_node {
	const struct net_layer *layer;
	int input, other; /* nodes that it reads; -1: the image (other: none) */
	int readers;	  /* how many nodes read it */
	struct graph_shape in, out;
	int weight, bias;   /* its parameters (NORM: scale and shift), -1: none */
	int mean, variance; /* NORM's buffers, -1: none */
};

enum graph_role { GRAPH_CONV_WEIGHT, GRAPH_DENSE_WEIGHT, GRAPH_BIAS, GRAPH_SCALE, GRAPH_SHIFT };

#define GRAPH_NAME 64

struct graph_parameter {
	char name[GRAPH_NAME]; /* "conv1.weight" */
	enum graph_role role;
	int node;
	int dimensions;
	int64_t shape[4]; /* PyTorch's */
	size_t count;
	struct graph_shape fan; /* what one output reads: the window and channels, or the image */
};

/* Running statistics of one NORM: values that train without gradients. */
struct graph_buffer {
	char name[GRAPH_NAME]; /* "bn1.running_mean" */
	int node;
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

/* The elements of one image at [shape]. */
size_t graph_size(struct graph_shape shape);

/*
 * Place [net], which must outlive it. Returns 0, or DDP_ERR_ARGUMENT with the layer at which the
 * table contradicts itself.
 */
int graph_create(struct graph **graph, const struct net *net, struct ddp_error *error);
void graph_destroy(struct graph *graph);

/*
 * Parameter [index], or an optimizer's value for each element of it, from the layout of engines
 * to PyTorch's and back. [from] and [to] do not overlap.
 */
void graph_export(const struct graph *graph, size_t index, float *to, const float *from);
void graph_import(const struct graph *graph, size_t index, float *to, const float *from);

/*
 * PyTorch's initial values of parameter [index] after those before it were drawn from [random],
 * in PyTorch's layout: kaiming_uniform(a=sqrt 5) weights, uniform biases, ones and zeros of NORM.
 * The same bits as PyTorch's on CPUs with AVX2; elsewhere PyTorch rounds once more, which is up to
 * one ulp of the largest value that may be drawn.
 */
struct ddp_mt19937;
void graph_init(const struct graph *graph, size_t index, struct ddp_mt19937 *random, float *to);

#endif /* TRAIN_GRAPH_H */
