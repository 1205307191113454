/* SPDX-License-Identifier: Apache-2.0 */
/*
 * first.cu - the first convolution, of one channel and windows of 3 x 3
 *
 * Two launches, where cuDNN has tensor cores only behind a copy to 8 channels, and four launches (doc/roofline.md).
 *
 * Forwards a thread makes 8 outputs of 4 pixels side by side: of each weight it uses 4 times what it
 * reads from shared memory, of each pixel 8 times. With 32 outputs and windows of 3 x 3 a result of 16 bits
 * costs 9 multiplications, so a card of 4.8 TB/s and 60 TFLOP/s is bound by either about equally:
 * 22 MB and 100 million multiplications for 512 images of 28 x 28. Batches of 64 are bound by the
 * launch and by the latency of the weights.
 *
 * For the gradients of weights and bias a thread has all weights of 4 outputs, and 7 pixels side by side (26 are
 * four groups) at a time. That is bound by arithmetic, as each value read is used 9 times or more.
 */
#include "gpu/launch.cuh"
#include "gpu/number.cuh"
#include "gpu/pack.cuh"
#include "kernels.h"
#include "partial.cuh"

/* --- Pixels ------------------------------------------------------------------------------------ */

enum { SIZE = 3, TAPS = SIZE * SIZE };

/* Groups of pixels side by side, in the results of an image. */
struct groups {
	uint32_t rows, columns, across;
};

static inline struct groups groups_of(const struct kernel_first *first, int pixels)
{
	uint32_t rows = (uint32_t)(first->height - SIZE + 1);
	uint32_t columns = (uint32_t)(first->width - SIZE + 1);

	return {rows, columns, (columns + (uint32_t)pixels - 1) / (uint32_t)pixels};
}

/* The first pixel of group [index], in the image and among the results. */
struct group {
	uint32_t image, row, column;
};

static __device__ inline struct group group_of(const struct groups *groups, uint32_t index,
					       uint32_t pixels)
{
	struct group group;

	group.column = index % groups->across * pixels;
	index /= groups->across;
	group.row = index % groups->rows;
	group.image = index / groups->rows;
	return group;
}

/* N pixels of the image, side by side; what lies beyond its edge is 0, and belongs to no result. */
template <typename T, int N>
static __device__ inline void pixels_load(const struct kernel_first *first,
					  const struct group *group, size_t row, const T *x,
					  float (&pixels)[N])
{
	size_t width = (size_t)first->width;

	x += ((size_t)group->image * (size_t)first->height + group->row + row) * width +
	     group->column;
	UNROLL
	for (int i = 0; i < N; i++)
		pixels[i] = group->column + (unsigned)i < width ? load(x + i) : 0;
}

/* --- Forwards ---------------------------------------------------------------------------------- */

enum { MOST_OUT = 64 };
enum { PLANES = 8, PIXELS = 4 };

bool kernel_first_fits(int channels, int out, int size, int stride, int pad)
{
	return channels == 1 && stride == 1 && pad == 0 && out > 0 && out <= MOST_OUT &&
	       size == SIZE;
}

/* A block's weights, output by output for each place of the window; up to the next multiple of PLANES 0. */
struct taps {
	alignas(16) float weights[TAPS][MOST_OUT];
	alignas(16) float bias[MOST_OUT];
};

static __device__ inline void taps_load(struct taps *taps, const struct kernel_first *first,
					const float *weights, const float *bias)
{
	unsigned out = (unsigned)first->out, planes = (out + PLANES - 1) / PLANES * PLANES;

	for (unsigned i = threadIdx.x; i < TAPS * planes; i += LAUNCH_THREADS) {
		unsigned k = i / planes, o = i % planes;

		taps->weights[k][o] = o < out ? weights[o * TAPS + k] : 0;
	}
	if (threadIdx.x < planes)
		taps->bias[threadIdx.x] = threadIdx.x < out ? bias[threadIdx.x] : 0;
	__syncthreads();
}

