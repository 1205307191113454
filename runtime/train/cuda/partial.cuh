/* SPDX-License-Identifier: Apache-2.0 */
/*
 * partial.cuh - sums over many blocks in one launch: the last block adds the parts of all blocks
 *
 * The input is divided into [parts] parts. Each part stores a row of [columns] partial sums, in
 * double precision. Parts are divided into groups. In each group, the block that finishes last adds
 * the group's rows. Of these blocks, the one that finishes last adds the sums of the groups. Any
 * block may be the last, but the terms and their order are fixed, so the bits are always the same.
 * No block waits for another block, so the blocks need not run at the same time.
 */
#ifndef TRAIN_CUDA_PARTIAL_CUH
#define TRAIN_CUDA_PARTIAL_CUH

#include "cuda-kernels.h"
#include "gpu/launch.cuh"
#include "gpu/pack.cuh"

/*
 * PARTIAL_PARTS: one wave of blocks of 256 threads, with 4 blocks on each of 132 multiprocessors.
 */
enum { PARTIAL_PARTS = 512, PARTIAL_GROUPS = KERNEL_TICKETS - 1, PARTIAL_FEW = 16 };

struct partial {
	double *rows;	/* rows of the parts */
	double *groups; /* sums of the groups, after the rows */
	unsigned *tickets;
	size_t columns;
	unsigned parts, members; /* members: parts per group */
	unsigned blocks;	 /* blocks per part */
};

/* Number of parts per group: all parts if there are few, else about the square root of [parts]. */
static inline unsigned partial_members(unsigned parts)
{
	unsigned members = PARTIAL_FEW;

	if (parts <= PARTIAL_FEW)
		return parts;
	while (members / 2 * (members / 2) >= parts)
		members /= 2;
	while ((parts + members - 1) / members > PARTIAL_GROUPS)
		members *= 2;
	return members;
}

/* Returns the bytes of scratch memory for at most [parts] parts. */
static inline size_t partial_bytes(size_t parts, size_t columns)
{
	return (parts + PARTIAL_GROUPS) * columns * sizeof(double);
}

static inline struct partial partial_of(const struct kernel_scratch *scratch, unsigned parts,
					size_t columns, unsigned blocks)
{
	double *rows = (double *)scratch->memory;

	return {rows,
		rows + parts * columns,
		scratch->tickets,
		columns,
		parts,
		partial_members(parts),
		blocks};
}

static __device__ inline unsigned partial_groups(const struct partial *partial)
{
	return (partial->parts + partial->members - 1) / partial->members;
}

/* Returns the sum of a column of [rows] over [count] rows. */
static __device__ inline double partial_column(const double *rows, size_t columns, size_t column,
					       unsigned count)
{
	double sum = 0;

	UNROLL_8
	for (unsigned i = 0; i < count; i++)
		sum += load_fresh(rows + i * columns + column);
	return sum;
}

/*
 * Returns whether this block is the last one. All threads must call this function after the row of
 * [part] was written. In the last block, partial_total() then returns the sum of each column.
 */
static __device__ inline bool partial_last(const struct partial *partial, unsigned part)
{
	unsigned group = part / partial->members, first = group * partial->members;
	unsigned end = first + partial->members, groups = partial_groups(partial);

	end = end < partial->parts ? end : partial->parts;
	if (!last_block(partial->tickets + 1 + group, (end - first) * partial->blocks))
		return false;
	if (groups == 1)
		return true;
	for (size_t c = threadIdx.x; c < partial->columns; c += blockDim.x)
		partial->groups[group * partial->columns + c] = partial_column(
			partial->rows + first * partial->columns, partial->columns, c, end - first);
	return last_block(partial->tickets, groups);
}

static __device__ inline double partial_total(const struct partial *partial, size_t column)
{
	unsigned groups = partial_groups(partial);

	return groups == 1 ? partial_column(partial->rows, partial->columns, column, partial->parts)
			   : partial_column(partial->groups, partial->columns, column, groups);
}

/*
 * Sums the rows. The last block writes the sums of the first [split] columns to [to], and the other
 * columns' sums to [others]. All threads must call this function after the row of [part] was
 * written.
 */
static __device__ inline void partial_sums(const struct partial *partial, unsigned part, float *to,
					   size_t split = SIZE_MAX, float *others = NULL)
{
	if (!partial_last(partial, part))
		return;
	for (size_t c = threadIdx.x; c < partial->columns; c += LAUNCH_THREADS)
		*(c < split ? to + c : others + (c - split)) = (float)partial_total(partial, c);
}

/*
 * Sums values of the threads of a block. A block has LAUNCH_THREADS threads, in rows of [across]
 * adjacent threads. Threads in the same row have different columns. Calls to(k, lane, sum) for each
 * [lane] < [across]. [sum] is the sum of value [k] over thread number [lane] of each row.
 */
template <typename S, int N, typename TO>
static __device__ inline void partial_block(const S (&values)[N], unsigned across, const TO &to)
{
	/* Rows of the array are padded, so that they start in different banks of shared memory. */
	SHARED S all[N][LAUNCH_THREADS + 8];

	UNROLL
	for (int k = 0; k < N; k++)
		all[k][threadIdx.x] = values[k];
	__syncthreads();
	for (unsigned i = threadIdx.x; i < N * across; i += LAUNCH_THREADS) {
		unsigned k = i / across, lane = i % across;
		S sum = 0;

		for (unsigned thread = lane; thread < LAUNCH_THREADS; thread += across)
			sum += all[k][thread];
		to(k, lane, sum);
	}
}

/* --- Two sums over all threads ----------------------------------------------------------------- */

struct partial_pair {
	double first, second;

	__device__ inline void operator+=(const partial_pair &other)
	{
		first += other.first;
		second += other.second;
	}
};

/*
 * Sums [pair] over the threads of all blocks. Returns true in the last block, where [pair] gets the
 * sum. All threads must call this function.
 */
static __device__ inline bool partial_pair_sum(struct partial_pair *pair,
					       struct partial_pair *blocks, unsigned *ticket)
{
	*pair = lanes_sum<LAUNCH_THREADS>(*pair);
	if (gridDim.x == 1)
		return true;
	if (threadIdx.x == 0)
		blocks[blockIdx.x] = *pair;
	if (!last_block(ticket, gridDim.x))
		return false;
	*pair = {0, 0};
	for (unsigned i = threadIdx.x; i < gridDim.x; i += LAUNCH_THREADS)
		*pair += {load_fresh(&blocks[i].first), load_fresh(&blocks[i].second)};
	*pair = lanes_sum<LAUNCH_THREADS>(*pair);
	return true;
}

#endif /* TRAIN_CUDA_PARTIAL_CUH */
