/* SPDX-License-Identifier: Apache-2.0 */
/*
 * philox.cuh - ddp_random() on the device, with the same results
 *
 * A call needs twenty products of 32 x 32 bits, as many exclusive ors, and no memory. Its latency
 * is about 0.2 microseconds.
 */
#ifndef TRAIN_CUDA_PHILOX_CUH
#define TRAIN_CUDA_PHILOX_CUH

#include <stdint.h>

#include "gpu/launch.cuh"

struct alignas(16) philox_words {
	uint32_t words[4];
};

static __device__ inline struct philox_words philox_round(struct philox_words counter,
							  uint32_t key0, uint32_t key1)
{
	uint64_t product0 = (uint64_t)0xd2511f53u * counter.words[0];
	uint64_t product1 = (uint64_t)0xcd9e8d57u * counter.words[2];

	return {{(uint32_t)(product1 >> 32) ^ counter.words[1] ^ key0, (uint32_t)product1,
		 (uint32_t)(product0 >> 32) ^ counter.words[3] ^ key1, (uint32_t)product0}};
}

static __device__ inline struct philox_words philox_random(uint64_t seed, uint64_t epoch,
							   uint64_t order, uint32_t layer,
							   uint32_t block)
{
	uint64_t word =
		seed + (epoch >> 24) * 0x9e3779b97f4a7c15u + (order >> 40) * 0xbf58476d1ce4e5b9u;
	uint32_t key0 = (uint32_t)word, key1 = (uint32_t)(word >> 32);
	struct philox_words counter = {{block, layer, (uint32_t)order,
					(uint32_t)(epoch << 8) | (uint32_t)(order >> 32 & 0xff)}};

	for (int i = 0; i < 10; i++) {
		counter = philox_round(counter, key0, key1);
		key0 += 0x9e3779b9u;
		key1 += 0xbb67ae85u;
	}
	return counter;
}

#endif /* TRAIN_CUDA_PHILOX_CUH */