static __device__ inline void planes_load(const float *from, float (&to)[PLANES])
{
	UNROLL
	for (int i = 0; i < PLANES; i += 4) {
		pack<float, 4> part = pack_load<4>(from + i);

		UNROLL
		for (int k = 0; k < 4; k++)
			to[i + k] = part.numbers[k];
	}
}

/* [planes] of them there are; [whole]: all, at a multiple of 16 bytes. */
template <typename T>
static __device__ inline void planes_store(T *y, const float (&values)[PLANES], int planes,
					   bool whole)
{
	constexpr int V = PACK<T>;

	if (whole) {
		UNROLL
		for (int i = 0; i < PLANES; i += V) {
			pack<T, V> part;

			UNROLL
			for (int k = 0; k < V; k++)
				store(part.numbers + k, values[i + k]);
			pack_store(y + i, part);
		}
		return;
	}
	UNROLL
	for (int i = 0; i < PLANES; i++)
		if (i < planes)
			store(y + i, values[i]);
}

static __device__ inline void taps_row(const struct taps *taps, int row, int plane,
				       const float (&pixels)[PIXELS + SIZE - 1],
				       float (&sums)[PIXELS][PLANES])
{
	UNROLL
	for (int column = 0; column < SIZE; column++) {
		float weights[PLANES];

		planes_load(&taps->weights[row * SIZE + column][plane], weights);
		UNROLL
		for (int p = 0; p < PIXELS; p++) {
			UNROLL
			for (int o = 0; o < PLANES; o++)
				sums[p][o] += pixels[p + column] * weights[o];
		}
	}
}

template <typename T>
static __global__ void __launch_bounds__(LAUNCH_THREADS)
	first_forward(struct kernel_first first, struct groups groups, uint32_t count, bool whole,
		      const T *x, const float *weights, const float *bias, bool relu, T *y)
{
	GRID_WAIT();
	SHARED struct taps taps;
	const uint32_t packs = (uint32_t)(first.out + PLANES - 1) / PLANES;
	uint32_t index = (uint32_t)thread_index();
	struct group group = group_of(&groups, index / packs, PIXELS);
	int plane = (int)(index % packs) * PLANES;
	float sums[PIXELS][PLANES], start[PLANES];

	taps_load(&taps, &first, weights, bias);
	if (index >= count)
		return;
	planes_load(taps.bias + plane, start);
	for (int i = 0; i < PIXELS * PLANES; i++)
		sums[i / PLANES][i % PLANES] = start[i % PLANES];
	UNROLL
	for (int row = 0; row < SIZE; row++) {
		float pixels[PIXELS + SIZE - 1];

		pixels_load(&first, &group, (size_t)row, x, pixels);
		taps_row(&taps, row, plane, pixels, sums);
	}
	y += (((size_t)group.image * groups.rows + group.row) * groups.columns + group.column) *
		     (size_t)first.out +
	     (size_t)plane;
	UNROLL
	for (int p = 0; p < PIXELS; p++, y += first.out) {
		UNROLL
		for (int o = 0; o < PLANES; o++)
			sums[p][o] = relu ? rectified(sums[p][o]) : sums[p][o];
		if (group.column + (unsigned)p < groups.columns)
			planes_store(y, sums[p], first.out - plane, whole);
	}
}

void kernel_first(void *stream, const struct kernel_first *first, size_t batch, const void *x,
		  const float *weights, const float *bias, bool relu, void *y, enum ddp_type type)
{
	struct groups groups = groups_of(first, PIXELS);
	size_t packs = (size_t)((first->out + PLANES - 1) / PLANES);
	uint32_t count = (uint32_t)(batch * groups.rows * groups.across * packs);
	bool whole = first->out % PLANES == 0 && packs_fit(PLANES, 2, {y});

	WITH_TYPE(type, T,
		  LAUNCH_BLOCKS((first_forward<T>), launch_blocks(count), LAUNCH_THREADS, stream,
				*first, groups, count, whole, (const T *)x, weights, bias, relu,
				(T *)y))
}

/* --- Backwards --------------------------------------------------------------------------------- */

