/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net.h - networks as tables of layers
 *
 * For all engines, the directory net/ defines the networks, keeps their parameters in host memory,
 * and plans their operations. It calls ddp.h and base/. Start reading here, then graph.h, model.h
 * and program.h.
 *
 * A table lists the layers with the names of PyTorch's modules, and says which layers each one
 * reads. graph.h derives shapes and parameters from the table, and engines compile the graph. To
 * add a network, add its table to net.c, and a pointer to it to the list of networks there.
 */
#ifndef TRAIN_NET_H
#define TRAIN_NET_H

#include <stdbool.h>
#include <stddef.h>

enum net_kind {
	NET_CONV,  /* convolution with a square window and equal padding on all sides */
	NET_DENSE, /* fully connected; flattens its input in PyTorch's order (C, H, W) */
	NET_NORM,  /* BatchNorm2d: eps 1e-5, momentum 0.1, affine, running statistics */
	NET_RELU,
	NET_MAX_POOL,	  /* 2 x 2 windows with stride 2, without padding */
	NET_AVERAGE_POOL, /* over the whole image; keeps the channels */
	NET_DROPOUT,	  /* drops elements, not channels */
	NET_ADD,	  /* sum of two layers of equal shape */
	NET_KINDS
};

struct net_layer {
	enum net_kind kind;
	const char *name;      /* name of PyTorch's module; NULL for layers without parameters */
	int outputs;	       /* channels of a convolution, outputs of a dense layer */
	int size, stride, pad; /* size, stride and padding of the window; pools have a size only */
	bool bias;	       /* for convolutions and dense layers */
	float rate;	       /* dropout: fraction of elements that are set to zero */
	int back;	       /* how many layers back the input is; 0 or 1: the preceding layer */
	int other;	       /* NET_ADD: how many layers back the second input is; never 0 */
};

#define NET_CHANNELS 4 /* maximum number of channels of an input image */

/* A network. The output of the last layer is the logits. */
struct net {
	const char *name;	     /* "mnist", "cifar" */
	int channels, height, width; /* shape of the input image */
	int classes;
	/* mean and standard deviation of each channel, for pixels from 0 to 1 */
	float mean[NET_CHANNELS], deviation[NET_CHANNELS];
	int pad;   /* training crops at random from the image with this padding; 0: no crop */
	bool flip; /* training mirrors images at random, with probability 1/2 */
	const struct net_layer *layers;
	size_t count;
};

/*
 * Creates the network [name] with [classes] classes, or with its default number if [classes] is 0.
 * Returns NULL if the network does not exist. Free the result with net_destroy().
 */
struct net *net_create(const char *name, int classes);
void net_destroy(struct net *net);

#endif /* TRAIN_NET_H */
