/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dice.h - random numbers for drawing: a stream that depends on (seed, index, layer) alone
 */
#ifndef TRAIN_DICE_H
#define TRAIN_DICE_H

#include "ddp.h"

/* Layers of ddp_random() that drawing takes, far from those of networks and batches. */
enum { DICE_LABEL = 0x20000, DICE_DIGIT, DICE_DIGIT_NOISE, DICE_OBJECT, DICE_OBJECT_NOISE };

struct dice {
	uint64_t seed, index;
	uint32_t layer, block;
	uint32_t words[4];
	unsigned left;
};

static inline struct dice dice_take(uint64_t seed, uint64_t index, uint32_t layer)
{
	return (struct dice){.seed = seed, .index = index, .layer = layer};
}

static inline uint32_t dice_word(struct dice *dice)
{
	if (dice->left == 0) {
		ddp_random(dice->seed, 0, dice->index, dice->layer, dice->block++, dice->words);
		dice->left = 4;
	}
	return dice->words[--dice->left];
}

/* A whole number below [limit]. */
static inline int dice_below(struct dice *dice, int limit)
{
	return (int)(((uint64_t)dice_word(dice) * (uint64_t)limit) >> 32);
}

/* A number from [low] to [high], all equally likely. */
static inline float dice_between(struct dice *dice, float low, float high)
{
	return low + (high - low) * ddp_random_uniform(dice_word(dice));
}

/* As dice_between(), but the middle is likelier than the ends. */
static inline float dice_near(struct dice *dice, float low, float high)
{
	float sum = ddp_random_uniform(dice_word(dice)) + ddp_random_uniform(dice_word(dice));

	return low + (high - low) * 0.5f * sum;
}

#endif /* TRAIN_DICE_H */
