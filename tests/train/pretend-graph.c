/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "pretend-private.h"
#include "pretend.h"

/* --- Tensors -------------------------------------------------------------------------------- */

/* A tensor of the graph, with its memory; that of inner ones is f32 and lives for one run. */
struct tensor {
	cudnnBackendDescriptor_t descriptor;
	int64_t number, sizes[4], strides[4];
	enum ddp_type type;
	bool inner;
	void *memory;
};

enum { TENSORS = 8 };
struct run {
	struct tensor tensors[TENSORS];
	int count;
	const struct pretend_record *numbers, *pointers;
};

static enum ddp_type type_of(int type)
{
	return type == CUDNN_DATA_BFLOAT16 ? DDP_BF16 : type == CUDNN_DATA_HALF ? DDP_F16 : DDP_F32;
}

static void *memory_of(const struct run *run, struct tensor *tensor)
{
	if (tensor->inner)
		return calloc((size_t)(tensor->sizes[0] * tensor->strides[0]), sizeof(float));
	for (int64_t i = 0; i < run->numbers->count; i++)
		if (run->numbers->values[i].number == tensor->number)
			return run->pointers->values[i].pointer;
	abort();
}

static struct tensor *tensor_of(struct run *run, cudnnBackendDescriptor_t operation,
				cudnnBackendAttributeName_t name)
{
	cudnnBackendDescriptor_t it = pretend_part(operation, name);
	struct tensor *tensor = run->tensors;

	while (tensor < run->tensors + run->count && tensor->descriptor != it)
		tensor++;
	if (tensor < run->tensors + run->count)
		return tensor;
	if (run->count++ == TENSORS)
		abort();
	tensor->descriptor = it;
	tensor->number = pretend_must_find(it, CUDNN_ATTR_TENSOR_UNIQUE_ID)->values[0].number;
	tensor->type = type_of(pretend_must_find(it, CUDNN_ATTR_TENSOR_DATA_TYPE)->values[0].word);
	tensor->inner = pretend_find(it, CUDNN_ATTR_TENSOR_IS_VIRTUAL) != NULL;
	for (int i = 0; i < 4; i++) {
		tensor->sizes[i] =
			pretend_must_find(it, CUDNN_ATTR_TENSOR_DIMENSIONS)->values[i].number;
		tensor->strides[i] =
			pretend_must_find(it, CUDNN_ATTR_TENSOR_STRIDES)->values[i].number;
	}
	tensor->memory = memory_of(run, tensor);
	return tensor;
}

static size_t place(const struct tensor *t, int64_t a, int64_t b, int64_t c, int64_t d)
{
	const int64_t *s = t->strides;

	return (size_t)(a * s[0] + b * s[1] + c * s[2] + d * s[3]);
}

static double get(const struct tensor *t, int64_t a, int64_t b, int64_t c, int64_t d)
{
	return pretend_load(t->memory, place(t, a, b, c, d), t->type);
}

static void put(struct tensor *t, int64_t a, int64_t b, int64_t c, int64_t d, double value)
{
	pretend_store(t->memory, place(t, a, b, c, d), t->type, value);
}

/* --- Operations ----------------------------------------------------------------------------- */

struct window {
	int64_t pad, stride;
};

/* One value of y, dx or dw, as the sum over all that it is made of. */
static double forward(const struct tensor *x, const struct tensor *w, const struct window *window,
		      int64_t n, int64_t o, int64_t row, int64_t column)
{
	double sum = 0;

	for (int64_t c = 0; c < w->sizes[1]; c++)
		for (int64_t i = 0; i < w->sizes[2]; i++)
			for (int64_t j = 0; j < w->sizes[3]; j++) {
				int64_t h = row * window->stride + i - window->pad;
				int64_t v = column * window->stride + j - window->pad;

				if (h >= 0 && v >= 0 && h < x->sizes[2] && v < x->sizes[3])
					sum += get(x, n, c, h, v) * get(w, o, c, i, j);
			}
	return sum;
}

