/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows.cuh - how rows of channels are divided among blocks and threads
 *
 * A block has [across] threads side by side, each with a pack of channels that it keeps, and [down] rows
 * of such threads; it does rows first + lane, first + lane + down, ... of its part, loading ROWS of
 * them at once: that many loads under way for each thread hide the memory's latency. What belongs to a
 * channel is loaded once for all rows of a thread. The division depends on sizes alone, never on the
 * card or on the number of samples there: sums are the same bits everywhere.
 */
#ifndef TRAIN_CUDA_ROWS_CUH
#define TRAIN_CUDA_ROWS_CUH

#include <stddef.h>

#include "gpu/launch.cuh"
#include "gpu/pack.cuh"

struct rows {
	size_t rows, channels;
	size_t part;	/* rows of one */
	unsigned parts; /* blocks for the same channels */
	unsigned slabs; /* blocks for the same rows */
	unsigned across, down;
};

/* A part has [least] rows for each thread, unless that makes more than [most] parts. */
static inline struct rows rows_divide(size_t count, size_t channels, int pack, size_t least,
				      size_t most)
{
	size_t packs = channels / (size_t)pack, step, parts;
	struct rows rows = {count, channels, 0, 1, 1, 1, LAUNCH_THREADS};

	while (rows.across < packs && rows.across < LAUNCH_THREADS) {
		rows.across *= 2;
		rows.down /= 2;
	}
	if (packs > rows.across)
		rows.slabs = (unsigned)((packs + rows.across - 1) / rows.across);
	step = rows.down * least;
	parts = (count + step - 1) / step;
	parts = parts > most ? most : parts;
	if (parts > 1) {
		rows.part = ((count + parts - 1) / parts + step - 1) / step * step;
		rows.parts = (unsigned)((count + rows.part - 1) / rows.part);
	} else {
		rows.part = count;
	}
	return rows;
}

static inline size_t rows_blocks(const struct rows *rows)
{
	return (size_t)rows->parts * rows->slabs;
}

/* Where a thread is: its first channel, and its rows from first + lane on, below [end]. */
struct place {
	size_t channel, first, end;
	unsigned part, lane;
};

/* Of the rows only the first [present] count. */
static __device__ inline struct place rows_place(const struct rows *rows, int pack, size_t present)
{
	unsigned slab = blockIdx.x % rows->slabs;
	size_t index = (size_t)slab * rows->across + threadIdx.x % rows->across;
	struct place place;

	place.part = blockIdx.x / rows->slabs;
	place.lane = threadIdx.x / rows->across;
	place.channel = index * (size_t)pack;
	place.first = place.part * rows->part;
	place.end = place.first + rows->part;
	place.end = place.end < present ? place.end : present;
	return place;
}

/* ROWS packs of [x], from row [row] on and each [down] rows further: to numbers. */
template <typename T, int V, int ROWS>
static __device__ inline void rows_load(const T *x, const struct rows *rows, size_t row,
					size_t channel, pack<T, V> (&numbers)[ROWS])
{
	UNROLL
	for (int i = 0; i < ROWS; i++)
		numbers[i] =
			pack_load<V>(x + (row + (size_t)i * rows->down) * rows->channels + channel);
}

/*
 * The sums of columns that blocks leave behind: sum the [parts] rows of [columns] in a fixed order, in double,
 * and write the first [split] sums to [first], the others to [second].
 */
void rows_sum(void *stream, const float *partials, size_t parts, size_t columns, float *first,
	      size_t split, float *second);

/* Parts of reductions: on a card with 132 processors one wave of blocks of 256 threads, 4 on each. */
enum { ROWS_PARTS = 512 };

#endif /* TRAIN_CUDA_ROWS_CUH */
