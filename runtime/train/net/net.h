/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net.h - networks are tables of layers
 *
 * A table names each layer as PyTorch's module does and says which layers it reads; graph.h makes
 * shapes and parameters of it, engines compile that. A new network is a new table and a
 * name in net.c; nothing else knows it.
 */
#ifndef TRAIN_NET_H
#define TRAIN_NET_H

#include <stdbool.h>
#include <stddef.h>

enum net_kind {
	NET_CONV,  /* convolution, square window, equal padding on all sides */
	NET_DENSE, /* fully connected; flattens what it reads, in PyTorch's order (C, H, W) */
	NET_NORM,  /* BatchNorm2d: eps 1e-5, momentum 0.1, affine, running statistics */
	NET_RELU,
	NET_MAX_POOL,	  /* window without padding, stride as large as it */
	NET_AVERAGE_POOL, /* over the whole image: channels remain */
	NET_DROPOUT,	  /* elements, not channels */
	NET_ADD,	  /* of two layers of one shape */
	NET_KINDS
};

struct net_layer {
	enum net_kind kind;
	const char *name;      /* of PyTorch's module; NULL where there are no parameters */
	int outputs;	       /* channels of a convolution, outputs of a dense layer */
	int size, stride, pad; /* of the window; of a pool: size alone */
	bool bias;	       /* of a convolution or dense layer */
	float rate;	       /* of dropout: the part that is set to zero */
	int back;	       /* reads the layer so many before this one; 0 stands for 1 */
	int other;	       /* the second one that NET_ADD reads, likewise, never 0 */
};

#define NET_CHANNELS 4 /* of an input image at most */

/* The output of the last layer are the logits. */
struct net {
	const char *name; /* what the user says: "mnist", "cifar" */
	const char *title;
	int channels, height, width; /* of the input */
	int classes;
	float mean[NET_CHANNELS], deviation[NET_CHANNELS]; /* of pixels from 0 to 1 */
	int pad;   /* training crops at random out of the image with so much around it; 0: no */
	bool flip; /* training mirrors every other image */
	const struct net_layer *layers;
	size_t count;
};

/*
 * The network called [name] with so many [classes] (0: its own number).
 * Returns it, in memory that net_destroy() frees, or NULL if there is none.
 */
struct net *net_create(const char *name, int classes);
void net_destroy(struct net *net);

/* The names of all networks, NULL-terminated. */
const char *const *net_names(void);

#endif /* TRAIN_NET_H */