/* Add what one value of dy brings. */
static void spread(const struct tensor *x, const struct tensor *w, const struct window *window,
		   const struct tensor *dy, const int64_t at[4], double *dx, double *dw)
{
	double value = get(dy, at[0], at[1], at[2], at[3]);

	for (int64_t c = 0; c < w->sizes[1]; c++)
		for (int64_t i = 0; i < w->sizes[2]; i++)
			for (int64_t j = 0; j < w->sizes[3]; j++) {
				int64_t h = at[2] * window->stride + i - window->pad;
				int64_t v = at[3] * window->stride + j - window->pad;

				if (h < 0 || v < 0 || h >= x->sizes[2] || v >= x->sizes[3])
					continue;
				if (dx)
					dx[place(x, at[0], c, h, v)] +=
						value * get(w, at[1], c, i, j);
				if (dw)
					dw[place(w, at[1], c, i, j)] +=
						value * get(x, at[0], c, h, v);
			}
}

#define EACH(t, at)                                                     \
	for (int64_t at[4] = {0}; at[0] < (t)->sizes[0]; at[0]++)       \
		for (at[1] = 0; at[1] < (t)->sizes[1]; at[1]++)         \
			for (at[2] = 0; at[2] < (t)->sizes[2]; at[2]++) \
				for (at[3] = 0; at[3] < (t)->sizes[3]; at[3]++)

static void convolve_back(const struct tensor *x, const struct tensor *w, const struct tensor *dy,
			  const struct window *window, struct tensor *result)
{
	size_t count = (size_t)(result->sizes[0] * result->strides[0]);
	double *sums = calloc(count, sizeof(*sums));

	EACH(dy, at)
	spread(x, w, window, dy, at, result == x ? sums : NULL, result == w ? sums : NULL);
	for (size_t i = 0; i < count; i++)
		pretend_store(result->memory, i, result->type, sums[i]);
	free(sums);
}

/* What convolutions have for attributes, and which of the three is their result. */
static const struct pass {
	cudnnBackendAttributeName_t description, x, w, y;
	enum { RESULT_Y, RESULT_X, RESULT_W } result;
} passes[] = {
	{CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
	 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
	 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, RESULT_Y},
	{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
	 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
	 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, RESULT_X},
	{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
	 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
	 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
	 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, RESULT_W},
};
enum { PASSES = sizeof(passes) / sizeof(passes[0]) };

static void do_convolution(struct run *run, cudnnBackendDescriptor_t it, const struct pass *pass)
{
	cudnnBackendDescriptor_t description = pretend_part(it, pass->description);
	const struct pretend_record *pads =
		pretend_must_find(description, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
	const struct pretend_record *strides =
		pretend_must_find(description, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
	struct window window = {pads->values[0].number, strides->values[0].number};
	struct tensor *x = tensor_of(run, it, pass->x);
	struct tensor *w = tensor_of(run, it, pass->w);
	struct tensor *y = tensor_of(run, it, pass->y);

	if (pass->result != RESULT_Y) {
		convolve_back(x, w, y, &window, pass->result == RESULT_X ? x : w);
		return;
	}
	EACH(y, at)
	put(y, at[0], at[1], at[2], at[3], forward(x, w, &window, at[0], at[1], at[2], at[3]));
}

static void do_pointwise(struct run *run, cudnnBackendDescriptor_t it)
{
	cudnnBackendDescriptor_t kind =
		pretend_part(it, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
	bool add = pretend_must_find(kind, CUDNN_ATTR_POINTWISE_MODE)->values[0].word ==
		   CUDNN_POINTWISE_ADD;
	struct tensor *x = tensor_of(run, it, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
	struct tensor *b = add ? tensor_of(run, it, CUDNN_ATTR_OPERATION_POINTWISE_BDESC) : NULL;
	struct tensor *y = tensor_of(run, it, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);

	EACH(y, at)
	{
		double value = get(x, at[0], at[1], at[2], at[3]);

		if (b)
			value += get(b, 0, at[1], 0, 0);
		else
			value = value > 0 ? value : 0;
		put(y, at[0], at[1], at[2], at[3], value);
	}
}

static void do_operation(struct run *run, cudnnBackendDescriptor_t it)
{
	for (int i = 0; i < PASSES; i++)
		if (pretend_find(it, passes[i].description)) {
			do_convolution(run, it, &passes[i]);
			return;
		}
	do_pointwise(run, it);
}

void pretend_compute(const struct pretend_record *operations, cudnnBackendDescriptor_t pack)
{
	struct run run = {.numbers = pretend_must_find(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS),
			  .pointers =
				  pretend_must_find(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)};

	for (int64_t i = 0; i < operations->count; i++)
		do_operation(&run, operations->values[i].pointer);
	for (int i = 0; i < run.count; i++)
		if (run.tensors[i].inner)
			free(run.tensors[i].memory);
}
