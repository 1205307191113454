/* SPDX-License-Identifier: Apache-2.0 */
/* conv.h without cuDNN */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conv.h"
#include "layer-host.h"

struct conv {
	struct layer *layer;
	bool first;
	char choices[128];
};

int conv_create(struct conv **conv, struct device *device, const struct conv_options *options,
		const char *choices, struct ddp_error *error)
{
	struct math_options math = {.height = options->height,
				    .width = options->width,
				    .in = options->in,
				    .out = options->out,
				    .size = options->size,
				    .stride = options->stride,
				    .pad = options->pad,
				    .bias = options->bias,
				    .relu = options->relu,
				    .first = options->first,
				    .type = options->type};
	int status;

	(void)choices;
	*conv = calloc(1, sizeof(**conv));
	if (!*conv)
		return ddp_error_set(error, DDP_ERR_MEMORY, "%s: no memory", options->name);
	(*conv)->first = options->first;
	snprintf((*conv)->choices, sizeof((*conv)->choices), "%s.forward=plain\n", options->name);
	status = layer_create(&(*conv)->layer, device, options->name, &math, options->batch,
			      options->test_batch, error);
	if (status) {
		conv_destroy(*conv);
		*conv = NULL;
	}
	return status;
}

void conv_destroy(struct conv *conv)
{
	if (!conv)
		return;
	layer_destroy(conv->layer);
	free(conv);
}

size_t conv_scratch(const struct conv *conv)
{
	return layer_scratch(conv->layer);
}

const char *conv_choices(const struct conv *conv)
{
	return conv->choices;
}

int conv_forward(struct conv *conv, enum device_stream stream, bool test, const void *x,
		 const void *weights, const float *bias, void *y, void *scratch,
		 struct ddp_error *error)
{
	return layer_forward(conv->layer, stream, test, x, weights, bias, y, scratch, error);
}

int conv_back_data(struct conv *conv, enum device_stream stream, const void *dy,
		   const void *weights, void *dx, void *scratch, struct ddp_error *error)
{
	if (conv->first)
		return ddp_error_set(error, DDP_ERR_STATE, "the first convolution's back_data");
	return layer_back_data(conv->layer, stream, dy, weights, dx, scratch, error);
}

int conv_back_weights(struct conv *conv, enum device_stream stream, const void *x, const void *dy,
		      float *weights, void *scratch, struct ddp_error *error)
{
	return layer_back_weights(conv->layer, stream, x, dy, weights, scratch, error);
}

const char *conv_describe(void)
{
	return "plain C";
}
