/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake-cuda.h - a CUDA runtime and driver that record calls, do nothing, and fail on request
 *
 * Tests use it to check the calls, the messages and the freed objects of
 * runtime/train/cuda/device.c and runtime/device/gpu.c.
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
#include <time.h>

#include "base/error.h"

enum { FAKE_CALLS = 256, FAKE_TEXT = 80 };

struct fake {
	int driver, count;  /* the driver's version, and number of GPUs */
	size_t free, total; /* bytes of a GPU's memory */
	size_t held;	    /* bytes that NVML reports for this process; 0: unknown */
	int fail_at;	    /* number of the call that fails, from 1 */
	cudaError_t result; /* result of the failing call */
	const char *fail;   /* start of the text of the first call that fails; NULL: none */
	bool busy;	    /* streams are never idle, and events never reached */
	/* seconds of a suspension in the next sleep; streams become idle in the sleep after it */
	time_t suspended;
	bool was_suspended;
	bool mig;	    /* the device is a MIG slice */
	bool other_address; /* pinned memory has another address on the device */
	int current;	    /* current device */

	int calls;
	char trace[FAKE_CALLS][FAKE_TEXT];
	int objects; /* streams, events, graphs and allocations that exist */
	cudaError_t last;
};

extern struct fake fake;

/* Resets the fake to a GPU without failures, and deletes the recorded calls. */
void fake_reset(void);

/*
 * fake_called() returns whether the text of call number [at] starts with [text]. fake_count()
 * returns the number of calls whose text does.
 */
bool fake_called(int at, const char *text);
int fake_count(const char *text);

/*
 * Runs [run] once for each call that its last run made; the caller must have just run it without
 * errors. In each of these runs, another call fails with an uncorrectable ECC error. The run must
 * free all objects, and must return 0, or DDP_ERR_ENGINE with [text] in [error]. Prints the runs
 * that do not. Returns whether there are none.
 */
bool fake_fail_each(int (*run)(void), struct ddp_error *error, const char *text);

#endif /* FAKE_CUDA_H */
