/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake-cuda.h - a CUDA runtime and driver that record calls, do nothing, and fail on request
 *
 * For tests of runtime/train/cuda/device.c and runtime/device/gpu.c: their calls, their messages,
 * and the objects that they free.
 */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <cuda_runtime_api.h>
#pragma GCC diagnostic pop

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

enum { FAKE_CALLS = 256, FAKE_TEXT = 80 };

struct fake {
	int driver, count;  /* the driver's version, and number of GPUs */
	size_t free, total; /* bytes of a GPU's memory */
	size_t held;	    /* of these, used by this process according to NVML; 0: unknown */
	int fail_at;	    /* number of the call, from 1, that returns */
	cudaError_t result; /* this result */
	const char *fail;   /* or the first call whose text starts with this */
	bool busy;	    /* streams are never idle, and events never reached */
	bool mig;	    /* the device is a MIG slice */
	bool other_address; /* pinned memory has another address on the device */
	int current;	    /* current device */

	int calls;
	char trace[FAKE_CALLS][FAKE_TEXT];
	int objects; /* streams, events, graphs and allocations that exist */
	cudaError_t last;
};

extern struct fake fake;

/* Resets to a working GPU without recorded calls. */
void fake_reset(void);

/* Whether the text of call number [at] starts with [text]; and the number of such calls. */
bool fake_called(int at, const char *text);
int fake_count(const char *text);

/*
 * Repeats [run], which was just run without errors, once for each of its calls, in which that call
 * fails with an uncorrectable ECC error. Each run must free all objects, and return 0, or
 * DDP_ERR_ENGINE with [text] in [error]. Prints the runs that do not. Returns whether all did.
 */
bool fake_fail_each(int (*run)(void), struct ddp_error *error, const char *text);

#endif /* FAKE_CUDA_H */
