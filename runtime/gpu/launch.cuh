/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.cuh - how kernels are written here
 *
 * gpu/ has what the kernels of device/ and train/cuda/ share, in headers. It calls CUDA only. Start reading here.
 *
 * A kernel is a __global__ template or function; its C function chooses the type and launches:
 *
 *	LAUNCH_EACH(kernel, count, stream, arguments...)
 *		a thread for each of [count] things, at least one block: the kernel returns where
 *		thread_index() is [count] or more. Threads know nothing of each other.
 *	LAUNCH_BLOCKS(kernel, blocks, threads, stream, arguments...)
 *		blocks whose threads meet: __syncthreads() by all of them, static __shared__ memory
 *		(declared in the kernel as SHARED), lanes_sum().
 *
 * These two and the words below are all that a kernel uses of CUDA, so that tests compile the same
 * source for the host, where tests/emulated/cuda-on-host.h stands for the compiler's part:
 * blockIdx.x, blockDim.x, gridDim.x, threadIdx.x, __syncthreads(), SHARED, __grid_constant__, and number.cuh.
 * No warp intrinsics, no atomics but last_block()'s, no dynamic shared memory, no fused multiply-add where a
 * comment promises bits (__fmul_rn, __fadd_rn, and so on are there for that).
 */
#ifndef GPU_LAUNCH_CUH
#define GPU_LAUNCH_CUH

#ifdef __CUDACC__

#define SHARED __shared__

#define LAUNCH_BLOCKS(kernel, blocks, threads, stream, ...)                               \
	(kernel)<<<(unsigned)(blocks), (unsigned)(threads), 0, (cudaStream_t)(stream)>>>( \
		__VA_ARGS__)

#define LAUNCH_EACH(kernel, count, stream, ...) \
	LAUNCH_BLOCKS(kernel, launch_blocks(count), LAUNCH_THREADS, stream, __VA_ARGS__)

#else
#include "cuda-on-host.h"
#endif

#include <stddef.h>

enum { LAUNCH_THREADS = 256 };

static inline size_t launch_blocks(size_t count)
{
	return count ? (count + LAUNCH_THREADS - 1) / LAUNCH_THREADS : 1;
}

static __device__ inline size_t thread_index()
{
	return (size_t)blockIdx.x * blockDim.x + threadIdx.x;
}

/*
 * The sum, by T's +=, of what WIDTH threads side by side have, to each of them, in an order that is always the
 * same. WIDTH is a power of two; all threads of a block of LAUNCH_THREADS call it.
 */
template <int WIDTH, typename T> static __device__ inline T lanes_sum(T value)
{
	SHARED T sums[LAUNCH_THREADS];
	unsigned lane = threadIdx.x % WIDTH;

	if (WIDTH == 1)
		return value;
	sums[threadIdx.x] = value;
	__syncthreads();
	for (unsigned half = WIDTH / 2; half > 0; half /= 2) {
		if (lane < half)
			sums[threadIdx.x] += sums[threadIdx.x + half];
		__syncthreads();
	}
	value = sums[threadIdx.x - lane];
	__syncthreads();
	return value;
}

/*
 * Whether this is the last of [count] blocks that come here, which then sees what the others wrote
 * before, by load_fresh(). All threads call it and get the answer. The ticket is 0 at first, and again when all
 * were here: the next kernel on the stream finds it so.
 *
 * The barrier orders the block's writes before thread 0's fence, and the fence before its ticket; of the
 * last block, its ticket before the second fence, and that before what all its threads read.
 */
static __device__ inline bool last_block(unsigned *ticket, unsigned count)
{
	SHARED bool last;

	__syncthreads();
	if (threadIdx.x == 0) {
		__threadfence();
		last = atomicInc(ticket, count - 1) == count - 1;
		__threadfence();
	}
	__syncthreads();
	return last;
}

/* What another block wrote may lie in this processor's cache as it was before: past that. */
template <typename T> static __device__ inline T load_fresh(const T *from)
{
	return __ldcg(from);
}

#endif /* GPU_LAUNCH_CUH */
