/* SPDX-License-Identifier: Apache-2.0 */
/*
 * math.h - convolutions and dense layers of the CPU engine
 *
 * The heavy arithmetic comes from a module (ddp_onednn.so) or, without it, from loops in plain C
 * (math_plain), which are the reference. Parameters and their gradients are always f32, in the
 * plain layouts of graph.h; what a library keeps in layouts of its own stays in here.
 * Activations are N, H, W, C in [type].
 */
#ifndef TRAIN_MATH_H
#define TRAIN_MATH_H

#include "base/module.h"

#define MATH_VERSION 1

/* A convolution, or with a window as large as the image and no padding, a dense layer. */
struct math_options {
	int height, width, in; /* of what it reads; a dense layer: 1, 1, inputs */
	int out, size, stride, pad;
	bool dense;
	bool bias, relu;    /* relu: forward ends with it */
	bool first;	    /* nobody wants the gradient of what it reads */
	enum ddp_type type; /* of activations: DDP_F32 or DDP_BF16 */
	size_t batch;	    /* images at most */
	int threads;
};

/* The height or width of what is written, where that of what is read is [size]. */
static inline int math_out_size(const struct math_options *options, int size)
{
	return (size + 2 * options->pad - options->size) / options->stride + 1;
}

enum math_pass { MATH_FORWARD, MATH_BACK_DATA, MATH_BACK_WEIGHTS, MATH_PASSES };

struct math_layer; /* the library's own */

struct math {
	struct ddp_module_head head; /* kind "math"; name "onednn", "plain" */

	/* "oneDNN 2.6.3", with the instructions it uses. Constant memory. */
	const char *(*describe)(void);

	/* Whether activations of [type] are fast here; false: refuse, with the reason in [error]. */
	bool (*has)(enum ddp_type type, struct ddp_error *error);

	/*
	 * Make a layer. Nothing whose implementation is a reference one is taken: that is refused
	 * with its name, for every type.
	 */
	int (*create)(struct math_layer **layer, const struct math_options *options,
		      struct ddp_error *error);

	/*
	 * Algorithms of [pass]: their number, at least 1, and the name of each ("direct",
	 * "winograd"). Number 0 is the exact one and is used until another one is chosen.
	 */
	int (*algorithms)(const struct math_layer *layer, enum math_pass pass);
	const char *(*algorithm)(const struct math_layer *layer, enum math_pass pass, int number);
	int (*choose)(struct math_layer *layer, enum math_pass pass, int number,
		      struct ddp_error *error);

	/* The parameters have changed; [bias] may be NULL. They stay there until the next load. */
	int (*load)(struct math_layer *layer, const float *weights, const float *bias,
		    struct ddp_error *error);

	/* For the first [count] images; primitives for a new count are made when first needed. */
	int (*forward)(struct math_layer *layer, size_t count, const void *x, void *y,
		       struct ddp_error *error);

	/* [dy] is the gradient before the ReLU: the caller has masked it. */
	int (*back_data)(struct math_layer *layer, size_t count, const void *dy, void *dx,
			 struct ddp_error *error);
	int (*back_weights)(struct math_layer *layer, size_t count, const void *x, const void *dy,
			    float *weights, float *bias, struct ddp_error *error);

	void (*destroy)(struct math_layer *layer);
};

extern const struct math math_plain;

#endif /* TRAIN_MATH_H */
