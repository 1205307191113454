/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "mt19937.h"

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

uint64_t ddp_mt19937_next64(struct ddp_mt19937 *generator)
{
	uint64_t high = ddp_mt19937_next(generator);

	return high << 32 | ddp_mt19937_next(generator);
}
