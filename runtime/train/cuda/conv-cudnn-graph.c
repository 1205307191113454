/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>

#include "base/type.h"
#include "conv-cudnn.h"

/* What lies in the engine's arenas is aligned to more. */
enum { ALIGNMENT = 16 };

/* Between the operations of a graph, never in memory. */
enum { INNER_SUM = CONV_TENSORS, INNER_BIASED };

/* Sizes as cuDNN orders them, N, C, H, W or O, I, H, W; the memory is N, H, W, C. */
struct shape {
	int64_t sizes[4];
};

bool conv_has_pieces(const struct conv_options *options, enum conv_pass pass)
{
	switch (pass) {
	case CONV_FORWARD:
	case CONV_TEST:
		return options->bias || options->relu;
	case CONV_BACK_WEIGHTS:
		return options->type != DDP_F32;
	default:
		return false;
	}
}

void conv_title(const struct conv_problem *problem, char *text, size_t size)
{
	static const char *const passes[CONV_PASSES] = {"forward pass", "forward pass of tests",
							"gradient of data", "gradient of weights"};
	const struct conv_options *o = problem->options;

	snprintf(text, size, "%s, %s (%zux%dx%dx%d to %d, %dx%d, stride %d, pad %d, %s%s)", o->name,
		 passes[problem->pass], problem->batch, o->height, o->width, o->in, o->out, o->size,
		 o->size, o->stride, o->pad, ddp_type_name(o->type),
		 o->deterministic ? ", deterministic" : "");
}

static int rows(const struct conv_options *options, int size)
{
	return (size + 2 * options->pad - options->size) / options->stride + 1;
}

int conv_height(const struct conv_options *options)
{
	return rows(options, options->height);
}

int conv_width(const struct conv_options *options)
{
	return rows(options, options->width);
}

static cudnnDataType_t data_type(enum ddp_type type)
{
	switch (type) {
	case DDP_BF16:
		return CUDNN_DATA_BFLOAT16;
	case DDP_F16:
		return CUDNN_DATA_HALF;
	default:
		return CUDNN_DATA_FLOAT;
	}
}

static struct shape shape_of(const struct conv_problem *problem, enum conv_tensor tensor)
{
	const struct conv_options *o = problem->options;
	int64_t batch = (int64_t)problem->batch;

	switch (tensor) {
	case CONV_X:
		return (struct shape){{batch, o->in, o->height, o->width}};
	case CONV_WEIGHTS:
		return (struct shape){{o->out, o->in, o->size, o->size}};
	case CONV_BIAS:
		return (struct shape){{1, o->out, 1, 1}};
	default:
		return (struct shape){{batch, o->out, conv_height(o), conv_width(o)}};
	}
}

