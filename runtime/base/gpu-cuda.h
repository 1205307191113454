/* SPDX-License-Identifier: Apache-2.0 */
/* gpu-cuda.h - CUDA calls that all GPU modules share, and advice for CUDA's errors */
#ifndef DDP_BASE_GPU_CUDA_H
#define DDP_BASE_GPU_CUDA_H

#include <stdbool.h>
#include <stddef.h>

/* NVIDIA's headers cause these warnings. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <cuda.h>
#include <cuda_runtime_api.h>
#pragma GCC diagnostic pop

#include "base/error.h"

enum { DDP_GPU_WHO = 192 };

/*
 * Describe the CUDA [result] in [error]: the object [who] ("GPU 1 (NVIDIA H200)"), the operation
 * [format], CUDA's own text, and a remedy if one is known. [result] can also be a result of the
 * driver API, which has the same numbers. Clears the thread's last CUDA error.
 * Returns 0 for cudaSuccess, else DDP_ERR_MEMORY, DDP_ERR_UNSUPPORTED or DDP_ERR_ENGINE.
 */
int ddp_gpu_error(const char *who, cudaError_t result, struct ddp_error *error, const char *format,
		  ...) DDP_FORMAT(4, 5);

/*
 * If the CUDA function [call] fails, return the status of ddp_gpu_error() from the calling
 * function.
 */
#define DDP_GPU_TRY(who, call, ...)                                 \
	do {                                                        \
		int failed = ddp_gpu_error(who, call, __VA_ARGS__); \
		if (failed < 0)                                     \
			return failed;                              \
	} while (0)

/*
 * Count the visible GPUs, without creating a context on any.
 * Returns the number. If no GPU can be used, returns DDP_ERR_UNSUPPORTED with the reason: no
 * driver, an old driver, or no GPU.
 */
int ddp_gpu_count(struct ddp_error *error);

/*
 * Check that the GPU with CUDA's number [index] exists. Error texts name [engine], and [who] as the
 * intended user of the GPU.
 * Returns 0; an error of ddp_gpu_count(); DDP_ERR_ENVIRONMENT if only other GPUs exist.
 */
int ddp_gpu_check(const char *engine, const char *who, int index, struct ddp_error *error);

/*
 * Make the GPU with CUDA's number [index] current for this thread.
 * Returns the previous GPU, which ddp_gpu_leave() makes current again. If this process has no
 * context on the previous GPU, ddp_gpu_leave() leaves [index] current, since switching back would
 * allocate memory on the previous GPU.
 */
int ddp_gpu_enter(int index);
void ddp_gpu_leave(int index, int previous);

/* A driver function, and the CUDA version of its interface, such as 11070. */
struct ddp_gpu_function {
	const char *name;
	unsigned int version;
};

/*
 * Fill [functions], a struct of function pointers in the order of [table]. A function that the
 * driver lacks becomes NULL. The modules do not link libcuda.so.1: so they load on a node without a
 * driver, and can report that there is none.
 * Returns whether all functions were found.
 */
bool ddp_gpu_load(void *functions, const struct ddp_gpu_function *table, size_t count);

/*
 * Write the UUID of the GPU with CUDA's number [index]: "GPU-...", as in nvidia-smi, or "MIG-..."
 * for a slice. If the driver returns no UUID, the one in CUDA's [properties] is used.
 */
void ddp_gpu_uuid(char *text, size_t size, int index, const struct cudaDeviceProp *properties);

#endif /* DDP_BASE_GPU_CUDA_H */
