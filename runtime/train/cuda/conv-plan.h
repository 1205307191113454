/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conv-plan.h - a pass of a convolution as a graph of cuDNN's, and plans for it
 *
 * A plan's text is an engine of cuDNN by its number with the values of its knobs, "38 2:1 13:64". It says itself what
 * is to be built, within one version of cuDNN: a place in the list of heuristics would be another plan wherever the
 * list is, and cuDNN's own text of a plan is tens of kilobytes of one machine.
 *
 * But for conv_plan_run() no function here calls the CUDA runtime: given the properties of a GPU
 * (CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR) they work on a machine without one, and so do tests.
 */
#ifndef TRAIN_CUDA_CONV_PLAN_H
#define TRAIN_CUDA_CONV_PLAN_H

/* NVIDIA's headers are not written for these. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <cudnn_graph.h>
#pragma GCC diagnostic pop

#include "layer.h"

/* More than a graph and a configuration with all kinds of knobs are made of. */
enum { CONV_PARTS = 96, CONV_WHY = 512 };

/* Tensors by number, in graphs and in packs of pointers. */
enum conv_tensor { CONV_X = 1, CONV_WEIGHTS, CONV_Y, CONV_BIAS, CONV_TENSORS };

struct conv_problem {
	const struct layer_options *options;
	enum layer_pass pass;
	size_t batch;
	size_t workspace; /* bytes that cuDNN may have */
};

/* The GPU of [handle], or one that is not there with [properties]. */
struct conv_gpu {
	cudnnHandle_t handle;
	cudnnBackendDescriptor_t properties;
};

/*
 * Descriptors that live and die together. The first failure is kept with what it was about and what cuDNN said;
 * all that is asked for after it does nothing. All zeros: none yet.
 */
struct conv_parts {
	cudnnBackendDescriptor_t list[CONV_PARTS];
	int count;
	cudnnStatus_t status;
	char text[384]; /* "pointwise operation: CUDNN_STATUS_BAD_PARAM: ..." */
};

struct conv_plan {
	struct conv_problem problem;
	struct conv_parts parts;
	cudnnBackendDescriptor_t plan;
	bool tensor_cores;
	size_t workspace;
};

/*
 * The problem of a pass on a GPU of which a rank may have [memory]: cuDNN may have a base, the weights and twice what
 * the pass reads and writes, within a part of that. Exact products of f32 want a copy of all that is read or written,
 * and where they do not get it there is an engine that is 5 to 20 times slower.
 */
struct conv_problem conv_problem(const struct layer_options *options, enum layer_pass pass,
				 size_t memory);

/* Bytes of a tensor. */
size_t conv_bytes(const struct conv_problem *problem, enum conv_tensor tensor);

/* "conv2, forward pass (64x24x24x32 to 64, 5x5, ...)": for messages. */
void conv_title(const struct conv_problem *problem, char *text, size_t size);

/* All that the choice of a plan depends on. Both forward passes have the same. */
void conv_key(const struct conv_problem *problem, const struct device_info *info, bool shared,
	      char key[PLANS_KEY]);

/*
 * The heuristics' proposals that may be taken, the best first; [room] at most. Engine 0, which is cuDNN's last
 * resort, is behind all others.
 * Returns how many; where none, [why] says it.
 */
int conv_propose(const struct conv_problem *problem, const struct conv_gpu *gpu,
		 char (*list)[PLANS_PLAN], int room, char why[CONV_WHY]);

/* Build what [text] says. Returns NULL with [why] where it cannot be built, or may not be taken. */
struct conv_plan *conv_plan_create(const struct conv_problem *problem, const struct conv_gpu *gpu,
				   const char *text, char why[CONV_WHY]);
void conv_plan_destroy(struct conv_plan *plan);

/* Enqueue it on [stream]; the tensors' places are by enum conv_tensor. */
cudnnStatus_t conv_plan_run(const struct conv_plan *plan, cudnnHandle_t handle, void *stream,
			    void *tensors[CONV_TENSORS], void *workspace);

#endif /* TRAIN_CUDA_CONV_PLAN_H */