static cudnnBackendDescriptor_t add_tensor(struct parts *parts, int64_t number, struct shape shape,
					   cudnnDataType_t type, bool inner)
{
	cudnnBackendDescriptor_t it = parts_add(parts, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
	const int64_t *n = shape.sizes;
	const int64_t strides[4] = {n[1] * n[2] * n[3], 1, n[1] * n[3], n[1]};

	parts_set(parts, it, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
	parts_set(parts, it, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, n);
	parts_set(parts, it, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
	parts_set_number(parts, it, CUDNN_ATTR_TENSOR_UNIQUE_ID, number);
	parts_set_number(parts, it, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, ALIGNMENT);
	if (inner)
		parts_set(parts, it, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &inner);
	parts_finish(parts, it, "tensor");
	return it;
}

/* A tensor of the caller's. */
static cudnnBackendDescriptor_t add_outer(struct parts *parts, const struct conv_problem *problem,
					  enum conv_tensor tensor, enum ddp_type type)
{
	return add_tensor(parts, tensor, shape_of(problem, tensor), data_type(type), false);
}

/* Between operations sums are f32. */
static cudnnBackendDescriptor_t add_inner(struct parts *parts, const struct conv_problem *problem,
					  int64_t number)
{
	return add_tensor(parts, number, shape_of(problem, CONV_Y), CUDNN_DATA_FLOAT, true);
}

static cudnnBackendDescriptor_t add_convolution(struct parts *parts,
						const struct conv_options *options)
{
	cudnnBackendDescriptor_t it = parts_add(parts, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
	cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
	cudnnDataType_t type = CUDNN_DATA_FLOAT;
	const int64_t ones[2] = {1, 1};
	const int64_t pads[2] = {options->pad, options->pad};
	const int64_t strides[2] = {options->stride, options->stride};

	parts_set(parts, it, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
	parts_set(parts, it, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1,
		  &mode);
	parts_set_number(parts, it, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 2);
	parts_set(parts, it, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pads);
	parts_set(parts, it, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pads);
	parts_set(parts, it, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, ones);
	parts_set(parts, it, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, strides);
	parts_finish(parts, it, "convolution");
	return it;
}

/* How the attributes of the three operations are called. */
static const struct words {
	cudnnBackendDescriptorType_t type;
	cudnnBackendAttributeName_t convolution, x, weights, y, alpha, beta;
	const char *what;
} operations[CONV_PASSES] = {
	[CONV_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
			  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
			  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
			  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
			  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
			  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
			  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, "forward operation"},
	[CONV_BACK_DATA] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
			    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
			    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
			    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
			    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
			    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
			    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, "operation on data"},
	[CONV_BACK_WEIGHTS] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
			       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
			       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
			       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
			       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
			       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
			       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
			       "operation on weights"},
};

static cudnnBackendDescriptor_t add_operation(struct parts *parts,
					      const struct conv_problem *problem,
					      cudnnBackendDescriptor_t y)
{
	const struct conv_options *options = problem->options;
	enum conv_pass pass = problem->pass == CONV_TEST ? CONV_FORWARD : problem->pass;
	const struct words *words = &operations[pass];
	bool wide = pass == CONV_BACK_WEIGHTS && problem->whole;
	cudnnBackendDescriptor_t it, convolution = add_convolution(parts, options);
	cudnnBackendDescriptor_t x = add_outer(parts, problem, CONV_X, options->type);
	cudnnBackendDescriptor_t weights =
		add_outer(parts, problem, CONV_WEIGHTS, wide ? DDP_F32 : options->type);
	const float one = 1, zero = 0;

	it = parts_add(parts, words->type);
	parts_set_part(parts, it, words->convolution, convolution);
	parts_set_part(parts, it, words->x, x);
	parts_set_part(parts, it, words->weights, weights);
	parts_set_part(parts, it, words->y, y);
	parts_set(parts, it, words->alpha, CUDNN_TYPE_FLOAT, 1, &one);
	parts_set(parts, it, words->beta, CUDNN_TYPE_FLOAT, 1, &zero);
	parts_finish(parts, it, words->what);
	return it;
}

static cudnnBackendDescriptor_t add_mode(struct parts *parts, cudnnPointwiseMode_t mode)
{
	cudnnBackendDescriptor_t it = parts_add(parts, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
	cudnnDataType_t type = CUDNN_DATA_FLOAT;
	cudnnNanPropagation_t nan = CUDNN_PROPAGATE_NAN;
	const double low = 0;

	parts_set(parts, it, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
	parts_set(parts, it, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type);
	if (mode == CUDNN_POINTWISE_RELU_FWD) {
		parts_set(parts, it, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION,
			  CUDNN_TYPE_NAN_PROPOGATION, 1, &nan);
		parts_set(parts, it, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, CUDNN_TYPE_DOUBLE, 1,
			  &low);
		parts_set(parts, it, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, CUDNN_TYPE_DOUBLE,
			  1, &low);
	}
	parts_finish(parts, it, "kind of pointwise operation");
	return it;
}

/* y = mode(x), or of x and [b]. */
static cudnnBackendDescriptor_t add_pointwise(struct parts *parts, cudnnPointwiseMode_t mode,
					      cudnnBackendDescriptor_t x,
					      cudnnBackendDescriptor_t b,
					      cudnnBackendDescriptor_t y)
{
	cudnnBackendDescriptor_t it, kind = add_mode(parts, mode);

	it = parts_add(parts, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
	parts_set_part(parts, it, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
	parts_set_part(parts, it, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
	if (b)
		parts_set_part(parts, it, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
	parts_set_part(parts, it, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
	parts_finish(parts, it, "pointwise operation");
	return it;
}

/*
 * The operations of the forward pass with what belongs to it; returns how many. The bias is in [type]:
 * engines that are not compiled when they are wanted take no other.
 */
static int add_forward(struct parts *parts, const struct conv_problem *problem,
		       cudnnBackendDescriptor_t list[3])
{
	const struct conv_options *options = problem->options;
	cudnnBackendDescriptor_t y = add_outer(parts, problem, CONV_Y, options->type);
	cudnnBackendDescriptor_t sum = add_inner(parts, problem, INNER_SUM);
	cudnnBackendDescriptor_t bias, biased = sum;
	int count = 0;

	list[count++] = add_operation(parts, problem, sum);
	if (options->bias) {
		bias = add_outer(parts, problem, CONV_BIAS, options->type);
		biased = options->relu ? add_inner(parts, problem, INNER_BIASED) : y;
		list[count++] = add_pointwise(parts, CUDNN_POINTWISE_ADD, sum, bias, biased);
	}
	if (options->relu)
		list[count++] = add_pointwise(parts, CUDNN_POINTWISE_RELU_FWD, biased, NULL, y);
	return count;
}

cudnnBackendDescriptor_t conv_graph(struct parts *parts, const struct conv_problem *problem,
				    cudnnHandle_t handle)
{
	bool forward = problem->pass == CONV_FORWARD || problem->pass == CONV_TEST;
	cudnnBackendDescriptor_t it, list[3] = {NULL};
	int count = 1;

	if (forward && problem->whole && conv_has_pieces(problem->options, problem->pass))
		count = add_forward(parts, problem, list);
	else
		list[0] = add_operation(parts, problem,
					add_outer(parts, problem, CONV_Y, problem->options->type));
	it = parts_add(parts, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
	parts_set(parts, it, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count,
		  list);
	if (handle)
		parts_set(parts, it, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
			  &handle);
	parts_finish(parts, it, "graph");
	return parts->status == CUDNN_STATUS_SUCCESS ? it : NULL;
}
