/* SPDX-License-Identifier: Apache-2.0 */
/*
 * first.cu - the first convolution: one input channel, 3 x 3 windows
 *
 * Forward and backward pass together are two kernel launches here and four with cuDNN, which uses
 * tensor cores only after a copy to 8 channels (tests/results/roofline-2026-11-28.log).
 *
 * Forward pass: a thread computes 8 outputs of 4 adjacent pixels. The thread uses each weight that
 * it reads from shared memory 4 times, and each pixel 8 times. A 16-bit result costs 9
 * multiplications. 512 images of 28 x 28 are 22 MB of results and 100 million multiplications. So a
 * GPU with 4.8 TB/s and 60 TFLOP/s is bound about equally by memory and arithmetic. Batches of 64
 * are bound by the launch and the latency of loading the weights.
 *
 * Backward pass: a thread sums the gradients of all weights of 4 outputs, over 7 adjacent pixels at
 * a time. A row of 26 pixels is four such groups. The kernel is bound by arithmetic, because each
 * value is used at least 9 times.
 */
#include "cuda-kernels.h"
#include "gpu/launch.cuh"
#include "gpu/number.cuh"
#include "gpu/pack.cuh"
#include "partial.cuh"

/* --- Pixels ------------------------------------------------------------------------------------ */

enum { OUT = KERNEL_FIRST_OUT, SIZE = KERNEL_FIRST_SIZE, TAPS = SIZE * SIZE };

/* Division of an image's results into groups of adjacent pixels. */
struct groups {
	uint32_t rows, columns, across;
};

static inline struct groups groups_of(const struct kernel_first *first, int pixels)
{
	uint32_t rows = (uint32_t)(first->height - SIZE + 1);
	uint32_t columns = (uint32_t)(first->width - SIZE + 1);

	return {rows, columns, (columns + (uint32_t)pixels - 1) / (uint32_t)pixels};
}

/* Position of a group's first pixel. */
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

/* Returns the index of a group's first pixel in the results of all images. */
static __device__ inline size_t result_of(const struct groups *groups, const struct group *group)
{
	return ((size_t)group->image * groups->rows + group->row) * groups->columns + group->column;
}

/*
 * Loads N adjacent pixels of an image. Pixels beyond the edge of the image are set to 0, and no
 * result uses them.
 */
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

/* --- Forward pass ------------------------------------------------------------------------------ */

enum { PLANES = 8, PIXELS = 4, PACKS = OUT / PLANES };

/*
 * The weights in a block's shared memory. Weights of all outputs for the same position of the
 * window are adjacent.
 */
struct taps {
	alignas(16) float weights[TAPS][OUT];
	alignas(16) float bias[OUT];
};

static __device__ inline void taps_load(struct taps *taps, const float *weights, const float *bias)
{
	for (unsigned i = threadIdx.x; i < TAPS * OUT; i += LAUNCH_THREADS)
		taps->weights[i / OUT][i % OUT] = weights[i % OUT * TAPS + i / OUT];
	if (threadIdx.x < OUT)
		taps->bias[threadIdx.x] = bias[threadIdx.x];
	__syncthreads();
}

/* Load or store N adjacent outputs, in as few accesses of 16 bytes as possible. */
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
	SHARED struct taps taps;
	uint32_t index = (uint32_t)thread_index();
	struct group group = group_of(&groups, index / PACKS, PIXELS);
	int plane = (int)(index % PACKS) * PLANES;
	float sums[PIXELS][PLANES], start[PLANES];

	taps_load(&taps, weights, bias);
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
	y += result_of(&groups, &group) * OUT + (size_t)plane;
	UNROLL
	for (int p = 0; p < PIXELS; p++, y += OUT) {
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
	uint32_t count = (uint32_t)(batch * groups.rows * groups.across * PACKS);

	WITH_TYPE(type, T,
		  LAUNCH_BLOCKS((first_forward<T>), launch_blocks(count), LAUNCH_THREADS, stream,
				*first, groups, count, (const T *)x, weights, bias, relu, (T *)y))
}

/* --- Backward pass ----------------------------------------------------------------------------- */

/*
 * A block of threads has LANES rows of ACROSS adjacent threads. The threads of a row compute
 * different outputs for the same pixels. The rows compute different groups of pixels.
 */
enum { BACK_PLANES = 4, BACK_PIXELS = 7, BACK_PARTS = 264 /* 2 for each of 132 multiprocessors */ };
enum { ACROSS = OUT / BACK_PLANES, LANES = LAUNCH_THREADS / ACROSS };

/* Number of sums of a part: first those for the weights, then those for the biases. */
enum { BACK_COLUMNS = OUT * (TAPS + 1) };

struct back {
	struct kernel_first first;
	struct groups groups;
	uint32_t count; /* groups in all images */
	unsigned parts;
};

static struct back back_of(const struct kernel_first *first, size_t batch)
{
	struct back back = {*first, groups_of(first, BACK_PIXELS), 0, 1};
	uint32_t blocks, each;

	back.count = (uint32_t)(batch * back.groups.rows * back.groups.across);
	blocks = (back.count + LANES - 1) / LANES;
	each = (blocks + BACK_PARTS - 1) / BACK_PARTS;
	if (blocks > 0)
		back.parts = (blocks + each - 1) / each;
	return back;
}

size_t kernel_first_bytes(const struct kernel_first *first, size_t batch)
{
	return partial_bytes(back_of(first, batch).parts, BACK_COLUMNS);
}

/*
 * Each thread sums the gradients of the weights and biases of 4 outputs. dy is masked by y > 0,
 * unless y is NULL.
 */
template <typename T>
static __global__ void __launch_bounds__(LAUNCH_THREADS, 2)
	first_back(struct back back, const T *x, const T *dy, const T *y, struct partial partial,
		   float *weights, float *bias)
{
	const uint32_t plane = threadIdx.x % ACROSS * BACK_PLANES, lane = threadIdx.x / ACROSS;
	float sums[(TAPS + 1) * BACK_PLANES] = {};

	for (uint32_t i = blockIdx.x * LANES + lane; i < back.count; i += gridDim.x * LANES) {
		struct group group = group_of(&back.groups, i, BACK_PIXELS);
		size_t at = result_of(&back.groups, &group) * OUT + plane;
		float dz[BACK_PIXELS][BACK_PLANES] = {};

		UNROLL
		for (int p = 0; p < BACK_PIXELS; p++, at += OUT) {
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
	partial_block(sums, ACROSS, [&](unsigned k, unsigned thread, float sum) {
		unsigned o = thread * BACK_PLANES + k % BACK_PLANES, tap = k / BACK_PLANES;

		partial.rows[blockIdx.x * BACK_COLUMNS +
			     (tap == TAPS ? OUT * TAPS + o : o * TAPS + tap)] = sum;
	});
	partial_sums(&partial, blockIdx.x, weights, OUT * TAPS, bias);
}

void kernel_first_back(void *stream, const struct kernel_first *first, size_t batch, const void *x,
		       const void *dy, const void *y, const struct kernel_scratch *scratch,
		       float *weights, float *bias, enum ddp_type type)
{
	struct back back = back_of(first, batch);
	struct partial partial = partial_of(scratch, back.parts, BACK_COLUMNS, 1);

	WITH_TYPE(type, T,
		  LAUNCH_BLOCKS((first_back<T>), back.parts, LAUNCH_THREADS, stream, back,
				(const T *)x, (const T *)dy, (const T *)y, partial, weights, bias))
}
