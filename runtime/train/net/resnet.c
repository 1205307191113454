/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tables.h"

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
/* Of the layer before it and the one that lies [distance] back. */
#define ADD(distance)                              \
	{                                          \
		.kind = NET_ADD, .other = distance \
	}

#define BRANCH(block, channels, step)                                         \
	CONV(block ".conv1", channels, 3, step, 1), NORM(block ".bn1"), RELU, \
		CONV(block ".conv2", channels, 3, 1, 1), NORM(block ".bn2")

/* torchvision's BasicBlock, with what it read added to its result. */
#define BLOCK(block, channels) BRANCH(block, channels, 1), ADD(6), RELU

/* One that halves the image: what it read is brought to the new shape, by a convolution that
 * reads six layers back. */
#define BLOCK_HALVING(block, channels)          \
	BRANCH(block, channels, 2),             \
		{.kind = NET_CONV,              \
		 .name = block ".downsample.0", \
		 .outputs = channels,           \
		 .size = 1,                     \
		 .stride = 2,                   \
		 .back = 6},                    \
		NORM(block ".downsample.1"), ADD(3), RELU

static const struct net_layer layers[] = {
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

const struct net net_cifar = {
	.name = "cifar",
	.title = "ResNet-18 for images of 32 x 32",
	.channels = 3,
	.height = 32,
	.width = 32,
	.classes = 10,
	.mean = {0.4914f, 0.4822f, 0.4465f},
	.deviation = {0.2470f, 0.2435f, 0.2616f},
	.pad = 4,
	.flip = true,
	.layers = layers,
	.count = sizeof(layers) / sizeof(layers[0]),
};
