/* SPDX-License-Identifier: Apache-2.0 */
/* net.c - tables of the networks for MNIST and CIFAR */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/xalloc.h"
#include "net.h"

/* --- MNIST: pytorch/examples/mnist --------------------------------------------------------- */

static const struct net_layer mnist_layers[] = {
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

static const struct net mnist = {
	.name = "mnist",
	.channels = 1,
	.height = 28,
	.width = 28,
	.classes = 10,
	.mean = {0.1307f},
	.deviation = {0.3081f},
	.layers = mnist_layers,
	.count = sizeof(mnist_layers) / sizeof(mnist_layers[0]),
};

/* --- CIFAR: ResNet-18 for small images ----------------------------------------------------- */

#define CONV(module, channels, window, step, around)                                   \
	{                                                                              \
		.kind = NET_CONV, .name = module, .outputs = channels, .size = window, \
		.stride = step, .pad = around                                          \
	}
#define NORM(module)                             \
	{                                        \
		.kind = NET_NORM, .name = module \
	}
#define RELU                     \
	{                        \
		.kind = NET_RELU \
	}
/* Layer that adds the preceding layer and the layer [distance] layers back. */
#define ADD(distance)                              \
	{                                          \
		.kind = NET_ADD, .other = distance \
	}

#define BRANCH(block, channels, step)                                         \
	CONV(block ".conv1", channels, 3, step, 1), NORM(block ".bn1"), RELU, \
		CONV(block ".conv2", channels, 3, 1, 1), NORM(block ".bn2")

/* torchvision's BasicBlock, which adds the block's input to its result. */
#define BLOCK(block, channels) BRANCH(block, channels, 1), ADD(6), RELU

/*
 * BasicBlock that halves the image's height and width. A 1 x 1 convolution converts the block's
 * input, which is six layers back, to the new shape.
 */
#define BLOCK_HALVING(block, channels)          \
	BRANCH(block, channels, 2),             \
		{.kind = NET_CONV,              \
		 .name = block ".downsample.0", \
		 .outputs = channels,           \
		 .size = 1,                     \
		 .stride = 2,                   \
		 .back = 6},                    \
		NORM(block ".downsample.1"), ADD(3), RELU

static const struct net_layer cifar_layers[] = {
	CONV("conv1", 64, 3, 1, 1),
	NORM("bn1"),
	RELU,
	BLOCK("layer1.0", 64),
	BLOCK("layer1.1", 64),
	BLOCK_HALVING("layer2.0", 128),
	BLOCK("layer2.1", 128),
	BLOCK_HALVING("layer3.0", 256),
	BLOCK("layer3.1", 256),
	BLOCK_HALVING("layer4.0", 512),
	BLOCK("layer4.1", 512),
	{.kind = NET_AVERAGE_POOL},
	{.kind = NET_DENSE, .name = "fc", .outputs = 10, .bias = true},
};

static const float cifar100_mean[NET_CHANNELS] = {0.5071f, 0.4865f, 0.4409f},
		   cifar100_deviation[NET_CHANNELS] = {0.2673f, 0.2564f, 0.2762f};

/* [mean] and [deviation] are the values for CIFAR-10. */
static const struct net cifar = {
	.name = "cifar",
	.channels = 3,
	.height = 32,
	.width = 32,
	.classes = 10,
	.mean = {0.4914f, 0.4822f, 0.4465f},
	.deviation = {0.2470f, 0.2435f, 0.2616f},
	.pad = 4,
	.flip = true,
	.layers = cifar_layers,
	.count = sizeof(cifar_layers) / sizeof(cifar_layers[0]),
};

/* --- Table of networks ---------------------------------------------------------------------- */

static const struct net *const nets[] = {&mnist, &cifar};

enum { NETS = sizeof(nets) / sizeof(nets[0]) };

/* A network and its layers, in one allocation. */
struct copy {
	struct net net;
	struct net_layer layers[];
};

static struct net *net_copy(const struct net *from, int classes)
{
	struct copy *copy = ddp_xcalloc(1, sizeof(*copy) + from->count * sizeof(copy->layers[0]),
					"the network");

	copy->net = *from;
	memcpy(copy->layers, from->layers, from->count * sizeof(copy->layers[0]));
	if (classes > 0) {
		copy->net.classes = classes;
		copy->layers[from->count - 1].outputs = classes;
	}
	if (from == &cifar && classes == 100) {
		memcpy(copy->net.mean, cifar100_mean, sizeof(cifar100_mean));
		memcpy(copy->net.deviation, cifar100_deviation, sizeof(cifar100_deviation));
	}
	copy->net.layers = copy->layers;
	return &copy->net;
}

struct net *net_create(const char *name, int classes)
{
	for (size_t i = 0; i < NETS; i++) {
		if (strcmp(nets[i]->name, name) == 0)
			return net_copy(nets[i], classes);
	}
	return NULL;
}

void net_destroy(struct net *net)
{
	free(net);
}
