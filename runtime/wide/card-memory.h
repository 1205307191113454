/* SPDX-License-Identifier: Apache-2.0 */
/*
 * card-memory.h - who holds how much of a GPU's memory, and what is free
 *
 * As the driver's management library tells it, for which nobody needs a context on the GPU. A GPU, or a MIG slice,
 * is named by its UUID (card-uuid.h).
 */
#ifndef DDP_WIDE_CARD_MEMORY_H
#define DDP_WIDE_CARD_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ddp_card_holder {
	unsigned int pid;
	size_t bytes; /* 0: none, or not known */
};

enum { DDP_CARD_HOLDERS = 128 };

/* The processes that compute on the GPU. Returns how many; 0 also where nobody knows. */
int ddp_card_holders(const char *uuid, struct ddp_card_holder holders[DDP_CARD_HOLDERS]);

/*
 * Bytes of the GPU that this process holds: its context and all that was allocated in it, by whomever.
 * 0: not known, as in a container, where the driver counts processes by other numbers.
 */
size_t ddp_card_held(const char *uuid);

/*
 * Bytes of the GPU, and those that nobody holds.
 * Returns false, and leaves them, where the library is not there or does not know.
 */
bool ddp_card_memory(const char *uuid, uint64_t *total, uint64_t *available);

#endif /* DDP_WIDE_CARD_MEMORY_H */
