/* SPDX-License-Identifier: Apache-2.0 */
/*
 * im2col.h - a convolution as a dense layer
 *
 * One row for each output pixel with all that its window sees, in the order of the weights (H, W, I):
 * then the convolution is a product of two matrices. Where images are small and weights large that
 * is faster than oneDNN's convolutions, although the rows repeat what windows share.
 */
#ifndef TRAIN_ONEDNN_IM2COL_H
#define TRAIN_ONEDNN_IM2COL_H

#include "primitive.h"

struct im2col {
	size_t count; /* images */
	int height, width, in, size, stride, pad;
	int out_height, out_width;
	enum ddp_type type; /* of images */
	enum ddp_type row;  /* rows of gradients are f32, since windows share pixels */
};

/* That of [options], which become those of the dense layer. */
struct im2col im2col_begin(struct primitive_options *options);

/* Bytes of all rows; and of what im2col_back() needs besides. */
size_t im2col_bytes(const struct im2col *im2col);
size_t im2col_scratch(const struct im2col *im2col);

/* From images to rows, and gradients of rows to those of images. */
void im2col_gather(const struct im2col *im2col, const void *images, void *rows);
void im2col_back(const struct im2col *im2col, const void *rows, void *images, void *scratch);

#endif /* TRAIN_ONEDNN_IM2COL_H */
