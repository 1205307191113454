/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pools.cu - pools, dropout, and dropout behind a max-pool
 *
 * All are bound by memory: each byte is read and written once, 16 bytes at a time where rows of channels
 * allow it, neighbours by neighbours. A max-pool reads size x size packs per thread, all under way at
 * once; behind it dropout reads nothing, and there is one launch less to wait for. Where batches are small,
 * what remains is the launch.
 *
 * Indices are divided in 32 bits, which takes a fifth of the time that 64 do: the engine refuses batches
 * whose values have more elements.
 */
#include "gpu/launch.cuh"
#include "gpu/pack.cuh"
#include "kernels.h"
#include "partial.cuh"
#include "philox.cuh"

/* --- Windows ---------------------------------------------------------------------------------- */

/* The window of a thread: its pack of channels, where it begins in x, and its number among the results. */
struct window {
	uint32_t channel, row, column, image;
	bool whole;
};

/* [rows] x [columns] windows in an image: with or without those that stick out. */
static __device__ inline struct window window_of(const struct kernel_pool *pool, uint32_t index,
						 uint32_t rows, uint32_t columns, int pack)
{
	uint32_t packs = (uint32_t)(pool->channels / pack);
	struct window window;

	window.channel = index % packs * (uint32_t)pack;
	index /= packs;
	window.column = index % columns;
	index /= columns;
	window.row = index % rows;
	window.image = index / rows;
	window.whole = window.row < (uint32_t)(pool->height / pool->size) &&
		       window.column < (uint32_t)(pool->width / pool->size);
	return window;
}

/* Element [k] of the window, in x: its pixel may lie outside of the image. */
static __device__ inline size_t window_pixel(const struct kernel_pool *pool,
					     const struct window *window, int y, int x)
{
	uint32_t row = window->row * (uint32_t)pool->size + (uint32_t)y;
	uint32_t column = window->column * (uint32_t)pool->size + (uint32_t)x;

	return (((size_t)window->image * (size_t)pool->height + row) * (size_t)pool->width +
		column) *
		       (size_t)pool->channels +
	       window->channel;
}

