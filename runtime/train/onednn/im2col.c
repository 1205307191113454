/* SPDX-License-Identifier: Apache-2.0 */
/* im2col.c - copy between images and rows of windows */
#include "config.h"

#include <string.h>

#include "base/type.h"
#include "im2col.h"

/* GCC vectorises loops of unknown length only at -O3. */
#if defined(__GNUC__) && !defined(__clang__)
#define VECTORISED __attribute__((optimize("O3")))
#else
#define VECTORISED
#endif

struct im2col im2col_begin(struct primitive_options *options)
{
	struct math_options *layer = &options->layer;
	struct im2col im2col = {.count = options->count,
				.height = layer->height,
				.width = layer->width,
				.in = layer->in,
				.size = layer->size,
				.stride = layer->stride,
				.pad = layer->pad,
				.out_height = math_out_size(layer, layer->height),
				.out_width = math_out_size(layer, layer->width),
				.type = layer->type};

	options->wide = options->pass == MATH_BACK_DATA && layer->size > layer->stride;
	im2col.row = options->wide ? DDP_F32 : layer->type;
	options->count *= (size_t)(im2col.out_height * im2col.out_width);
	layer->in *= layer->size * layer->size;
	layer->height = layer->width = layer->size = layer->stride = 1;
	layer->pad = 0;
	layer->dense = true;
	return im2col;
}

static size_t image_size(const struct im2col *im2col)
{
	return (size_t)im2col->height * (size_t)im2col->width * (size_t)im2col->in;
}

size_t im2col_bytes(const struct im2col *im2col)
{
	return im2col->count * (size_t)(im2col->out_height * im2col->out_width) *
	       (size_t)(im2col->size * im2col->size) * (size_t)im2col->in *
	       ddp_type_size(im2col->row);
}

size_t im2col_scratch(const struct im2col *im2col)
{
	return im2col->row != im2col->type ? image_size(im2col) * sizeof(float) : 0;
}

/*
 * The part of a window's row that is inside the image. Elements [from] to [to] - 1 of the window's
 * row are elements of the image, starting with element [at]. If to <= from, the part is empty.
 */
struct run {
	int from, to;
	ptrdiff_t at;
};

static struct run run_find(const struct im2col *im2col, int top, int left)
{
	int skip = left < 0 ? -left : 0;
	int last = left + im2col->size > im2col->width ? im2col->width - left : im2col->size;

	if (top < 0 || top >= im2col->height)
		return (struct run){0, 0, 0};
	return (struct run){skip * im2col->in, last * im2col->in,
			    ((ptrdiff_t)top * im2col->width + left + skip) * im2col->in};
}

typedef void copy_run(void *images, void *rows, const struct run *run, int length, size_t size);

/* Calls [copy] for each row of each window of an image. Returns the end of the rows. */
static char *image_walk(const struct im2col *im2col, copy_run *copy, void *image, char *rows,
			size_t size)
{
	int length = im2col->size * im2col->in;

	for (int y = 0; y < im2col->out_height; y++)
		for (int x = 0; x < im2col->out_width; x++)
			for (int h = 0; h < im2col->size; h++) {
				struct run run =
					run_find(im2col, y * im2col->stride - im2col->pad + h,
						 x * im2col->stride - im2col->pad);

				copy(image, rows, &run, length, size);
				rows += (size_t)length * size;
			}
	return rows;
}

static void copy_out(void *image, void *rows, const struct run *run, int length, size_t size)
{
	char *to = rows;

	if (run->to <= run->from) {
		memset(to, 0, (size_t)length * size);
		return;
	}
	memset(to, 0, (size_t)run->from * size);
	memcpy(to + (size_t)run->from * size, (char *)image + run->at * (ptrdiff_t)size,
	       (size_t)(run->to - run->from) * size);
	memset(to + (size_t)run->to * size, 0, (size_t)(length - run->to) * size);
}

static void copy_in(void *image, void *rows, const struct run *run, int length, size_t size)
{
	(void)length;
	if (run->to > run->from)
		memcpy((char *)image + run->at * (ptrdiff_t)size,
		       (char *)rows + (size_t)run->from * size,
		       (size_t)(run->to - run->from) * size);
}

static VECTORISED void add_in(void *image, void *rows, const struct run *run, int length,
			      size_t size)
{
	float *restrict to = (float *)image + run->at;
	const float *restrict from = (const float *)rows + run->from;
	int count = run->to - run->from;

	(void)length;
	(void)size;
	for (int i = 0; i < count; i++)
		to[i] += from[i];
}

static VECTORISED void narrow(const float *restrict from, uint16_t *restrict to, size_t count)
{
	for (size_t i = 0; i < count; i++)
		to[i] = ddp_to_bf16(from[i]);
}

void im2col_gather(const struct im2col *im2col, const void *images, void *rows)
{
	size_t size = ddp_type_size(im2col->type);
	char *image = (void *)images;

	for (size_t i = 0; i < im2col->count; i++, image += image_size(im2col) * size)
		rows = image_walk(im2col, copy_out, image, rows, size);
}

void im2col_back(const struct im2col *im2col, const void *rows, void *images, void *scratch)
{
	size_t size = ddp_type_size(im2col->type), row_size = ddp_type_size(im2col->row);
	size_t elements = image_size(im2col);
	bool shared = im2col->size > im2col->stride;
	char *image = images, *row = (void *)rows;

	for (size_t i = 0; i < im2col->count; i++, image += elements * size) {
		void *sum = row_size == size ? image : scratch;

		memset(sum, 0, elements * row_size);
		row = image_walk(im2col, shared ? add_in : copy_in, sum, row, row_size);
		if (sum != image)
			narrow(sum, (uint16_t *)image, elements);
	}
}
