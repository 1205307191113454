/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sum.cu - the memory of ranks that share a GPU, element by element
 *
 * Bound by memory: each source is read once and each target written once. A thread takes 16 bytes of each
 * source, GROUP of them before it adds the first, so that enough is under way; a grid that fills the card goes
 * over all. Arrays that lie alike, as those of ranks do, begin with single elements up to a multiple of 16 bytes and
 * end with some; arrays that do not go element by element.
 *
 * A thread has read all sources of an element before it writes one, so targets may be sources.
 */
#include "gpu/launch.cuh"
#include "gpu/pack.cuh"
#include "sum.h"

enum { GROUP = 4, BLOCKS_OF_PROCESSOR = 16 };

/* --- Elements ----------------------------------------------------------------------------------- */

/* As what they are computed with. */
template <typename T> struct wide {
	typedef T type;
};
template <> struct wide<number_bf16> {
	typedef float type;
};
template <> struct wide<number_f16> {
	typedef float type;
};

/* What number.cuh has no load() and store() of. */
template <typename T> static __device__ inline T load(const T *from)
{
	return *from;
}

template <typename T> static __device__ inline void store(T *to, T value)
{
	*to = value;
}

/* Integers wrap, which only unsigned ones may. */
static __device__ inline float added(float a, float b)
{
	return a + b;
}
static __device__ inline double added(double a, double b)
{
	return a + b;
}
static __device__ inline int32_t added(int32_t a, int32_t b)
{
	return (int32_t)((uint32_t)a + (uint32_t)b);
}
static __device__ inline int64_t added(int64_t a, int64_t b)
{
	return (int64_t)((uint64_t)a + (uint64_t)b);
}
static __device__ inline uint8_t added(uint8_t a, uint8_t b)
{
	return (uint8_t)(a + b);
}

/* The later element if it is NaN or beats the earlier one, which stays if it is NaN. */
template <int OP, typename W> static __device__ inline W combined(W a, W b)
{
	if (OP == DDP_SUM)
		return added(a, b);
	if (OP == DDP_MAX)
		return b > a || b != b ? b : a;
	return b < a || b != b ? b : a;
}

/* --- Arrays ------------------------------------------------------------------------------------- */

struct arrays {
	const char *from[DDP_SHARD_SOURCES];
	char *to[DDP_SHARD_SOURCES];
	int sources, targets;
};

/* [whole] packs behind the first [head] elements, and [tail] elements behind these. */
struct extent {
	size_t head, whole, tail;
};

/* Elements [at] to [at] + V of all sources into all targets. */
template <int OP, typename T, int V>
static __device__ inline void sum_at(const struct arrays &arrays, size_t at)
{
	typename wide<T>::type sums[V] = {};
	pack<T, V> parts[GROUP], result;

	for (int s = 0; s < arrays.sources; s += GROUP) {
		UNROLL
		for (int g = 0; g < GROUP; g++)
			if (s + g < arrays.sources)
				parts[g] = pack_load<V>((const T *)arrays.from[s + g] + at);
		UNROLL
		for (int g = 0; g < GROUP; g++) {
			if (s + g >= arrays.sources)
				break;
			UNROLL
			for (int v = 0; v < V; v++) {
				typename wide<T>::type part = load(&parts[g].numbers[v]);

				sums[v] = s + g == 0 ? part : combined<OP>(sums[v], part);
			}
		}
	}
	UNROLL
	for (int v = 0; v < V; v++)
		store(&result.numbers[v], sums[v]);
	for (int t = 0; t < arrays.targets; t++)
		pack_store((T *)arrays.to[t] + at, result);
}

template <int OP, typename T, int V>
static __global__ void sum(const __grid_constant__ struct arrays arrays,
			   const __grid_constant__ struct extent extent)
{
	GRID_WAIT();
	size_t step = (size_t)gridDim.x * blockDim.x;

	for (size_t i = thread_index(); i < extent.whole; i += step)
		sum_at<OP, T, V>(arrays, extent.head + i * V);
	for (size_t i = thread_index(); i < extent.head + extent.tail; i += step)
		sum_at<OP, T, 1>(arrays, i < extent.head ? i : extent.whole * V + i);
}

/* --- Launching ---------------------------------------------------------------------------------- */

/* How far all arrays are from a multiple of 16 bytes, -1: not all the same. */
static int skew_of(const struct arrays *arrays)
{
	uintptr_t first = (uintptr_t)arrays->from[0] % 16, different = 0;

	for (int s = 0; s < arrays->sources; s++)
		different |= (uintptr_t)arrays->from[s] % 16 ^ first;
	for (int t = 0; t < arrays->targets; t++)
		different |= (uintptr_t)arrays->to[t] % 16 ^ first;
	return different ? -1 : (int)first;
}

template <int OP, typename T, int V>
static void launch(void *stream, int processors, const struct arrays &arrays, size_t head,
		   size_t count)
{
	size_t most = (size_t)processors * BLOCKS_OF_PROCESSOR * LAUNCH_THREADS, threads;
	struct extent extent;

	extent.head = head < count ? head : count;
	extent.whole = (count - extent.head) / V;
	extent.tail = count - extent.head - extent.whole * V;
	threads =
		extent.whole > extent.head + extent.tail ? extent.whole : extent.head + extent.tail;
	LAUNCH_EACH((sum<OP, T, V>), threads < most ? threads : most, stream, arrays, extent);
}

template <int OP, typename T>
static void sum_as(void *stream, int processors, const struct arrays &arrays, size_t count)
{
	int skew = skew_of(&arrays);

	if (skew < 0)
		launch<OP, T, 1>(stream, processors, arrays, 0, count);
	else
		launch<OP, T, PACK<T>>(stream, processors, arrays,
				       (16 - (size_t)skew) % 16 / sizeof(T), count);
}

template <typename T>
static void sum_by(void *stream, int processors, const struct arrays &arrays, size_t count,
		   enum ddp_op op)
{
	if (op == DDP_SUM)
		sum_as<DDP_SUM, T>(stream, processors, arrays, count);
	else if (op == DDP_MAX)
		sum_as<DDP_MAX, T>(stream, processors, arrays, count);
	else if (op == DDP_MIN)
		sum_as<DDP_MIN, T>(stream, processors, arrays, count);
}

void ddp_shard_kernel_sum(void *stream, int processors, void *const *to, int targets,
			  const void *const *from, int sources, size_t count, enum ddp_type type,
			  enum ddp_op op)
{
	struct arrays arrays;

	arrays.sources = sources;
	arrays.targets = targets;
	for (int s = 0; s < DDP_SHARD_SOURCES; s++)
		arrays.from[s] = s < sources ? (const char *)from[s] : NULL;
	for (int t = 0; t < DDP_SHARD_SOURCES; t++)
		arrays.to[t] = t < targets ? (char *)to[t] : NULL;
	switch (type) {
	case DDP_F32:
		sum_by<float>(stream, processors, arrays, count, op);
		break;
	case DDP_F64:
		sum_by<double>(stream, processors, arrays, count, op);
		break;
	case DDP_BF16:
		sum_by<number_bf16>(stream, processors, arrays, count, op);
		break;
	case DDP_F16:
		sum_by<number_f16>(stream, processors, arrays, count, op);
		break;
	case DDP_I32:
		sum_by<int32_t>(stream, processors, arrays, count, op);
		break;
	case DDP_I64:
		sum_by<int64_t>(stream, processors, arrays, count, op);
		break;
	case DDP_U8:
		sum_by<uint8_t>(stream, processors, arrays, count, op);
		break;
	default:
		break;
	}
}
