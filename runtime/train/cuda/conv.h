/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conv.h - convolutions on a GPU
 *
 * conv-cudnn.c builds cuDNN's graphs through the C backend API: forward (+ bias + ReLU in one where a plan
 * can), gradient of what is read, gradient of weights. Plans come from cuDNN's heuristics, the first few
 * are timed once and the choice is kept as text (choices.h), by shape, type, architecture and version.
 * Tests link tests/emulated/conv-host.c in its place.
 *
 * Activations are N, H, W, C in [type]; weights O, H, W, I in [type]; gradients of weights are f32 in
 * the same order (where no plan writes f32, conv_back_weights() converts). [batch] images always:
 * a captured graph has one size.
 */
#ifndef TRAIN_CUDA_CONV_H
#define TRAIN_CUDA_CONV_H

#include "ddp.h"
#include "device.h"

struct conv;

struct conv_options {
	const char *name; /* for messages and choices: "conv2" */
	int height, width, in, out, size, stride, pad;
	bool bias, relu; /* of the forward pass */
	bool first;	 /* nobody wants the gradient of what it reads */
	enum ddp_type type;
	bool tf32;	    /* f32 may be multiplied as tf32 */
	bool deterministic; /* only plans that are, and by heuristics, not by time */
	size_t batch;
	size_t test_batch; /* forward alone; 0: none */
};

/*
 * Find plans. [choices] is what conv_choices() said before, of any number of convolutions, or NULL;
 * what it has of this one is taken where it still fits, else plans are timed (waits).
 * Returns 0, or DDP_ERR_UNSUPPORTED with layer, type and GPU.
 */
int conv_create(struct conv **conv, struct device *device, const struct conv_options *options,
		const char *choices, struct ddp_error *error);
void conv_destroy(struct conv *conv);

/* Bytes of scratch memory that the largest of its plans needs. */
size_t conv_scratch(const struct conv *conv);

/* "conv2.forward=...\n" for each pass: constant text of the conv. */
const char *conv_choices(const struct conv *conv);

/* [test]: the test batch. [bias] is f32. */
int conv_forward(struct conv *conv, enum device_stream stream, bool test, const void *x,
		 const void *weights, const float *bias, void *y, void *scratch,
		 struct ddp_error *error);
/* [dy] is the gradient before the ReLU. */
int conv_back_data(struct conv *conv, enum device_stream stream, const void *dy,
		   const void *weights, void *dx, void *scratch, struct ddp_error *error);
int conv_back_weights(struct conv *conv, enum device_stream stream, const void *x, const void *dy,
		      float *weights, void *scratch, struct ddp_error *error);

/* "cuDNN 9.19.0". Constant memory. */
const char *conv_describe(void);

#endif /* TRAIN_CUDA_CONV_H */
