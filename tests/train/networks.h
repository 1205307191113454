/* SPDX-License-Identifier: Apache-2.0 */
/*
 * networks.h - small networks for tests of engines, with every kind of layer in several
 * combinations
 *
 * Channels of pools, dropouts and BatchNorm are multiples of 8, as the GPU engine's kernels need.
 */
#ifndef DDP_TESTS_NETWORKS_H
#define DDP_TESTS_NETWORKS_H

#include "net/net.h"

#define NETWORK(id, table)                                 \
	static const struct net id = {                     \
		.name = #id,                               \
		.channels = 1,                             \
		.height = 28,                              \
		.width = 28,                               \
		.classes = 10,                             \
		.mean = {0.1307f},                         \
		.deviation = {0.3081f},                    \
		.layers = table,                           \
		.count = sizeof(table) / sizeof(table[0]), \
	}

/* The layers of mnist. Gradients of conv2 may be computed from lists of nonzero elements. */
static const struct net_layer mnist_layers[] = {
	{.kind = NET_CONV, .name = "conv0", .outputs = 8, .size = 2, .stride = 2},
	{.kind = NET_CONV, .name = "conv1", .outputs = 32, .size = 3, .stride = 1, .bias = true},
	{.kind = NET_RELU},
	{.kind = NET_CONV, .name = "conv2", .outputs = 8, .size = 3, .stride = 1, .bias = true},
	{.kind = NET_RELU},
	{.kind = NET_MAX_POOL, .size = 2},
	{.kind = NET_DROPOUT, .rate = 0.25f},
	{.kind = NET_DENSE, .name = "fc1", .outputs = 24, .bias = true},
	{.kind = NET_RELU},
	{.kind = NET_DROPOUT, .rate = 0.5f},
	{.kind = NET_DENSE, .name = "fc2", .outputs = 10, .bias = true},
};
NETWORK(like_mnist, mnist_layers);

/* Layers without dropout and bias, whose sizes are not multiples of a CPU's longest vector. */
static const struct net_layer odd_layers[] = {
	{.kind = NET_CONV, .name = "conv0", .outputs = 8, .size = 4, .stride = 4},
	{.kind = NET_CONV, .name = "conv1", .outputs = 16, .size = 2, .stride = 1},
	{.kind = NET_CONV, .name = "conv2", .outputs = 24, .size = 3, .stride = 1},
	{.kind = NET_RELU},
	{.kind = NET_MAX_POOL, .size = 2},
	{.kind = NET_DENSE, .name = "fc", .outputs = 10},
};
NETWORK(odd, odd_layers);

/* The layers of the residual network, with both of its kinds of block. */
static const struct net_layer residual_layers[] = {
	{.kind = NET_CONV, .name = "conv0", .outputs = 8, .size = 4, .stride = 4},
	{.kind = NET_CONV, .name = "conv1", .outputs = 8, .size = 3, .stride = 1, .pad = 1},
	{.kind = NET_NORM, .name = "bn1"},
	{.kind = NET_RELU},
	{.kind = NET_CONV, .name = "a1", .outputs = 8, .size = 3, .stride = 1, .pad = 1},
	{.kind = NET_NORM, .name = "a2"},
	{.kind = NET_RELU},
	{.kind = NET_CONV, .name = "a3", .outputs = 8, .size = 3, .stride = 1, .pad = 1},
	{.kind = NET_NORM, .name = "a4"},
	{.kind = NET_ADD, .other = 6},
	{.kind = NET_RELU},
	{.kind = NET_CONV, .name = "b1", .outputs = 16, .size = 3, .stride = 2, .pad = 1},
	{.kind = NET_NORM, .name = "b2"},
	{.kind = NET_RELU},
	{.kind = NET_CONV, .name = "b3", .outputs = 16, .size = 3, .stride = 1, .pad = 1},
	{.kind = NET_NORM, .name = "b4"},
	{.kind = NET_CONV, .name = "b5", .outputs = 16, .size = 1, .stride = 2, .back = 6},
	{.kind = NET_NORM, .name = "b6"},
	{.kind = NET_ADD, .other = 3},
	{.kind = NET_RELU},
	{.kind = NET_AVERAGE_POOL},
	{.kind = NET_DENSE, .name = "fc", .outputs = 10, .bias = true},
};
NETWORK(residual, residual_layers);

/*
 * Layers that add: a value that several layers read, a value to itself, and the image. A ReLU that
 * no other layer can include.
 */
static const struct net_layer tangled_layers[] = {
	{.kind = NET_RELU},
	{.kind = NET_CONV, .name = "c0", .outputs = 1, .size = 3, .stride = 1, .pad = 1},
	{.kind = NET_ADD, .other = 2},
	{.kind = NET_CONV, .name = "conv0", .outputs = 8, .size = 4, .stride = 4},
	{.kind = NET_NORM, .name = "n1"},
	{.kind = NET_ADD, .other = 2},
	{.kind = NET_CONV,
	 .name = "c1",
	 .outputs = 8,
	 .size = 3,
	 .stride = 1,
	 .pad = 1,
	 .bias = true},
	{.kind = NET_RELU, .back = 1},
	{.kind = NET_RELU, .back = 2},
	{.kind = NET_ADD, .other = 2},
	{.kind = NET_RELU},
	{.kind = NET_ADD, .other = 5},
	{.kind = NET_ADD, .other = 1},
	{.kind = NET_DROPOUT, .rate = 19661.0f / 65536},
	{.kind = NET_CONV, .name = "c2", .outputs = 8, .size = 3, .stride = 1, .pad = 1, .back = 2},
	{.kind = NET_NORM, .name = "n2"},
	{.kind = NET_ADD, .other = 3},
	{.kind = NET_NORM, .name = "n3"},
	{.kind = NET_ADD, .other = 2},
	{.kind = NET_ADD, .other = 6},
	{.kind = NET_ADD, .other = 7},
	{.kind = NET_DENSE, .name = "fc", .outputs = 10, .bias = true},
};
NETWORK(tangled, tangled_layers);

#endif /* DDP_TESTS_NETWORKS_H */
