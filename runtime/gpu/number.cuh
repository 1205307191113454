/* SPDX-License-Identifier: Apache-2.0 */
/*
 * number.cuh - element types of activations, for kernels
 *
 * Kernels are templates over the type T that they load and store. Arithmetic is in f32.
 * WITH_TYPE(type, T, statement) runs the statement with T defined as the C type of [type].
 */
#ifndef GPU_NUMBER_CUH
#define GPU_NUMBER_CUH

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>

typedef __nv_bfloat16 number_bf16;
typedef __half number_f16;

/*
 * For two bf16 numbers in one 32-bit word, nvcc compiles this to one instruction per number. With
 * __bfloat162float() it would split the word first.
 */
static __device__ inline float load(const number_bf16 *from)
{
	return __uint_as_float((unsigned)__bfloat16_as_ushort(*from) << 16);
}

static __device__ inline void store(number_bf16 *to, float value)
{
	*to = __float2bfloat16_rn(value);
}

static __device__ inline float load(const number_f16 *from)
{
	return __half2float(*from);
}

static __device__ inline void store(number_f16 *to, float value)
{
	*to = __float2half_rn(value);
}
#endif

static __device__ inline float load(const float *from)
{
	return *from;
}

static __device__ inline void store(float *to, float value)
{
	*to = value;
}

/* max(value, 0), except that NaN stays NaN. */
static __device__ inline float rectified(float value)
{
	return value < 0 ? 0 : value;
}

#define WITH_TYPE(type, T, ...)        \
	switch (type) {                \
	case DDP_BF16: {               \
		typedef number_bf16 T; \
		__VA_ARGS__;           \
		break;                 \
	}                              \
	case DDP_F16: {                \
		typedef number_f16 T;  \
		__VA_ARGS__;           \
		break;                 \
	}                              \
	default: {                     \
		typedef float T;       \
		__VA_ARGS__;           \
	}                              \
	}

#endif /* GPU_NUMBER_CUH */
