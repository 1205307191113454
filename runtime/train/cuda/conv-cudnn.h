/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conv-cudnn.h - the parts that convolutions by cuDNN are made of
 *
 *	conv-cudnn-parts.c	descriptors of the backend API
 *	conv-cudnn-graph.c	a pass of a convolution as a graph of operations
 *	conv-cudnn-plan.c	plans for a graph: what heuristics propose, what may be taken, building one
 *	conv-cudnn-run.c	running a plan, with the kernels around it
 *	conv-cudnn-choose.c	one of the plans: a saved one, or by time
 *	conv-cudnn.c		conv.h
 *
 * The first three call cuDNN alone, and no function of the CUDA runtime: given the properties of a
 * GPU (CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR) they work on a machine without one, and so do tests.
 */
#ifndef TRAIN_CUDA_CONV_CUDNN_H
#define TRAIN_CUDA_CONV_CUDNN_H

/* NVIDIA's headers are not written for these. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <cudnn_graph.h>
#pragma GCC diagnostic pop

#include "choices.h"
#include "conv.h"

/* --- Descriptors ---------------------------------------------------------------------------- */

/*
 * Descriptors that live and die together. The first failure is kept with what it was about and what
 * cuDNN said; all that is asked for after it does nothing. All zeros: none yet.
 */
enum { PARTS = 64 };
struct parts {
	cudnnBackendDescriptor_t list[PARTS];
	int count;
	cudnnStatus_t status;
	char text[384]; /* "pointwise operation: CUDNN_STATUS_BAD_PARAM: ..." */
};

/* A new descriptor; NULL after a failure. */
cudnnBackendDescriptor_t parts_add(struct parts *parts, cudnnBackendDescriptorType_t type);

void parts_set(struct parts *parts, cudnnBackendDescriptor_t descriptor,
	       cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
	       const void *values);
/* [what] is for the message. */
void parts_finish(struct parts *parts, cudnnBackendDescriptor_t descriptor, const char *what);

/* Up to [room] values; returns how many, 0 after a failure. */
int64_t parts_get(struct parts *parts, cudnnBackendDescriptor_t descriptor,
		  cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t room,
		  void *values);

/* Destroy them all, and forget the failure. */
void parts_empty(struct parts *parts);

/* Common kinds of values. */
void parts_set_part(struct parts *parts, cudnnBackendDescriptor_t descriptor,
		    cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value);
void parts_set_number(struct parts *parts, cudnnBackendDescriptor_t descriptor,
		      cudnnBackendAttributeName_t name, int64_t value);

/* --- Graphs --------------------------------------------------------------------------------- */

enum conv_pass { CONV_FORWARD, CONV_TEST, CONV_BACK_DATA, CONV_BACK_WEIGHTS, CONV_PASSES };

struct conv_problem {
	const struct conv_options *options;
	enum conv_pass pass;
	size_t batch;
	bool whole; /* else the convolution alone, its result in [type] */
};

/* "conv2, forward pass (64x24x24x32 to 64, 5x5, ...)": for messages. */
void conv_title(const struct conv_problem *problem, char *text, size_t size);

/* Whether there is anything around the convolution that a graph may do or leave. */
bool conv_has_pieces(const struct conv_options *options, enum conv_pass pass);

/* Rows and columns of y. */
int conv_height(const struct conv_options *options);
int conv_width(const struct conv_options *options);

/* Tensors by number, in graphs and in packs of pointers. */
enum conv_tensor { CONV_X = 1, CONV_WEIGHTS, CONV_BIAS, CONV_Y, CONV_TENSORS };

/* The graph, finished, for the GPU of [handle] unless NULL; NULL with the failure in [parts]. */
cudnnBackendDescriptor_t conv_graph(struct parts *parts, const struct conv_problem *problem,
				    cudnnHandle_t handle);

/* --- Plans ---------------------------------------------------------------------------------- */

struct conv_plan {
	struct conv_problem problem;
	struct choices_plan choice;
	size_t workspace; /* of cuDNN */
	struct parts graph, parts;
	cudnnBackendDescriptor_t plan;
};

/*
 * What a plan may be, and of which GPU: that of [handle], or one that is not there with [properties].
 * With neither cuDNN takes it for one of no architecture, and has next to no engines.
 */
struct conv_limits {
	cudnnHandle_t handle;
	cudnnBackendDescriptor_t properties;
	size_t workspace; /* bytes that cuDNN may have */
	bool compile; /* propose engines that compile kernels (half a second at every start), else the others */
};

/*
 * The heuristics' proposals for [problem] that may be taken, the best first, each once; [room] at most.
 * Returns how many; where none, [text] says why.
 */
int conv_plans(const struct conv_problem *problem, const struct conv_limits *limits,
	       struct choices_plan *list, int room, char *text, size_t size);

/* Build what [choice] says. Returns NULL with [text] where it cannot be built or taken. */
struct conv_plan *conv_plan_create(const struct conv_problem *problem,
				   const struct conv_limits *limits,
				   const struct choices_plan *choice, char *text, size_t size);
void conv_plan_destroy(struct conv_plan *plan);

/* --- Runs ----------------------------------------------------------------------------------- */

struct library;

/* Bytes of scratch memory for a run: cuDNN's, and of the kernels around it. */
size_t conv_plan_scratch(const struct conv_plan *plan);

/* Where a pass finds what it reads and writes, at the place of enum conv_tensor. */
struct conv_memory {
	void *tensors[CONV_TENSORS];
	void *scratch;
};

/* Enqueue one pass, with the kernel around it. */
int conv_plan_run(const struct conv_plan *plan, const struct library *library,
		  enum device_stream stream, const struct conv_memory *memory,
		  struct ddp_error *error);

/*
 * Bytes that cuDNN may have for a pass: exact products of f32 want a copy of all that they read or write, and where
 * they do not get it there is an engine that is 5 to 20 times slower; but no more than a part of [memory].
 */
size_t conv_workspace(const struct conv_problem *problem, size_t memory);

/* --- Choosing ------------------------------------------------------------------------------- */

/*
 * The plan of a pass, run at least once (so that a graph may hold it: what is loaded when a kernel is
 * first launched cannot be loaded while a graph is captured). [saved] is what was chosen before, or NULL.
 */
int conv_choose(struct conv_plan **plan, const struct library *library,
		const struct conv_problem *problem, const struct choices_plan *saved,
		struct ddp_error *error);

#endif /* TRAIN_CUDA_CONV_CUDNN_H */
