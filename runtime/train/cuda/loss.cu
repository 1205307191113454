/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loss.cu - softmax, cross entropy and its gradient
 *
 * Of few classes a row is one thread's, of many 32 lanes share one. Logits are read three times, two of
 * these from the L1 cache: for 512 rows of 10 it is all latency, some 15 KB; for 4096 rows of 1000 it is
 * bound by memory. Blocks leave the sums of their rows in scratch memory, and the last one adds these up.
 *
 * Behind a dense layer of few inputs and classes all of that layer is done here too: the kernels that it would
 * take otherwise, forwards and backwards, are small enough to be bound by their launches.
 *
 * f32 is enough, since what is close to 0 is never a difference from 1: the largest element's share of the
 * softmax's sum is exactly 1 and is left out of it, and the label's gradient comes from expm1f().
 */
#include "cuda-kernels.h"
#include "gpu/launch.cuh"
#include "gpu/pack.cuh"
#include "partial.cuh"

enum { FEW = 16, LANES = 32 };

/* --- Rows --------------------------------------------------------------------------------------- */

/* A row's largest element, and which it is. */
struct largest {
	float value;
	uint32_t index;

	/* The first of equal ones; NaN is larger than all. */
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

/* Of row - largest: of exp() of these but the largest's own, and of them all. */
struct sums {
	float powers, distances;

	__device__ inline void operator+=(const sums &other)
	{
		powers += other.powers;
		distances += other.distances;
	}
};

/* [classes] is 0 where there is no row: then it means nothing. */
template <int WIDTH, typename T>
static __device__ inline struct largest row_largest(const T *row, uint32_t classes)
{
	uint32_t lane = threadIdx.x % WIDTH;
	struct largest best = {-INFINITY, lane};

	for (uint32_t k = lane; k < classes; k += WIDTH)
		best += {load(row + k), k};
	return lanes_sum<WIDTH>(best);
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
	return lanes_sum<WIDTH>(sums);
}

template <int WIDTH, typename T>
static __device__ inline void row_gradients(const T *row, const struct kernel_loss *loss,
					    uint32_t label, float top, float rest, float scale,
					    T *gradients)
{
	float smoothing = loss->smoothing, want = smoothing / (float)loss->classes;

	for (uint32_t k = threadIdx.x % WIDTH; k < loss->classes; k += WIDTH) {
		float power = load(row + k) - top - rest;
		float gradient =
			k == label ? expm1f(power) + (smoothing - want) : expf(power) - want;

		store(gradients + k, scale * gradient);
	}
}

/* --- Blocks ------------------------------------------------------------------------------------- */

/* Losses and hits of samples, of all blocks: by one thread. */
static __device__ inline void word_tell(const struct kernel_loss *loss,
					const struct partial_pair &sums)
{
	loss->word[0] = (float)loss->order->stop;
	loss->word[1] = (float)sums.first;
	loss->word[2] = (float)sums.second;
	loss->word[3] = (float)loss->order->count;
}

/* Whether there is such a sample. */
static __device__ inline bool row_there(const struct kernel_loss *loss, uint32_t row)
{
	return row < loss->batch && row < loss->order->count;
}

/* Loss and hit of the row of this thread and its lanes, to the first of them; all threads of the block call it. */
template <int WIDTH, typename T>
static __device__ inline struct partial_pair row_loss(const struct kernel_loss *loss,
						      const T *logits, uint32_t row, T *gradients)
{
	bool there = row_there(loss, row);
	uint32_t classes = there ? loss->classes : 0,
		 label = there ? (uint32_t)loss->labels[row] : 0;
	float scale = loss->order->share * loss->state->scale;
	struct largest best = row_largest<WIDTH>(logits, classes);
	struct sums sums = row_sums<WIDTH>(logits, classes, best);
	/* No number where the largest is none. */
	float rest = log1pf(sums.powers) + (best.value - best.value), result;

	if (!there)
		return {0, 0};
	row_gradients<WIDTH>(logits, loss, label, best.value, rest, scale, gradients);
	if (threadIdx.x % WIDTH != 0)
		return {0, 0};
	result = rest - (1 - loss->smoothing) * (load(logits + label) - best.value);
	if (loss->smoothing > 0)
		result -= loss->smoothing * sums.distances / (float)classes;
	return {result, best.index == label ? 1.0 : 0.0};
}

template <typename T, int WIDTH>
static __global__ void loss_rows(struct kernel_loss loss, const T *logits, T *gradients,
				 struct partial_pair *blocks, unsigned *ticket)
{
	GRID_WAIT();
	uint32_t row = (uint32_t)thread_index() / WIDTH;
	size_t at = (size_t)row * loss.classes;
	struct partial_pair sums = row_loss<WIDTH>(&loss, logits + at, row, gradients + at);

