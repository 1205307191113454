/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm-sums.cu - what is summed over rows: moments, the two sums of BatchNorm's way back, biases
 *
 * In two passes: each block sums its part of the rows, and where there are several parts, a second
 * kernel sums these. Small arrays are one part, and one launch.
 *
 * The first passes are bound by memory: they read each byte once (a block of 512 x 32 x 32 x 64 bf16 is
 * 67 MB), have about five instructions for an element, and 16 to 48 KiB under way on each
 * processor. The second reads at most 512 partial sums for a channel, out of the second cache; it is
 * bound by latency, so each channel has 32 threads.
 */
#include "gpu/launch.cuh"
#include "gpu/number.cuh"
#include "kernels.h"
#include "rows.cuh"

/* Rows that a thread loads at once, and how many at least it sums. */
enum { AT_ONCE = 4, AT_ONCE_BACK = 2, LEAST = 8 };

/* A value of each thread for each of its channels, [STRIDE] apart so that columns are in other banks. */
enum { STRIDE = LAUNCH_THREADS + 8 };

enum { COLUMNS = 8, LANES = LAUNCH_THREADS / COLUMNS }; /* of second passes */

size_t kernel_sums_bytes(size_t rows, size_t channels)
{
	size_t parts = rows < ROWS_PARTS ? rows : (size_t)ROWS_PARTS;

	return (parts ? parts : 1) * channels * 2 * sizeof(float);
}

/* --- Moments, the first pass ------------------------------------------------------------------ */

/*
 * Of [count] values, less [base]: their mean, and the sum of squared deviations from it. The base is the
 * column's first value: where a mean is large, means of what is left round like deviations.
 */
template <typename T, int V> struct moments {
	pack<T, V> base;
	float count, mean[V], m2[V];
};

/*
 * Join N more values of each channel: their own mean comes first, then their deviations from it, so nothing
 * large is ever subtracted from something as large; then Chan's formula, with one division for all channels.
 */
template <typename T, int V, int N>
static __device__ inline void moments_join(struct moments<T, V> *all, const pack<T, V> (&values)[N])
{
	float part = (float)N / (all->count + (float)N), weight = all->count * part;

	UNROLL
	for (int v = 0; v < V; v++) {
		float base = load(all->base.numbers + v), off[N], mean = 0, m2 = 0, apart;

		UNROLL
		for (int i = 0; i < N; i++) {
			off[i] = load(values[i].numbers + v) - base;
			mean += off[i];
		}
		mean *= 1 / (float)N;
		UNROLL
		for (int i = 0; i < N; i++)
			m2 += (off[i] - mean) * (off[i] - mean);
		apart = mean - all->mean[v];
		all->mean[v] += apart * part;
		all->m2[v] += m2 + apart * apart * weight;
	}
	all->count += (float)N;
}

template <typename T, int V>
static __device__ inline void moments_of_rows(struct moments<T, V> *moments,
					      const struct rows *rows, const struct place *place,
					      const T *x)
{
	size_t row = place->first + place->lane;

	moments->base = pack_load<V>(x + place->channel);
	for (; row + (AT_ONCE - 1) * rows->down < place->end; row += AT_ONCE * rows->down) {
		pack<T, V> values[AT_ONCE];

		rows_load(x, rows, row, place->channel, values);
		moments_join(moments, values);
	}
	for (; row < place->end; row += rows->down) {
		pack<T, V> values[1];

		rows_load(x, rows, row, place->channel, values);
		moments_join(moments, values);
	}
}

/* The same of [down] threads that have counts[lane] values each: the mean of all, then the deviations. */
static __device__ inline void moments_of_lanes(const float *means, const float *m2s,
					       const float *counts, const struct rows *rows,
					       float *mean, float *m2)
{
	float count = 0, sum = 0, squares = 0;

	for (unsigned lane = 0; lane < rows->down; lane++) {
		count += counts[lane];
		sum += counts[lane] * means[lane * rows->across];
	}
	*mean = sum = count > 0 ? sum / count : 0;
	for (unsigned lane = 0; lane < rows->down; lane++) {
		float apart = means[lane * rows->across] - sum;

		squares += m2s[lane * rows->across] + counts[lane] * apart * apart;
	}
	*m2 = squares;
}