enum { BACK_PLANES = 4, BACK_PIXELS = 7, BACK_PARTS = 264 /* 2 on each of 132 processors */ };

/* A block's threads: [across] side by side have other outputs, and [lanes] of such rows other groups. */
struct back {
	struct kernel_first first;
	struct groups groups;
	uint32_t count; /* groups of all images */
	unsigned across, lanes, parts;
};

static struct back back_of(const struct kernel_first *first, size_t batch)
{
	struct back back = {*first, groups_of(first, BACK_PIXELS), 0, 1, LAUNCH_THREADS, 1};
	uint32_t blocks, each;

	while (back.across * BACK_PLANES < (unsigned)first->out) {
		back.across *= 2;
		back.lanes /= 2;
	}
	back.count = (uint32_t)(batch * back.groups.rows * back.groups.across);
	blocks = (back.count + back.lanes - 1) / back.lanes;
	each = (blocks + BACK_PARTS - 1) / BACK_PARTS;
	if (blocks > 0)
		back.parts = (blocks + each - 1) / each;
	return back;
}

/* Of each part: the weights' gradients, then the bias's. */
static __host__ __device__ inline size_t back_columns(const struct kernel_first *first)
{
	return (size_t)(first->out * (TAPS + 1));
}

size_t kernel_first_bytes(const struct kernel_first *first, size_t batch)
{
	return partial_bytes(back_of(first, batch).parts, back_columns(first));
}

/* Of each output of a thread. */
struct gradients {
	float weights[TAPS][BACK_PLANES], bias[BACK_PLANES];
};

template <typename T> struct slope_source {
	const T *x, *dy, *y;
};

/* Numbers [plane] to [plane] + 3 of a pixel, as far as there are such; WHOLE: all, side by side. */
template <bool WHOLE, typename T>
static __device__ inline void outputs_load(const T *from, int plane, int out,
					   float (&values)[BACK_PLANES])
{
	if constexpr (WHOLE) {
		pack<T, BACK_PLANES> numbers = pack_load<BACK_PLANES>(from);

		UNROLL
		for (int o = 0; o < BACK_PLANES; o++)
			values[o] = load(numbers.numbers + o);
	} else {
		UNROLL
		for (int o = 0; o < BACK_PLANES; o++)
			values[o] = plane + o < out ? load(from + o) : 0;
	}
}

/* dy where y > 0, of a group's pixels. */
template <bool WHOLE, typename T>
static __device__ inline void outputs_of_group(const struct back *back, const struct group *group,
					       int plane, const struct slope_source<T> *source,
					       float (&dz)[BACK_PIXELS][BACK_PLANES])
{
	size_t out = (size_t)back->first.out;
	size_t at =
		(((size_t)group->image * back->groups.rows + group->row) * back->groups.columns +
		 group->column) *
			out +
		(size_t)plane;

	UNROLL
	for (int p = 0; p < BACK_PIXELS; p++, at += out) {
		float y[BACK_PLANES] = {1, 1, 1, 1};

		UNROLL
		for (int o = 0; o < BACK_PLANES; o++)
			dz[p][o] = 0;
		if (group->column + (unsigned)p >= back->groups.columns)
			continue;
		outputs_load<WHOLE>(source->dy + at, plane, (int)out, dz[p]);
		if (source->y)
			outputs_load<WHOLE>(source->y + at, plane, (int)out, y);
		UNROLL
		for (int o = 0; o < BACK_PLANES; o++)
			dz[p][o] = y[o] > 0 ? dz[p][o] : 0;
	}
}

template <typename T, bool WHOLE>
static __device__ inline void gradients_add(struct gradients *gradients, const struct back *back,
					    const struct group *group, int plane,
					    const struct slope_source<T> *source)
{
	float dz[BACK_PIXELS][BACK_PLANES];

	outputs_of_group<WHOLE>(back, group, plane, source, dz);
	UNROLL
	for (int p = 0; p < BACK_PIXELS; p++) {
		UNROLL
		for (int o = 0; o < BACK_PLANES; o++)
			gradients->bias[o] += dz[p][o];
	}
	UNROLL
	for (int row = 0; row < SIZE; row++) {
		float pixels[BACK_PIXELS + SIZE - 1];

		pixels_load(&back->first, group, (size_t)row, source->x, pixels);
		UNROLL
		for (int i = 0; i < BACK_PIXELS * SIZE; i++) {
			int p = i / SIZE, k = i % SIZE;

			UNROLL
			for (int o = 0; o < BACK_PLANES; o++)
				gradients->weights[row * SIZE + k][o] += pixels[p + k] * dz[p][o];
		}
	}
}

