/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake-cuda.h - a CUDA runtime that does nothing, notes what it is asked for, and fails when told to
 *
 * For runtime/train/cuda/device*.c themselves: their calls, their texts, what they leave behind.
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
	int driver, count;  /* what is there */
	size_t free, total; /* bytes of its memory */
	int fail_at;	    /* this call, from 1, gives ... */
	cudaError_t result; /* ... that */
	const char *fail;   /* or the first of this name */
	bool busy;	    /* its streams are never idle, its events never reached */
	bool mig;
	int current; /* device */

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

/*
 * For more of CUDA elsewhere. Note a call, which may fail; where [result] is success a handle is made; one goes,
 * whatever it is.
 */
cudaError_t fake_note(const char *format, ...) DDP_FORMAT(1, 2);
cudaError_t fake_make(void *handle, cudaError_t result);
cudaError_t fake_destroy(cudaError_t result);

/* The driver's function, NULL: it has none. Where this is not linked it has those that tell a UUID. */
void *fake_driver_function(const char *symbol, unsigned int version) __attribute__((weak));

#endif /* FAKE_CUDA_H */
