/* SPDX-License-Identifier: Apache-2.0 */
/*
 * card-cuda.h - what every module that opens a GPU asks CUDA, and what CUDA's errors mean for people
 */
#ifndef DDP_BASE_CARD_CUDA_H
#define DDP_BASE_CARD_CUDA_H

#include <stdbool.h>
#include <stddef.h>

/* NVIDIA's headers are not written for these. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <cuda.h>
#include <cuda_runtime_api.h>
#pragma GCC diagnostic pop

#include "base/error.h"

enum { DDP_CARD_WHO = 192 };

/*
 * Put what CUDA's [result] means into [error]: who it is of ("GPU 1 (NVIDIA H200)"), what was being done, CUDA's
 * own text, and what can be done about it where that is hard to guess. Clears the error that CUDA keeps for
 * the thread. The driver's results have the same numbers.
 * Returns 0 for cudaSuccess, else DDP_ERR_MEMORY, DDP_ERR_UNSUPPORTED or DDP_ERR_ENGINE.
 */
int ddp_card_error(const char *who, cudaError_t result, struct ddp_error *error, const char *format,
		   ...) DDP_FORMAT(4, 5);

/* Return what [call] of CUDA's failed with, as ddp_card_error() has it. */
#define DDP_CARD_TRY(who, call, ...)                                 \
	do {                                                         \
		int failed = ddp_card_error(who, call, __VA_ARGS__); \
		if (failed < 0)                                      \
			return failed;                               \
	} while (0)

/*
 * How many GPUs this process sees. Opens none.
 * Returns that or, where it can use none, DDP_ERR_UNSUPPORTED with the reason: no driver, an old one, none given.
 */
int ddp_card_count(struct ddp_error *error);

/*
 * Look for the GPU that CUDA numbers [index]. Messages are of [engine], and say that [who] is to use it.
 * Returns 0; an error as ddp_card_count() has it; DDP_ERR_ENVIRONMENT: there are others.
 */
int ddp_card_check(const char *engine, const char *who, int index, struct ddp_error *error);

/*
 * Make the GPU that CUDA numbers [index] current for this thread.
 * Returns what was, for ddp_card_leave(), which goes back to it, unless this process has nothing on that GPU: then it
 * stays at [index], as going back would take memory there.
 */
int ddp_card_enter(int index);
void ddp_card_leave(int index, int was);

/* A function of the driver as it was in CUDA [version] (11070). */
struct ddp_card_function {
	const char *name;
	unsigned int version;
};

/*
 * Fill in [functions], a struct of pointers to those of [table] in its order; NULL: the driver lacks it.
 * libcuda.so.1 is not linked, so that a node without a driver can load the module and say so.
 * Returns whether it has all.
 */
bool ddp_card_load(void *functions, const struct ddp_card_function *table, size_t count);

/*
 * Of the GPU that CUDA numbers [index]: "GPU-..." as nvidia-smi writes it, or "MIG-..." of a slice.
 * [properties] are CUDA's of it, whose UUID is taken where the driver tells none.
 */
void ddp_card_uuid(char *text, size_t size, int index, const struct cudaDeviceProp *properties);

#endif /* DDP_BASE_CARD_CUDA_H */
