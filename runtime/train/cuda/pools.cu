/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pools.cu - pools, dropout, and max-pools followed by dropout
 *
 * All kernels are bound by memory. Each byte is read and written once. A thread accesses packs of
 * 16 bytes, and adjacent threads access adjacent packs. For a max-pool, a thread reads four packs at
 * the same time. A dropout after the max-pool needs no further memory access
 * and no further launch. For small batches, the kernels are bound by the launch.
 *
 * Indices have 32 bits, because a division of 64 bits takes five times as long. The engine rejects
 * batches that have too many elements for 32-bit indices.
 */
#include "cuda-kernels.h"
#include "gpu/launch.cuh"
#include "gpu/pack.cuh"
#include "partial.cuh"
#include "philox.cuh"

/* --- Windows ---------------------------------------------------------------------------------- */

/* Height and width of a window, and number of its pixels. */
enum { SIZE = 2, PIXELS = SIZE * SIZE };

/* Position of a thread's window, and the first channel of the thread. */
struct window {
	uint32_t channel, row, column, image;
};

/* Returns the window for result number [place] of an image. */
static __device__ inline struct window window_of(const struct graph_shape *in, uint32_t image,
						 uint32_t place)
{
	uint32_t channels = (uint32_t)in->channels, index = place / channels;
	uint32_t columns = (uint32_t)(in->width / SIZE);

	return {place % channels, index / columns, index % columns, image};
}

/* Returns the offset of the window's pixel in row [y] and column [x]. */
static __device__ inline size_t window_pixel(const struct graph_shape *in,
					     const struct window *window, int y, int x)
{
	uint32_t row = window->row * SIZE + (uint32_t)y;
	uint32_t column = window->column * SIZE + (uint32_t)x;
	size_t line = (size_t)window->image * (size_t)in->height + row;

	return (line * (size_t)in->width + column) * (size_t)in->channels + window->channel;
}

/* --- Dropout ------------------------------------------------------------------------------------ */

/*
 * Random numbers are drawn for groups of 128 elements, as several planes of bits. A block draws the
 * numbers of its groups once, while the data is being loaded. One thread draws one plane. A block
 * has at most as many planes as threads, and usually as many as a warp has threads. Each thread has
 * V adjacent elements of a sample, and each block has LAUNCH_THREADS threads.
 */
enum { GROUP = 128, PLANES = 16 }; /* see dropout.h */

/* groups per block */
template <int V> static constexpr uint32_t GROUPS = LAUNCH_THREADS *V / GROUP;

/* Parameters for drawing the random numbers. Groups of elements are numbered sample by sample. */
struct draw {
	struct dropout dropout;
	const struct kernel_order *order;
	const uint64_t *orders;
	uint32_t samples, elements; /* samples in the batch, and elements per sample */
	uint32_t groups;	    /* groups per sample */
};

static inline struct draw draw_of(const struct dropout *dropout, const struct kernel_order *order,
				  const uint64_t *orders, size_t samples, size_t elements)
{
	const struct dropout none = {0, 0, 1, 0};

	return {dropout ? *dropout : none,
		order,
		orders,
		(uint32_t)samples,
		(uint32_t)elements,
		(uint32_t)((elements + GROUP - 1) / GROUP)};
}

static inline size_t draw_blocks(const struct draw *draw, int pack)
{
	size_t groups = LAUNCH_THREADS * (size_t)pack / GROUP;

	return ((size_t)draw->samples * draw->groups + groups - 1) / groups;
}

struct share {
	uint32_t group, element; /* group in the block, element in the group */
	uint32_t sample, place;	 /* sample, element in the sample */
	bool there;
};

template <int V> static __device__ inline struct share share_of(const struct draw *draw)
{
	struct share share;
	uint32_t index;

	share.group = threadIdx.x * V / GROUP;
	share.element = threadIdx.x * V % GROUP;
	index = blockIdx.x * GROUPS<V> + share.group;
	share.sample = index / draw->groups;
	share.place = index % draw->groups * GROUP + share.element;
	share.there = share.sample < draw->samples && share.place < draw->elements;
	return share;
}

/*
 * Returns a bit mask of the thread's elements. Bit 0 is for the first element. A bit is 1 if the
 * element is dropped. All threads must call this function.
 */
