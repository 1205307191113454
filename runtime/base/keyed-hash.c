/* SPDX-License-Identifier: Apache-2.0 */
/* keyed-hash.c - BLAKE2s with a key (RFC 7693) */
#include "config.h"

#include <string.h>

#include "keyed-hash.h"

enum { BLOCK = 64, ROUNDS = 10, WORDS = 8 };

static const uint32_t initial[WORDS] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
					0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

/* Index of the message word that each round and step uses (RFC 7693). */
static const uint8_t order[ROUNDS][16] = {
	{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
	{14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
	{11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
	{7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
	{9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
	{2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
	{12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
	{13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
	{6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
	{10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

static uint32_t rotate(uint32_t word, int bits)
{
	return word >> bits | word << (32 - bits);
}

static uint32_t load(const uint8_t *at)
{
	return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
	       (uint32_t)at[3] << 24;
}

static void mix(uint32_t v[static 16], int a, int b, int c, int d, uint32_t x, uint32_t y)
{
	v[a] += v[b] + x;
	v[d] = rotate(v[d] ^ v[a], 16);
	v[c] += v[d];
	v[b] = rotate(v[b] ^ v[c], 12);
	v[a] += v[b] + y;
	v[d] = rotate(v[d] ^ v[a], 8);
	v[c] += v[d];
	v[b] = rotate(v[b] ^ v[c], 7);
}

/*
 * Add one block to the state. [total] is the number of bytes up to the end of this block. [last] is
 * true for the last block.
 */
static void compress(uint32_t state[static WORDS], const uint8_t block[static BLOCK],
		     uint64_t total, bool last)
{
	uint32_t v[16], m[16];

	for (int i = 0; i < WORDS; i++) {
		v[i] = state[i];
		v[i + WORDS] = initial[i];
	}
	v[12] ^= (uint32_t)total;
	v[13] ^= (uint32_t)(total >> 32);
	v[14] ^= last ? UINT32_MAX : 0;
	for (int i = 0; i < 16; i++)
		m[i] = load(block + 4 * i);
	for (int round = 0; round < ROUNDS; round++) {
		const uint8_t *s = order[round];

		for (int i = 0; i < 4; i++)
			mix(v, i, 4 + i, 8 + i, 12 + i, m[s[2 * i]], m[s[2 * i + 1]]);
		for (int i = 0; i < 4; i++)
			mix(v, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4,
			    m[s[8 + 2 * i]], m[s[9 + 2 * i]]);
	}
	for (int i = 0; i < WORDS; i++)
		state[i] ^= v[i] ^ v[i + WORDS];
}

void ddp_keyed_hash(const uint8_t key[DDP_HASH_SIZE], const void *data, size_t size,
		    uint8_t hash[static DDP_HASH_SIZE])
{
	const uint8_t *at = data;
	uint32_t state[WORDS];
	uint8_t block[BLOCK] = {0};
	uint64_t total = 0;

	memcpy(state, initial, sizeof(state));
	state[0] ^= 0x01010000u ^ (key ? DDP_HASH_SIZE << 8 : 0) ^ DDP_HASH_SIZE;
	if (key) {
		memcpy(block, key, DDP_HASH_SIZE);
		total = BLOCK;
		compress(state, block, total, size == 0);
		memset(block, 0, sizeof(block));
	}
	while (size > BLOCK) {
		total += BLOCK;
		compress(state, at, total, false);
		at += BLOCK;
		size -= BLOCK;
	}
	if (size > 0 || !key) {
		if (size > 0)
			memcpy(block, at, size);
		compress(state, block, total + size, true);
	}
	for (int i = 0; i < DDP_HASH_SIZE; i++)
		hash[i] = (uint8_t)(state[i / 4] >> 8 * (i % 4));
}

bool ddp_hash_equal(const uint8_t a[static DDP_HASH_SIZE], const uint8_t b[static DDP_HASH_SIZE])
{
	uint8_t difference = 0;

	for (int i = 0; i < DDP_HASH_SIZE; i++)
		difference |= a[i] ^ b[i];
	return difference == 0;
}
