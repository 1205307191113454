/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.cuh - how kernels are written here
 *
 * gpu/ has the headers that the kernels of device/ and train/cuda/ share. It calls CUDA only. Start
 * reading here.
 *
 * A kernel is a __global__ template or function. A C function chooses the type and launches the
 * kernel:
 *
 * 	LAUNCH_EACH(kernel, count, stream, arguments...)
 * 		One thread for each of [count] elements, in at least one block. The kernel returns
 * 		if thread_index() is [count] or more. The threads are independent.
 * 	LAUNCH_BLOCKS(kernel, blocks, threads, stream, arguments...)
 * 		Blocks of cooperating threads: all threads of a block call __syncthreads() and
 * 		lanes_sum(), and share static __shared__ memory (declared in the kernel as SHARED).
 *
 * A kernel uses nothing of CUDA but these two macros and the following names: blockIdx.x,
 * blockDim.x, gridDim.x, threadIdx.x, __syncthreads(), SHARED, __grid_constant__, and those of
 * number.cuh. So tests can compile the same source for the host, with tests/emulated/cuda-on-host.h
 * in place of CUDA. Kernels use no warp intrinsics, no dynamic shared memory, and no atomics except
 * in last_block(). If a comment promises equal bits, the kernel uses no fused multiply-add;
 * __fmul_rn(), __fadd_rn() and so on prevent it.
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
 * Add the values of WIDTH adjacent threads with T's +=, and return the sum to each of these
 * threads. The order of additions is always the same. WIDTH is a power of two. All threads of a
 * block of LAUNCH_THREADS must call this function.
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
 * Returns true in the last of [count] blocks that call this function. That block can then read the
 * other blocks' earlier writes with load_fresh(). All threads of a block must call it, and all get
 * the same result. [ticket] counts the blocks. It must be 0 at first, and is 0 again after the last
 * block, ready for the next kernel on the stream.
 *
 * The first barrier orders the block's writes before thread 0's first fence, which orders them
 * before the increment of [ticket]. In the last block, the second fence orders the increment before
 * the reads of all threads.
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

/*
 * Read memory that another block wrote. Bypasses the L1 cache, which may still contain the old
 * value.
 */
template <typename T> static __device__ inline T load_fresh(const T *from)
{
	return __ldcg(from);
}

#endif /* GPU_LAUNCH_CUH */
