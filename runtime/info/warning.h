/* SPDX-License-Identifier: Apache-2.0 */
/*
 * warning.h - what is likely to be wrong with a set of ranks
 *
 * Pure: cards in, lines out. A line says what is, and what to do about it.
 */
#ifndef DDP_INFO_WARNING_H
#define DDP_INFO_WARNING_H

#include "card.h"

enum { INFO_WARNINGS = 16, INFO_WARNING_SIZE = 320 };

struct info_warnings {
	int count;
	char text[INFO_WARNINGS][INFO_WARNING_SIZE];
};

/* Look at the [cards] of all [size] ranks, in rank order, after info_sharing_find(). */
void info_warn(const struct info_card *cards, int size, struct info_warnings *warnings);

#endif /* DDP_INFO_WARNING_H */
