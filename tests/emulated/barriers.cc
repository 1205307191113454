// SPDX-License-Identifier: Apache-2.0
/* Kernels with barriers for test_device.c, correct and incorrect. A launch runs at once here. */
#include "gpu/launch.cuh"

enum { THREADS = 64 };

extern "C" {
void test_barriers_some(void);
unsigned int test_barriers_wrong(bool barrier);
}

namespace
{

__global__ void meet_but(int thread)
{
	if ((int)threadIdx.x != thread)
		__syncthreads();
}

/* Each thread reads the value that the thread at the mirrored index has written. */
__global__ void mirror(bool barrier, int *result)
{
	SHARED int places[THREADS];

	places[threadIdx.x] = (int)(blockIdx.x * THREADS + threadIdx.x);
	if (barrier)
		__syncthreads();
	result[thread_index()] = places[THREADS - 1 - threadIdx.x];
	if (barrier)
		__syncthreads();
}

} // namespace

void test_barriers_some(void)
{
	host_run_blocks(2, THREADS, [] { meet_but(3); });
}

unsigned int test_barriers_wrong(bool barrier)
{
	int result[2 * THREADS];
	unsigned int wrong = 0;

	host_run_blocks(2, THREADS, [&] { mirror(barrier, result); });
	for (int i = 0; i < 2 * THREADS; i++)
		wrong += result[i] != i / THREADS * THREADS + THREADS - 1 - i % THREADS;
	return wrong;
}
