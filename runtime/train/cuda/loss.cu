/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loss.cu - softmax, cross entropy and its gradient
 *
 * Of few classes a row is one thread's, of many 32 lanes share one. Logits are read three times, two of
 * these from the L1 cache: for 512 rows of 10 it is all latency, some 15 KB; for 4096 rows of 1000 it is
 * bound by memory. Blocks leave the sums of their rows in scratch memory, and the last one adds these up.
 *
 * f32 is enough, since what is close to 0 is never a difference from 1: the largest element's share of the
 * softmax's sum is exactly 1 and is left out of it, and the label's gradient comes from expm1f().
 */
#include "gpu/launch.cuh"
#include "gpu/number.cuh"
#include "kernels.h"

enum { FEW = 16, LANES = 32 };

struct loss {
	uint32_t batch, classes;
	float smoothing;
};

/* --- Rows --------------------------------------------------------------------------------------- */

/* A row's largest element, and which it is. */
struct largest {
	float value;
	uint32_t index;
};

/* The first of equal ones; NaN is larger than all. */
static __device__ inline bool before(struct largest a, struct largest b)
{
	bool none = a.value != a.value, other = b.value != b.value;

	if (none != other)
		return none;
	if (none || a.value == b.value)
		return a.index < b.index;
	return a.value > b.value;
}

static __device__ inline struct largest combine(struct largest a, struct largest b)
{
	return before(b, a) ? b : a;
}

/* Of row - largest: of exp() of these but the largest's own, and of them all. */
struct sums {
	float powers, distances;
};

static __device__ inline struct sums combine(struct sums a, struct sums b)
{
	return {a.powers + b.powers, a.distances + b.distances};
}

/* Of rows. */
struct part {
	double loss, hits;
};

static __device__ inline struct part combine(struct part a, struct part b)
{
	return {a.loss + b.loss, a.hits + b.hits};
}

/*
 * What the WIDTH lanes of a row have together, to all of them, in an order that is always the same. All
 * threads of the block call it.
 */
template <int WIDTH, typename V> static __device__ inline V row_combine(V value)
{
	SHARED V cells[LAUNCH_THREADS];
	unsigned lane = threadIdx.x % WIDTH;

	if (WIDTH == 1)
		return value;
	cells[threadIdx.x] = value;
	__syncthreads();
	for (unsigned half = WIDTH / 2; half > 0; half /= 2) {
		if (lane < half)
			cells[threadIdx.x] = combine(cells[threadIdx.x], cells[threadIdx.x + half]);
		__syncthreads();
	}
	value = cells[threadIdx.x - lane];
	__syncthreads();
	return value;
}

/* [classes] is 0 where there is no row: then it means nothing. */
template <int WIDTH, typename T>
static __device__ inline struct largest row_largest(const T *row, uint32_t classes)
{
	uint32_t lane = threadIdx.x % WIDTH;
	struct largest best = {-INFINITY, lane};

	for (uint32_t k = lane; k < classes; k += WIDTH)
		best = combine(best, {load(row + k), k});
	return row_combine<WIDTH>(best);
}

template <int WIDTH, typename T>
static __device__ inline struct sums row_sums(const T *row, uint32_t classes, struct largest best)
{
	struct sums sums = {0, 0};

	for (uint32_t k = threadIdx.x % WIDTH; k < classes; k += WIDTH) {
		float distance = load(row + k) - best.value;

		sums.powers += k == best.index ? 0 : expf(distance);
		sums.distances += distance;
	}
	return row_combine<WIDTH>(sums);
}

template <int WIDTH, typename T>
static __device__ inline void row_slopes(const T *row, const struct loss *loss, uint32_t label,
					 float top, float rest, float scale, T *slopes)
{
	float smoothing = loss->smoothing, want = smoothing / (float)loss->classes;

	for (uint32_t k = threadIdx.x % WIDTH; k < loss->classes; k += WIDTH) {
		float power = load(row + k) - top - rest;
		float slope = k == label ? expm1f(power) + (smoothing - want) : expf(power) - want;

		store(slopes + k, scale * slope);
	}
}

/* --- Blocks ------------------------------------------------------------------------------------- */

static __device__ inline void part_tell(struct part part, const struct kernel_order *order,
					float *word)
{
	word[0] = (float)order->stop;
	word[1] = (float)part.loss;
	word[2] = (float)part.hits;
	word[3] = (float)order->count;
}

