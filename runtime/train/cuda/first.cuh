/* SPDX-License-Identifier: Apache-2.0 */
/* first.cuh - what both ways through the first convolution share: its pixels, in groups side by side */
#ifndef TRAIN_CUDA_FIRST_CUH
#define TRAIN_CUDA_FIRST_CUH

#include "gpu/launch.cuh"
#include "gpu/number.cuh"
#include "gpu/pack.cuh"
#include "kernels.h"

/* Of windows that are supported; SMALL ones have kernels of their own. */
enum { MOST_SIZE = 7, SMALL = 3 };

/* Groups of pixels side by side, in the results of an image. */
struct groups {
	size_t rows, columns, across;
};

static inline struct groups groups_of(const struct kernel_first *first, int pixels)
{
	size_t rows = (size_t)(first->height - first->size + 1);
	size_t columns = (size_t)(first->width - first->size + 1);

	return {rows, columns, (columns + (size_t)pixels - 1) / (size_t)pixels};
}

/* The first pixel of group [index], in the image and among the results. */
struct group {
	size_t image, row, column;
};

static __device__ inline struct group group_of(const struct groups *groups, size_t index,
					       int pixels)
{
	struct group group;

	group.column = index % groups->across * (size_t)pixels;
	index /= groups->across;
	group.row = index % groups->rows;
	group.image = index / groups->rows;
	return group;
}

/* N pixels of the image, side by side; what lies beyond its edge is 0, and belongs to no result. */
template <typename T, int N>
static __device__ inline void pixels_load(const struct kernel_first *first,
					  const struct group *group, size_t row, const T *x,
					  float (&pixels)[N])
{
	size_t width = (size_t)first->width;

	x += (group->image * (size_t)first->height + group->row + row) * width + group->column;
	UNROLL
	for (int i = 0; i < N; i++)
		pixels[i] = group->column + (size_t)i < width ? load(x + i) : 0;
}

#endif /* TRAIN_CUDA_FIRST_CUH */
