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
#include "cuda-kernels.h"
#include "gpu/launch.cuh"
#include "gpu/number.cuh"
#include "gpu/pack.cuh"
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

/* Its number among the results of all images. */
static __device__ inline size_t result_of(const struct groups *groups, const struct group *group)
{
	return ((size_t)group->image * groups->rows + group->row) * groups->columns + group->column;
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
	       out % PLANES == 0 && size == SIZE;
}

/* A block's weights, output by output for each place of the window. */
struct taps {
	alignas(16) float weights[TAPS][MOST_OUT];
	alignas(16) float bias[MOST_OUT];
};

static __device__ inline void taps_load(struct taps *taps, unsigned out, const float *weights,
					const float *bias)
{
	for (unsigned i = threadIdx.x; i < TAPS * out; i += LAUNCH_THREADS)
		taps->weights[i / out][i % out] = weights[i % out * TAPS + i / out];
	if (threadIdx.x < out)
		taps->bias[threadIdx.x] = bias[threadIdx.x];
	__syncthreads();
}

/* N outputs that lie side by side, by as many loads or stores of 16 bytes as they take. */
template <typename T, int N>
static __device__ inline void outputs_load(const T *from, float (&to)[N])
{
	constexpr int V = N < PACK<T> ? N : PACK<T>;

	UNROLL
	for (int i = 0; i < N; i += V) {
		pack<T, V> part = pack_load<V>(from + i);

		UNROLL
		for (int k = 0; k < V; k++)
			to[i + k] = part[k];
	}
}

template <typename T, int N>
static __device__ inline void outputs_store(T *to, const float (&from)[N])
{
	constexpr int V = PACK<T>;

	UNROLL
	for (int i = 0; i < N; i += V)
		pack_store(to + i, pack_of<T, V>([&](int k) { return from[i + k]; }));
}

