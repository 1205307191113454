/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer-host.h - convolutions and dense layers without a GPU: the CPU's loops in plain C
 *
 * Behind conv-host.c and dense-host.c. What is read is widened to f32, results are rounded once. The work
 * is done when the stream comes to it, and spoils its scratch memory.
 */
#ifndef LAYER_HOST_H
#define LAYER_HOST_H

#include "cpu/math.h"
#include "device.h"

struct layer;

/* As conv.h's and dense.h's; options->type is that of activations and weights. */
int layer_create(struct layer **layer, struct device *device, const char *name,
		 const struct math_options *options, size_t batch, size_t test_batch,
		 struct ddp_error *error);
void layer_destroy(struct layer *layer);
size_t layer_scratch(const struct layer *layer);
int layer_forward(struct layer *layer, enum device_stream stream, bool test, const void *x,
		  const void *weights, const float *bias, void *y, void *scratch,
		  struct ddp_error *error);
int layer_back_data(struct layer *layer, enum device_stream stream, const void *dy,
		    const void *weights, void *dx, void *scratch, struct ddp_error *error);
int layer_back_weights(struct layer *layer, enum device_stream stream, const void *x,
		       const void *dy, float *weights, void *scratch, struct ddp_error *error);

#endif /* LAYER_HOST_H */