	if (!row_there(&loss, row) && row < loss.batch)
		for (uint32_t k = threadIdx.x % WIDTH; k < loss.classes; k += WIDTH)
			store(gradients + at + k, 0);
	if (partial_pair_sum(&sums, blocks, ticket) && threadIdx.x == 0)
		word_tell(&loss, sums);
}

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
	return row_blocks(batch, classes) * sizeof(struct partial_pair);
}

void kernel_loss(void *stream, const struct kernel_loss *loss, const void *logits, void *gradients,
		 const struct kernel_scratch *scratch, enum ddp_type type)
{
	size_t blocks = row_blocks(loss->batch, loss->classes);
	struct partial_pair *left = (struct partial_pair *)scratch->memory;

	WITH_TYPE(type, T, {
		auto kernel = row_width(loss->classes) == 1 ? loss_rows<T, 1> : loss_rows<T, LANES>;

		LAUNCH_BLOCKS(kernel, blocks, LAUNCH_THREADS, stream, *loss, (const T *)logits,
			      (T *)gradients, left, scratch->tickets);
	})
}

/* --- With the dense layer in front of it ------------------------------------------------------- */

/* A block has ROWS rows at a time, 32 lanes each. */
enum { ROWS = LAUNCH_THREADS / LANES, LAST_PARTS = 64, MOST_INPUTS = 1024, MOST_WEIGHTS = 2048 };

struct last_memory {
	float x[ROWS][MOST_INPUTS], logits[ROWS][LANES], gradients[ROWS][LANES];
};

/* The logits of this thread's row, class [lane]; and its x in shared memory. */
template <typename T, int V>
static __device__ inline void last_forward(const struct kernel_last *last,
					   const struct kernel_loss *loss, uint32_t row,
					   struct last_memory *memory)
{
	uint32_t lane = threadIdx.x % LANES, r = threadIdx.x / LANES;
	const T *x = (const T *)last->x + (size_t)row * last->inputs;
	float sums[V] = {}, sum = 0;

	for (uint32_t i = lane; i < last->inputs; i += LANES)
		memory->x[r][i] = row < loss->batch ? load(x + i) : 0;
	__syncthreads();
	for (uint32_t i = 0; lane < loss->classes && i < last->inputs; i += V) {
		pack<T, V> weights =
			pack_load<V>((const T *)last->weights + lane * last->inputs + i);

		UNROLL
		for (int v = 0; v < V; v++)
			sums[v] += weights[v] * memory->x[r][i + v];
	}
	UNROLL
	for (int v = 0; v < V; v++)
		sum += sums[v];
	if (lane < loss->classes)
		memory->logits[r][lane] = sum + last->bias[lane];
	memory->gradients[r][lane] = 0;
	__syncthreads();
}

/* dx of this thread's row, through a dropout and the ReLU in front of that. */
template <typename T, int V>
static __device__ inline void last_back(const struct kernel_last *last,
					const struct kernel_loss *loss, uint32_t row,
					const struct last_memory *memory)
{
	uint32_t lane = threadIdx.x % LANES, r = threadIdx.x / LANES;
	T *dx = (T *)last->dx + (size_t)row * last->inputs;

	for (uint32_t i = lane * V; row < loss->batch && i < last->inputs; i += LANES * V) {
		float sums[V] = {};

		for (uint32_t k = 0; k < loss->classes; k++) {
			pack<T, V> weights =
				pack_load<V>((const T *)last->weights + k * last->inputs + i);

			UNROLL
			for (int v = 0; v < V; v++)
				sums[v] += memory->gradients[r][k] * weights[v];
		}
		pack_store(dx + i, pack_of<T, V>([&](int v) {
				   bool dropped = last->drop > 0 && !(memory->x[r][i + v] > 0);

				   return dropped ? 0 : sums[v] * (last->drop > 0 ? last->drop : 1);
			   }));
	}
}

