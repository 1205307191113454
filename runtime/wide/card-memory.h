/* SPDX-License-Identifier: Apache-2.0 */
/*
 * card-memory.h - how much of a GPU's memory this process holds, as the driver tells it
 */
#ifndef DDP_WIDE_CARD_MEMORY_H
#define DDP_WIDE_CARD_MEMORY_H

#include <stddef.h>

/*
 * Bytes of the GPU, or MIG slice, with [uuid] that this process holds: its context and all that was allocated
 * in it, by whomever. 0: not known, as in a container, where the driver counts processes by other numbers.
 */
size_t ddp_card_held(const char *uuid);

#endif /* DDP_WIDE_CARD_MEMORY_H */