/* The sum over a block's lanes of value [k] of a thread: of a weight, then of the bias. */
static __device__ inline void slopes_leave(const struct back *back,
					   const float (*all)[LAUNCH_THREADS + 8], unsigned k,
					   unsigned lane0, float *to)
{
	int plane = (int)(lane0 * BACK_PLANES + k % BACK_PLANES), tap = (int)(k / BACK_PLANES);
	float sum = 0;

	if (plane >= back->first.out)
		return;
	for (unsigned lane = 0; lane < back->lanes; lane++)
		sum += all[k][lane * back->across + lane0];
	to[tap == TAPS ? back->first.out * TAPS + plane : plane * TAPS + tap] = sum;
}

template <typename T, bool WHOLE>
static __global__ void __launch_bounds__(LAUNCH_THREADS, 2)
	first_back(struct back back, struct slope_source<T> source, struct partial partial,
		   float *weights, float *bias)
{
	GRID_WAIT();
	constexpr unsigned VALUES = (TAPS + 1) * BACK_PLANES;
	SHARED float all[VALUES][LAUNCH_THREADS + 8];
	unsigned lane = threadIdx.x / back.across;
	int plane = (int)(threadIdx.x % back.across) * BACK_PLANES;
	size_t split = (size_t)(back.first.out * TAPS);
	struct partial_term term = {partial.rows, partial.columns};
	float *to = partial.rows + blockIdx.x * partial.columns;
	struct gradients gradients = {};

	for (uint32_t i = blockIdx.x * back.lanes + lane; i < back.count && plane < back.first.out;
	     i += gridDim.x * back.lanes) {
		struct group group = group_of(&back.groups, i, BACK_PIXELS);

		gradients_add<T, WHOLE>(&gradients, &back, &group, plane, &source);
	}
	UNROLL
	for (int o = 0; o < BACK_PLANES; o++) {
		UNROLL
		for (int k = 0; k < TAPS; k++)
			all[k * BACK_PLANES + o][threadIdx.x] = gradients.weights[k][o];
		all[VALUES - BACK_PLANES + o][threadIdx.x] = gradients.bias[o];
	}
	__syncthreads();
	for (unsigned i = threadIdx.x; i < VALUES * back.across; i += LAUNCH_THREADS)
		slopes_leave(&back, all, i / back.across, i % back.across, to);
	if (!partial_last(&partial, blockIdx.x, term))
		return;
	for (size_t c = threadIdx.x; c < partial.columns; c += LAUNCH_THREADS)
		*(c < split ? weights + c : bias + (c - split)) =
			(float)partial_total(&partial, c, term);
}

void kernel_first_back(void *stream, const struct kernel_first *first, size_t batch, const void *x,
		       const void *dy, const void *y, const struct kernel_scratch *scratch,
		       float *weights, float *bias, enum ddp_type type)
{
	struct back back = back_of(first, batch);
	bool whole = first->out % BACK_PLANES == 0 && packs_fit(8, 2, {dy, y});
	struct partial partial = partial_of(scratch, back.parts, back_columns(first), 1);

	WITH_TYPE(type, T, {
		struct slope_source<T> source = {
			(const T *)x, (const T *)dy, (const T *)y
		};

		if (whole)
			LAUNCH_BLOCKS((first_back<T, true>), back.parts, LAUNCH_THREADS, stream,
				      back, source, partial, weights, bias);
		else
			LAUNCH_BLOCKS((first_back<T, false>), back.parts, LAUNCH_THREADS, stream,
				      back, source, partial, weights, bias);
	})
}
