/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loss.cu - softmax, cross entropy and its gradient
 *
 * 32 lanes share a row. Logits are read three times: once from memory, twice from the L1 cache. The
 * kernel is bound by latency for 512 rows of 10 logits (15 KB), and by memory for 4096 rows of 1000
 * logits. Blocks store the sums of their rows in scratch memory, and the last block adds them.
 *
 * f32 is sufficient, because no value close to 0 is computed as a difference from 1. The
 * exponential of the largest element is exactly 1, and is not part of the sum of exponentials. The
 * gradient of the label is computed with expm1f().
 */
#include "cuda-kernels.h"
#include "gpu/launch.cuh"
#include "gpu/pack.cuh"
#include "partial.cuh"

enum { LANES = 32 };

/* --- Rows --------------------------------------------------------------------------------------- */

struct largest {
	float value;
	uint32_t index;

	/* NaN is larger than all numbers. The first of equal values is the largest. */
	__device__ inline bool before(const largest &other) const
	{
		bool none = value != value, others = other.value != other.value;

		if (none != others)
			return none;
		if (none || value == other.value)
			return index < other.index;
		return value > other.value;
	}

	__device__ inline void operator+=(const largest &other)
	{
		if (other.before(*this))
			*this = other;
	}
};

/*
 * Sums over a row of the differences from its largest element: [powers] sums their exponentials,
 * without that of the largest element, and [distances] sums the differences.
 */
struct sums {
	float powers, distances;

	__device__ inline void operator+=(const sums &other)
	{
		powers += other.powers;
		distances += other.distances;
	}
};

/* [classes] is 0 for rows that do not exist. The result is not used for such rows. */
template <typename T>
static __device__ inline struct largest row_largest(const T *row, uint32_t classes)
{
	uint32_t lane = threadIdx.x % LANES;
	struct largest best = {-INFINITY, lane};

	for (uint32_t k = lane; k < classes; k += LANES)
		best += {load(row + k), k};
	return lanes_sum<LANES>(best);
}

template <typename T>
static __device__ inline struct sums row_sums(const T *row, uint32_t classes, struct largest best)
{
	struct sums sums = {0, 0};

	for (uint32_t k = threadIdx.x % LANES; k < classes; k += LANES) {
		float distance = load(row + k) - best.value;

		sums.powers += k == best.index ? 0 : expf(distance);
		sums.distances += distance;
	}
	return lanes_sum<LANES>(sums);
}

template <typename T>
static __device__ inline void row_gradients(const T *row, const struct kernel_loss *loss,
					    uint32_t label, float top, float log_sum, float scale,
					    T *gradients)
{
	float smoothing = loss->smoothing, want = smoothing / (float)loss->classes;

	for (uint32_t k = threadIdx.x % LANES; k < loss->classes; k += LANES) {
		float power = load(row + k) - top - log_sum;
		float gradient =
			k == label ? expm1f(power) + (smoothing - want) : expf(power) - want;

		store(gradients + k, scale * gradient);
	}
}

/* --- Blocks ------------------------------------------------------------------------------------- */

/*
 * Returns a row's loss and hit in the row's first lane, and zeros in the other lanes. Every thread
 * in the block must call this function.
 */
template <typename T>
static __device__ inline struct partial_pair row_loss(const struct kernel_loss *loss,
						      const T *logits, uint32_t row, T *gradients)
{
	bool there = row < loss->batch && row < loss->order->count;
	uint32_t classes = there ? loss->classes : 0,
		 label = there ? (uint32_t)loss->labels[row] : 0;
	float scale = loss->order->share * loss->state->scale;
	struct largest best = row_largest(logits, classes);
	struct sums sums = row_sums(logits, classes, best);
	/* The difference in parentheses is 0, or NaN if the largest element is not finite. */
	float log_sum = log1pf(sums.powers) + (best.value - best.value), result;

	if (!there) {
		for (uint32_t k = threadIdx.x % LANES; row < loss->batch && k < loss->classes;
		     k += LANES)
			store(gradients + k, 0);
		return {0, 0};
	}
	row_gradients(logits, loss, label, best.value, log_sum, scale, gradients);
	if (threadIdx.x % LANES != 0)
		return {0, 0};
	result = log_sum - (1 - loss->smoothing) * (load(logits + label) - best.value);
	if (loss->smoothing > 0)
		result -= loss->smoothing * sums.distances / (float)classes;
	return {result, best.index == label ? 1.0 : 0.0};
}

template <typename T>
static __global__ void loss_rows(struct kernel_loss loss, const T *logits, T *gradients,
				 struct partial_pair *blocks, unsigned *ticket)
{
	uint32_t row = (uint32_t)thread_index() / LANES;
	size_t at = (size_t)row * loss.classes;
	struct partial_pair sums = row_loss(&loss, logits + at, row, gradients + at);

	if (!partial_pair_sum(&sums, blocks, ticket) || threadIdx.x > 0)
		return;
	loss.word[0] = (float)loss.order->stop;
	loss.word[1] = (float)sums.first;
	loss.word[2] = (float)sums.second;
	loss.word[3] = (float)loss.order->count;
}

size_t kernel_loss_bytes(size_t batch)
{
	return launch_blocks(batch * LANES) * sizeof(struct partial_pair);
}

void kernel_loss(void *stream, const struct kernel_loss *loss, const void *logits, void *gradients,
		 const struct kernel_scratch *scratch, enum ddp_type type)
{
	struct partial_pair *left = (struct partial_pair *)scratch->memory;

	WITH_TYPE(type, T,
		  LAUNCH_BLOCKS((loss_rows<T>), launch_blocks(loss->batch * LANES), LAUNCH_THREADS,
				stream, *loss, (const T *)logits, (T *)gradients, left,
				scratch->tickets))
}
