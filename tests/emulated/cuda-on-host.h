/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda-on-host.h - runs kernels on the CPU, to test their results without a GPU
 *
 * Replaces CUDA's compiler in runtime/gpu/launch.cuh. Blocks run one after the other; every second
 * launch runs them in descending order. In a block with barriers, each thread is a fiber, and
 * __syncthreads() switches to the next fiber. Tests find wrong indices, accesses out of bounds
 * (with a sanitizer), missing barriers (since fibers run in both orders), and wrong results. Tests
 * do not find races within a warp or errors in a GPU's libraries; tests/gpu finds these.
 */
#ifndef CUDA_ON_HOST_H
#define CUDA_ON_HOST_H

#include <functional>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <tuple>
#include <utility>

#include "number-host.h"

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __grid_constant__
#define SHARED static
#define __CUDA_ON_HOST__ 1

struct host_index {
	unsigned x, y, z;
};

extern host_index threadIdx, blockIdx, blockDim, gridDim;

/*
 * Waits for all threads of the block. In a kernel without barriers (LAUNCH_EACH), ends the test
 * with an error.
 */
void __syncthreads();

/* Rounds the result, even if the compiler may contract expressions. */
static inline float __fmul_rn(float a, float b)
{
	volatile float c = a * b;
	return c;
}
static inline float __fadd_rn(float a, float b)
{
	volatile float c = a + b;
	return c;
}
static inline float __fsub_rn(float a, float b)
{
	volatile float c = a - b;
	return c;
}
static inline float __fdiv_rn(float a, float b)
{
	volatile float c = a / b;
	return c;
}
static inline float __fsqrt_rn(float a)
{
	return sqrtf(a);
}
static inline double __dmul_rn(double a, double b)
{
	volatile double c = a * b;
	return c;
}
static inline double __dadd_rn(double a, double b)
{
	volatile double c = a + b;
	return c;
}
static inline uint32_t __umulhi(uint32_t a, uint32_t b)
{
	return (uint32_t)(((uint64_t)a * b) >> 32);
}
static inline unsigned __float_as_uint(float a)
{
	return number_bits(a);
}
static inline float __uint_as_float(unsigned a)
{
	return number_of_bits(a);
}
static inline void __threadfence_system()
{
}
static inline void __threadfence()
{
}
static inline unsigned atomicInc(unsigned *at, unsigned most)
{
	unsigned old = *at;

	*at = old >= most ? 0 : old + 1;
	return old;
}
template <typename T> static inline T __ldcg(const T *from)
{
	return *from;
}

/*
 * host_aligned() checks that an address has the alignment that a GPU needs for accesses of BYTES
 * bytes. If not, host_not_aligned() ends the test with an error.
 */
[[noreturn]] void host_not_aligned(const void *address, int bytes);

template <int BYTES> static inline const void *host_aligned(const void *address)
{
	if ((uintptr_t)address % BYTES)
		host_not_aligned(address, BYTES);
	return __builtin_assume_aligned(address, BYTES);
}

/* --- Numbers: number.cuh ------------------------------------------------------------------- */

struct number_bf16 {
	uint16_t bits;
};
struct number_f16 {
	uint16_t bits;
};

static inline float load(const number_bf16 *from)
{
	return number_from_bf16(from->bits);
}

static inline void store(number_bf16 *to, float value)
{
	to->bits = number_to_bf16(value);
}

static inline float load(const number_f16 *from)
{
	return number_from_f16(from->bits);
}

static inline void store(number_f16 *to, float value)
{
	to->bits = number_to_f16(value);
}

/* --- Launches --------------------------------------------------------------------------------- */

/*
 * Runs the launch now. If [stream] is being captured, adds the launch to the graph (device-host.c).
 */
extern "C" void host_submit(void *stream, void (*call)(void *), void (*forget)(void *), void *data);

void host_run_each(unsigned blocks, unsigned threads, const std::function<void()> &body);
void host_run_blocks(unsigned blocks, unsigned threads, const std::function<void()> &body);

/* Copies the arguments when the launch is enqueued, like CUDA. */
template <typename... P, typename... A>
static inline void host_launch(bool meet, void (*kernel)(P...), size_t blocks, size_t threads,
			       void *stream, A... arguments)
{
	std::tuple<P...> bound(arguments...);
	auto *job = new std::function<void()>([=] {
		std::function<void()> body = [&] { std::apply(kernel, bound); };

		if (meet)
			host_run_blocks((unsigned)blocks, (unsigned)threads, body);
		else
			host_run_each((unsigned)blocks, (unsigned)threads, body);
	});

	host_submit(
		stream, [](void *data) { (*(std::function<void()> *)data)(); },
		[](void *data) { delete (std::function<void()> *)data; }, job);
}

#define LAUNCH_BLOCKS(kernel, blocks, threads, stream, ...) \
	host_launch(true, kernel, blocks, threads, stream, __VA_ARGS__)
#define LAUNCH_EACH(kernel, count, stream, ...) \
	host_launch(false, kernel, launch_blocks(count), LAUNCH_THREADS, stream, __VA_ARGS__)

#endif /* CUDA_ON_HOST_H */
