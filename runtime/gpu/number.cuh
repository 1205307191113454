/* SPDX-License-Identifier: Apache-2.0 */
/*
 * number.cuh - the types of activations, for kernels
 *
 * Kernels are templates over the type they load and store; arithmetic is f32. WITH_TYPE(type, T,
 * statement) is the statement with T as that type.
 */
#ifndef GPU_NUMBER_CUH
#define GPU_NUMBER_CUH

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>

typedef __nv_bfloat16 number_bf16;
typedef __half number_f16;

/* Of two in a word nvcc makes one instruction each; __bfloat162float() takes them apart first. */
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

/* NaN stays. */
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