/* Of the row of this thread and its lanes, to the first of them; all threads of the block call it. */
template <int WIDTH, typename T>
static __device__ inline struct part row_loss(const struct loss *loss, const T *row, uint32_t label,
					      bool there, float scale, T *slopes)
{
	uint32_t classes = there ? loss->classes : 0;
	struct largest best = row_largest<WIDTH>(row, classes);
	struct sums sums = row_sums<WIDTH>(row, classes, best);
	/* No number where the largest is none. */
	float rest = log1pf(sums.powers) + (best.value - best.value), result;

	if (!there)
		return {0, 0};
	row_slopes<WIDTH>(row, loss, label, best.value, rest, scale, slopes);
	if (threadIdx.x % WIDTH != 0)
		return {0, 0};
	result = rest - (1 - loss->smoothing) * (load(row + label) - best.value);
	if (loss->smoothing > 0)
		result -= loss->smoothing * sums.distances / (float)classes;
	return {result, best.index == label ? 1.0 : 0.0};
}

/* The slopes of a row that nobody wants anything of. */
template <int WIDTH, typename T>
static __device__ inline void row_clear(T *slopes, uint32_t classes)
{
	for (uint32_t k = threadIdx.x % WIDTH; k < classes; k += WIDTH)
		store(slopes + k, 0);
}

template <typename T, int WIDTH>
static __global__ void loss_rows(struct loss loss, const T *logits, const int32_t *labels,
				 const struct kernel_order *order, const struct kernel_state *state,
				 T *slopes, float *word, struct part *parts, unsigned *ticket)
{
	uint32_t row = (uint32_t)thread_index() / WIDTH;
	uint32_t count = order->count < loss.batch ? order->count : loss.batch;
	bool there = row < count;
	size_t at = (size_t)row * loss.classes;
	struct part part = row_loss<WIDTH>(&loss, logits + at, there ? (uint32_t)labels[row] : 0,
					   there, order->share * state->scale, slopes + at);

	if (!there && row < loss.batch)
		row_clear<WIDTH>(slopes + at, loss.classes);
	part = row_combine<LAUNCH_THREADS>(part);
	if (gridDim.x > 1) {
		if (threadIdx.x == 0)
			parts[blockIdx.x] = part;
		if (!last_block(ticket, gridDim.x))
			return;
		part = {0, 0};
		for (unsigned i = threadIdx.x; i < gridDim.x; i += LAUNCH_THREADS)
			part = combine(part,
				       {load_fresh(&parts[i].loss), load_fresh(&parts[i].hits)});
		part = row_combine<LAUNCH_THREADS>(part);
	}
	if (threadIdx.x == 0)
		part_tell(part, order, word);
}

/* --- The whole ---------------------------------------------------------------------------------- */

static size_t row_width(size_t classes)
{
	return classes <= FEW ? 1 : LANES;
}

/* At least one: the word is always written. */
static size_t row_blocks(size_t batch, size_t classes)
{
	return launch_blocks(batch * row_width(classes));
}

size_t kernel_loss_bytes(size_t batch, size_t classes)
{
	size_t blocks = row_blocks(batch, classes);

	return blocks > 1 ? blocks * sizeof(struct part) : 0;
}

void kernel_loss(void *stream, const void *logits, const int32_t *labels,
		 const struct kernel_order *order, const struct kernel_state *state, size_t batch,
		 size_t classes, float smoothing, void *slopes, float *word,
		 const struct kernel_scratch *scratch, enum ddp_type type)
{
	size_t blocks = row_blocks(batch, classes);
	struct loss loss = {(uint32_t)batch, (uint32_t)classes, smoothing};
	struct part *parts = (struct part *)scratch->memory;

	WITH_TYPE(type, T, {
		if (row_width(classes) == 1)
			LAUNCH_BLOCKS((loss_rows<T, 1>), blocks, LAUNCH_THREADS, stream, loss,
				      (const T *)logits, labels, order, state, (T *)slopes, word,
				      parts, scratch->tickets);
		else
			LAUNCH_BLOCKS((loss_rows<T, LANES>), blocks, LAUNCH_THREADS, stream, loss,
				      (const T *)logits, labels, order, state, (T *)slopes, word,
				      parts, scratch->tickets);
	})
}
