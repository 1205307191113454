/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elements.cu - what is done to each element by itself
 *
 * All are bound by memory: each element is read and written once, 16 bytes by a thread and neighbours by
 * neighbours, so that a full card has more bytes under way than it needs. Arrays that do not begin at a
 * multiple of 16 bytes go number by number; the last few numbers are one thread's.
 */
#include "gpu/launch.cuh"
#include "gpu/pack.cuh"
#include "kernels.h"

/* --- One or two arrays to one ------------------------------------------------------------------ */

enum act { RELU, RELU_BACK, DROPOUT_BACK, ADD, ADD_RELU };

template <int ACT> static __device__ inline float acted(float a, float b, float scale)
{
	switch (ACT) {
	case RELU:
		return rectified(a);
	case RELU_BACK:
		return b > 0 ? a : 0;
	case DROPOUT_BACK:
		return b > 0 ? a * scale : 0;
	case ADD:
		return a + b;
	default:
		return rectified(a + b);
	}
}

template <int ACT, typename T, int V>
static __device__ inline void act_on(const T *a, const T *b, T *y, float scale)
{
	pack<T, V> first = pack_load<V>(a);
	pack<T, V> second = ACT == RELU ? first : pack_load<V>(b);

	UNROLL
	for (int v = 0; v < V; v++)
		store(&first.numbers[v],
		      acted<ACT>(load(&first.numbers[v]), load(&second.numbers[v]), scale));
	pack_store(y, first);
}

template <int ACT, typename T, int V>
static __global__ void elements(const T *a, const T *b, T *y, size_t count, float scale)
{
	GRID_WAIT();
	size_t at = thread_index() * V;

	if (at + V <= count)
		act_on<ACT, T, V>(a + at, b + at, y + at, scale);
	else
		for (; at < count; at++)
			act_on<ACT, T, 1>(a + at, b + at, y + at, scale);
}

/* Where there is no second array, [b] is [a]. */
template <int ACT>
static void act(void *stream, const void *a, const void *b, void *y, size_t count, float scale,
		enum ddp_type type)
{
	WITH_TYPE(type, T, WITH_PACK(packs_fit(0, sizeof(T), {a, b, y}), T, V, {
			  LAUNCH_EACH((elements<ACT, T, V>), (count + V - 1) / V, stream,
				      (const T *)a, (const T *)b, (T *)y, count, scale);
		  }))
}

void kernel_relu(void *stream, const void *x, void *y, size_t count, enum ddp_type type)
{
	act<RELU>(stream, x, x, y, count, 1, type);
}

void kernel_relu_back(void *stream, const void *dy, const void *y, void *dx, size_t count,
		      enum ddp_type type)
{
	act<RELU_BACK>(stream, dy, y, dx, count, 1, type);
}

void kernel_relu_dropout_back(void *stream, const void *dy, const void *y, float scale, void *dx,
			      size_t count, enum ddp_type type)
{
	act<DROPOUT_BACK>(stream, dy, y, dx, count, scale, type);
}

void kernel_add(void *stream, const void *a, const void *b, void *y, size_t count, bool relu,
		enum ddp_type type)
{
	if (relu)
		act<ADD_RELU>(stream, a, b, y, count, 1, type);
	else
		act<ADD>(stream, a, b, y, count, 1, type);
}

/* --- From type to type -------------------------------------------------------------------------- */

enum { CONVERTED = 4 }; /* by a thread: 16 bytes of f32 */

template <typename FROM, typename TO, int V>
static __device__ inline void convert(const FROM *from, TO *to)
{
	pack<FROM, V> numbers = pack_load<V>(from);
	pack<TO, V> results;

	UNROLL
	for (int v = 0; v < V; v++)
		store(&results.numbers[v], load(&numbers.numbers[v]));
	pack_store(to, results);
}

template <typename FROM, typename TO>
static __global__ void converted(const FROM *from, TO *to, size_t count)
{
	GRID_WAIT();
	size_t at = thread_index() * CONVERTED;

	if (at + CONVERTED <= count)
		convert<FROM, TO, CONVERTED>(from + at, to + at);
	else
		for (; at < count; at++)
			convert<FROM, TO, 1>(from + at, to + at);
}

/* Arenas and their views are aligned to more. */
template <typename FROM, typename TO>
static void launch_converted(void *stream, const FROM *from, TO *to, size_t count)
{
	LAUNCH_EACH((converted<FROM, TO>), (count + CONVERTED - 1) / CONVERTED, stream, from, to,
		    count);
}

void kernel_narrow(void *stream, const float *from, void *to, size_t count, enum ddp_type type)
{
	WITH_TYPE(type, T, launch_converted(stream, from, (T *)to, count))
}

void kernel_widen(void *stream, const void *from, float *to, size_t count, enum ddp_type type)
{
	WITH_TYPE(type, T, launch_converted(stream, (const T *)from, to, count))
}
