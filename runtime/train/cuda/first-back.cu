/* SPDX-License-Identifier: Apache-2.0 */
/*
 * first-back.cu - gradients of the first convolution's weights and bias
 *
 * A thread has 4 outputs, all weights of a small window or a row of those of a large one, and
 * 7 pixels side by side (26 are four groups) at a time; blocks leave sums behind that rows_sum() adds up.
 * It is bound by arithmetic, as each value read is used 9 times or more.
 */
#include "first.cuh"
#include "rows.cuh"

enum { BACK_PLANES = 4, BACK_PIXELS = 7, BACK_PARTS = 264 /* 2 on each of 132 processors */ };

/* A block's threads: [across] side by side have other outputs, and [lanes] of such rows other groups. */
struct back {
	struct kernel_first first;
	struct groups groups;
	size_t count; /* groups of all images */
	unsigned across, lanes, parts;
};

static struct back back_of(const struct kernel_first *first, size_t batch)
{
	struct back back = {*first, groups_of(first, BACK_PIXELS), 0, 1, LAUNCH_THREADS, 1};
	size_t blocks, each;

	while (back.across * BACK_PLANES < (unsigned)first->out) {
		back.across *= 2;
		back.lanes /= 2;
	}
	back.count = batch * back.groups.rows * back.groups.across;
	blocks = (back.count + back.lanes - 1) / back.lanes;
	each = (blocks + BACK_PARTS - 1) / BACK_PARTS;
	if (blocks > 0)
		back.parts = (unsigned)((blocks + each - 1) / each);
	return back;
}

/* Of each part: the weights' gradients, then the bias's. */
static __host__ __device__ inline size_t back_columns(const struct kernel_first *first)
{
	return (size_t)(first->out * (first->size * first->size + 1));
}

size_t kernel_first_bytes(const struct kernel_first *first, size_t batch)
{
	return back_of(first, batch).parts * back_columns(first) * sizeof(float);
}

/* ROWS x COLUMNS weights from row [row] on, of each output of a thread. */
template <int ROWS, int COLUMNS> struct slopes {
	float weights[ROWS][COLUMNS][BACK_PLANES], bias[BACK_PLANES];
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
	size_t at = ((group->image * back->groups.rows + group->row) * back->groups.columns +
		     group->column) *
			    out +
		    (size_t)plane;

	UNROLL
	for (int p = 0; p < BACK_PIXELS; p++, at += out) {
		float y[BACK_PLANES] = {1, 1, 1, 1};

		UNROLL
		for (int o = 0; o < BACK_PLANES; o++)
			dz[p][o] = 0;
		if (group->column + (size_t)p >= back->groups.columns)
			continue;
		outputs_load<WHOLE>(source->dy + at, plane, (int)out, dz[p]);
		if (source->y)
			outputs_load<WHOLE>(source->y + at, plane, (int)out, y);
		UNROLL
		for (int o = 0; o < BACK_PLANES; o++)
			dz[p][o] = y[o] > 0 ? dz[p][o] : 0;
	}
}

template <typename T, int ROWS, int COLUMNS, bool WHOLE>
static __device__ inline void slopes_add(struct slopes<ROWS, COLUMNS> *slopes,
					 const struct back *back, const struct group *group,
					 int row, int plane, const struct slope_source<T> *source)
{
	float dz[BACK_PIXELS][BACK_PLANES];

	outputs_of_group<WHOLE>(back, group, plane, source, dz);
	UNROLL
	for (int p = 0; p < BACK_PIXELS; p++) {
		UNROLL
		for (int o = 0; o < BACK_PLANES; o++)
			slopes->bias[o] += dz[p][o];
	}
	UNROLL
	for (int r = 0; r < ROWS; r++) {
		float pixels[BACK_PIXELS + COLUMNS - 1];

		pixels_load(&back->first, group, (size_t)(row + r), source->x, pixels);
		UNROLL
		for (int i = 0; i < BACK_PIXELS * COLUMNS; i++) {
			int p = i / COLUMNS, k = i % COLUMNS;

			UNROLL
			for (int o = 0; o < BACK_PLANES; o++)
				slopes->weights[r][k][o] += pixels[p + k] * dz[p][o];
		}
	}
}

