/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack.cuh - several numbers by one load or store, 16 bytes at most
 *
 * A pack<T, V> is V numbers that lie side by side at a multiple of their size. Kernels that read rows
 * of channels are templates over V: PACK<T> (16 bytes) where all rows begin at multiples of 16 bytes,
 * which packs_fit() tells, else 1. WITH_PACK(fits, T, V, statement) is the statement with that V.
 */
#ifndef GPU_PACK_CUH
#define GPU_PACK_CUH

#include <initializer_list>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "number.cuh"

#ifdef __CUDACC__
#define UNROLL _Pragma("unroll")
#define UNROLL_8 _Pragma("unroll 8")
#else
#define UNROLL
#define UNROLL_8
#endif

template <typename T> static constexpr int PACK = 16 / (int)sizeof(T);

template <typename T, int V> struct alignas(V * sizeof(T)) pack {
	T numbers[V];
};

#ifdef __CUDACC__

/* What one instruction moves: of a memcpy(), or of an assignment to memory, nvcc makes several. */
template <int BYTES> struct pack_word {
	typedef uint4 type;
};
template <> struct pack_word<8> {
	typedef uint2 type;
};
template <> struct pack_word<4> {
	typedef unsigned int type;
};
template <> struct pack_word<2> {
	typedef unsigned short type;
};
template <> struct pack_word<1> {
	typedef unsigned char type;
};

template <int BYTES> static __device__ inline void pack_get(void *to, const void *from)
{
	typedef typename pack_word<BYTES>::type word;

	*(word *)to = *(const word *)from;
}

template <int BYTES> static __device__ inline void pack_put(void *to, const void *from)
{
	typedef typename pack_word<BYTES>::type word;

	__stwb((word *)to, *(const word *)from);
}

#else

template <int BYTES> static inline void pack_get(void *to, const void *from)
{
	memcpy(to, host_aligned<BYTES>(from), BYTES);
}

template <int BYTES> static inline void pack_put(void *to, const void *from)
{
	memcpy((void *)host_aligned<BYTES>(to), from, BYTES);
}

#endif

template <int V, typename T> static __device__ inline pack<T, V> pack_load(const T *from)
{
	pack<T, V> numbers;

	pack_get<V *(int)sizeof(T)>(&numbers, from);
	return numbers;
}

template <typename T, int V>
static __device__ inline void pack_store(T *to, const pack<T, V> &numbers)
{
	pack_put<V *(int)sizeof(T)>(to, &numbers);
}

/* Whether rows of [channels] numbers of [size] bytes at each of [memory] are made of whole packs. */
static inline bool packs_fit(size_t channels, size_t size,
			     std::initializer_list<const void *> memory)
{
	uintptr_t bits = (uintptr_t)(channels * size);

	for (const void *at : memory)
		bits |= (uintptr_t)at;
	return bits % 16 == 0;
}

#define WITH_PACK(fits, T, V, ...)         \
	if (fits) {                        \
		constexpr int V = PACK<T>; \
		__VA_ARGS__;               \
	} else {                           \
		constexpr int V = 1;       \
		__VA_ARGS__;               \
	}

#endif /* GPU_PACK_CUH */
