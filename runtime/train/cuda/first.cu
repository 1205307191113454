/* SPDX-License-Identifier: Apache-2.0 */
/*
 * first.cu - the first convolution, of one channel
 *
 * A thread makes 8 outputs of 4 pixels side by side: of each weight it uses 4 times what it
 * reads from shared memory, of each pixel 8 times. With 32 outputs and windows of 3 x 3 a result of 16 bits
 * costs 9 multiplications, so a card of 4.8 TB/s and 60 TFLOP/s is bound by either about equally:
 * 22 MB and 100 million multiplications for 512 images of 28 x 28. Batches of 64 are bound by the
 * launch and by the latency of the weights.
 */
#include "first.cuh"

enum { MOST_OUT = 64 };
enum { PLANES = 8, PIXELS = 4 };

bool kernel_first_fits(int channels, int out, int size, int stride, int pad)
{
	return channels == 1 && stride == 1 && pad == 0 && out > 0 && out <= MOST_OUT && size > 0 &&
	       size <= MOST_SIZE;
}

/* A block's weights, output by output for each place of the window; up to the next multiple of PLANES 0. */
template <int SIZE> struct taps {
	alignas(16) float weights[SIZE * SIZE][MOST_OUT];
	alignas(16) float bias[MOST_OUT];
};

template <int SIZE>
static __device__ inline void taps_load(struct taps<SIZE> *taps, const struct kernel_first *first,
					const float *weights, const float *bias)
{
	unsigned out = (unsigned)first->out, planes = (out + PLANES - 1) / PLANES * PLANES;
	unsigned window = (unsigned)(first->size * first->size);

	for (unsigned i = threadIdx.x; i < window * planes; i += LAUNCH_THREADS) {
		unsigned k = i / planes, o = i % planes;

		taps->weights[k][o] = o < out ? weights[o * window + k] : 0;
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

template <int SIZE>
static __device__ inline void taps_row(const struct taps<SIZE> *taps, int row, int size, int plane,
				       const float (&pixels)[PIXELS + SIZE - 1],
				       float (&sums)[PIXELS][PLANES])
{
	UNROLL
	for (int column = 0; column < SIZE; column++) {
		float weights[PLANES];

		if (column >= size)
			break;
		planes_load(&taps->weights[row * size + column][plane], weights);
		UNROLL
		for (int p = 0; p < PIXELS; p++) {
			UNROLL
			for (int o = 0; o < PLANES; o++)
				sums[p][o] += pixels[p + column] * weights[o];
		}
	}
}

/* SIZE: that of the window, or MOST_SIZE for any. */
template <typename T, int SIZE>
static __global__ void __launch_bounds__(LAUNCH_THREADS)
	first_forward(struct kernel_first first, struct groups groups, size_t count, bool whole,
		      const T *x, const float *weights, const float *bias, bool relu, T *y)
{
	SHARED struct taps<SIZE> taps;
	const int size = SIZE == SMALL ? SMALL : first.size;
	const size_t packs = (size_t)((first.out + PLANES - 1) / PLANES);
	struct group group = group_of(&groups, thread_index() / packs, PIXELS);
	int plane = (int)(thread_index() % packs) * PLANES;
	float sums[PIXELS][PLANES], start[PLANES];

	taps_load(&taps, &first, weights, bias);
	if (thread_index() >= count)
		return;
	planes_load(taps.bias + plane, start);
	for (int i = 0; i < PIXELS * PLANES; i++)
		sums[i / PLANES][i % PLANES] = start[i % PLANES];
	UNROLL
	for (int row = 0; row < SIZE; row++) {
		float pixels[PIXELS + SIZE - 1];

		if (row >= size)
			break;
		pixels_load(&first, &group, (size_t)row, x, pixels);
		taps_row<SIZE>(&taps, row, size, plane, pixels, sums);
	}
	y += ((group.image * groups.rows + group.row) * groups.columns + group.column) *
		     (size_t)first.out +
	     (size_t)plane;
	UNROLL
	for (int p = 0; p < PIXELS; p++, y += first.out) {
		UNROLL
		for (int o = 0; o < PLANES; o++)
			sums[p][o] = relu ? rectified(sums[p][o]) : sums[p][o];
		if (group.column + (size_t)p < groups.columns)
			planes_store(y, sums[p], first.out - plane, whole);
	}
}

void kernel_first(void *stream, const struct kernel_first *first, size_t batch, const void *x,
		  const float *weights, const float *bias, bool relu, void *y, enum ddp_type type)
{
	struct groups groups = groups_of(first, PIXELS);
	size_t packs = (size_t)((first->out + PLANES - 1) / PLANES);
	size_t count = batch * groups.rows * groups.across * packs;
	bool whole = first->out % PLANES == 0 && packs_fit(PLANES, 2, {y});

	WITH_TYPE(type, T, {
		if (first->size == SMALL)
			LAUNCH_BLOCKS((first_forward<T, SMALL>), launch_blocks(count),
				      LAUNCH_THREADS, stream, *first, groups, count, whole,
				      (const T *)x, weights, bias, relu, (T *)y);
		else
			LAUNCH_BLOCKS((first_forward<T, MOST_SIZE>), launch_blocks(count),
				      LAUNCH_THREADS, stream, *first, groups, count, whole,
				      (const T *)x, weights, bias, relu, (T *)y);
	})
}
