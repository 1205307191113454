/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dropout.cuh - what of a block's elements dropout drops
 *
 * What is drawn for 128 elements is drawn once, by one thread of the block for each of its planes, while
 * the block's numbers are on their way; a block has a draw for each of its threads at most, and usually a
 * warp's. A thread has V elements of a sample, side by side; blocks are of LAUNCH_THREADS.
 */
#ifndef TRAIN_CUDA_DROPOUT_CUH
#define TRAIN_CUDA_DROPOUT_CUH

#include "gpu/launch.cuh"
#include "kernels.h"
#include "philox.cuh"

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

#endif /* TRAIN_CUDA_DROPOUT_CUH */