/* [to]: means, then squared deviations, of each part. Means are without the base, unless there is one part. */
template <typename T, int V>
static __global__ void __launch_bounds__(LAUNCH_THREADS, 4)
	moments_first(struct rows rows, size_t image, const struct kernel_order *order, const T *x,
		      float *to, float *count)
{
	SHARED float means[V][STRIDE], m2s[V][STRIDE], counts[LAUNCH_THREADS];
	struct place place = rows_place(&rows, V, order->count * image);
	struct moments<T, V> moments = {
	};

	if (place.channel < rows.channels)
		moments_of_rows(&moments, &rows, &place, x);
	UNROLL
	for (int v = 0; v < V; v++) {
		means[v][threadIdx.x] = moments.mean[v];
		m2s[v][threadIdx.x] = moments.m2[v];
	}
	if (threadIdx.x % rows.across == 0)
		counts[place.lane] = moments.count;
	__syncthreads();
	if (blockIdx.x == 0 && threadIdx.x == 0)
		*count = (float)(order->count * image);
	to += place.part * 2 * rows.channels;
	for (unsigned i = threadIdx.x; i < V * rows.across; i += LAUNCH_THREADS) {
		unsigned v = i / rows.across, lane0 = i % rows.across;
		size_t c = place.channel - threadIdx.x % rows.across * (size_t)V +
			   lane0 * (size_t)V + v;

		if (c >= rows.channels)
			continue;
		moments_of_lanes(means[v] + lane0, m2s[v] + lane0, counts, &rows, to + c,
				 to + rows.channels + c);
		if (rows.parts == 1 && order->count > 0)
			to[c] += load(x + c);
	}
}

/* --- Moments, the second pass ----------------------------------------------------------------- */

/* The sum of a column's lanes, to all of them. */
static __device__ inline double lanes_sum(double value)
{
	SHARED double sums[LAUNCH_THREADS];
	double sum = 0;

	sums[threadIdx.x] = value;
	__syncthreads();
	for (unsigned lane = 0; lane < LANES; lane++)
		sum += sums[lane * COLUMNS + threadIdx.x % COLUMNS];
	__syncthreads();
	return sum;
}

static __device__ inline double part_count(const struct rows *rows, size_t part, size_t present)
{
	size_t first = part * rows->part, end = first + rows->part;

	end = end < present ? end : present;
	return first < end ? (double)(end - first) : 0;
}

template <typename T>
static __global__ void moments_second(struct rows rows, size_t image,
				      const struct kernel_order *order, const T *x,
				      const float *partials, float *to)
{
	size_t present = order->count * image;
	size_t c = (size_t)blockIdx.x * COLUMNS + threadIdx.x % COLUMNS;
	size_t column = c < rows.channels ? c : 0, pitch = 2 * rows.channels;
	double mean = 0, m2 = 0;

	UNROLL_8
	for (size_t p = threadIdx.x / COLUMNS; p < rows.parts; p += LANES)
		mean += part_count(&rows, p, present) * (double)partials[p * pitch + column];
	mean = lanes_sum(mean);
	mean = present ? mean / (double)present : 0;
	UNROLL_8
	for (size_t p = threadIdx.x / COLUMNS; p < rows.parts; p += LANES) {
		double apart = (double)partials[p * pitch + column] - mean;

		m2 += (double)partials[p * pitch + rows.channels + column] +
		      part_count(&rows, p, present) * apart * apart;
	}
	m2 = lanes_sum(m2);
	if (threadIdx.x < COLUMNS && c < rows.channels) {
		to[c] = present ? (float)(mean + (double)load(x + c)) : 0;
		to[rows.channels + c] = (float)m2;
	}
}

void kernel_norm_moments(void *stream, const struct kernel_norm *norm,
			 const struct kernel_order *order, size_t batch, const void *x,
			 void *scratch, float *moments, enum ddp_type type)
{
	size_t channels = norm->channels, count = batch * norm->rows;

	WITH_TYPE(type, T, WITH_PACK(packs_fit(channels, sizeof(T), {x}), T, V, {
			  struct rows rows = rows_divide(count, channels, V, LEAST, ROWS_PARTS);
			  LAUNCH_BLOCKS((moments_first<T, V>), rows_blocks(&rows), LAUNCH_THREADS,
					stream, rows, norm->rows, order, (const T *)x,
					rows.parts > 1 ? (float *)scratch : moments + 1, moments);
			  if (rows.parts > 1)
				  LAUNCH_BLOCKS(moments_second<T>,
						(channels + COLUMNS - 1) / COLUMNS, LAUNCH_THREADS,
						stream, rows, norm->rows, order, (const T *)x,
						(const float *)scratch, moments + 1);
		  }))
}