static __device__ inline size_t window_result(const struct kernel_pool *pool,
					      const struct window *window)
{
	uint32_t rows = (uint32_t)(pool->height / pool->size);
	uint32_t columns = (uint32_t)(pool->width / pool->size);

	return (((size_t)window->image * rows + window->row) * columns + window->column) *
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

/* --- Dropout ------------------------------------------------------------------------------------ */

/*
 * What is drawn for 128 elements is drawn once, by one thread of the block for each of its planes, while
 * the block's numbers are on their way; a block has a draw for each of its threads at most, and usually a
 * warp's. A thread has V elements of a sample, side by side; blocks are of LAUNCH_THREADS.
 */
enum { GROUP = 128, PLANES = 16 }; /* dropout.h */

/* Of a block. */
template <int V> static constexpr uint32_t GROUPS = LAUNCH_THREADS *V / GROUP;

/* The samples' groups, one sample after the other. */
struct groups {
	uint32_t samples, each; /* of a sample */
	uint32_t elements;	/* of a sample: the last group may have fewer than 128 */
};

/* Plane [plane] of group [index]. */
static __device__ inline struct philox_words draw(const struct kernel_dropout *dropout,
						  const struct kernel_order *order,
						  const uint64_t *orders,
						  const struct groups *groups, uint32_t index,
						  uint32_t plane)
{
	uint32_t sample = index / groups->each, planes = (uint32_t)dropout->planes;
	uint64_t place = sample < order->count ? orders[sample] : 0;

	return philox_random(order->seed, order->epoch, place, dropout->layer,
			     index % groups->each * planes + plane);
}

/* Of 32 elements, from the [planes] of their group: a 1 where it is dropped. */
static __device__ inline uint32_t dropped(const struct kernel_dropout *dropout,
					  const struct philox_words *planes, uint32_t word)
{
	uint32_t less = 0;

	for (int p = dropout->planes - 1; p >= 0; p--) {
		uint32_t bits = ~planes[p].words[word];
		bool one = dropout->limit >> (dropout->planes - 1 - p) & 1;

		less = one ? bits | less : bits & less;
	}
	return less;
}

static inline struct groups groups_of(size_t samples, size_t elements)
{
	return {(uint32_t)samples, (uint32_t)((elements + GROUP - 1) / GROUP), (uint32_t)elements};
}

template <int V> static inline size_t groups_blocks(const struct groups *groups)
{
	return ((size_t)groups->samples * groups->each + GROUPS<V> - 1) / GROUPS<V>;
}

/* A thread's elements. */
struct share {
	uint32_t group, element; /* of the block, of the group */
	uint32_t sample, place;	 /* of the sample */
	bool there;
};

template <int V> static __device__ inline struct share share_of(const struct groups *groups)
{
	struct share share;
	uint32_t index;

	share.group = threadIdx.x * V / GROUP;
	share.element = threadIdx.x * V % GROUP;
	index = blockIdx.x * GROUPS<V> + share.group;
	share.sample = index / groups->each;
	share.place = index % groups->each * GROUP + share.element;
	share.there = share.sample < groups->samples && share.place < groups->elements;
	return share;
}

/* From bit 0 on, a 1 for each of the thread's elements that is dropped. All threads call it. */
template <int V>
static __device__ inline uint32_t share_dropped(const struct kernel_dropout *dropout,
						const struct kernel_order *order,
						const uint64_t *orders, const struct groups *groups,
						struct share share)
{
	SHARED struct philox_words drawn[GROUPS<V> * PLANES];
	uint32_t first = blockIdx.x * GROUPS<V>, planes = (uint32_t)dropout->planes;

	if (threadIdx.x < GROUPS<V> * planes)
		drawn[threadIdx.x] = draw(dropout, order, orders, groups,
					  first + threadIdx.x / planes, threadIdx.x % planes);
	__syncthreads();
	return dropped(dropout, drawn + share.group * planes, share.element / 32) >>
	       share.element % 32;
}

template <typename T, int V>
static __global__ void drop(struct kernel_dropout dropout, const struct kernel_order *order,
			    const uint64_t *orders, struct groups groups, const T *x, T *y)
{
	GRID_WAIT();
	struct share share = share_of<V>(&groups);
	size_t at = (size_t)share.sample * groups.elements + share.place;
	pack<T, V> numbers;
	uint32_t bits;

	if (share.there)
		numbers = pack_load<V>(x + at);
	bits = share_dropped<V>(&dropout, order, orders, &groups, share);
	if (!share.there)
		return;
	UNROLL
	for (int v = 0; v < V; v++)
		store(&numbers.numbers[v],
		      bits >> v & 1 ? 0 : load(&numbers.numbers[v]) * dropout.scale);
	pack_store(y + at, numbers);
}

void kernel_dropout(void *stream, const struct kernel_dropout *dropout,
		    const struct kernel_order *order, const uint64_t *orders, size_t batch,
		    size_t elements, const void *x, void *y, enum ddp_type type)
{
	struct groups groups = groups_of(batch, elements);

	if (batch * elements == 0)
		return;
	WITH_TYPE(type, T, WITH_PACK(packs_fit(elements, sizeof(T), {x, y}), T, V, {
			  LAUNCH_BLOCKS((drop<T, V>), groups_blocks<V>(&groups), LAUNCH_THREADS,
					stream, *dropout, order, orders, groups, (const T *)x,
					(T *)y);
		  }))
}

/* --- Max-pool, with a dropout behind it ---------------------------------------------------------- */

static __device__ inline struct window window_at(const struct kernel_pool *pool, struct share share)
{
	uint32_t channels = (uint32_t)pool->channels;
	uint32_t columns = (uint32_t)(pool->width / pool->size), pixel = share.place / channels;

	return {share.place % channels, pixel / columns, pixel % columns, share.sample, true};
}

/* SIZE 0: any. */
template <typename T, int V, int SIZE>
static __global__ void max_pool(struct kernel_pool pool, struct kernel_dropout dropout,
				const struct kernel_order *order, const uint64_t *orders,
				struct groups groups, const T *x, T *y, uint8_t *which)
{
	GRID_WAIT();
	const int size = SIZE ? SIZE : pool.size;
	struct share share = share_of<V>(&groups);
	struct window window = window_at(&pool, share);
	size_t at = (size_t)share.sample * groups.elements + share.place;
	pack<uint8_t, V> first = {};
	pack<T, V> result;
	float best[V] = {};
	uint32_t bits;

	for (int k = 0; share.there && k < size * size; k++)
		window_take(best, &first,
			    pack_load<V>(x + window_pixel(&pool, &window, k / size, k % size)), k);
	bits = share_dropped<V>(&dropout, order, orders, &groups, share);
	if (!share.there)
		return;
	UNROLL
	for (int v = 0; v < V; v++)
		store(result.numbers + v, bits >> v & 1 ? 0 : best[v] * dropout.scale);
	pack_store(y + at, result);
	pack_store(which + at, first);
}

void kernel_max_pool(void *stream, const struct kernel_pool *pool,
		     const struct kernel_dropout *dropout, const struct kernel_order *order,
		     const uint64_t *orders, size_t batch, const void *x, void *y, uint8_t *which,
		     enum ddp_type type)
{
	const struct kernel_dropout none = {0, 0, 1, 0};
	size_t channels = (size_t)pool->channels;
	size_t elements =
		(size_t)(pool->height / pool->size) * (size_t)(pool->width / pool->size) * channels;
	struct groups groups = groups_of(batch, elements);

	if (batch * elements == 0)
		return;
	WITH_TYPE(type, T, WITH_PACK(packs_fit(channels, sizeof(T), {x, y, which}), T, V, {
			  size_t blocks = groups_blocks<V>(&groups);

			  if (pool->size == 2)
				  LAUNCH_BLOCKS((max_pool<T, V, 2>), blocks, LAUNCH_THREADS, stream,
						*pool, dropout ? *dropout : none, order, orders,
						groups, (const T *)x, (T *)y, which);
			  else
				  LAUNCH_BLOCKS((max_pool<T, V, 0>), blocks, LAUNCH_THREADS, stream,
						*pool, dropout ? *dropout : none, order, orders,
						groups, (const T *)x, (T *)y, which);
		  }))
}

/* What a window sends back: to one pixel its gradient, to the others zeros: to all where it sticks out. */
template <typename T, int V>
static __device__ inline void window_back(const struct kernel_pool *pool,
					  const struct window *window,
					  const pack<uint8_t, V> &which,
					  const pack<T, V> &gradients, T *dx)
{
	for (int k = 0; k < pool->size * pool->size; k++) {
		int dr = k / pool->size, dc = k % pool->size;
		pack<T, V> out = gradients;

		if (window->row * (uint32_t)pool->size + (uint32_t)dr >= (uint32_t)pool->height ||
		    window->column * (uint32_t)pool->size + (uint32_t)dc >= (uint32_t)pool->width)
			continue;
		UNROLL
		for (int v = 0; v < V; v++)
			if (which.numbers[v] != k)
				store(out.numbers + v, 0);
		pack_store(dx + window_pixel(pool, window, dr, dc), out);
	}
}

template <typename T> struct pool_back {
	uint32_t rows, columns, count; /* of windows; packs of all of them */
	const T *dy, *y;
	const uint8_t *which;
	float scale;
	T *dx;
};

/* The sums of a block's threads, each of which has its channels, become those of all blocks. */
template <int V>
static __device__ inline void sums_join(const float (&sums)[V], const struct partial *partial,
					float *to)
{
	SHARED float all[V][LAUNCH_THREADS];
	struct partial_term term = {partial->rows, partial->columns};
	unsigned packs = (unsigned)partial->columns / V;

	UNROLL
	for (int v = 0; v < V; v++)
		all[v][threadIdx.x] = sums[v];
	__syncthreads();
	for (unsigned c = threadIdx.x; c < partial->columns; c += LAUNCH_THREADS) {
		float sum = 0;

		for (unsigned thread = c / V; thread < LAUNCH_THREADS; thread += packs)
			sum += all[c % V][thread];
		partial->rows[blockIdx.x * partial->columns + c] = sum;
	}
	if (!partial_last(partial, blockIdx.x, term))
		return;
	for (unsigned c = threadIdx.x; c < partial->columns; c += LAUNCH_THREADS)
		to[c] = (float)partial_total(partial, c, term);
}

/* SUMS: all windows of a thread have the same channels. */
template <typename T, int V, bool SUMS>
static __global__ void max_pool_back(struct kernel_pool pool, struct pool_back<T> back,
				     struct partial partial, float *to)
{
	GRID_WAIT();
	float sums[V] = {};

	for (size_t index = thread_index(); index < back.count;
	     index += (size_t)gridDim.x * blockDim.x) {
		struct window window =
			window_of(&pool, (uint32_t)index, back.rows, back.columns, V);
		size_t from = window_result(&pool, &window);
		pack<T, V> gradients = {}, results = {};
		pack<uint8_t, V> at = {};

		if (window.whole) {
			gradients = pack_load<V>(back.dy + from);
			at = pack_load<V>(back.which + from);
			if (back.y)
				results = pack_load<V>(back.y + from);
		}
		UNROLL
		for (int v = 0; v < V; v++) {
			bool through = !back.y || load(results.numbers + v) > 0;

			store(gradients.numbers + v,
			      window.whole && through ? load(gradients.numbers + v) * back.scale
						      : 0);
			sums[v] += load(gradients.numbers + v);
		}
		window_back(&pool, &window, at, gradients, back.dx);
	}
	if (SUMS)
		sums_join(sums, &partial, to);
}

void kernel_max_pool_back(void *stream, const struct kernel_pool *pool, size_t batch,
			  const void *dy, const uint8_t *which, const void *y, float scale,
			  void *dx, const struct kernel_scratch *scratch, float *sums,
			  enum ddp_type type)
{
	size_t channels = (size_t)pool->channels;
	uint32_t size = (uint32_t)pool->size;
	uint32_t rows = ((uint32_t)pool->height + size - 1) / size;
	uint32_t columns = ((uint32_t)pool->width + size - 1) / size;

	WITH_TYPE(type, T, WITH_PACK(packs_fit(channels, sizeof(T), {dy, which, y, dx}), T, V, {
			  uint32_t packs = (uint32_t)channels / V;
			  struct pool_back<T> back = {
				  rows, columns, (uint32_t)batch *rows *columns *packs,
					  (const T *)dy, (const T *)y, which, scale, (T *)dx
			  };
			  size_t blocks = launch_blocks(back.count);

			  if (sums && LAUNCH_THREADS % packs == 0) {
				  blocks = blocks < PARTIAL_PARTS ? blocks : (size_t)PARTIAL_PARTS;
				  LAUNCH_BLOCKS((max_pool_back<T, V, true>), blocks, LAUNCH_THREADS,
						stream, *pool, back,
						partial_of(scratch, (unsigned)blocks, channels, 1),
						sums);
				  return;
			  }
			  LAUNCH_EACH((max_pool_back<T, V, false>), back.count, stream, *pool, back,
				      (struct partial){}, sums);
		  }))
	if (sums)
		kernel_column_sums(stream, dx, batch * (size_t)pool->height * (size_t)pool->width,
				   channels, scratch, sums, type);
}

/* --- Average ---------------------------------------------------------------------------------- */

/* A thread sums one pack of channels over all rows of an image. */
template <typename T, int V>
static __global__ void average_pool(uint32_t count, uint32_t rows, uint32_t channels, const T *x,
				    T *y)
{
	GRID_WAIT();
	const float part = 1 / (float)rows;
	uint32_t index = (uint32_t)thread_index(), packs = channels / V,
		 channel = index % packs * V;
	size_t image = index / packs;
	float sums[V] = {};
	pack<T, V> means;

	if (index >= count)
		return;
	UNROLL_8
	for (uint32_t r = 0; r < rows; r++) {
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
			  uint32_t count = (uint32_t)(batch * (channels / V));

			  LAUNCH_EACH((average_pool<T, V>), count, stream, count, (uint32_t)rows,
				      (uint32_t)channels, (const T *)x, (T *)y);
		  }))
}

