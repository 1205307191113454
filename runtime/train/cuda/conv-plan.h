/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conv-plan.h - describes a pass of a convolution as a cuDNN graph, and builds plans to execute it
 *
 * Only conv_plan_run() calls the CUDA runtime. The other functions also work without a GPU if they
 * get the properties of one (CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR). Tests use this.
 */
#ifndef TRAIN_CUDA_CONV_PLAN_H
#define TRAIN_CUDA_CONV_PLAN_H

/* NVIDIA's headers cause the warnings that are disabled here. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <cudnn_graph.h>
#pragma GCC diagnostic pop

#include "layer.h"

/*
 * CONV_PARTS: maximum number of descriptors; a graph and its proposals have fewer. CONV_TRIES:
 * maximum number of candidates. CONV_SAME: maximum number of candidates of one engine.
 */
enum { CONV_PARTS = 96, CONV_WHY = 512, CONV_TRIES = 8, CONV_SAME = 2 };

/* Numbers that identify tensors in graphs and in variant packs. */
enum conv_tensor { CONV_X = 1, CONV_WEIGHTS, CONV_Y, CONV_BIAS, CONV_TENSORS };

struct conv_problem {
	const struct layer_options *options;
	enum layer_pass pass;
	size_t batch;
	size_t workspace; /* limit of cuDNN's scratch memory, in bytes */
};

/*
 * GPU for which plans are built: the GPU of [handle] or, on a machine without a GPU, one that has
 * the [properties].
 */
struct conv_gpu {
	cudnnHandle_t handle;
	cudnnBackendDescriptor_t properties;
};

/*
 * Descriptors with a common lifetime. All bytes are zero at the start. The first failure is stored
 * with the operation's name and cuDNN's text. After a failure, all functions do nothing.
 */
struct conv_parts {
	cudnnBackendDescriptor_t list[CONV_PARTS];
	int count;
	cudnnStatus_t status;
	char text[384]; /* "pointwise operation: CUDNN_STATUS_BAD_PARAM: ..." */
};

/* A plan. [number] is that of the proposal in the list of cuDNN's heuristics. */
struct conv_candidate {
	cudnnBackendDescriptor_t plan;
	size_t workspace;
	int number, engine;
	bool tensor_cores;
	bool slow; /* from cuDNN's engine 0 or mode FALLBACK */
};

/*
 * Usable plans among the first proposals of the heuristics. After the choice, only the chosen plan.
 */
struct conv_plan {
	struct conv_plan *next; /* next in the list of the owner */
	struct layer_options options;
	struct conv_problem problem;
	struct conv_parts parts;
	struct conv_candidate list[CONV_TRIES];
	int count;
};

/*
 * The problem of a pass, for a rank that is limited to [memory] bytes of the GPU. cuDNN's scratch
 * memory is limited to a base plus the size of the weights plus twice the size of input and output,
 * and to a fraction of [memory]. Engines for exact f32 products need a copy of input and output.
 * Without enough memory for these copies, cuDNN uses an engine that is 5 to 20 times slower.
 */
struct conv_problem conv_problem(const struct layer_options *options, enum layer_pass pass,
				 size_t memory);

size_t conv_bytes(const struct conv_problem *problem, enum conv_tensor tensor);

/* For messages: "conv2, forward pass (64x24x24x32 to 64, 5x5, ...)". */
void conv_title(const struct conv_problem *problem, char *text, size_t size);

/* Whether plans of one problem can be used for the other, because graphs and limits are equal. */
bool conv_is_same(const struct conv_problem *one, const struct conv_problem *other);

/*
 * Builds at most [most] <= CONV_TRIES plans for proposals of cuDNN's heuristics (mode A). Starts
 * with proposal [first] and wraps around at the end. Proposals that need too much scratch memory or
 * use other arithmetic than requested are skipped. Unless products are exact, proposals without
 * tensor cores are used only if no other proposal is usable. Engine 0 and mode FALLBACK are cuDNN's
 * last resorts: they are used only if no other proposal is usable, for example for 2^32 elements.
 * Returns NULL with the reason in [why] if no plan can be built.
 */
struct conv_plan *conv_plan_create(const struct conv_problem *problem, const struct conv_gpu *gpu,
				   int first, int most, char why[CONV_WHY]);

/* Destroys all candidates except candidate [index], which gets index 0. */
void conv_plan_keep(struct conv_plan *plan, int index);
void conv_plan_destroy(struct conv_plan *plan);

/*
 * Enqueues plan [index] on the stream of [handle]. [tensors] are addresses, indexed by conv_tensor.
 */
cudnnStatus_t conv_plan_run(const struct conv_plan *plan, int index, cudnnHandle_t handle,
			    void *tensors[CONV_TENSORS], void *workspace);

#endif /* TRAIN_CUDA_CONV_PLAN_H */