/* --- Sums, the first pass --------------------------------------------------------------------- */

/* What is summed: dy where a ReLU let through, and with [x] that times (x - mean) * inverse. */
template <typename T> struct terms {
	const T *dy, *y, *x;
	const float *mean, *inverse;
	const float *scale, *shift; /* of a ReLU without y */
	T *dz;			    /* NULL: nobody wants it */
};

/* Kinds of sums: of columns; with x; and with a ReLU that is done again. */
enum { PLAIN, WITH_X, AGAIN };

/* Sums of a thread, [0] of dz, [1] of dz * (x - mean); and the line that the ReLU saw. */
template <int V> struct sums {
	float mean[V], factor[V], shift[V], sum[2][V];
};

template <typename T, int V>
static __device__ inline void terms_mask(pack<T, V> *dy, const pack<T, V> &y)
{
	UNROLL
	for (int v = 0; v < V; v++)
		if (!(load(y.numbers + v) > 0))
			store(dy->numbers + v, 0);
}

/* All loads first: [dz] may be [dy]. */
template <typename T, int V, int KIND, int N>
static __device__ inline void terms_add(struct sums<V> *sums, const struct rows *rows, size_t row,
					size_t channel, const struct terms<T> *terms)
{
	pack<T, V> dy[N], y[N], x[N];

	rows_load(terms->dy, rows, row, channel, dy);
	if (KIND != PLAIN)
		rows_load(terms->x, rows, row, channel, x);
	if (KIND == WITH_X && terms->y) {
		rows_load(terms->y, rows, row, channel, y);
		UNROLL
		for (int i = 0; i < N; i++)
			terms_mask(&dy[i], y[i]);
	}
	UNROLL
	for (int i = 0; i < N; i++) {
		UNROLL
		for (int v = 0; v < V; v++) {
			float off = 0, value;

			if (KIND != PLAIN)
				off = load(x[i].numbers + v) - sums->mean[v];
			if (KIND == AGAIN && !(off * sums->factor[v] + sums->shift[v] > 0))
				store(dy[i].numbers + v, 0);
			value = load(dy[i].numbers + v);
			sums->sum[0][v] += value;
			sums->sum[1][v] += value * off;
		}
		if (terms->dz)
			pack_store(terms->dz + (row + (size_t)i * rows->down) * rows->channels +
					   channel,
				   dy[i]);
	}
}

template <typename T, int V, int KIND>
static __device__ inline void terms_begin(struct sums<V> *sums, size_t channel,
					  const struct terms<T> *terms)
{
	UNROLL
	for (int v = 0; v < V; v++) {
		size_t c = channel + (size_t)v;

		if (KIND != PLAIN)
			sums->mean[v] = terms->mean[c];
		if (KIND == AGAIN) {
			sums->factor[v] = terms->inverse[c] * terms->scale[c];
			sums->shift[v] = terms->shift[c];
		}
	}
}

template <typename T, int V, int KIND>
static __device__ inline void terms_of_rows(struct sums<V> *sums, const struct rows *rows,
					    const struct place *place, const struct terms<T> *terms)
{
	constexpr int N = KIND == PLAIN ? (int)AT_ONCE : (int)AT_ONCE_BACK;
	size_t row = place->first + place->lane;

	terms_begin<T, V, KIND>(sums, place->channel, terms);
	for (; row + (N - 1) * rows->down < place->end; row += N * rows->down)
		terms_add<T, V, KIND, N>(sums, rows, row, place->channel, terms);
	for (; row < place->end; row += rows->down)
		terms_add<T, V, KIND, 1>(sums, rows, row, place->channel, terms);
}

