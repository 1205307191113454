/* SPDX-License-Identifier: Apache-2.0 */
/* shapes.h - what BatchNorm's kernels are tried with */
#ifndef DDP_TESTS_GPU_SHAPES_H
#define DDP_TESTS_GPU_SHAPES_H

#include "arrays.h"

/* Images that there is room for, their rows, channels, and images that are there. */
static const struct shape {
	size_t batch, rows, channels;
	uint32_t count;
} shapes[] = {
	{1, 1, 1, 1},	  {3, 1, 3, 3},	    {4, 5, 10, 3},   {8, 16, 64, 8},	{8, 15, 64, 5},
	{5, 7, 100, 2},	  {4, 4, 512, 4},   {9, 2, 2100, 8}, {64, 49, 3, 33},	{4, 4, 64, 0},
	{30, 81, 64, 29}, {70, 64, 16, 55}, {3, 1025, 8, 3}, {20, 10, 255, 19},
};

enum { SKEWS = 2 };

/* The row of a table that a TAP line is about. */
static inline const char *shape_name(const struct shape *shape, enum ddp_type type, size_t skew)
{
	static char text[128];

	snprintf(text, sizeof(text), "%s, %u of %zu images of %zu rows, %zu channels%s",
		 arrays_name(type), shape->count, shape->batch, shape->rows, shape->channels,
		 skew ? ", unaligned" : "");
	return text;
}

/* A test that has a line for each type, alignment and shape. */
static inline void each_shape(void (*test)(const struct shape *shape, enum ddp_type type,
					   size_t skew))
{
	for (int t = 0; t < ROWS(arrays_types); t++)
		for (size_t skew = 0; skew < SKEWS; skew++)
			for (int s = 0; s < ROWS(shapes); s++)
				test(&shapes[s], arrays_types[t], skew);
}

static inline struct kernel_order *order_make(uint32_t count)
{
	const struct kernel_order order = {.count = count};

	return bytes_make(sizeof(order), &order);
}

#endif /* DDP_TESTS_GPU_SHAPES_H */
