/* SPDX-License-Identifier: Apache-2.0 */
/* dense.h without cublasLt */
#include "config.h"

#include <stdlib.h>

#include "dense.h"
#include "layer-host.h"

struct dense {
	struct layer *layer;
	bool first;
};

int dense_create(struct dense **dense, struct device *device, const struct dense_options *options,
		 struct ddp_error *error)
{
	struct math_options math = {.height = 1,
				    .width = 1,
				    .in = (int)options->in,
				    .out = (int)options->out,
				    .size = 1,
				    .stride = 1,
				    .dense = true,
				    .bias = options->bias,
				    .relu = options->relu,
				    .first = options->first,
				    .type = options->type};
	int status;

	*dense = calloc(1, sizeof(**dense));
	if (!*dense)
		return ddp_error_set(error, DDP_ERR_MEMORY, "%s: no memory", options->name);
	(*dense)->first = options->first;
	status = layer_create(&(*dense)->layer, device, options->name, &math, options->batch,
			      options->test_batch, error);
	if (status) {
		dense_destroy(*dense);
		*dense = NULL;
	}
	return status;
}

void dense_destroy(struct dense *dense)
{
	if (!dense)
		return;
	layer_destroy(dense->layer);
	free(dense);
}

size_t dense_scratch(const struct dense *dense)
{
	return layer_scratch(dense->layer);
}

int dense_forward(struct dense *dense, enum device_stream stream, bool test, const void *x,
		  const void *weights, const float *bias, void *y, void *scratch,
		  struct ddp_error *error)
{
	return layer_forward(dense->layer, stream, test, x, weights, bias, y, scratch, error);
}

int dense_back_data(struct dense *dense, enum device_stream stream, const void *dy,
		    const void *weights, void *dx, void *scratch, struct ddp_error *error)
{
	if (dense->first)
		return ddp_error_set(error, DDP_ERR_STATE, "the first dense layer's back_data");
	return layer_back_data(dense->layer, stream, dy, weights, dx, scratch, error);
}

int dense_back_weights(struct dense *dense, enum device_stream stream, const void *x,
		       const void *dy, float *weights, void *scratch, struct ddp_error *error)
{
	return layer_back_weights(dense->layer, stream, x, dy, weights, scratch, error);
}
