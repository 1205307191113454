/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tell.cu - what the device writes into host memory while it works
 *
 * Stores to host memory arrive in any order unless a fence for the whole system stands between them;
 * they are volatile so that each is one store, made once, where it stands. The host reads the sequence
 * first (acquire), and when it is the one it waits for, the rest is there.
 */
#include "gpu/launch.cuh"
#include "kernels.h"

static __global__ void progress(struct kernel_state *state, volatile uint64_t *to)
{
	GRID_WAIT();
	*to = ++state->buckets;
}

void kernel_progress(void *stream, struct kernel_state *state, uint64_t *to)
{
	LAUNCH_BLOCKS(progress, 1, 1, stream, state, to);
}

static __global__ void tell(const struct kernel_order *order, const struct kernel_state *state,
			    float *word, struct kernel_result *results)
{
	GRID_WAIT();
	volatile struct kernel_result *result = &results[order->slot];

	for (int i = 0; i < KERNEL_WORD; i++) {
		result->word[i] = word[i];
		word[i] = 0;
	}
	result->skipped = state->overflow;
	result->scale = state->scale;
	result->good_steps = state->good_steps;
	result->updates = state->updates;
	__threadfence_system();
	result->sequence = order->sequence;
}

void kernel_tell(void *stream, const struct kernel_order *order, const struct kernel_state *state,
		 float *word, struct kernel_result *results)
{
	LAUNCH_BLOCKS(tell, 1, 1, stream, order, state, word, results);
}
