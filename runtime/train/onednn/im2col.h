/* SPDX-License-Identifier: Apache-2.0 */
/*
 * im2col.h - a convolution as a dense layer
 *
 * Each output pixel becomes a row of all elements in its window, in the order of the weights (H, W,
 * I). The convolution is then a matrix product. Elements that several windows share are copied
 * several times. If images are small and weights large, this is still faster than oneDNN's
 * convolutions.
 */
#ifndef TRAIN_ONEDNN_IM2COL_H
#define TRAIN_ONEDNN_IM2COL_H

#include "primitive.h"

struct im2col {
	size_t count; /* images */
	int height, width, in, size, stride, pad;
	int out_height, out_width;
	enum ddp_type type; /* type of images */
	enum ddp_type row;  /* type of rows; f32 if several gradients are added per pixel */
};

/*
 * Returns the im2col for the convolution in [options], and replaces [options] by those of the dense
 * layer.
 */
struct im2col im2col_begin(struct primitive_options *options);

/* Bytes of all rows, and bytes of scratch memory for im2col_back(). */
size_t im2col_bytes(const struct im2col *im2col);
size_t im2col_scratch(const struct im2col *im2col);

/* Convert images to rows, and gradients of rows to gradients of images. */
void im2col_gather(const struct im2col *im2col, const void *images, void *rows);
void im2col_back(const struct im2col *im2col, const void *rows, void *images, void *scratch);

#endif /* TRAIN_ONEDNN_IM2COL_H */
