/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pools.cu - pools
 *
 * All are bound by memory: each byte is read and written once, 16 bytes at a time where rows of channels
 * allow it, neighbours by neighbours. A max-pool reads size x size packs per thread, all under way at
 * once; where batches are small, what remains is the launch.
 */
#include "gpu/launch.cuh"
#include "gpu/pack.cuh"
#include "kernels.h"
#include "window.cuh"

/* --- Max -------------------------------------------------------------------------------------- */

/* SIZE 0: any. */
template <typename T, int V, int SIZE>
static __global__ void max_pool(struct kernel_pool pool, size_t count, const T *x, T *y,
				uint8_t *which)
{
	const int size = SIZE ? SIZE : pool.size;
	pack<uint8_t, V> at = {};
	pack<T, V> result;
	struct window window;
	float best[V] = {};

	if (thread_index() >= count)
		return;
	window = window_of(&pool, thread_index(), (size_t)(pool.height / size),
			   (size_t)(pool.width / size), V);
	for (int k = 0; k < size * size; k++)
		window_take(best, &at,
			    pack_load<V>(x + window_pixel(&pool, &window, k / size, k % size)), k);
	UNROLL
	for (int v = 0; v < V; v++)
		store(result.numbers + v, best[v]);
	pack_store(y + window_result(&pool, &window), result);
	pack_store(which + window_result(&pool, &window), at);
}

void kernel_max_pool(void *stream, const struct kernel_pool *pool, size_t batch, const void *x,
		     void *y, uint8_t *which, enum ddp_type type)
{
	size_t channels = (size_t)pool->channels;
	size_t windows =
		batch * (size_t)(pool->height / pool->size) * (size_t)(pool->width / pool->size);

	if (windows == 0)
		return;
	WITH_TYPE(type, T, WITH_PACK(packs_fit(channels, sizeof(T), {x, y, which}), T, V, {
			  size_t count = windows * (channels / V);

			  if (pool->size == 2)
				  LAUNCH_EACH((max_pool<T, V, 2>), count, stream, *pool, count,
					      (const T *)x, (T *)y, which);
			  else
				  LAUNCH_EACH((max_pool<T, V, 0>), count, stream, *pool, count,
					      (const T *)x, (T *)y, which);
		  }))
}

/* A window sends its gradient to one pixel and zeros to the others: to all where it sticks out. */
template <typename T, int V>
static __global__ void max_pool_back(struct kernel_pool pool, size_t rows, size_t columns,
				     size_t count, const T *dy, const uint8_t *which, const T *y,
				     float scale, T *dx)
{
	pack<uint8_t, V> at = {};
	pack<T, V> slopes = {}, results = {};
	struct window window;
	size_t from;

	if (thread_index() >= count)
		return;
	window = window_of(&pool, thread_index(), rows, columns, V);
	from = window_result(&pool, &window);
	if (window.whole) {
		slopes = pack_load<V>(dy + from);
		at = pack_load<V>(which + from);
		if (y)
			results = pack_load<V>(y + from);
	}
	for (int k = 0; k < pool.size * pool.size; k++) {
		int dr = k / pool.size, dc = k % pool.size;
		pack<T, V> out;

		if (window.row * (size_t)pool.size + (size_t)dr >= (size_t)pool.height ||
		    window.column * (size_t)pool.size + (size_t)dc >= (size_t)pool.width)
			continue;
		UNROLL
		for (int v = 0; v < V; v++) {
			bool here = at.numbers[v] == k && (!y || load(results.numbers + v) > 0);

			store(out.numbers + v,
			      window.whole && here ? load(slopes.numbers + v) * scale : 0);
		}
		pack_store(dx + window_pixel(&pool, &window, dr, dc), out);
	}
}

