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
#include "gpu/launch.cuh"
#include "gpu/pack.cuh"
#include "kernels.h"
#include "partial.cuh"

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
static __device__ inline void row_gradients(const T *row, const struct loss *loss, uint32_t label,
					    float top, float rest, float scale, T *gradients)
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
					      bool there, float scale, T *gradients)
{
	uint32_t classes = there ? loss->classes : 0;
	struct largest best = row_largest<WIDTH>(row, classes);
	struct sums sums = row_sums<WIDTH>(row, classes, best);
	/* No number where the largest is none. */
	float rest = log1pf(sums.powers) + (best.value - best.value), result;

	if (!there)
		return {0, 0};
	row_gradients<WIDTH>(row, loss, label, best.value, rest, scale, gradients);
	if (threadIdx.x % WIDTH != 0)
		return {0, 0};
	result = rest - (1 - loss->smoothing) * (load(row + label) - best.value);
	if (loss->smoothing > 0)
		result -= loss->smoothing * sums.distances / (float)classes;
	return {result, best.index == label ? 1.0 : 0.0};
}

/* The gradients of a row that nobody wants anything of. */
template <int WIDTH, typename T>
static __device__ inline void row_clear(T *gradients, uint32_t classes)
{
	for (uint32_t k = threadIdx.x % WIDTH; k < classes; k += WIDTH)
		store(gradients + k, 0);
}

template <typename T, int WIDTH>
static __global__ void loss_rows(struct loss loss, const T *logits, const int32_t *labels,
				 const struct kernel_order *order, const struct kernel_state *state,
				 T *gradients, float *word, struct part *parts, unsigned *ticket)
{
	GRID_WAIT();
	uint32_t row = (uint32_t)thread_index() / WIDTH;
	uint32_t count = order->count < loss.batch ? order->count : loss.batch;
	bool there = row < count;
	size_t at = (size_t)row * loss.classes;
	struct part part = row_loss<WIDTH>(&loss, logits + at, there ? (uint32_t)labels[row] : 0,
					   there, order->share * state->scale, gradients + at);

	if (!there && row < loss.batch)
		row_clear<WIDTH>(gradients + at, loss.classes);
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
		 size_t classes, float smoothing, void *gradients, float *word,
		 const struct kernel_scratch *scratch, enum ddp_type type)
{
	size_t blocks = row_blocks(batch, classes);
	struct loss loss = {(uint32_t)batch, (uint32_t)classes, smoothing};
	struct part *parts = (struct part *)scratch->memory;

	WITH_TYPE(type, T, {
		if (row_width(classes) == 1)
			LAUNCH_BLOCKS((loss_rows<T, 1>), blocks, LAUNCH_THREADS, stream, loss,
				      (const T *)logits, labels, order, state, (T *)gradients, word,
				      parts, scratch->tickets);
		else
			LAUNCH_BLOCKS((loss_rows<T, LANES>), blocks, LAUNCH_THREADS, stream, loss,
				      (const T *)logits, labels, order, state, (T *)gradients, word,
				      parts, scratch->tickets);
	})
}

/* --- With the dense layer in front of it ------------------------------------------------------- */

/* A block has ROWS rows at a time, 32 lanes each. */
enum { ROWS = LAUNCH_THREADS / LANES, LAST_PARTS = 64, MOST_INPUTS = 1024, MOST_WEIGHTS = 2048 };

struct last_memory {
	float x[ROWS][MOST_INPUTS], logits[ROWS][LANES], gradients[ROWS][LANES];
};

/* What it reads and writes. */
template <typename T> struct last {
	const T *x, *weights;
	const float *bias;
	const int32_t *labels;
	T *dx;
	float *weight_gradients, *bias_gradients, *word;
	struct part *losses; /* of blocks */
	uint32_t inputs;
	float drop;
};

