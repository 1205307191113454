/* SPDX-License-Identifier: Apache-2.0 */
/*
 * math.h - interface to libraries for convolutions and dense layers of the CPU engine
 *
 * The library is a module (ddp_onednn.so). If the module is missing, the engine uses loops in plain
 * C (math_plain), which are also the reference for tests. Parameters and their gradients are f32,
 * in the layouts of graph.h. Other layouts are internal to the library. Activations have the order
 * N, H, W, C and the type [type].
 */
#ifndef TRAIN_MATH_H
#define TRAIN_MATH_H

#include "base/module.h"

#define MATH_VERSION 2

/*
 * A convolution. A dense layer is a convolution with a window of the image's size and no padding.
 */
struct math_options {
	int height, width, in; /* shape of the input; for a dense layer: 1, 1, inputs */
	int out, size, stride, pad;
	bool dense;
	bool bias, relu;    /* relu: the forward pass ends with a ReLU */
	bool first;	    /* the gradient of the layer's input is not needed */
	enum ddp_type type; /* type of activations: DDP_F32 or DDP_BF16 */
	size_t batch;	    /* capacity in images */
	int threads;
};

/* Returns the height or width of the output if [size] is the height or width of the input. */
static inline int math_out_size(const struct math_options *options, int size)
{
	return (size + 2 * options->pad - options->size) / options->stride + 1;
}

enum math_pass { MATH_FORWARD, MATH_BACK_DATA, MATH_BACK_WEIGHTS, MATH_PASSES };

struct math_layer; /* defined by the library */

struct math {
	struct ddp_module_head head; /* kind "math"; name "onednn", "plain" */

	/* "oneDNN 2.6.3" and the instructions in use. Constant memory. */
	const char *(*describe)(void);

	/*
	 * Whether the library is fast with activations of [type], DDP_F32 or DDP_BF16, on this CPU.
	 * If it is not, [error] has the reason. NULL: all types are equally fast.
	 */
	bool (*has)(enum ddp_type type, struct ddp_error *error);

	/*
	 * Creates a layer. If oneDNN would use one of its slow reference implementations, fails
	 * with a text that names the implementation.
	 */
	int (*create)(struct math_layer **layer, const struct math_options *options,
		      struct ddp_error *error);

	/*
	 * algorithms() returns the number of algorithms for [pass], at least 1. algorithm() returns
	 * the name of algorithm [number] ("direct", "winograd"). choose() selects an algorithm.
	 * Algorithm 0 is exact, and is selected initially. All three are NULL if the library has
	 * only one algorithm.
	 */
	int (*algorithms)(const struct math_layer *layer, enum math_pass pass);
	const char *(*algorithm)(const struct math_layer *layer, enum math_pass pass, int number);
	void (*choose)(struct math_layer *layer, enum math_pass pass, int number);

	/*
	 * Sets the parameters. [bias] may be NULL. Both arrays must stay valid until the next call
	 * of load().
	 */
	void (*load)(struct math_layer *layer, const float *weights, const float *bias);

	/*
	 * Runs the forward pass of the first [count] images, at least one. The first call with a
	 * new [count] takes longer, because the library prepares for it.
	 */
	int (*forward)(struct math_layer *layer, size_t count, const void *x, void *y,
		       struct ddp_error *error);

	/*
	 * [dy] is the gradient before the ReLU: the caller has masked it. Call load() before
	 * back_data(), as before forward(). With options->first, back_data() must not be called.
	 */
	int (*back_data)(struct math_layer *layer, size_t count, const void *dy, void *dx,
			 struct ddp_error *error);
	int (*back_weights)(struct math_layer *layer, size_t count, const void *x, const void *dy,
			    float *weights, float *bias, struct ddp_error *error);

	void (*destroy)(struct math_layer *layer);
};

extern const struct math math_plain;

#endif /* TRAIN_MATH_H */
