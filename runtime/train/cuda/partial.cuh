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

#include "gpu/launch.cuh"
#include "gpu/pack.cuh"
#include "kernels.h"

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

/* The rows as they are. */
struct partial_term {
	const float *rows;
	size_t columns;

	__device__ inline double operator()(unsigned part, size_t column) const
	{
		return (double)load_fresh(rows + part * columns + column);
	}
};

#endif /* TRAIN_CUDA_PARTIAL_CUH */