/* The logits of this thread's row, class [lane]; and its x in shared memory. */
template <typename T, int V>
static __device__ inline void last_forward(const struct last<T> *last, const struct loss *loss,
					   uint32_t row, struct last_memory *memory)
{
	uint32_t lane = threadIdx.x % LANES, r = threadIdx.x / LANES;
	float sums[V] = {}, sum = 0;

	for (uint32_t i = lane; i < last->inputs; i += LANES)
		memory->x[r][i] =
			row < loss->batch ? load(last->x + (size_t)row * last->inputs + i) : 0;
	__syncthreads();
	for (uint32_t i = 0; lane < loss->classes && i < last->inputs; i += V) {
		pack<T, V> weights = pack_load<V>(last->weights + lane * last->inputs + i);

		UNROLL
		for (int v = 0; v < V; v++)
			sums[v] += load(weights.numbers + v) * memory->x[r][i + v];
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
static __device__ inline void last_back(const struct last<T> *last, const struct loss *loss,
					uint32_t row, const struct last_memory *memory)
{
	uint32_t lane = threadIdx.x % LANES, r = threadIdx.x / LANES;

	for (uint32_t i = lane * V; row < loss->batch && i < last->inputs; i += LANES * V) {
		float sums[V] = {};
		pack<T, V> dx;

		for (uint32_t k = 0; k < loss->classes; k++) {
			pack<T, V> weights = pack_load<V>(last->weights + k * last->inputs + i);

			UNROLL
			for (int v = 0; v < V; v++)
				sums[v] += memory->gradients[r][k] * load(weights.numbers + v);
		}
		UNROLL
		for (int v = 0; v < V; v++) {
			if (last->drop > 0)
				sums[v] = memory->x[r][i + v] > 0 ? sums[v] * last->drop : 0;
			store(dx.numbers + v, sums[v]);
		}
		pack_store(last->dx + (size_t)row * last->inputs + i, dx);
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

template <typename T>
static __device__ inline void last_tell(const struct last<T> *last, const struct partial *partial,
					const struct partial_term *term, uint32_t weights,
					const struct kernel_order *order)
{
	struct part part = {0, 0};

	for (uint32_t c = threadIdx.x; c < partial->columns; c += LAUNCH_THREADS)
		*(c < weights ? last->weight_gradients + c : last->bias_gradients + (c - weights)) =
			(float)partial_total(partial, c, *term);
	for (unsigned i = threadIdx.x; i < gridDim.x; i += LAUNCH_THREADS)
		part = combine(part, {load_fresh(&last->losses[i].loss),
				      load_fresh(&last->losses[i].hits)});
	part = row_combine<LAUNCH_THREADS>(part);
	if (threadIdx.x == 0)
		part_tell(part, order, last->word);
}

template <typename T, int V>
static __global__ void __launch_bounds__(LAUNCH_THREADS)
	last_layer(struct loss loss, struct last<T> last, const struct kernel_order *order,
		   const struct kernel_state *state, struct partial partial)
{
	GRID_WAIT();
	SHARED struct last_memory memory;
	uint32_t count = order->count < loss.batch ? order->count : loss.batch;
	uint32_t r = threadIdx.x / LANES;
	float *to = partial.rows + blockIdx.x * partial.columns,
	      scale = order->share * state->scale;
	struct partial_term term = {partial.rows, partial.columns};
	struct part all = {0, 0};

	for (uint32_t begin = blockIdx.x * ROWS; begin < loss.batch; begin += gridDim.x * ROWS) {
		uint32_t row = begin + r;
		bool there = row < count;

		last_forward<T, V>(&last, &loss, row, &memory);
		all = combine(all, row_loss<LANES>(&loss, (const float *)memory.logits[r],
						   there ? (uint32_t)last.labels[row] : 0, there,
						   scale, memory.gradients[r]));
		__syncthreads();
		last_back<T, V>(&last, &loss, row, &memory);
		last_gradients(last.inputs, loss.classes, begin == blockIdx.x * ROWS, &memory, to);
		__syncthreads();
	}
	all = row_combine<LAUNCH_THREADS>(all);
	if (threadIdx.x == 0)
		last.losses[blockIdx.x] = all;
	if (partial_last(&partial, blockIdx.x, term))
		last_tell(&last, &partial, &term, last.inputs * loss.classes, order);
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
	return LAST_PARTS * sizeof(struct part) +
	       partial_bytes(last_parts(batch), (inputs + 1) * classes);
}

void kernel_last(void *stream, const struct kernel_last *layer, const struct kernel_order *order,
		 const struct kernel_state *state, size_t batch, const int32_t *labels,
		 float smoothing, float *word, const struct kernel_scratch *scratch,
		 enum ddp_type type)
{
	struct loss loss = {(uint32_t)batch, (uint32_t)layer->classes, smoothing};
	struct kernel_scratch rest = {(struct part *)scratch->memory + LAST_PARTS,
				      scratch->tickets};
	struct partial partial =
		partial_of(&rest, last_parts(batch), (layer->inputs + 1) * layer->classes, 1);

	WITH_TYPE(type, T, {
		struct last<T> last = {
			(const T *)layer->x, (const T *)layer->weights, layer->bias, labels,
				(T *)layer->dx, layer->weight_gradients, layer->bias_gradients, word
				,
				(struct part *)scratch->memory, (uint32_t)layer->inputs, layer->drop
		};

		WITH_PACK(packs_fit(layer->inputs, sizeof(T), {last.weights, last.dx}), T, V,
			  LAUNCH_BLOCKS((last_layer<T, V>), partial.parts, LAUNCH_THREADS, stream,
					loss, last, order, state, partial))
	})
}
