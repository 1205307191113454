/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer.h - convolutions and dense layers on a GPU
 *
 * Each pass of a convolution is a cuDNN graph (conv-plan.h). Each pass of a dense layer is a
 * cuBLASLt product. The forward pass includes the bias and a ReLU after the layer. The engine times
 * the first plans that cuDNN proposes and uses the fastest. Of cuBLASLt's suggestions it uses the
 * first. Tests link tests/emulated/layer-host.c instead of layer.c.
 *
 * Activations are N, H, W, C. Weights are O, H, W, I. Activations, weights and biases are in
 * [type]. Gradients of a dense layer's weights are f32. Gradients of a convolution's weights are in
 * [type], because no cuDNN engine writes f32 from bf16 or fp16. The number of images is always
 * [batch], as a captured graph has a fixed size. All work is enqueued on DEVICE_COMPUTE.
 */
#ifndef TRAIN_CUDA_LAYER_H
#define TRAIN_CUDA_LAYER_H

#include "device.h"

/* --- Layers ------------------------------------------------------------------------------------ */

struct layer;
struct layers;

/* LAYER_TEST is the forward pass for a test batch whose size differs from the training batch. */
enum layer_pass { LAYER_FORWARD, LAYER_TEST, LAYER_BACK_DATA, LAYER_BACK_WEIGHTS, LAYER_PASSES };

struct layer_options {
	const char *name; /* name in messages and plans: "conv2"; must outlive the layer */
	bool dense;	  /* a window of 1x1 on an image of 1x1 */
	int height, width, in, out, size, stride, pad;
	bool bias, relu; /* included in the forward pass */
	bool first;	 /* the gradient of the layer's input is not needed */
	enum ddp_type type;
	bool tf32;	    /* allow tf32 for products of f32 */
	bool deterministic; /* use the first deterministic plan; no timing */
	size_t batch;
	size_t test_batch; /* 0: none */
};

/*
 * The current GPU of the calling thread must be [device]. Returns 0, or DDP_ERR_x with a text that
 * names the library and the GPU.
 */
int layers_open(struct layers **layers, struct device *device, struct ddp_error *error);
/* Must be called after all layers were destroyed, as [layers] owns their plans. NULL is legal. */
void layers_close(struct layers *layers);

/* "cuDNN 9.19.0". Constant memory. */
const char *layers_describe(void);

/* Returns a layer and pass for which cuDNN has only a slow engine, or NULL if there is none. */
const char *layers_slow(const struct layers *layers);

/*
 * Creates a layer. [memory] is the number of bytes of the GPU that the rank may use, which limits
 * scratch memory. For each pass of a convolution, [chosen] has the number of one of cuDNN's
 * proposals, or LAYER_CHOOSE. With LAYER_CHOOSE, this function times the first few proposals, waits
 * for them, and sets [chosen] to the number of the fastest. Layers of equal shape share plans.
 * Returns 0, or DDP_ERR_UNSUPPORTED with a text that names the layer, the type and the GPU.
 */
enum { LAYER_CHOOSE = -1 };
int layer_create(struct layer **layer, struct layers *layers, const struct layer_options *options,
		 size_t memory, int32_t chosen[LAYER_PASSES], struct ddp_error *error);
void layer_destroy(struct layer *layer);

/* Maximum bytes of scratch memory that a pass of the layer needs. */
size_t layer_scratch(const struct layer *layer);

/* With [test], uses the test batch. [bias] may be NULL. */
int layer_forward(struct layer *layer, bool test, const void *x, const void *weights,
		  const void *bias, void *y, void *scratch, struct ddp_error *error);
/* [dy] is the gradient before the ReLU. */
int layer_back_data(struct layer *layer, const void *dy, const void *weights, void *dx,
		    void *scratch, struct ddp_error *error);
/* If layer_has_sums(), also writes the gradient of the bias to [bias], in f32. */
bool layer_has_sums(const struct layer *layer);
int layer_back_weights(struct layer *layer, const void *x, const void *dy, void *weights,
		       float *bias, void *scratch, struct ddp_error *error);

#endif /* TRAIN_CUDA_LAYER_H */
