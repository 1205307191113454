/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conv-plan.h - a pass of a convolution as a cuDNN graph, and execution plans for it
 *
 * Only conv_plan_run() calls the CUDA runtime. The other functions also work on a machine without a
 * GPU, as in tests, given a GPU's properties (CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR).
 */
#ifndef TRAIN_CUDA_CONV_PLAN_H
#define TRAIN_CUDA_CONV_PLAN_H

/* NVIDIA's headers cause these warnings. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <cudnn_graph.h>
#pragma GCC diagnostic pop

#include "layer.h"

/* CONV_PARTS: more descriptors than a graph and its proposals have. */
enum { CONV_PARTS = 96, CONV_WHY = 512, CONV_TRIES = 3 };

/* Numbers of tensors, in graphs and in variant packs. */
enum conv_tensor { CONV_X = 1, CONV_WEIGHTS, CONV_Y, CONV_BIAS, CONV_TENSORS };

struct conv_problem {
	const struct layer_options *options;
	enum layer_pass pass;
	size_t batch;
	size_t workspace; /* bytes of scratch memory that cuDNN may use */
};

/* The GPU of [handle] or, without a GPU, one with [properties]. */
struct conv_gpu {
	cudnnHandle_t handle;
	cudnnBackendDescriptor_t properties;
};

/*
 * Descriptors with a common lifetime. After the first failure, which is stored with the operation
 * and cuDNN's text, all functions do nothing. All zeros: empty.
 */
struct conv_parts {
	cudnnBackendDescriptor_t list[CONV_PARTS];
	int count;
	cudnnStatus_t status;
	char text[384]; /* "pointwise operation: CUDNN_STATUS_BAD_PARAM: ..." */
};

/* A plan, and its number in the heuristics' list of proposals. */
struct conv_candidate {
	cudnnBackendDescriptor_t plan;
	size_t workspace;
	int number;
	bool tensor_cores;
};

/* Usable plans among the first proposals of the heuristics, or the one that was chosen. */
struct conv_plan {
	struct conv_plan *next; /* for the owner's list */
	struct layer_options options;
	struct conv_problem problem;
	struct conv_parts parts;
	struct conv_candidate list[CONV_TRIES];
	int count;
};

/*
 * The problem of a pass, for a rank that may use [memory] bytes of the GPU. Limits cuDNN's scratch
 * memory to a base plus the weights plus twice the input and output of the pass, and to a part of
 * [memory]. Exact f32 products need a copy of their input and output. Without the memory for it,
 * cuDNN uses an engine that is 5 to 20 times slower.
 */
struct conv_problem conv_problem(const struct layer_options *options, enum layer_pass pass,
				 size_t memory);

size_t conv_bytes(const struct conv_problem *problem, enum conv_tensor tensor);

/* For messages: "conv2, forward pass (64x24x24x32 to 64, 5x5, ...)". */
void conv_title(const struct conv_problem *problem, char *text, size_t size);

/* Whether plans of one problem can be used for the other: equal graphs and limits. */
bool conv_is_same(const struct conv_problem *one, const struct conv_problem *other);

/*
 * Builds plans for at most [most] <= CONV_TRIES of the proposals of cuDNN's heuristics (mode A), in
 * its order from number [first] on, wrapping around at the end. Leaves out proposals that need too
 * much scratch memory or use another arithmetic than requested. Engine 0, cuDNN's last resort, and
 * mode FALLBACK are used only if there is nothing else. With --deterministic, proposals that use
 * tensor cores come first. Returns NULL with [why] if there is none.
 */
struct conv_plan *conv_plan_create(const struct conv_problem *problem, const struct conv_gpu *gpu,
				   int first, int most, char why[CONV_WHY]);

/* Destroys all plans of the list except [index], which becomes the first. */
void conv_plan_keep(struct conv_plan *plan, int index);
void conv_plan_destroy(struct conv_plan *plan);

/* Enqueues plan [index] on the stream of [handle]. [tensors]: addresses by enum conv_tensor. */
cudnnStatus_t conv_plan_run(const struct conv_plan *plan, int index, cudnnHandle_t handle,
			    void *tensors[CONV_TENSORS], void *workspace);

#endif /* TRAIN_CUDA_CONV_PLAN_H */
