/* SPDX-License-Identifier: Apache-2.0 */
/*
 * card-memory.h - GPU memory in use, for a GPU named by its UUID
 *
 * Asks the driver's management library (NVML), which needs no context on the GPU. Does not use
 * CUDA.
 */
#ifndef DDP_BASE_CARD_MEMORY_H
#define DDP_BASE_CARD_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DDP_CARD_UUID = 16 };

/* "GPU-..." as in nvidia-smi, or "MIG-..." for a [slice]. */
void ddp_card_print_uuid(char *text, size_t size, const unsigned char id[DDP_CARD_UUID],
			 bool slice);

/*
 * Bytes of the GPU's memory that this process uses: its context and all allocations in it. 0:
 * unknown, as in a container, where the driver reports other process IDs.
 */
size_t ddp_card_held(const char *uuid);

/*
 * Get the GPU's memory and the free part of it, in bytes.
 * Returns false, with both unchanged, if NVML is missing or does not know the GPU.
 */
bool ddp_card_memory(const char *uuid, uint64_t *total, uint64_t *available);

/* The state of a GPU; 0 or false: in order, or not known. */
struct ddp_card_health {
	unsigned long long ecc_errors;	  /* uncorrected, since the driver was loaded */
	bool remap_failed, remap_pending; /* of rows of memory with errors */
	bool is_hot,
		is_slowed; /* clocks are lower: for temperature; by hardware for another reason */
	/* Lanes and generation of PCIe: used, and possible. An idle GPU may use a lower generation. */
	unsigned int width, width_most, generation, generation_most;
};

/* Returns false, with all members 0, if the library is missing or does not know the GPU. */
bool ddp_card_read_health(const char *uuid, struct ddp_card_health *health);

#endif /* DDP_BASE_CARD_MEMORY_H */
