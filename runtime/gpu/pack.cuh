/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack.cuh - load or store several adjacent numbers, at most 16 bytes, with one instruction
 *
 * A pack<T, V> is V adjacent numbers, aligned to the size of the pack; operator [] returns one of
 * them as f32. PACK<T> numbers are 16 bytes.
 */
#ifndef GPU_PACK_CUH
#define GPU_PACK_CUH

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "ddp.h"
#include "number.cuh"

#ifdef __CUDACC__
#define UNROLL _Pragma("unroll")
#define UNROLL_4 _Pragma("unroll 4")
#define UNROLL_8 _Pragma("unroll 8")
#else
#define UNROLL
#define UNROLL_4
#define UNROLL_8
#endif

template <typename T> static constexpr int PACK = 16 / (int)sizeof(T);

template <typename T, int V> struct alignas(V * sizeof(T)) pack {
	T numbers[V];

	__device__ inline float operator[](int v) const
	{
		return load(numbers + v);
	}
};

#ifdef __CUDACC__

/*
 * Type that one instruction loads or stores. nvcc compiles memcpy() or a struct assignment to
 * several instructions.
 */
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

/* Returns a pack of the numbers f(0), f(1), ..., each rounded once. */
template <typename T, int V, typename F> static __device__ inline pack<T, V> pack_of(const F &f)
{
	pack<T, V> numbers;

	UNROLL
	for (int v = 0; v < V; v++)
		store(numbers.numbers + v, f(v));
	return numbers;
}

/* A compile-time number that is passed as an argument: the argument's type contains the number. */
template <int N> struct constant {
	static constexpr int value = N;
};

/*
 * Call f(constant<V>, at) or, if fewer than V of [count] elements remain, f(constant<1>, at) for
 * each remaining element.
 */
template <int V, typename F>
static __device__ inline void pack_each(size_t at, size_t count, const F &f)
{
	if (at + V <= count)
		f(constant<V>(), at);
	else
		for (; at < count; at++)
			f(constant<1>(), at);
}

/* PACK<T> for the T of [type]. */
static inline int pack_count(enum ddp_type type)
{
	return type == DDP_F32 ? PACK<float> : PACK<number_bf16>;
}

#endif /* GPU_PACK_CUH */
