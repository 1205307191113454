/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "base/bf16.h"
#include "columns.h"

/* GCC vectorises loops of unknown length at -O3 alone. */
#if defined(__GNUC__) && !defined(__clang__)
#define VECTORISED __attribute__((optimize("O3")))
#else
#define VECTORISED
#endif

static int out_size(const struct math_options *layer, int size)
{
	return (size + 2 * layer->pad - layer->size) / layer->stride + 1;
}

void columns_init(struct columns *columns, const struct plan_options *options)
{
	const struct math_options *layer = &options->layer;

	*columns = (struct columns){.count = options->count,
				    .height = layer->height,
				    .width = layer->width,
				    .in = layer->in,
				    .size = layer->size,
				    .stride = layer->stride,
				    .pad = layer->pad,
				    .out_height = out_size(layer, layer->height),
				    .out_width = out_size(layer, layer->width),
				    .type = layer->type,
				    .wide = options->pass == MATH_BACK_DATA &&
					    layer->size > layer->stride};
}

void columns_ask(struct plan_options *options)
{
	struct math_options *layer = &options->layer;
	struct columns columns;

	columns_init(&columns, options);
	options->count *= (size_t)(columns.out_height * columns.out_width);
	options->wide = columns.wide;
	layer->in *= layer->size * layer->size;
	layer->height = layer->width = layer->size = layer->stride = 1;
	layer->pad = 0;
	layer->dense = true;
}

static enum ddp_type row_type(const struct columns *columns)
{
	return columns->wide ? DDP_F32 : columns->type;
}

static size_t image_size(const struct columns *columns)
{
	return (size_t)columns->height * (size_t)columns->width * (size_t)columns->in;
}

size_t columns_bytes(const struct columns *columns)
{
	return columns->count * (size_t)(columns->out_height * columns->out_width) *
	       (size_t)(columns->size * columns->size) * (size_t)columns->in *
	       ddp_type_size(row_type(columns));
}

size_t columns_scratch(const struct columns *columns)
{
	return row_type(columns) != columns->type ? image_size(columns) * sizeof(float) : 0;
}

/*
 * The part of a window's row that lies in the image: elements [from] to [to] of it are those from
 * [at] of the image. None where to <= from.
 */
struct run {
	int from, to;
	ptrdiff_t at;
};

static struct run run_find(const struct columns *columns, int top, int left)
{
	int skip = left < 0 ? -left : 0;
	int last = left + columns->size > columns->width ? columns->width - left : columns->size;

	if (top < 0 || top >= columns->height)
		return (struct run){0, 0, 0};
	return (struct run){skip * columns->in, last * columns->in,
			    ((ptrdiff_t)top * columns->width + left + skip) * columns->in};
}

typedef void copy_run(void *images, void *rows, const struct run *run, int length, size_t size);

/* Call [copy] for each row of each window of one image. Returns the rows behind it. */
static char *image_walk(const struct columns *columns, copy_run *copy, void *image, char *rows,
			size_t size)
{
	int length = columns->size * columns->in;

	for (int y = 0; y < columns->out_height; y++)
		for (int x = 0; x < columns->out_width; x++)
			for (int h = 0; h < columns->size; h++) {
				struct run run =
					run_find(columns, y * columns->stride - columns->pad + h,
						 x * columns->stride - columns->pad);

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

void columns_gather(const struct columns *columns, const void *images, void *rows)
{
	size_t size = ddp_type_size(columns->type);
	char *image = (void *)images;

	for (size_t i = 0; i < columns->count; i++, image += image_size(columns) * size)
		rows = image_walk(columns, copy_out, image, rows, size);
}

void columns_scatter(const struct columns *columns, const void *rows, void *images, void *scratch)
{
	size_t size = ddp_type_size(columns->type), row_size = ddp_type_size(row_type(columns));
	size_t elements = image_size(columns);
	char *image = images, *row = (void *)rows;

	for (size_t i = 0; i < columns->count; i++, image += elements * size) {
		void *sum = row_size == size ? image : scratch;

		memset(sum, 0, elements * row_size);
		row = image_walk(columns, columns->wide ? add_in : copy_in, sum, row, row_size);
		if (sum != image)
			narrow(sum, (uint16_t *)image, elements);
	}
}