/* [to]: [channels] sums, or twice as many, of each part. */
template <typename T, int V, int KIND>
static __global__ void __launch_bounds__(LAUNCH_THREADS, KIND == AGAIN ? 3 : 4)
	sums_first(struct rows rows, struct terms<T> terms, float *to)
{
	constexpr int SUMS = KIND == PLAIN ? 1 : 2;
	SHARED float all[SUMS * V][STRIDE];
	struct place place = rows_place(&rows, V, rows.rows);
	struct sums<V> sums = {
	};

	if (place.channel < rows.channels)
		terms_of_rows<T, V, KIND>(&sums, &rows, &place, &terms);
	UNROLL
	for (int i = 0; i < SUMS * V; i++)
		all[i][threadIdx.x] = sums.sum[i / V][i % V];
	__syncthreads();
	to += place.part * SUMS * rows.channels;
	for (unsigned i = threadIdx.x; i < SUMS * V * rows.across; i += LAUNCH_THREADS) {
		unsigned k = i / rows.across, lane0 = i % rows.across;
		size_t c = place.channel - threadIdx.x % rows.across * (size_t)V +
			   lane0 * (size_t)V + k % V;
		float sum = 0;

		if (c >= rows.channels)
			continue;
		for (unsigned lane = 0; lane < rows.down; lane++)
			sum += all[k][lane * rows.across + lane0];
		to[k / V * rows.channels + c] = k < V ? sum : sum * terms.inverse[c];
	}
}

/* --- Sums, the second pass -------------------------------------------------------------------- */

static __global__ void sums_second(const float *partials, size_t parts, size_t columns,
				   float *first, size_t split, float *second)
{
	size_t c = (size_t)blockIdx.x * COLUMNS + threadIdx.x % COLUMNS;
	size_t column = c < columns ? c : 0;
	double sum = 0;

	UNROLL_8
	for (size_t p = threadIdx.x / COLUMNS; p < parts; p += LANES)
		sum += (double)partials[p * columns + column];
	sum = lanes_sum(sum);
	if (threadIdx.x < COLUMNS && c < columns)
		*(c < split ? first + c : second + (c - split)) = (float)sum;
}

void rows_sum(void *stream, const float *partials, size_t parts, size_t columns, float *first,
	      size_t split, float *second)
{
	LAUNCH_BLOCKS(sums_second, (columns + COLUMNS - 1) / COLUMNS, LAUNCH_THREADS, stream,
		      partials, parts, columns, first, split, second);
}

template <typename T, int V, int KIND>
static void sums_launch(void *stream, size_t count, size_t channels, const struct terms<T> *terms,
			void *scratch, float *sums)
{
	struct rows rows = rows_divide(count, channels, V, LEAST, ROWS_PARTS);
	size_t columns = KIND == PLAIN ? channels : 2 * channels;

	LAUNCH_BLOCKS((sums_first<T, V, KIND>), rows_blocks(&rows), LAUNCH_THREADS, stream, rows,
		      *terms, rows.parts > 1 ? (float *)scratch : sums);
	if (rows.parts > 1)
		rows_sum(stream, (const float *)scratch, rows.parts, columns, sums, columns, NULL);
}

void kernel_norm_sums(void *stream, const struct kernel_norm *norm, size_t batch, const void *x,
		      const float *statistics, const struct kernel_norm_relu *relu, const void *dy,
		      void *dz, void *scratch, float *sums, enum ddp_type type)
{
	size_t channels = norm->channels, count = batch * norm->rows;
	const float *mean = statistics + 1, *inverse = mean + channels;
	const void *y = relu->y;

	if (!y && !relu->shift && dz == dy)
		dz = NULL;
	WITH_TYPE(type, T, {
		struct terms<T> terms = {
			(const T *)dy, (const T *)y,
				(const T *)x, mean, inverse, relu->scale, relu->shift, (T *)dz
		};

		WITH_PACK(packs_fit(channels, sizeof(T), {x, y, dy, dz}), T, V, {
			if (!y && relu->shift)
				sums_launch<T, V, AGAIN>(stream, count, channels, &terms, scratch,
							 sums);
			else
				sums_launch<T, V, WITH_X>(stream, count, channels, &terms, scratch,
							  sums);
		})
	})
}

void kernel_column_sums(void *stream, const void *dy, size_t rows, size_t channels, void *scratch,
			float *sums, enum ddp_type type)
{
	WITH_TYPE(type, T, {
		struct terms<T> terms = {
		};

		terms.dy = (const T *)dy;
		WITH_PACK(packs_fit(channels, sizeof(T), {dy}), T, V,
			  sums_launch<T, V, PLAIN>(stream, rows, channels, &terms, scratch, sums))
	})
}