static void launch_max_pool_back(void *stream, const struct kernel_pool *pool, size_t batch,
				 const void *dy, const uint8_t *which, const void *y, float scale,
				 void *dx, enum ddp_type type)
{
	size_t channels = (size_t)pool->channels, size = (size_t)pool->size;
	size_t rows = ((size_t)pool->height + size - 1) / size;
	size_t columns = ((size_t)pool->width + size - 1) / size;

	WITH_TYPE(type, T, WITH_PACK(packs_fit(channels, sizeof(T), {dy, which, y, dx}), T, V, {
			  size_t count = batch * rows * columns * (channels / V);

			  LAUNCH_EACH((max_pool_back<T, V>), count, stream, *pool, rows, columns,
				      count, (const T *)dy, which, (const T *)y, scale, (T *)dx);
		  }))
}

void kernel_max_pool_back(void *stream, const struct kernel_pool *pool, size_t batch,
			  const void *dy, const uint8_t *which, const void *y, void *dx,
			  enum ddp_type type)
{
	launch_max_pool_back(stream, pool, batch, dy, which, y, 1, dx, type);
}

void kernel_max_pool_dropout_back(void *stream, const struct kernel_pool *pool, size_t batch,
				  const void *dy, const uint8_t *which, const void *y, float scale,
				  void *dx, enum ddp_type type)
{
	launch_max_pool_back(stream, pool, batch, dy, which, y, scale, dx, type);
}

/* --- Average ---------------------------------------------------------------------------------- */

/* A thread sums one pack of channels over all rows of an image. */
template <typename T, int V>
static __global__ void average_pool(size_t count, size_t rows, size_t channels, const T *x, T *y)
{
	const float part = 1 / (float)rows;
	size_t packs = channels / V, image = thread_index() / packs;
	size_t channel = thread_index() % packs * V;
	float sums[V] = {};
	pack<T, V> means;

	if (thread_index() >= count)
		return;
	UNROLL_8
	for (size_t r = 0; r < rows; r++) {
		pack<T, V> numbers = pack_load<V>(x + (image * rows + r) * channels + channel);

		UNROLL
		for (int v = 0; v < V; v++)
			sums[v] += load(numbers.numbers + v);
	}
	UNROLL
	for (int v = 0; v < V; v++)
		store(means.numbers + v, sums[v] * part);
	pack_store(y + image * channels + channel, means);
}

void kernel_average_pool(void *stream, size_t batch, size_t rows, size_t channels, const void *x,
			 void *y, enum ddp_type type)
{
	WITH_TYPE(type, T, WITH_PACK(packs_fit(channels, sizeof(T), {x, y}), T, V, {
			  size_t count = batch * (channels / V);

			  LAUNCH_EACH((average_pool<T, V>), count, stream, count, rows, channels,
				      (const T *)x, (T *)y);
		  }))
}

template <typename T, int V>
static __global__ void average_pool_back(size_t count, size_t rows, size_t channels, const T *dy,
					 T *dx)
{
	const float part = 1 / (float)rows;
	size_t packs = channels / V, image = thread_index() / packs;
	size_t channel = thread_index() % packs * V;
	pack<T, V> slopes;

	if (thread_index() >= count)
		return;
	slopes = pack_load<V>(dy + image * channels + channel);
	UNROLL
	for (int v = 0; v < V; v++)
		store(slopes.numbers + v, load(slopes.numbers + v) * part);
	for (size_t r = 0; r < rows; r++)
		pack_store(dx + (image * rows + r) * channels + channel, slopes);
}

void kernel_average_pool_back(void *stream, size_t batch, size_t rows, size_t channels,
			      const void *dy, void *dx, enum ddp_type type)
{
	WITH_TYPE(type, T, WITH_PACK(packs_fit(channels, sizeof(T), {dy, dx}), T, V, {
			  size_t count = batch * (channels / V);

			  LAUNCH_EACH((average_pool_back<T, V>), count, stream, count, rows,
				      channels, (const T *)dy, (T *)dx);
		  }))
}
