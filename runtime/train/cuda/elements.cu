/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elements.cu - element-wise operations
 *
 * All operations are bound by memory. Each element is read and written once. A thread accesses a
 * pack of 16 bytes, and adjacent threads access adjacent packs, so that enough bytes are in flight.
 * If the last pack is incomplete, one thread processes it.
 */
#include "cuda-kernels.h"
#include "gpu/launch.cuh"
#include "gpu/pack.cuh"

enum act { CONVERT, RELU, RELU_BACK, ADD, ADD_RELU };

template <int ACT> static __device__ inline float acted(float a, float b, float scale)
{
	switch (ACT) {
	case CONVERT:
		return a;
	case RELU:
		return rectified(a);
	case RELU_BACK:
		return b > 0 ? a * scale : 0;
	case ADD:
		return a + b;
	default:
		return rectified(a + b);
	}
}

template <int ACT, typename FROM, typename TO, int V>
static __global__ void elements(const FROM *a, const FROM *b, TO *y, size_t count, float scale)
{
	pack_each<V>(thread_index() * V, count, [&](auto n, size_t at) {
		pack<FROM, n.value> first = pack_load<n.value>(a + at);
		pack<FROM, n.value> second = ACT <= RELU ? first : pack_load<n.value>(b + at);

		pack_store(y + at, pack_of<TO, n.value>([&](int v) {
				   return acted<ACT>(first[v], second[v], scale);
			   }));
	});
}

/* --- One or two arrays to one array ------------------------------------------------------------ */

/* Applies ACT to the elements of [a] and [b]. For operations on one array, [b] is equal to [a]. */
template <int ACT>
static void act(void *stream, const void *a, const void *b, void *y, size_t count, float scale,
		enum ddp_type type)
{
	WITH_TYPE(type, T,
		  LAUNCH_EACH((elements<ACT, T, T, PACK<T>>), (count + PACK<T> - 1) / PACK<T>,
			      stream, (const T *)a, (const T *)b, (T *)y, count, scale))
}

void kernel_relu(void *stream, const void *x, void *y, size_t count, enum ddp_type type)
{
	act<RELU>(stream, x, x, y, count, 1, type);
}

void kernel_relu_back(void *stream, const void *dy, const void *y, float scale, void *dx,
		      size_t count, enum ddp_type type)
{
	act<RELU_BACK>(stream, dy, y, dx, count, scale, type);
}

void kernel_add(void *stream, const void *a, const void *b, void *y, size_t count, bool relu,
		enum ddp_type type)
{
	if (relu)
		act<ADD_RELU>(stream, a, b, y, count, 1, type);
	else
		act<ADD>(stream, a, b, y, count, 1, type);
}

/* --- Conversions -------------------------------------------------------------------------------- */

/* Converts four elements per thread, which are 16 bytes of f32. Arrays are aligned to more. */
template <typename FROM, typename TO>
static void convert(void *stream, const FROM *from, TO *to, size_t count)
{
	LAUNCH_EACH((elements<CONVERT, FROM, TO, 4>), (count + 3) / 4, stream, from, from, to,
		    count, 1.0f);
}

void kernel_narrow(void *stream, const float *from, void *to, size_t count, enum ddp_type type)
{
	WITH_TYPE(type, T, convert(stream, from, (T *)to, count))
}

void kernel_widen(void *stream, const void *from, float *to, size_t count, enum ddp_type type)
{
	WITH_TYPE(type, T, convert(stream, (const T *)from, to, count))
}
