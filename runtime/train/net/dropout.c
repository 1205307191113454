/* SPDX-License-Identifier: Apache-2.0 */
/* dropout.c - draw dropout masks from counter-based random numbers */
#include "config.h"

#include <string.h>

#include "ddp.h"
#include "dropout.h"

enum { DIGITS = 16, GROUP = 128, WORDS = GROUP / 32 };

void dropout_set(struct dropout *dropout, float rate, int layer)
{
	uint32_t whole = 1u << DIGITS;
	uint32_t limit = (uint32_t)((double)rate * whole + 0.5);

	if (limit < 1)
		limit = 1;
	if (limit > whole - 1)
		limit = whole - 1;
	dropout->scale = (float)(1 / (1 - (double)limit / whole));
	dropout->planes = DIGITS;
	for (; limit % 2 == 0; limit /= 2)
		dropout->planes--;
	dropout->limit = limit;
	dropout->layer = (uint32_t)layer;
}

/*
 * Draws the mask of 128 elements. The planes are read from the last digit to the first. A bit of
 * [less] says whether the random digits of an element read so far are below those of the limit.
 */
static void draw_group(const struct dropout *dropout, uint64_t seed, uint64_t epoch, uint64_t order,
		       uint32_t group, uint32_t keep[WORDS])
{
	uint32_t less[WORDS] = {0};

	for (int p = dropout->planes - 1; p >= 0; p--) {
		bool one = dropout->limit >> (dropout->planes - 1 - p) & 1;
		uint32_t bits[WORDS];

		ddp_random(seed, epoch, order, dropout->layer,
			   group * (uint32_t)dropout->planes + (uint32_t)p, bits);
		for (int w = 0; w < WORDS; w++)
			less[w] = one ? ~bits[w] | less[w] : ~bits[w] & less[w];
	}
	for (int w = 0; w < WORDS; w++)
		keep[w] = ~less[w];
}

/*
 * Writes the low [count] bits (at most 32) of [bits] to [keep], starting with bit [at]. The written
 * bits of [keep] must be zero before.
 */
static void append(uint8_t *keep, size_t at, uint32_t bits, size_t count)
{
	uint64_t shifted = count < 32 ? bits & ((1u << count) - 1) : bits;

	shifted <<= at % 8;
	for (size_t byte = at / 8; shifted; byte++, shifted >>= 8)
		keep[byte] |= (uint8_t)shifted;
}

static void draw_sample(const struct dropout *dropout, uint64_t seed, uint64_t epoch,
			uint64_t order, size_t count, size_t at, uint8_t *keep)
{
	for (size_t e = 0; e < count; e += GROUP) {
		uint32_t words[WORDS];

		draw_group(dropout, seed, epoch, order, (uint32_t)(e / GROUP), words);
		for (size_t w = 0; w < WORDS && e + w * 32 < count; w++) {
			size_t left = count - e - w * 32;

			append(keep, at + e + w * 32, words[w], left < 32 ? left : 32);
		}
	}
}

void dropout_draw(const struct dropout *dropout, uint64_t seed, uint64_t epoch,
		  const uint64_t *orders, size_t samples, size_t count, uint8_t *keep)
{
	memset(keep, 0, (samples * count + 7) / 8);
	for (size_t i = 0; i < samples; i++)
		draw_sample(dropout, seed, epoch, orders[i], count, i * count, keep);
}
