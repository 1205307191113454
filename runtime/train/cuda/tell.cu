/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tell.cu - what sums of gradients write into host memory
 */
#include "gpu/launch.cuh"
#include "kernels.h"

static __global__ void progress(uint64_t *sums, volatile uint64_t *to)
{
	GRID_WAIT();
	*to = ++*sums;
}

void kernel_progress(void *stream, uint64_t *sums, uint64_t *to)
{
	LAUNCH_BLOCKS(progress, 1, 1, stream, sums, to);
}