template <int V>
static __device__ inline uint32_t share_dropped(const struct draw *draw, struct share share)
{
	SHARED struct philox_words drawn[GROUPS<V> * PLANES];
	uint32_t planes = (uint32_t)draw->dropout.planes, less = 0;

	if (threadIdx.x < GROUPS<V> * planes) {
		uint32_t index = blockIdx.x * GROUPS<V> + threadIdx.x / planes;
		uint32_t sample = index / draw->groups;
		uint64_t place = sample < draw->order->count ? draw->orders[sample] : 0;

		drawn[threadIdx.x] =
			philox_random(draw->order->seed, draw->order->epoch, place,
				      draw->dropout.layer,
				      index % draw->groups * planes + threadIdx.x % planes);
	}
	__syncthreads();
	for (uint32_t p = planes; p-- > 0;) {
		uint32_t bits = ~drawn[share.group * planes + p].words[share.element / 32];

		less = draw->dropout.limit >> (planes - 1 - p) & 1 ? bits | less : bits & less;
	}
	return less >> share.element % 32;
}

template <typename T, int V = PACK<T>>
static __global__ void drop(struct draw draw, const T *x, T *y)
{
	struct share share = share_of<V>(&draw);
	size_t at = (size_t)share.sample * draw.elements + share.place;
	pack<T, V> numbers;
	uint32_t bits;

	if (share.there)
		numbers = pack_load<V>(x + at);
	bits = share_dropped<V>(&draw, share);
	if (share.there)
		pack_store(y + at, pack_of<T, V>([&](int v) {
				   return bits >> v & 1 ? 0 : numbers[v] * draw.dropout.scale;
			   }));
}

void kernel_dropout(void *stream, const struct dropout *dropout, const struct kernel_order *order,
		    const uint64_t *orders, size_t batch, size_t elements, const void *x, void *y,
		    enum ddp_type type)
{
	struct draw draw = draw_of(dropout, order, orders, batch, elements);

	if (batch * elements == 0)
		return;
	WITH_TYPE(type, T,
		  LAUNCH_BLOCKS((drop<T>), draw_blocks(&draw, PACK<T>), LAUNCH_THREADS, stream,
				draw, (const T *)x, (T *)y))
}

/* --- Max-pool, optionally followed by dropout ---------------------------------------------------- */

/* NaN counts as larger than all numbers, and the first of equal values is the maximum. */
template <typename T, int V = PACK<T>>
static __global__ void max_pool(struct graph_shape in, struct draw draw, const T *x, T *y,
				uint8_t *which)
{
	struct share share = share_of<V>(&draw);
	struct window window = window_of(&in, share.sample, share.place);
	size_t at = (size_t)share.sample * draw.elements + share.place;
	pack<uint8_t, V> first = {};
	float best[V] = {};
	const int pixels = share.there ? (int)PIXELS : 0;
	uint32_t bits;

	UNROLL_4
	for (int k = 0; k < pixels; k++) {
		pack<T, V> next = pack_load<V>(x + window_pixel(&in, &window, k / SIZE, k % SIZE));

		UNROLL
		for (int v = 0; v < V; v++)
			if (k == 0 || next[v] > best[v] || next[v] != next[v]) {
				best[v] = next[v];
				first.numbers[v] = (uint8_t)k;
			}
	}
	bits = share_dropped<V>(&draw, share);
	if (!share.there)
		return;
	pack_store(y + at, pack_of<T, V>([&](int v) {
			   return bits >> v & 1 ? 0 : best[v] * draw.dropout.scale;
		   }));
	pack_store(which + at, first);
}

void kernel_max_pool(void *stream, const struct graph_shape *in, const struct dropout *dropout,
		     const struct kernel_order *order, const uint64_t *orders, size_t batch,
		     const void *x, void *y, uint8_t *which, enum ddp_type type)
{
	size_t windows = (size_t)(in->height / SIZE) * (size_t)(in->width / SIZE);
	struct draw draw = draw_of(dropout, order, orders, batch, windows * (size_t)in->channels);

	if (batch * windows == 0)
		return;
	WITH_TYPE(type, T,
		  LAUNCH_BLOCKS((max_pool<T>), draw_blocks(&draw, PACK<T>), LAUNCH_THREADS, stream,
				*in, draw, (const T *)x, (T *)y, which))
}

struct pool_back {
	uint32_t each; /* results per image */
	size_t count;  /* results in all images */
	const void *dy, *y;
	const uint8_t *which;
	float scale;
	void *dx;
};

/*
 * A window passes its gradient to the pixel of the maximum, and zeros to the other pixels. If [to]
 * is not NULL, all windows of a thread have the same channels, so the thread sums its gradients.
 */
template <typename T, int V = PACK<T>>
static __global__ void max_pool_back(struct graph_shape in, struct pool_back back,
				     struct partial partial, float *to)
{
	float sums[V] = {};

