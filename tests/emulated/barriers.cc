// SPDX-License-Identifier: Apache-2.0
// Kernels for test_device.c: with barriers, right and wrong.
#include "gpu/launch.cuh"

enum { THREADS = 64 };

extern "C" {
void test_barriers_all(void);
void test_barriers_some(void);
void test_barriers_alone(void);
void test_barriers_begin(void);
unsigned int test_barriers_wrong(bool barrier);
}

namespace
{

// A launch is done at once here: these kernels need no stream.
template <typename... P, typename... A> void run(bool meet, void (*kernel)(P...), A... arguments)
{
	std::function<void()> body = [=] { kernel(arguments...); };

	if (meet)
		host_run_blocks(2, THREADS, body);
	else
		host_run_each(2, THREADS, body);
}

__global__ void meet_but(int who)
{
	GRID_WAIT();
	if ((int)threadIdx.x != who)
		__syncthreads();
}

__global__ void begin_at_once(int *result)
{
	result[thread_index()] = 1;
}

// Each thread takes what its mirror image left.
__global__ void mirror(bool barrier, int *result)
{
	GRID_WAIT();
	SHARED int places[THREADS];

	places[threadIdx.x] = (int)(blockIdx.x * THREADS + threadIdx.x);
	if (barrier)
		__syncthreads();
	result[thread_index()] = places[THREADS - 1 - threadIdx.x];
	if (barrier)
		__syncthreads();
}

} // namespace

void test_barriers_all(void)
{
	run(true, meet_but, -1);
}

void test_barriers_some(void)
{
	run(true, meet_but, 3);
}

void test_barriers_alone(void)
{
	run(false, meet_but, -1);
}

void test_barriers_begin(void)
{
	int result[2 * THREADS];

	run(false, begin_at_once, (int *)result);
}

unsigned int test_barriers_wrong(bool barrier)
{
	int result[2 * THREADS];
	unsigned int wrong = 0;

	run(true, mirror, barrier, (int *)result);
	for (int i = 0; i < 2 * THREADS; i++)
		wrong += result[i] != i / THREADS * THREADS + THREADS - 1 - i % THREADS;
	return wrong;
}
