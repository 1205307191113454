/* SPDX-License-Identifier: Apache-2.0 */
/* random.c - random numbers: Philox, which is a function of a counter; and the Mersenne Twister */
#include "config.h"

#include <ddp.h>

#include "random.h"

/* --- Counter-based: Philox ----------------------------------------------------------------- */

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

/*
 * Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3").
 * Computes four random words from [counter] and [key].
 */
static void philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
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
 * The key of Philox is the seed. Its counter has four words: block, layer, and two words that hold
 * the low 40 bits of the order and the low 24 bits of the epoch. The higher bits, which are 0 below
 * a trillion samples and 16 million epochs, are mixed into the key.
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

	philox(counter, key, out);
}

float ddp_random_uniform(uint32_t bits)
{
	return (float)(bits >> 8) * 0x1p-24f;
}

/* --- Sequential: Mersenne Twister ---------------------------------------------------------- */

#define WORDS DDP_MT19937_WORDS
#define MIDDLE 397

void ddp_mt19937_seed(struct ddp_mt19937 *generator, uint64_t seed)
{
	uint32_t *state = generator->state;

	state[0] = (uint32_t)seed;
	for (uint32_t i = 1; i < WORDS; i++)
		state[i] = 1812433253u * (state[i - 1] ^ (state[i - 1] >> 30)) + i;
	generator->next = WORDS;
}

static uint32_t twist(uint32_t high, uint32_t low)
{
	uint32_t mixed = (high & 0x80000000u) | (low & 0x7fffffffu);

	return (mixed >> 1) ^ (low & 1 ? 0x9908b0dfu : 0);
}

static void refill(struct ddp_mt19937 *generator)
{
	uint32_t *state = generator->state;
	int i = 0;

	for (; i < WORDS - MIDDLE; i++)
		state[i] = state[i + MIDDLE] ^ twist(state[i], state[i + 1]);
	for (; i < WORDS - 1; i++)
		state[i] = state[i + MIDDLE - WORDS] ^ twist(state[i], state[i + 1]);
	state[i] = state[MIDDLE - 1] ^ twist(state[i], state[0]);
	generator->next = 0;
}

uint32_t ddp_mt19937_next(struct ddp_mt19937 *generator)
{
	uint32_t word;

	if (generator->next == WORDS)
		refill(generator);
	word = generator->state[generator->next++];
	word ^= word >> 11;
	word ^= (word << 7) & 0x9d2c5680u;
	word ^= (word << 15) & 0xefc60000u;
	return word ^ (word >> 18);
}
