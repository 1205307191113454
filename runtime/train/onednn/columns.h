/* SPDX-License-Identifier: Apache-2.0 */
/*
 * columns.h - a convolution as a dense layer
 *
 * One row for each output pixel with all that its window sees, in the order of the weights (H, W, I):
 * then the convolution is a product of two matrices. Where images are small and weights large that
 * is faster than oneDNN's convolutions, although the rows repeat what windows share.
 */
#ifndef TRAIN_ONEDNN_COLUMNS_H
#define TRAIN_ONEDNN_COLUMNS_H

#include "plan.h"

struct columns {
	size_t count; /* images */
	int height, width, in, size, stride, pad;
	int out_height, out_width;
	enum ddp_type type; /* of images */
	bool wide;	    /* rows of gradients are f32, since windows share pixels */
};

/* Those of [options], for its pass. */
void columns_init(struct columns *columns, const struct plan_options *options);

/* What the dense layer is asked for: [options], with its window gone. */
void columns_ask(struct plan_options *options);

/* Bytes that rows take, and that adding gradients up takes besides. */
size_t columns_bytes(const struct columns *columns);
size_t columns_scratch(const struct columns *columns);

/* From images to rows, and gradients of rows to those of images. */
void columns_gather(const struct columns *columns, const void *images, void *rows);
void columns_scatter(const struct columns *columns, const void *rows, void *images, void *scratch);

#endif /* TRAIN_ONEDNN_COLUMNS_H */