/* What the block's rows add to the gradients of weights and bias. */
static __device__ inline void last_gradients(uint32_t inputs, uint32_t classes, bool first,
					     const struct last_memory *memory, float *to)
{
	for (uint32_t i = threadIdx.x; i < (inputs + 1) * classes; i += LAUNCH_THREADS) {
		bool bias = i >= inputs * classes;
		uint32_t k = bias ? i - inputs * classes : i / inputs, column = i % inputs;
		float sum = first ? 0 : to[i];

		UNROLL
		for (int r = 0; r < ROWS; r++)
			sum += memory->gradients[r][k] * (bias ? 1 : memory->x[r][column]);
		to[i] = sum;
	}
}

template <typename T, int V>
static __global__ void __launch_bounds__(LAUNCH_THREADS)
	last_layer(struct kernel_loss loss, struct kernel_last last, struct partial partial,
		   struct partial_pair *blocks)
{
	GRID_WAIT();
	SHARED struct last_memory memory;
	uint32_t r = threadIdx.x / LANES, first = blockIdx.x * ROWS;
	float *to = partial.rows + blockIdx.x * partial.columns;
	struct partial_pair sums = {0, 0};

	for (uint32_t begin = first; begin < loss.batch; begin += gridDim.x * ROWS) {
		last_forward<T, V>(&last, &loss, begin + r, &memory);
		sums += row_loss<LANES>(&loss, (const float *)memory.logits[r], begin + r,
					memory.gradients[r]);
		__syncthreads();
		last_back<T, V>(&last, &loss, begin + r, &memory);
		last_gradients(last.inputs, loss.classes, begin == first, &memory, to);
		__syncthreads();
	}
	sums = lanes_sum<LAUNCH_THREADS>(sums);
	if (threadIdx.x == 0)
		blocks[blockIdx.x] = sums;
	if (!partial_sums(&partial, blockIdx.x, last.weight_gradients, last.inputs * loss.classes,
			  last.bias_gradients))
		return;
	sums = partial_pairs(blocks);
	if (threadIdx.x == 0)
		word_tell(&loss, sums);
}

bool kernel_last_fits(size_t inputs, size_t classes)
{
	return classes <= LANES && inputs <= MOST_INPUTS && inputs * classes <= MOST_WEIGHTS;
}

static unsigned last_parts(size_t batch)
{
	size_t parts = (batch + ROWS - 1) / ROWS;

	return parts < LAST_PARTS ? (unsigned)parts : (unsigned)LAST_PARTS;
}

size_t kernel_last_bytes(size_t batch, size_t inputs, size_t classes)
{
	return LAST_PARTS * sizeof(struct partial_pair) +
	       partial_bytes(last_parts(batch), (inputs + 1) * classes);
}

void kernel_last(void *stream, const struct kernel_loss *loss, const struct kernel_last *layer,
		 const struct kernel_scratch *scratch, enum ddp_type type)
{
	struct partial_pair *blocks = (struct partial_pair *)scratch->memory;
	struct kernel_scratch rest = {blocks + LAST_PARTS, scratch->tickets};
	struct partial partial = partial_of(&rest, last_parts(loss->batch),
					    (size_t)(layer->inputs + 1) * loss->classes, 1);

	WITH_PACK(type, packs_fit(type, layer->inputs, {layer->weights, layer->dx}), T, V,
		  LAUNCH_BLOCKS((last_layer<T, V>), partial.parts, LAUNCH_THREADS, stream, *loss,
				*layer, partial, blocks))
}
