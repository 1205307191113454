/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire.cu - kernels that convert gradients for transport between devices
 *
 * Memory bandwidth limits the kernels. Each thread converts V elements, which are 16 bytes in the
 * larger of the two types.
 */
#include "gpu/launch.cuh"
#include "gpu/pack.cuh"
#include "wire.h"

enum { V = 4 };

template <typename TO, typename FROM>
static __global__ void convert(TO *to, const FROM *from, size_t count, float factor)
{
	size_t at = thread_index() * V;

	if (at + V <= count) {
		pack<FROM, V> numbers = pack_load<V>(from + at);
		pack<TO, V> result;

		UNROLL
		for (int v = 0; v < V; v++)
			store(&result.numbers[v], load(&numbers.numbers[v]) * factor);
		pack_store(to + at, result);
		return;
	}
	for (; at < count; at++)
		store(&to[at], load(&from[at]) * factor);
}

void ddp_wire_kernel_convert(void *stream, void *to, enum ddp_type to_type, const void *from,
			     enum ddp_type from_type, size_t count, float factor)
{
	size_t threads = (count + V - 1) / V;

	if (to_type == DDP_F32) {
		WITH_TYPE(from_type, T,
			  LAUNCH_EACH((convert<float, T>), threads, stream, (float *)to,
				      (const T *)from, count, factor))
	} else {
		WITH_TYPE(to_type, T,
			  LAUNCH_EACH((convert<T, float>), threads, stream, (T *)to,
				      (const float *)from, count, factor))
	}
}

static __global__ void count_one(volatile uint64_t *word)
{
	uint64_t count = *word + 1;

	__threadfence_system(); /* makes earlier copies visible to the host before [word] */
	*word = count;
}

void ddp_wire_kernel_count(void *stream, uint64_t *word)
{
	LAUNCH_BLOCKS(count_one, 1, 1, stream, word);
}
