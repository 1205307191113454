/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "dice.h"
#include "draw.h"

void draw_labels(uint64_t seed, uint64_t block, int classes, uint8_t *labels)
{
	struct dice dice = dice_take(seed, block, DICE_LABEL);

	for (int i = 0; i < classes; i++) {
		int other = dice_below(&dice, i + 1);

		labels[i] = labels[other];
		labels[other] = (uint8_t)i;
	}
}

int draw_label(uint64_t seed, uint64_t index, int classes)
{
	uint8_t labels[DRAW_CLASSES] = {0};

	draw_labels(seed, index / (uint64_t)classes, classes, labels);
	return labels[index % (uint64_t)classes];
}
