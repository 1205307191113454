/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tables.h"

static const struct net_layer layers[] = {
	{.kind = NET_CONV, .name = "conv1", .outputs = 32, .size = 3, .stride = 1, .bias = true},
	{.kind = NET_RELU},
	{.kind = NET_CONV, .name = "conv2", .outputs = 64, .size = 3, .stride = 1, .bias = true},
	{.kind = NET_RELU},
	{.kind = NET_MAX_POOL, .size = 2},
	{.kind = NET_DROPOUT, .rate = 0.25f},
	{.kind = NET_DENSE, .name = "fc1", .outputs = 128, .bias = true},
	{.kind = NET_RELU},
	{.kind = NET_DROPOUT, .rate = 0.5f},
	{.kind = NET_DENSE, .name = "fc2", .outputs = 10, .bias = true},
};

const struct net net_mnist = {
	.name = "mnist",
	.title = "the network of pytorch/examples/mnist",
	.channels = 1,
	.height = 28,
	.width = 28,
	.classes = 10,
	.mean = {0.1307f},
	.deviation = {0.3081f},
	.layers = layers,
	.count = sizeof(layers) / sizeof(layers[0]),
};
