/* SPDX-License-Identifier: Apache-2.0 */
/*
 * card-memory.h - a GPU by its UUID, and how much of its memory is free
 *
 * As the driver's management library (NVML) tells it, for which nobody needs a context on the GPU. No CUDA here.
 */
#ifndef DDP_BASE_CARD_MEMORY_H
#define DDP_BASE_CARD_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DDP_CARD_UUID = 16 };

/* "GPU-..." as nvidia-smi writes it, or "MIG-..." of a slice. */
void ddp_card_print_uuid(char *text, size_t size, const unsigned char id[DDP_CARD_UUID],
			 bool slice);

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

#endif /* DDP_BASE_CARD_MEMORY_H */
