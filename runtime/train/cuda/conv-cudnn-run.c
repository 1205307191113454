/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "conv-cudnn.h"
#include "kernels.h"
#include "library.h"

/* Of memory behind other memory. */
enum { ALIGNMENT = 256 };

static size_t count_weights(const struct conv_options *options)
{
	return (size_t)options->out * (size_t)options->in * (size_t)options->size *
	       (size_t)options->size;
}

static bool is_forward(const struct conv_plan *plan)
{
	return plan->problem.pass == CONV_FORWARD || plan->problem.pass == CONV_TEST;
}

/* What lies in scratch memory in [type], beside what the caller has of it in f32: the bias that a graph
 * reads, or gradients of weights that it leaves. */
static size_t count_narrow(const struct conv_plan *plan)
{
	const struct conv_options *options = plan->problem.options;

	if (options->type == DDP_F32)
		return 0;
	if (is_forward(plan) && options->bias && plan->problem.whole)
		return (size_t)options->out;
	if (plan->problem.pass == CONV_BACK_WEIGHTS && !plan->problem.whole)
		return count_weights(options);
	return 0;
}

static size_t narrow_bytes(const struct conv_plan *plan)
{
	return (2 * count_narrow(plan) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

size_t conv_plan_scratch(const struct conv_plan *plan)
{
	return narrow_bytes(plan) + plan->workspace;
}

/* The pointers for one run. */
static cudnnBackendDescriptor_t add_pack(struct parts *parts, const struct conv_plan *plan,
					 const struct conv_memory *memory)
{
	const struct conv_problem *problem = &plan->problem;
	bool bias = is_forward(plan) && problem->whole && problem->options->bias;
	cudnnBackendDescriptor_t it = parts_add(parts, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
	int64_t numbers[CONV_TENSORS], count = 0;
	void *pointers[CONV_TENSORS];

	for (int tensor = CONV_X; tensor < CONV_TENSORS; tensor++) {
		if (tensor == CONV_BIAS && !bias)
			continue;
		numbers[count] = tensor;
		pointers[count++] = memory->tensors[tensor];
	}
	parts_set(parts, it, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, numbers);
	parts_set(parts, it, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count,
		  pointers);
	parts_set(parts, it, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
		  &memory->scratch);
	parts_finish(parts, it, "pointers");
	return it;
}

static int execute(const struct conv_plan *plan, const struct library *library, void *stream,
		   const struct conv_memory *memory, struct ddp_error *error)
{
	struct parts parts = {.count = 0};
	cudnnBackendDescriptor_t pack = add_pack(&parts, plan, memory);
	cudnnStatus_t status = parts.status;
	char title[256];
	int err = 0;

	if (status == CUDNN_STATUS_SUCCESS)
		status = cudnnSetStream(library->cudnn, stream);
	if (status == CUDNN_STATUS_SUCCESS)
		status = cudnnBackendExecute(library->cudnn, plan->plan, pack);
	if (status != CUDNN_STATUS_SUCCESS) {
		conv_title(&plan->problem, title, sizeof(title));
		err = library_cudnn_failed(library, status, title, error);
	}
	parts_empty(&parts);
	return err;
}

/* Bias and ReLU, where the graph leaves them. */
static void finish_forward(const struct conv_plan *plan, void *stream, const float *bias, void *y)
{
	const struct conv_options *options = plan->problem.options;
	size_t rows =
		plan->problem.batch * (size_t)conv_height(options) * (size_t)conv_width(options);
	size_t channels = (size_t)options->out;

	if (options->bias)
		kernel_bias(stream, y, bias, rows, channels, options->relu, options->type);
	else if (options->relu)
		kernel_relu(stream, y, y, rows * channels, options->type);
}

int conv_plan_run(const struct conv_plan *plan, const struct library *library,
		  enum device_stream stream, const struct conv_memory *memory,
		  struct ddp_error *error)
{
	const struct conv_options *options = plan->problem.options;
	void *on = device_stream(library->device, stream);
	size_t narrow = count_narrow(plan);
	enum conv_tensor tensor = is_forward(plan) ? CONV_BIAS : CONV_WEIGHTS;
	struct conv_memory inner = *memory;
	int err;

	if (narrow > 0) {
		inner.tensors[tensor] = memory->scratch;
		inner.scratch = (char *)memory->scratch + narrow_bytes(plan);
	}
	if (narrow > 0 && tensor == CONV_BIAS)
		kernel_narrow(on, memory->tensors[tensor], memory->scratch, narrow, options->type);
	err = execute(plan, library, on, &inner, error);
	if (err < 0)
		return err;
	if (narrow > 0 && tensor == CONV_WEIGHTS)
		kernel_widen(on, memory->scratch, memory->tensors[tensor], narrow, options->type);
	if (is_forward(plan) && !plan->problem.whole)
		finish_forward(plan, on, memory->tensors[CONV_BIAS], memory->tensors[CONV_Y]);
	return device_check(library->device, options->name, error);
}