static __device__ inline void taps_row(const struct taps *taps, int row, int plane,
				       const float (&pixels)[PIXELS + SIZE - 1],
				       float (&sums)[PIXELS][PLANES])
{
	UNROLL
	for (int column = 0; column < SIZE; column++) {
		float weights[PLANES];

		outputs_load(&taps->weights[row * SIZE + column][plane], weights);
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
	first_forward(struct kernel_first first, struct groups groups, uint32_t count, const T *x,
		      const float *weights, const float *bias, bool relu, T *y)
{
	GRID_WAIT();
	SHARED struct taps taps;
	const uint32_t packs = (uint32_t)first.out / PLANES;
	uint32_t index = (uint32_t)thread_index();
	struct group group = group_of(&groups, index / packs, PIXELS);
	int plane = (int)(index % packs) * PLANES;
	float sums[PIXELS][PLANES], start[PLANES];

	taps_load(&taps, (unsigned)first.out, weights, bias);
	if (index >= count)
		return;
	outputs_load(taps.bias + plane, start);
	for (int i = 0; i < PIXELS * PLANES; i++)
		sums[i / PLANES][i % PLANES] = start[i % PLANES];
	UNROLL
	for (int row = 0; row < SIZE; row++) {
		float pixels[PIXELS + SIZE - 1];

		pixels_load(&first, &group, (size_t)row, x, pixels);
		taps_row(&taps, row, plane, pixels, sums);
	}
	y += result_of(&groups, &group) * (size_t)first.out + (size_t)plane;
	UNROLL
	for (int p = 0; p < PIXELS; p++, y += first.out) {
		UNROLL
		for (int o = 0; o < PLANES; o++)
			sums[p][o] = relu ? rectified(sums[p][o]) : sums[p][o];
		if (group.column + (unsigned)p < groups.columns)
			outputs_store(y, sums[p]);
	}
}

void kernel_first(void *stream, const struct kernel_first *first, size_t batch, const void *x,
		  const float *weights, const float *bias, bool relu, void *y, enum ddp_type type)
{
	struct groups groups = groups_of(first, PIXELS);
	size_t packs = (size_t)(first->out / PLANES);
	uint32_t count = (uint32_t)(batch * groups.rows * groups.across * packs);

	WITH_TYPE(type, T,
		  LAUNCH_BLOCKS((first_forward<T>), launch_blocks(count), LAUNCH_THREADS, stream,
				*first, groups, count, (const T *)x, weights, bias, relu, (T *)y))
}

/* --- Backwards --------------------------------------------------------------------------------- */

enum { BACK_PLANES = 4, BACK_PIXELS = 7, BACK_PARTS = 264 /* 2 on each of 132 processors */ };

/* A block's threads: [across] side by side have other outputs, [lanes] of such rows other groups of pixels. */
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
static size_t back_columns(const struct kernel_first *first)
{
	return (size_t)(first->out * (TAPS + 1));
}

size_t kernel_first_bytes(const struct kernel_first *first, size_t batch)
{
	return partial_bytes(back_of(first, batch).parts, back_columns(first));
}

/*
 * A thread sums the gradients of the weights of 4 outputs, tap by tap, and of these outputs' biases. dy counts where
 * y > 0, unless that is NULL.
 */
template <typename T>
static __global__ void __launch_bounds__(LAUNCH_THREADS, 2)
	first_back(struct back back, const T *x, const T *dy, const T *y, struct partial partial,
		   float *weights, float *bias)
{
	GRID_WAIT();
	const int out = back.first.out, plane = (int)(threadIdx.x % back.across) * BACK_PLANES;
	const uint32_t lane = threadIdx.x / back.across, step = gridDim.x * back.lanes;
	float sums[(TAPS + 1) * BACK_PLANES] = {};

	for (uint32_t i = blockIdx.x * back.lanes + lane; i < back.count && plane < out;
	     i += step) {
		struct group group = group_of(&back.groups, i, BACK_PIXELS);
		size_t at = result_of(&back.groups, &group) * (size_t)out + (size_t)plane;
		float dz[BACK_PIXELS][BACK_PLANES] = {};

		UNROLL
		for (int p = 0; p < BACK_PIXELS; p++, at += (size_t)out) {
			float values[BACK_PLANES] = {1, 1, 1, 1};

			if (group.column + (unsigned)p >= back.groups.columns)
				continue;
			outputs_load(dy + at, dz[p]);
			if (y)
				outputs_load(y + at, values);
			UNROLL
			for (int o = 0; o < BACK_PLANES; o++) {
				dz[p][o] = values[o] > 0 ? dz[p][o] : 0;
				sums[TAPS * BACK_PLANES + o] += dz[p][o];
			}
		}
		UNROLL
		for (int row = 0; row < SIZE; row++) {
			float pixels[BACK_PIXELS + SIZE - 1];

			pixels_load(&back.first, &group, (size_t)row, x, pixels);
			UNROLL
			for (int k = 0; k < BACK_PIXELS * SIZE * BACK_PLANES; k++) {
				int p = k / BACK_PLANES / SIZE, column = k / BACK_PLANES % SIZE;
				int o = k % BACK_PLANES;

				sums[(row * SIZE + column) * BACK_PLANES + o] +=
					pixels[p + column] * dz[p][o];
			}
		}
	}
	partial_block(sums, back.across, [&](unsigned k, unsigned thread, float sum) {
		int o = (int)(thread * BACK_PLANES + k % BACK_PLANES), tap = (int)(k / BACK_PLANES);

		if (o < out)
			partial.rows[blockIdx.x * partial.columns +
				     (unsigned)(tap == TAPS ? out * TAPS + o : o * TAPS + tap)] =
				sum;
	});
	partial_sums(&partial, blockIdx.x, weights, (size_t)(out * TAPS), bias);
}

void kernel_first_back(void *stream, const struct kernel_first *first, size_t batch, const void *x,
		       const void *dy, const void *y, const struct kernel_scratch *scratch,
		       float *weights, float *bias, enum ddp_type type)
{
	struct back back = back_of(first, batch);
	struct partial partial = partial_of(scratch, back.parts, back_columns(first), 1);

	WITH_TYPE(type, T,
		  LAUNCH_BLOCKS((first_back<T>), back.parts, LAUNCH_THREADS, stream, back,
				(const T *)x, (const T *)dy, (const T *)y, partial, weights, bias))
}
