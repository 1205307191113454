/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "philox.h"

static uint32_t multiply(uint32_t a, uint32_t b, uint32_t *high)
{
	uint64_t product = (uint64_t)a * b;

	*high = (uint32_t)(product >> 32);
	return (uint32_t)product;
}

static void one_round(uint32_t counter[4], const uint32_t key[2])
{
	uint32_t high0, high1;
	uint32_t low0 = multiply(0xd2511f53u, counter[0], &high0);
	uint32_t low1 = multiply(0xcd9e8d57u, counter[2], &high1);

	counter[0] = high1 ^ counter[1] ^ key[0];
	counter[1] = low1;
	counter[2] = high0 ^ counter[3] ^ key[1];
	counter[3] = low0;
}

void ddp_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
	uint32_t k[2] = {key[0], key[1]};

	for (int i = 0; i < 4; i++)
		out[i] = counter[i];
	for (int i = 0; i < 10; i++) {
		one_round(out, k);
		k[0] += 0x9e3779b9u;
		k[1] += 0xbb67ae85u;
	}
}

/*
 * The seed is the key; block and layer are words of the counter; the other two hold 40 bits of
 * the order and 24 of the epoch. What goes beyond these, a trillion samples or 16 million
 * epochs, picks another key.
 */
void ddp_random(uint64_t seed, uint64_t epoch, uint64_t order, uint32_t layer, uint32_t block,
		uint32_t out[4])
{
	uint64_t beyond = (epoch >> 24) * UINT64_C(0x9e3779b97f4a7c15) +
			  (order >> 40) * UINT64_C(0xbf58476d1ce4e5b9);
	uint64_t word = seed + beyond;
	uint32_t counter[4] = {block, layer, (uint32_t)order,
			       (uint32_t)(epoch << 8) | (uint32_t)(order >> 32 & 0xff)};
	uint32_t key[2] = {(uint32_t)word, (uint32_t)(word >> 32)};

	ddp_philox(counter, key, out);
}

float ddp_random_uniform(uint32_t bits)
{
	return (float)(bits >> 8) * 0x1p-24f;
}