	for (size_t index = thread_index() * V; index < back.count;
	     index += (size_t)gridDim.x * blockDim.x * V) {
		struct window window =
			window_of(&in, (uint32_t)index / back.each, (uint32_t)index % back.each);
		pack<T, V> gradients = pack_load<V>((const T *)back.dy + index), results = {};
		pack<uint8_t, V> which = pack_load<V>(back.which + index);

		if (back.y)
			results = pack_load<V>((const T *)back.y + index);
		gradients = pack_of<T, V>([&](int v) {
			return !back.y || results[v] > 0 ? gradients[v] * back.scale : 0;
		});
		UNROLL
		for (int v = 0; v < V; v++)
			sums[v] += gradients[v];
		for (int k = 0; k < PIXELS; k++) {
			pack<T, V> out = gradients;

			UNROLL
			for (int v = 0; v < V; v++)
				if (which.numbers[v] != k)
					store(out.numbers + v, 0);
			pack_store((T *)back.dx + window_pixel(&in, &window, k / SIZE, k % SIZE),
				   out);
		}
	}
	if (!to)
		return;
	partial_block(sums, (unsigned)in.channels / V, [&](unsigned v, unsigned lane, float sum) {
		partial.rows[blockIdx.x * partial.columns + lane * V + v] = sum;
	});
	partial_sums(&partial, blockIdx.x, to);
}

void kernel_max_pool_back(void *stream, const struct graph_shape *in, size_t batch, const void *dy,
			  const uint8_t *which, const void *y, float scale, void *dx,
			  const struct kernel_scratch *scratch, float *sums, enum ddp_type type)
{
	size_t channels = (size_t)in->channels, pack = (size_t)pack_count(type);
	size_t each = (size_t)(in->height / SIZE) * (size_t)(in->width / SIZE) * channels;
	struct pool_back back = {(uint32_t)each, batch * each, dy, y, which, scale, dx};
	size_t blocks = launch_blocks(back.count / pack);
	bool here = sums && LAUNCH_THREADS % (channels / pack) == 0;
	struct partial partial = {};

	blocks = blocks < PARTIAL_PARTS ? blocks : (size_t)PARTIAL_PARTS;
	if (here)
		partial = partial_of(scratch, (unsigned)blocks, channels, 1);
	WITH_TYPE(type, T,
		  LAUNCH_BLOCKS((max_pool_back<T>), blocks, LAUNCH_THREADS, stream, *in, back,
				partial, here ? sums : NULL))
	if (sums && !here)
		kernel_column_sums(stream, dx, batch * (size_t)in->height * (size_t)in->width,
				   channels, scratch, sums, type);
}

/* --- Average pool ----------------------------------------------------------------------------- */

/*
 * Computes means over an image, or the backward pass. A thread has one pack of channels of an
 * image. It sums the pack over all rows or, with BACK, writes the pack to all rows.
 */
template <typename T, bool BACK, int V = PACK<T>>
static __global__ void average_pool(uint32_t count, uint32_t rows, uint32_t channels, const T *from,
				    T *to)
{
	const float part = 1 / (float)rows;
	uint32_t index = (uint32_t)thread_index(), packs = channels / V;
	size_t image = index / packs, channel = index % packs * V;
	size_t whole = image * rows * channels + channel, mean = image * channels + channel;
	float sums[V] = {};
	pack<T, V> numbers;

	if (index >= count)
		return;
	UNROLL_8
	for (uint32_t r = 0; r < (BACK ? 1 : rows); r++) {
		numbers = pack_load<V>(from + (BACK ? mean : whole + (size_t)r * channels));
		UNROLL
		for (int v = 0; v < V; v++)
			sums[v] += numbers[v];
	}
	numbers = pack_of<T, V>([&](int v) { return (BACK ? numbers[v] : sums[v]) * part; });
	for (uint32_t r = 0; r < (BACK ? rows : 1); r++)
		pack_store(to + (BACK ? whole + (size_t)r * channels : mean), numbers);
}

template <bool BACK>
static void average(void *stream, size_t batch, size_t rows, size_t channels, const void *from,
		    void *to, enum ddp_type type)
{
	uint32_t count = (uint32_t)(batch * channels / (size_t)pack_count(type));

	WITH_TYPE(type, T,
		  LAUNCH_EACH((average_pool<T, BACK>), count, stream, count, (uint32_t)rows,
			      (uint32_t)channels, (const T *)from, (T *)to))
}

void kernel_average_pool(void *stream, size_t batch, size_t rows, size_t channels, const void *x,
			 void *y, enum ddp_type type)
{
	average<false>(stream, batch, rows, channels, x, y, type);
}

void kernel_average_pool_back(void *stream, size_t batch, size_t rows, size_t channels,
			      const void *dy, void *dx, enum ddp_type type)
{
	average<true>(stream, batch, rows, channels, dy, dx, type);
}
