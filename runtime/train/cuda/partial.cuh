/* SPDX-License-Identifier: Apache-2.0 */
/*
 * partial.cuh - sums of many blocks, added up by the last of these
 *
 * Each of [parts] leaves a row of [columns] partial sums. The parts lie in groups: the last block of a
 * group adds up the group's rows, in double, and the last of the groups' adds up these sums. Chance
 * decides which block is last, and not what it adds or in which order: the bits are always the same. No block
 * waits for another one, so they need not be on the card at the same time.
 */
#ifndef TRAIN_CUDA_PARTIAL_CUH
#define TRAIN_CUDA_PARTIAL_CUH

#include "cuda-kernels.h"
#include "gpu/launch.cuh"
#include "gpu/pack.cuh"

/* On a card with 132 processors one wave of blocks of 256 threads, 4 on each. */
enum { PARTIAL_PARTS = 512, PARTIAL_GROUPS = KERNEL_TICKETS - 1, PARTIAL_FEW = 16 };

struct partial {
	float *rows;	/* of parts */
	double *groups; /* sums of groups, behind them */
	unsigned *tickets;
	size_t columns;
	unsigned parts, members; /* of a group */
	unsigned blocks;	 /* that have a part together */
};

/* Parts in a group: few are one group, of more there are about as many groups as parts in each. */
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

static inline size_t partial_rows_bytes(size_t parts, size_t columns)
{
	return (parts * columns * sizeof(float) + 15) / 16 * 16;
}

/* Of scratch memory, for [parts] or fewer. */
static inline size_t partial_bytes(size_t parts, size_t columns)
{
	return partial_rows_bytes(parts, columns) + PARTIAL_GROUPS * columns * sizeof(double);
}

static inline struct partial partial_of(const struct kernel_scratch *scratch, unsigned parts,
					size_t columns, unsigned blocks)
{
	char *memory = (char *)scratch->memory;

	return {(float *)memory,
		(double *)(memory + partial_rows_bytes(parts, columns)),
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

/*
 * Whether this block is the last of all, to all of its threads, which all call it when they have
 * written to the row of [part]: then partial_total() has the sums of columns. [term] is (part, column) of what is
 * added, which it reads by load_fresh().
 */
template <typename TERM>
static __device__ inline bool partial_last(const struct partial *partial, unsigned part,
					   const TERM &term)
{
	unsigned group = part / partial->members, first = group * partial->members;
	unsigned end = first + partial->members, groups = partial_groups(partial);

	end = end < partial->parts ? end : partial->parts;
	if (!last_block(partial->tickets + 1 + group, (end - first) * partial->blocks))
		return false;
	if (groups == 1)
		return true;
	for (size_t c = threadIdx.x; c < partial->columns; c += blockDim.x) {
		double sum = 0;

		UNROLL_8
		for (unsigned p = first; p < end; p++)
			sum += term(p, c);
		partial->groups[group * partial->columns + c] = sum;
	}
	return last_block(partial->tickets, groups);
}

template <typename TERM>
static __device__ inline double partial_total(const struct partial *partial, size_t column,
					      const TERM &term)
{
	unsigned groups = partial_groups(partial);
	double sum = 0;

	if (groups == 1) {
		UNROLL_8
		for (unsigned p = 0; p < partial->parts; p++)
			sum += term(p, column);
		return sum;
	}
	UNROLL_8
	for (unsigned g = 0; g < groups; g++)
		sum += load_fresh(partial->groups + g * partial->columns + column);
	return sum;
}

/*
 * The sums of the rows as they are: of the first [split] columns to [to], of the others to [rest], by the last block,
 * which is told that it is. All threads call it when they have written to the row of [part].
 */
static __device__ inline bool partial_sums(const struct partial *partial, unsigned part, float *to,
					   size_t split = SIZE_MAX, float *rest = NULL)
{
	auto term = [&](unsigned row, size_t column) {
		return (double)load_fresh(partial->rows + row * partial->columns + column);
	};

	if (!partial_last(partial, part, term))
		return false;
	for (size_t c = threadIdx.x; c < partial->columns; c += LAUNCH_THREADS)
		*(c < split ? to + c : rest + (c - split)) = (float)partial_total(partial, c, term);
	return true;
}

/*
 * The first step of that, within a block of LAUNCH_THREADS of which [across] side by side have other columns: the sum
 * of value [k] over the threads that have the columns of thread [lane] < [across] goes to to(k, lane, sum).
 */
template <int N, typename TO>
static __device__ inline void partial_block(const float (&values)[N], unsigned across, const TO &to)
{
	SHARED float all[N][LAUNCH_THREADS + 8]; /* columns begin in other banks */

	UNROLL
	for (int k = 0; k < N; k++)
		all[k][threadIdx.x] = values[k];
	__syncthreads();
	for (unsigned i = threadIdx.x; i < N * across; i += LAUNCH_THREADS) {
		unsigned k = i / across, lane = i % across;
		float sum = 0;

		for (unsigned thread = lane; thread < LAUNCH_THREADS; thread += across)
			sum += all[k][thread];
		to(k, lane, sum);
	}
}

/* --- Two sums of all threads ------------------------------------------------------------------- */

struct partial_pair {
	double first, second;

	__device__ inline void operator+=(const partial_pair &other)
	{
		first += other.first;
		second += other.second;
	}
};

/* Of what each block has left in [blocks], by the last of them. All threads call it. */
static __device__ inline struct partial_pair partial_pairs(const struct partial_pair *blocks)
{
	struct partial_pair sum = {0, 0};

	for (unsigned i = threadIdx.x; i < gridDim.x; i += LAUNCH_THREADS)
		sum += {load_fresh(&blocks[i].first), load_fresh(&blocks[i].second)};
	return lanes_sum<LAUNCH_THREADS>(sum);
}

/* Each thread's [pair] becomes the sum of all, in the last block, which is told that it is. All threads call it. */
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
	*pair = partial_pairs(blocks);
	return true;
}

#endif /* TRAIN_CUDA_PARTIAL_CUH */