/* The sum over a block's lanes of value [k] of a thread: of a weight, then of the bias. */
template <int ROWS, int COLUMNS>
static __device__ inline void slopes_leave(const struct back *back, int row,
					   const float (*all)[LAUNCH_THREADS + 8], unsigned k,
					   unsigned lane0, float *to)
{
	int size = back->first.size, plane = (int)(lane0 * BACK_PLANES + k % BACK_PLANES);
	int tap = (int)(k / BACK_PLANES), column = tap % COLUMNS;
	bool bias = tap == ROWS * COLUMNS;
	float sum = 0;

	row += tap / COLUMNS;
	if (plane >= back->first.out || (bias ? row != ROWS : column >= size))
		return;
	for (unsigned lane = 0; lane < back->lanes; lane++)
		sum += all[k][lane * back->across + lane0];
	to[bias ? back->first.out * size * size + plane : (plane * size + row) * size + column] =
		sum;
}

/* ROWS rows of weights at a time, COLUMNS of each, or as many as the window has. */
template <typename T, int ROWS, int COLUMNS, bool WHOLE>
static __global__ void __launch_bounds__(LAUNCH_THREADS, 2)
	first_back(struct back back, struct slope_source<T> source, float *to)
{
	constexpr unsigned VALUES = (ROWS * COLUMNS + 1) * BACK_PLANES;
	SHARED float all[VALUES][LAUNCH_THREADS + 8];
	unsigned lane = threadIdx.x / back.across;
	int plane = (int)(threadIdx.x % back.across) * BACK_PLANES;

	to += blockIdx.x * back_columns(&back.first);
	for (int row = 0; row < back.first.size; row += ROWS) {
		struct slopes<ROWS, COLUMNS> slopes = {
		};

		for (size_t i = (size_t)blockIdx.x * back.lanes + lane;
		     i < back.count && plane < back.first.out;
		     i += (size_t)gridDim.x * back.lanes) {
			struct group group = group_of(&back.groups, i, BACK_PIXELS);

			slopes_add<T, ROWS, COLUMNS, WHOLE>(&slopes, &back, &group, row, plane,
							    &source);
		}
		UNROLL
		for (int o = 0; o < BACK_PLANES; o++) {
			UNROLL
			for (int k = 0; k < ROWS * COLUMNS; k++)
				all[k * BACK_PLANES + o][threadIdx.x] =
					slopes.weights[k / COLUMNS][k % COLUMNS][o];
			all[VALUES - BACK_PLANES + o][threadIdx.x] = slopes.bias[o];
		}
		__syncthreads();
		for (unsigned i = threadIdx.x; i < VALUES * back.across; i += LAUNCH_THREADS)
			slopes_leave<ROWS, COLUMNS>(&back, row, all, i / back.across,
						    i % back.across, to);
		__syncthreads();
	}
}

template <typename T, int ROWS, int COLUMNS>
static void back_launch(void *stream, const struct back *back, const struct slope_source<T> *source,
			bool whole, float *to)
{
	if (whole)
		LAUNCH_BLOCKS((first_back<T, ROWS, COLUMNS, true>), back->parts, LAUNCH_THREADS,
			      stream, *back, *source, to);
	else
		LAUNCH_BLOCKS((first_back<T, ROWS, COLUMNS, false>), back->parts, LAUNCH_THREADS,
			      stream, *back, *source, to);
}

void kernel_first_back(void *stream, const struct kernel_first *first, size_t batch, const void *x,
		       const void *dy, const void *y, void *scratch, float *weights, float *bias,
		       enum ddp_type type)
{
	struct back back = back_of(first, batch);
	bool whole = first->out % BACK_PLANES == 0 && packs_fit(8, 2, {dy, y});
	float *to = (float *)scratch;

	WITH_TYPE(type, T, {
		struct slope_source<T> source = {
			(const T *)x, (const T *)dy, (const T *)y
		};

		if (first->size == SMALL)
			back_launch<T, SMALL, SMALL>(stream, &back, &source, whole, to);
		else
			back_launch<T, 1, MOST_SIZE>(stream, &back, &source, whole, to);
	})
	rows_sum(stream, to, back.parts, back_columns(first), weights,
		 (size_t)(first->out * first->size * first->size), bias);
}
