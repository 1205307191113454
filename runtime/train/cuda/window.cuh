/* SPDX-License-Identifier: Apache-2.0 */
/*
 * window.cuh - the windows of max-pools
 */
#ifndef TRAIN_CUDA_WINDOW_CUH
#define TRAIN_CUDA_WINDOW_CUH

#include "gpu/launch.cuh"
#include "gpu/pack.cuh"
#include "kernels.h"

/* The window of a thread: its pack of channels, where it begins in x, and its number among the results. */
struct window {
	size_t channel, row, column, image;
	bool whole;
};

/* [rows] x [columns] windows in an image: with or without those that stick out. */
static __device__ inline struct window window_of(const struct kernel_pool *pool, size_t index,
						 size_t rows, size_t columns, int pack)
{
	size_t packs = (size_t)(pool->channels / pack);
	struct window window;

	window.channel = index % packs * (size_t)pack;
	index /= packs;
	window.column = index % columns;
	index /= columns;
	window.row = index % rows;
	window.image = index / rows;
	window.whole = window.row < (size_t)(pool->height / pool->size) &&
		       window.column < (size_t)(pool->width / pool->size);
	return window;
}

/* Element [k] of the window, in x: its pixel may lie outside of the image. */
static __device__ inline size_t window_pixel(const struct kernel_pool *pool,
					     const struct window *window, int y, int x)
{
	size_t row = window->row * (size_t)pool->size + (size_t)y;
	size_t column = window->column * (size_t)pool->size + (size_t)x;

	return ((window->image * (size_t)pool->height + row) * (size_t)pool->width + column) *
		       (size_t)pool->channels +
	       window->channel;
}

static __device__ inline size_t window_result(const struct kernel_pool *pool,
					      const struct window *window)
{
	size_t rows = (size_t)(pool->height / pool->size);
	size_t columns = (size_t)(pool->width / pool->size);

	return ((window->image * rows + window->row) * columns + window->column) *
		       (size_t)pool->channels +
	       window->channel;
}

/* Pixel [k] of the window: a later one wins if it is greater, or no number. */
template <typename T, int V>
static __device__ inline void window_take(float (&best)[V], pack<uint8_t, V> *which,
					  const pack<T, V> &numbers, int k)
{
	UNROLL
	for (int v = 0; v < V; v++) {
		float next = load(numbers.numbers + v);

		if (k == 0 || next > best[v] || next != next) {
			best[v] = next;
			which->numbers[v] = (uint8_t)k;
		}
	}
}

#endif /* TRAIN_CUDA_WINDOW_CUH */
