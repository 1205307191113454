/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer.h - convolutions and dense layers on a GPU
 *
 * Each pass of a convolution is a graph of cuDNN's (conv-plan.h), that of a dense layer a product of cublasLt's; a
 * bias, and the ReLU behind it, are part of the forward pass. Of the plans that cuDNN proposes the fastest is taken,
 * and kept as text; cublasLt's first suggestion is taken as it is. Tests link tests/emulated/layer-host.c in the place
 * of layer.c.
 *
 * Activations are N, H, W, C, weights O, H, W, I; these and biases are in [type]. Gradients of a dense layer's weights
 * are f32, those of a convolution's are in [type]: no engine of cuDNN writes f32 from bf16 or fp16, whatever the shape.
 * [batch] images always: a captured graph has one size. All is enqueued on DEVICE_COMPUTE.
 */
#ifndef TRAIN_CUDA_LAYER_H
#define TRAIN_CUDA_LAYER_H

#include "base/text.h"
#include "device.h"
#include "net/memo.h"

/* --- Plans as text (plans.c) ------------------------------------------------------------------ */

/*
 * A line for each pass of a convolution, "conv2.forward=KEY: PLAN\n". KEY has all that the choice depends on
 * (conv-plan.h); what stands in front of it is for people: layers of one shape share a line, and lines of several
 * networks and batch sizes can be kept together. PLAN is for those who build it; " busy" behind it says that other work
 * disturbed the timing: the plan is taken by this training, also when it goes on from a checkpoint, and timed again by
 * others.
 */
enum { PLANS_KEY = 256, PLANS_PLAN = 256 };

struct plans {
	/* Lines of an earlier run of this training, or of rank 0: any text, or NULL. */
	const char *known;
	struct memo *memo;     /* what all runs on this kind of machine took; NULL: nobody looks */
	struct ddp_text taken; /* lines of this run */
	/* Of all ranks, which have the same plans: */
	size_t memory; /* bytes of a GPU that a rank may have, at least */
	bool shared;   /* a GPU may have others at work */
};

/*
 * The plan of [key]: one that was taken in this run, else the newest of those that were known, else the memo's. A line
 * that is not understood is as good as none.
 */
bool plans_find(const struct plans *plans, const char *key, char plan[PLANS_PLAN]);

/*
 * [label] "conv2.forward". Nothing happens where [key] was taken before. The memo gets it too, unless the GPU was busy.
 */
void plans_take(struct plans *plans, const char *label, const char *key, const char *plan);

/* --- Layers ------------------------------------------------------------------------------------ */

struct layer;
struct layers; /* the libraries' handles */

/* A test's forward pass is one of its own where its batch is another one. */
enum layer_pass { LAYER_FORWARD, LAYER_TEST, LAYER_BACK_DATA, LAYER_BACK_WEIGHTS, LAYER_PASSES };

struct layer_options {
	const char *name; /* for messages and plans: "conv2"; must outlive the layer */
	bool dense;	  /* a window of 1x1 on an image of 1x1 */
	int height, width, in, out, size, stride, pad;
	bool bias, relu; /* of the forward pass */
	bool first;	 /* nobody wants the gradient of what it reads */
	enum ddp_type type;
	bool tf32;	    /* f32 may be multiplied as tf32 */
	bool deterministic; /* only plans that are, and by heuristics, not by time */
	size_t batch;
	size_t test_batch; /* 0: none */
};

/* The calling thread's GPU is that of [device]. Returns 0 or DDP_ERR_x with the library and the GPU. */
int layers_open(struct layers **layers, struct device *device, struct ddp_error *error);
/* After its layers. NULL is legal. */
void layers_close(struct layers *layers);

/* "cuDNN 9.19.0". Constant memory. */
const char *layers_describe(void);

/*
 * What [plans] has of it is taken; other convolutions are timed (waits), and added there.
 * Returns 0, or DDP_ERR_UNSUPPORTED with layer, type and GPU.
 */
int layer_create(struct layer **layer, struct layers *layers, const struct layer_options *options,
		 struct plans *plans, struct ddp_error *error);
void layer_destroy(struct layer *layer);

/* Bytes of scratch memory that the largest of its passes needs. */
size_t layer_scratch(const struct layer *layer);

/* [test]: the test batch. [bias] is NULL where there is none. */
int layer_forward(struct layer *layer, bool test, const void *x, const void *weights,
		  const void *bias, void *y, void *scratch, struct ddp_error *error);
/* [dy] is the gradient before the ReLU. */
int layer_back_data(struct layer *layer, const void *dy, const void *weights, void *dx,
		    void *scratch, struct ddp_error *error);
/* [bias] gets its gradient, f32, too where layer_has_sums(). */
bool layer_has_sums(const struct layer *layer);
int layer_back_weights(struct layer *layer, const void *x, const void *dy, void *weights,
		       float *bias, void *scratch, struct ddp_error *error);

#endif /* TRAIN_CUDA_LAYER_H */
