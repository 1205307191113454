/* SPDX-License-Identifier: Apache-2.0 */
/* card-cuda.h - CUDA calls that all GPU modules share, and advice for CUDA's errors */
#ifndef DDP_BASE_CARD_CUDA_H
#define DDP_BASE_CARD_CUDA_H

#include <stdbool.h>
#include <stddef.h>

/* NVIDIA's headers cause warnings of these kinds. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <cuda.h>
#include <cuda_runtime_api.h>
#pragma GCC diagnostic pop

#include "base/error.h"

enum { DDP_CARD_WHO = 192 };

/*
 * Describe CUDA's [result] in [error]: the object [who] ("GPU 1 (NVIDIA H200)"), the operation
 * [format], CUDA's own text, and a remedy if there is one. Clears the thread's last CUDA error.
 * Results of the driver API have the same numbers.
 * Returns 0 for cudaSuccess, else DDP_ERR_MEMORY, DDP_ERR_UNSUPPORTED or DDP_ERR_ENGINE.
 */
int ddp_card_error(const char *who, cudaError_t result, struct ddp_error *error, const char *format,
		   ...) DDP_FORMAT(4, 5);

/*
 * Return from the calling function if the CUDA function [call] fails, with ddp_card_error()'s
 * status.
 */
#define DDP_CARD_TRY(who, call, ...)                                 \
	do {                                                         \
		int failed = ddp_card_error(who, call, __VA_ARGS__); \
		if (failed < 0)                                      \
			return failed;                               \
	} while (0)

/*
 * Count the visible GPUs without opening one.
 * Returns the number or, if no GPU can be used, DDP_ERR_UNSUPPORTED with the reason: no driver, an
 * old driver, no GPU.
 */
int ddp_card_count(struct ddp_error *error);

/*
 * Check that the GPU with CUDA's number [index] exists. Messages name [engine], and [who] as its
 * intended user.
 * Returns 0; an error of ddp_card_count(); DDP_ERR_ENVIRONMENT if there are only other GPUs.
 */
int ddp_card_check(const char *engine, const char *who, int index, struct ddp_error *error);

/*
 * Make the GPU with CUDA's number [index] current for this thread.
 * Returns the previous GPU for ddp_card_leave(), which restores it. If this process has no context
 * on the previous GPU, ddp_card_leave() keeps [index], since switching back would allocate memory
 * there.
 */
int ddp_card_enter(int index);
void ddp_card_leave(int index, int previous);

/* A driver function and the CUDA version (11070) of its interface. */
struct ddp_card_function {
	const char *name;
	unsigned int version;
};

/*
 * Fill [functions], a struct of function pointers in the order of [table]; NULL: the driver lacks
 * it. libcuda.so.1 is not linked, so that the module loads on a node without a driver and can
 * report that.
 * Returns whether all functions were found.
 */
bool ddp_card_load(void *functions, const struct ddp_card_function *table, size_t count);

/*
 * Write the UUID of the GPU with CUDA's number [index]: "GPU-..." as in nvidia-smi, or "MIG-..."
 * for a slice. If the driver does not report one, the UUID in CUDA's [properties] is used.
 */
void ddp_card_uuid(char *text, size_t size, int index, const struct cudaDeviceProp *properties);

#endif /* DDP_BASE_CARD_CUDA_H */
