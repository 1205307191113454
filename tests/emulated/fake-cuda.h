/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake-cuda.h - a CUDA runtime and driver that do nothing, note what they are asked for, and fail when told to
 *
 * For runtime/train/cuda/device.c and runtime/device/shard-gpu.c: what they call, what they say, what they leave behind.
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

enum { FAKE_CALLS = 256, FAKE_TEXT = 80 };

struct fake {
	int driver, count;   /* what is there */
	size_t free, total;  /* bytes of its memory */
	size_t held;	     /* of these by this process, as NVML has it; 0: it does not know */
	int fail_at;	     /* this call, from 1, gives ... */
	cudaError_t result;  /* ... that */
	const char *fail;    /* or the first that begins so */
	bool busy;	     /* its streams are never idle, its events never reached */
	bool mig;	     /* it is a slice */
	const char *missing; /* the driver lacks functions whose names begin so */
	bool no_descriptors; /* says the card's attribute */
	bool silent;	     /* words are not written */
	int current;	     /* device */

	int calls;
	char trace[FAKE_CALLS][FAKE_TEXT];
	int objects; /* streams, events, graphs, allocations that are there */
	int sleeps;
	cudaError_t last;
};

extern struct fake fake;

/* A sound GPU, nothing noted. */
void fake_reset(void);

/* Whether call number [at] began with [text]; the number of such calls. */
bool fake_called(int at, const char *text);
int fake_count(const char *text);

#endif /* FAKE_CUDA_H */
