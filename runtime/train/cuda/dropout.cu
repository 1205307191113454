/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dropout.cu - dropout, alone and behind a max-pool
 *
 * Bound by memory: each number is read and written once, 16 bytes by a thread. Behind a pool nothing is
 * written between the two, and there is one launch less to wait for.
 */
#include "dropout.cuh"
#include "gpu/pack.cuh"
#include "window.cuh"

/* --- Alone -------------------------------------------------------------------------------------- */

template <typename T, int V>
static __global__ void drop(struct kernel_dropout dropout, const struct kernel_order *order,
			    const uint64_t *orders, struct groups groups, const T *x, T *y)
{
	struct share share = share_of<V>(&groups);
	size_t at = (size_t)share.sample * groups.elements + share.place;
	pack<T, V> numbers;
	uint32_t bits;

	if (share.there)
		numbers = pack_load<V>(x + at);
	bits = share_dropped<V>(&dropout, order, orders, &groups, share);
	if (!share.there)
		return;
	UNROLL
	for (int v = 0; v < V; v++)
		store(&numbers.numbers[v],
		      bits >> v & 1 ? 0 : load(&numbers.numbers[v]) * dropout.scale);
	pack_store(y + at, numbers);
}

void kernel_dropout(void *stream, const struct kernel_dropout *dropout,
		    const struct kernel_order *order, const uint64_t *orders, size_t batch,
		    size_t elements, const void *x, void *y, enum ddp_type type)
{
	struct groups groups = groups_of(batch, elements);

	if (batch * elements == 0)
		return;
	WITH_TYPE(type, T, WITH_PACK(packs_fit(elements, sizeof(T), {x, y}), T, V, {
			  LAUNCH_BLOCKS((drop<T, V>), groups_blocks<V>(&groups), LAUNCH_THREADS,
					stream, *dropout, order, orders, groups, (const T *)x,
					(T *)y);
		  }))
}

/* --- Behind a pool ------------------------------------------------------------------------------ */

static __device__ inline struct window window_at(const struct kernel_pool *pool, struct share share)
{
	uint32_t channels = (uint32_t)pool->channels;
	uint32_t columns = (uint32_t)(pool->width / pool->size), pixel = share.place / channels;

	return {share.place % channels, pixel / columns, pixel % columns, share.sample, true};
}

/* SIZE 0: any. */
template <typename T, int V, int SIZE>
static __global__ void pool_drop(struct kernel_pool pool, struct kernel_dropout dropout,
				 const struct kernel_order *order, const uint64_t *orders,
				 struct groups groups, const T *x, T *y, uint8_t *which)
{
	const int size = SIZE ? SIZE : pool.size;
	struct share share = share_of<V>(&groups);
	struct window window = window_at(&pool, share);
	size_t at = (size_t)share.sample * groups.elements + share.place;
	pack<uint8_t, V> first = {};
	pack<T, V> result;
	float best[V] = {};
	uint32_t bits;

	for (int k = 0; share.there && k < size * size; k++)
		window_take(best, &first,
			    pack_load<V>(x + window_pixel(&pool, &window, k / size, k % size)), k);
	bits = share_dropped<V>(&dropout, order, orders, &groups, share);
	if (!share.there)
		return;
	UNROLL
	for (int v = 0; v < V; v++)
		store(result.numbers + v, bits >> v & 1 ? 0 : best[v] * dropout.scale);
	pack_store(y + at, result);
	pack_store(which + at, first);
}

void kernel_max_pool_dropout(void *stream, const struct kernel_pool *pool,
			     const struct kernel_dropout *dropout, const struct kernel_order *order,
			     const uint64_t *orders, size_t batch, const void *x, void *y,
			     uint8_t *which, enum ddp_type type)
{
	size_t channels = (size_t)pool->channels;
	size_t elements =
		(size_t)(pool->height / pool->size) * (size_t)(pool->width / pool->size) * channels;
	struct groups groups = groups_of(batch, elements);

	if (batch * elements == 0)
		return;
	WITH_TYPE(type, T, WITH_PACK(packs_fit(channels, sizeof(T), {x, y, which}), T, V, {
			  size_t blocks = groups_blocks<V>(&groups);

			  if (pool->size == 2)
				  LAUNCH_BLOCKS((pool_drop<T, V, 2>), blocks, LAUNCH_THREADS,
						stream, *pool, *dropout, order, orders, groups,
						(const T *)x, (T *)y, which);
			  else
				  LAUNCH_BLOCKS((pool_drop<T, V, 0>), blocks, LAUNCH_THREADS,
						stream, *pool, *dropout, order, orders, groups,
						(const T *)x, (T *)y, which);
		  }))
}
