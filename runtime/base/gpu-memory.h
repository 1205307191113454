/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu-memory.h - memory use and health of a GPU that is identified by its UUID
 *
 * The functions call the driver's management library (NVML), which needs no context on the GPU.
 * They do not use CUDA.
 */
#ifndef DDP_BASE_GPU_MEMORY_H
#define DDP_BASE_GPU_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DDP_GPU_UUID = 16 };

/* Write the UUID [id] as "GPU-...", like nvidia-smi, or as "MIG-..." for a [slice]. */
void ddp_gpu_print_uuid(char *text, size_t size, const unsigned char id[DDP_GPU_UUID], bool slice);

/*
 * Returns the bytes of the GPU's memory that this process uses: its context and all allocations.
 * Returns 0 if they are unknown, for example in a container, where the driver reports other process
 * IDs.
 */
size_t ddp_gpu_held(const char *uuid);

/*
 * Get the size of the GPU's memory, and of its free part, in bytes.
 * Returns false, and changes neither, if NVML is missing or does not know the GPU.
 */
bool ddp_gpu_memory(const char *uuid, uint64_t *total, uint64_t *available);

/* The state of a GPU. 0 or false: no problem, or unknown. */
struct ddp_gpu_health {
	unsigned long long ecc_errors; /* uncorrected errors since the driver was loaded */
	/*
	 * [remap_failed]: a memory row with errors could not be remapped. [remap_pending]: a row
	 * will be remapped at the next reset of the GPU.
	 */
	bool remap_failed, remap_pending;
	bool is_hot,	   /* clocks are reduced because of the temperature */
		is_slowed; /* clocks are reduced by the hardware for another reason */
	/*
	 * PCIe lanes and PCIe generation in use. The members with _most have the highest possible
	 * numbers. An idle GPU may use a lower generation.
	 */
	unsigned int width, width_most, generation, generation_most;
};

/* Returns false, with all members 0, if NVML is missing or does not know the GPU. */
bool ddp_gpu_read_health(const char *uuid, struct ddp_gpu_health *health);

#endif /* DDP_BASE_GPU_MEMORY_H */