template <typename T, int V>
static __global__ void average_pool_back(uint32_t count, uint32_t rows, uint32_t channels,
					 const T *dy, T *dx)
{
	GRID_WAIT();
	const float part = 1 / (float)rows;
	uint32_t index = (uint32_t)thread_index(), packs = channels / V,
		 channel = index % packs * V;
	size_t image = index / packs;
	pack<T, V> gradients;

	if (index >= count)
		return;
	gradients = pack_load<V>(dy + image * channels + channel);
	UNROLL
	for (int v = 0; v < V; v++)
		store(gradients.numbers + v, load(gradients.numbers + v) * part);
	for (uint32_t r = 0; r < rows; r++)
		pack_store(dx + (image * rows + r) * channels + channel, gradients);
}

void kernel_average_pool_back(void *stream, size_t batch, size_t rows, size_t channels,
			      const void *dy, void *dx, enum ddp_type type)
{
	WITH_TYPE(type, T, WITH_PACK(packs_fit(channels, sizeof(T), {dy, dx}), T, V, {
			  uint32_t count = (uint32_t)(batch * (channels / V));

			  LAUNCH_EACH((average_pool_back<T, V>), count, stream, count,
				      (uint32_t)rows, (uint32_t)channels, (const T *)dy, (T *)dx);
		  }))
}
