/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm.cu - BatchNorm, and sums over rows of channels
 *
 * Kernels over values are bound by memory: they read each byte once (a block of 512 x 32 x 32 x 64 bf16 is
 * 67 MB), have four to eight instructions for an element, and 16 to 48 KiB under way on each processor.
 * Sums are of parts of the rows, one a block, and the last blocks add these up (partial.cuh): for each sum
 * one launch.
 *
 * A block has [across] threads side by side, each with a pack of channels that it keeps, and [down] rows
 * of such threads; it does rows first + lane, first + lane + down, ... of its part, and loads several of
 * them at once: that many loads under way for each thread hide the memory's latency. What belongs to a
 * channel is loaded once for all rows of a thread. The division depends on sizes alone, never on the
 * card or on the number of samples there: sums are the same bits everywhere.
 */
#include <math.h>

#include "gpu/launch.cuh"
#include "gpu/number.cuh"
#include "gpu/pack.cuh"
#include "kernels.h"
#include "partial.cuh"

/* Rows that a thread loads at once, and how many it has at least; parts of arrays that are not summed: four
 * waves of blocks, so the last is short. */
enum { SUM_ROWS = 4, SUM_ROWS_BACK = 2, SUM_LEAST = 8 };
enum { APPLY_ROWS = 4, BACK_ROWS = 2, LEAST = 4, PARTS = 2048 };

/* A value of each thread for each of its channels, [STRIDE] apart so that columns are in other banks. */
enum { STRIDE = LAUNCH_THREADS + 8 };

/* --- Rows ------------------------------------------------------------------------------------- */

struct rows {
	size_t rows, channels;
	size_t part;	/* rows of one */
	unsigned parts; /* blocks for the same channels */
	unsigned slabs; /* blocks for the same rows */
	unsigned across, down;
};

/* A part has [least] rows for each thread, unless that makes more than [most] parts. */
static inline struct rows rows_divide(size_t count, size_t channels, int pack, size_t least,
				      size_t most)
{
	size_t packs = channels / (size_t)pack, step, parts;
	struct rows rows = {count, channels, 0, 1, 1, 1, LAUNCH_THREADS};

	while (rows.across < packs && rows.across < LAUNCH_THREADS) {
		rows.across *= 2;
		rows.down /= 2;
	}
	if (packs > rows.across)
		rows.slabs = (unsigned)((packs + rows.across - 1) / rows.across);
	step = rows.down * least;
	parts = (count + step - 1) / step;
	parts = parts > most ? most : parts;
	if (parts > 1) {
		rows.part = ((count + parts - 1) / parts + step - 1) / step * step;
		rows.parts = (unsigned)((count + rows.part - 1) / rows.part);
	} else {
		rows.part = count;
	}
	return rows;
}

static inline size_t rows_blocks(const struct rows *rows)
{
	return (size_t)rows->parts * rows->slabs;
}

/* Where a thread is: its first channel, and its rows from first + lane on, below [end]. */
struct place {
	size_t channel, first, end;
	unsigned part, lane;
};

/* Of the rows only the first [present] count. */
static __device__ inline struct place rows_place(const struct rows *rows, int pack, size_t present)
{
	unsigned slab = blockIdx.x % rows->slabs;
	size_t index = (size_t)slab * rows->across + threadIdx.x % rows->across;
	struct place place;

	place.part = blockIdx.x / rows->slabs;
	place.lane = threadIdx.x / rows->across;
	place.channel = index * (size_t)pack;
	place.first = place.part * rows->part;
	place.end = place.first + rows->part;
	place.end = place.end < present ? place.end : present;
	return place;
}

/* ROWS packs of [x], from row [row] on and each [down] rows further: to numbers. */
template <typename T, int V, int ROWS>
static __device__ inline void rows_load(const T *x, const struct rows *rows, size_t row,
					size_t channel, pack<T, V> (&numbers)[ROWS])
{
	UNROLL
	for (int i = 0; i < ROWS; i++)
		numbers[i] =
			pack_load<V>(x + (row + (size_t)i * rows->down) * rows->channels + channel);
}

/* --- Moments ---------------------------------------------------------------------------------- */

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
	for (; row + (SUM_ROWS - 1) * rows->down < place->end; row += SUM_ROWS * rows->down) {
		pack<T, V> values[SUM_ROWS];

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

/* What becomes of moments: they are kept for other ranks to join, or, with [moments] NULL, they are statistics. */
struct measured {
	float *moments, *statistics, *running_mean, *running_variance;
};

/* As the CPU's engine moves them, each operation rounded by itself. */
static __device__ inline void running_move(float *running, float value, float momentum)
{
	*running = __fadd_rn(__fmul_rn(1 - momentum, *running), __fmul_rn(momentum, value));
}

/* Of no values: 0 and 0, so that what is normalised by them stays finite. */
static __device__ inline void statistics_set(const struct kernel_norm *norm, size_t c, double n,
					     double mean, double m2, const struct measured *to)
{
	if (c == 0)
		to->statistics[0] = (float)n;
	to->statistics[1 + c] = (float)mean;
	to->statistics[1 + norm->channels + c] =
		n > 0 ? (float)(1 / sqrt(m2 / n + (double)norm->epsilon)) : 0;
	if (n > 0 && to->running_mean)
		running_move(to->running_mean + c, (float)mean, norm->momentum);
	if (n > 0 && to->running_variance)
		running_move(to->running_variance + c, (float)(m2 / (n > 1 ? n - 1 : 1)),
			     norm->momentum);
}

/* Moments are f32 on their way to other ranks, so they are so for one rank too. */
static __device__ inline void moments_tell(const struct kernel_norm *norm, size_t c, size_t present,
					   float mean, float m2, const struct measured *to)
{
	if (!to->moments) {
		statistics_set(norm, c, (double)(float)present, (double)mean, (double)m2, to);
		return;
	}
	if (c == 0)
		to->moments[0] = (float)present;
	to->moments[1 + c] = mean;
	to->moments[1 + norm->channels + c] = m2;
}

/*
 * Of the parts' means and squared deviations: sums of all values and of their squares, less the base. In double
 * that loses nothing: the base is one of n values, so no further from their mean than sqrt(n) deviations.
 */
struct moments_term {
	struct rows rows;
	size_t present;
	const float *partials;

	__device__ inline double count(size_t part) const
	{
		size_t first = part * rows.part, end = first + rows.part;

		end = end < present ? end : present;
		return first < end ? (double)(end - first) : 0;
	}

	__device__ inline double operator()(size_t part, size_t column) const
	{
		const float *row = partials + part * 2 * rows.channels;
		double mean;

		if (column < rows.channels)
			return count(part) * (double)load_fresh(row + column);
		mean = (double)load_fresh(row + column - rows.channels);
		return (double)load_fresh(row + column) + count(part) * mean * mean;
	}
};

template <typename T>
static __device__ inline void moments_of_parts(const struct partial *partial,
					       const struct moments_term *term,
					       const struct kernel_norm *norm, size_t present,
					       const T *x, const struct measured *to)
{
	for (size_t c = threadIdx.x; c < norm->channels; c += LAUNCH_THREADS) {
		double sum = partial_total(partial, c, *term),
		       mean = present ? sum / (double)present : 0;
		double m2 = partial_total(partial, norm->channels + c, *term) - sum * mean;
		double base = present ? (double)load(x + c) : 0;

		moments_tell(norm, c, present, (float)(mean + base), m2 < 0 ? 0 : (float)m2, to);
	}
}

/* A part leaves means, then squared deviations, less the base. */
template <typename T, int V>
static __global__ void __launch_bounds__(LAUNCH_THREADS, 4)
	norm_moments(struct rows rows, struct kernel_norm norm, const struct kernel_order *order,
		     const T *x, struct partial partial, struct measured to)
{
	GRID_WAIT();
	SHARED float means[V][STRIDE], m2s[V][STRIDE], counts[LAUNCH_THREADS];
	size_t present = order->count * norm.rows;
	struct place place = rows_place(&rows, V, present);
	struct moments<T, V> moments = {
	};
	struct moments_term term = {rows, present, partial.rows};
	float *row = partial.rows + place.part * 2 * rows.channels;

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
	for (unsigned i = threadIdx.x; i < V * rows.across; i += LAUNCH_THREADS) {
		unsigned v = i / rows.across, lane0 = i % rows.across;
		size_t c = place.channel - threadIdx.x % rows.across * (size_t)V +
			   lane0 * (size_t)V + v;
		float mean, m2;

		if (c >= rows.channels)
			continue;
		moments_of_lanes(means[v] + lane0, m2s[v] + lane0, counts, &rows, &mean, &m2);
		if (rows.parts > 1) {
			row[c] = mean;
			row[rows.channels + c] = m2;
		} else {
			mean += present ? load(x + c) : 0;
			moments_tell(&norm, c, present, mean, m2, &to);
		}
	}
	if (rows.parts > 1 && partial_last(&partial, place.part, term))
		moments_of_parts(&partial, &term, &norm, present, x, &to);
}

static void measure(void *stream, const struct kernel_norm *norm, const struct kernel_order *order,
		    size_t batch, const void *x, const struct kernel_scratch *scratch,
		    const struct measured *to, enum ddp_type type)
{
	size_t channels = norm->channels, count = batch * norm->rows;

	WITH_TYPE(type, T, WITH_PACK(packs_fit(channels, sizeof(T), {x}), T, V, {
			  struct rows rows =
				  rows_divide(count, channels, V, SUM_LEAST, PARTIAL_PARTS);
			  struct partial partial =
				  partial_of(scratch, rows.parts, 2 * channels, rows.slabs);

			  LAUNCH_BLOCKS((norm_moments<T, V>), rows_blocks(&rows), LAUNCH_THREADS,
					stream, rows, *norm, order, (const T *)x, partial, *to);
		  }))
}

void kernel_norm_moments(void *stream, const struct kernel_norm *norm,
			 const struct kernel_order *order, size_t batch, const void *x,
			 const struct kernel_scratch *scratch, float *moments, enum ddp_type type)
{
	struct measured to = {moments, NULL, NULL, NULL};

	measure(stream, norm, order, batch, x, scratch, &to, type);
}

void kernel_norm_measure(void *stream, const struct kernel_norm *norm,
			 const struct kernel_order *order, size_t batch, const void *x,
			 const struct kernel_scratch *scratch, float *statistics,
			 float *running_mean, float *running_variance, enum ddp_type type)
{
	struct measured to = {NULL, statistics, running_mean, running_variance};

	measure(stream, norm, order, batch, x, scratch, &to, type);
}

static __global__ void norm_combine(struct kernel_norm norm, const float *moments, int ranks,
				    struct measured to)
{
	GRID_WAIT();
	size_t c = thread_index(), channels = norm.channels;
	double n = 0, mean = 0, m2 = 0;

	if (c >= channels)
		return;
	for (int rank = 0; rank < ranks; rank++, moments += 1 + 2 * channels) {
		double more = (double)moments[0], all = n + more;
		double apart = (double)moments[1 + c] - mean;

		if (!(more > 0))
			continue;
		mean += apart * (more / all);
		m2 += (double)moments[1 + channels + c] + apart * apart * (n * more / all);
		n = all;
	}
	statistics_set(&norm, c, n, mean, m2, &to);
}

void kernel_norm_combine(void *stream, const struct kernel_norm *norm, const float *moments,
			 int ranks, float *statistics, float *running_mean, float *running_variance)
{
	struct measured to = {NULL, statistics, running_mean, running_variance};

	LAUNCH_EACH(norm_combine, norm->channels, stream, *norm, moments, ranks, to);
}

static __global__ void norm_fixed(struct kernel_norm norm, const float *running_mean,
				  const float *running_variance, float *statistics)
{
	GRID_WAIT();
	size_t c = thread_index(), channels = norm.channels;

	if (c >= channels)
		return;
	if (c == 0)
		statistics[0] = 0;
	statistics[1 + c] = running_mean[c];
	statistics[1 + channels + c] =
		(float)(1 / sqrt((double)running_variance[c] + (double)norm.epsilon));
}

void kernel_norm_fixed(void *stream, const struct kernel_norm *norm, const float *running_mean,
		       const float *running_variance, float *statistics)
{
	LAUNCH_EACH(norm_fixed, norm->channels, stream, *norm, running_mean, running_variance,
		    statistics);
}

/* --- Forwards --------------------------------------------------------------------------------- */

/* y = (x - mean) * factor + shift, for the channels of a thread. */
template <int V> struct line {
	float mean[V], factor[V], shift[V];
};

/* Not contracted, so that the way back, which does it again, sees what the way forward saw. */
static __device__ inline float line_at(float off, float factor, float shift)
{
	return __fadd_rn(__fmul_rn(off, factor), shift);
}

template <typename T> struct apply {
	const T *x, *add;
	T *y;
	const float *statistics, *scale, *shift;
	bool relu;
};

template <typename T, int V>
static __device__ inline void line_set(struct line<V> *line, const struct apply<T> *apply,
				       size_t channel, size_t channels)
{
	const float *mean = apply->statistics + 1, *inverse = mean + channels;

	UNROLL
	for (int v = 0; v < V; v++) {
		size_t c = channel + (size_t)v;

		line->mean[v] = mean[c];
		line->factor[v] = inverse[c] * apply->scale[c];
		line->shift[v] = apply->shift[c];
	}
}

/* All loads first: y may be x, or what is added. */
template <typename T, int V, int N>
static __device__ inline void apply_rows(const struct apply<T> *apply, const struct line<V> *line,
					 const struct rows *rows, size_t row, size_t channel)
{
	pack<T, V> x[N], add[N];

	rows_load(apply->x, rows, row, channel, x);
	if (apply->add)
		rows_load(apply->add, rows, row, channel, add);
	UNROLL
	for (int i = 0; i < N; i++) {
		UNROLL
		for (int v = 0; v < V; v++) {
			float off = load(x[i].numbers + v) - line->mean[v];
			float value = line_at(off, line->factor[v], line->shift[v]);

			if (apply->add)
				value += load(add[i].numbers + v);
			store(x[i].numbers + v, apply->relu ? rectified(value) : value);
		}
		pack_store(apply->y + (row + (size_t)i * rows->down) * rows->channels + channel,
			   x[i]);
	}
}

template <typename T, int V>
static __global__ void __launch_bounds__(LAUNCH_THREADS)
	norm_apply(struct rows rows, struct apply<T> apply)
{
	GRID_WAIT();
	struct place place = rows_place(&rows, V, rows.rows);
	size_t row = place.first + place.lane;
	struct line<V> line;

	if (place.channel >= rows.channels)
		return;
	line_set(&line, &apply, place.channel, rows.channels);
	for (; row + (APPLY_ROWS - 1) * rows.down < place.end; row += APPLY_ROWS * rows.down)
		apply_rows<T, V, APPLY_ROWS>(&apply, &line, &rows, row, place.channel);
	for (; row < place.end; row += rows.down)
		apply_rows<T, V, 1>(&apply, &line, &rows, row, place.channel);
}

void kernel_norm_apply(void *stream, const struct kernel_norm *norm, size_t batch, const void *x,
		       const float *statistics, const float *scale, const float *shift,
		       const void *add, bool relu, void *y, enum ddp_type type)
{
	size_t channels = norm->channels, count = batch * norm->rows;

	WITH_TYPE(type, T, WITH_PACK(packs_fit(channels, sizeof(T), {x, add, y}), T, V, {
			  struct rows rows = rows_divide(count, channels, V, LEAST, PARTS);
			  struct apply<T> apply = {
				  (const T *)x, (const T *)add,
					  (T *)y, statistics, scale, shift, relu
			  };

			  LAUNCH_EACH((norm_apply<T, V>), rows_blocks(&rows) * LAUNCH_THREADS,
				      stream, rows, apply);
		  }))
}

/* --- Sums ------------------------------------------------------------------------------------- */

/*
 * What is summed: dy, or dy + more rounded, where a ReLU let through, and with [x] that times
 * (x - mean) * inverse.
 */
template <typename T> struct terms {
	const T *dy, *more, *y, *x;
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

template <typename T, int V>
static __device__ inline void terms_join(pack<T, V> *dy, const pack<T, V> &more)
{
	UNROLL
	for (int v = 0; v < V; v++)
		store(dy->numbers + v, load(dy->numbers + v) + load(more.numbers + v));
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
	if (KIND != PLAIN && terms->more) {
		rows_load(terms->more, rows, row, channel, y);
		UNROLL
		for (int i = 0; i < N; i++)
			terms_join(&dy[i], y[i]);
	}
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
			if (KIND == AGAIN && !(line_at(off, sums->factor[v], sums->shift[v]) > 0))
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
	constexpr int N = KIND == PLAIN ? (int)SUM_ROWS : (int)SUM_ROWS_BACK;
	size_t row = place->first + place->lane;

	terms_begin<T, V, KIND>(sums, place->channel, terms);
	for (; row + (N - 1) * rows->down < place->end; row += N * rows->down)
		terms_add<T, V, KIND, N>(sums, rows, row, place->channel, terms);
	for (; row < place->end; row += rows->down)
		terms_add<T, V, KIND, 1>(sums, rows, row, place->channel, terms);
}

/* Of a part [channels] sums, or twice as many: to [sums] where there is no other. */
template <typename T, int V, int KIND>
static __global__ void __launch_bounds__(LAUNCH_THREADS, KIND == AGAIN ? 3 : 4)
	sums_of(struct rows rows, struct terms<T> terms, struct partial partial, float *to)
{
	GRID_WAIT();
	constexpr int SUMS = KIND == PLAIN ? 1 : 2;
	SHARED float all[SUMS * V][STRIDE];
	struct place place = rows_place(&rows, V, rows.rows);
	struct partial_term term = {partial.rows, partial.columns};
	float *row = rows.parts > 1 ? partial.rows + place.part * partial.columns : to;
	struct sums<V> sums = {
	};

	if (place.channel < rows.channels)
		terms_of_rows<T, V, KIND>(&sums, &rows, &place, &terms);
	UNROLL
	for (int i = 0; i < SUMS * V; i++)
		all[i][threadIdx.x] = sums.sum[i / V][i % V];
	__syncthreads();
	for (unsigned i = threadIdx.x; i < SUMS * V * rows.across; i += LAUNCH_THREADS) {
		unsigned k = i / rows.across, lane0 = i % rows.across;
		size_t c = place.channel - threadIdx.x % rows.across * (size_t)V +
			   lane0 * (size_t)V + k % V;
		float sum = 0;

		if (c >= rows.channels)
			continue;
		for (unsigned lane = 0; lane < rows.down; lane++)
			sum += all[k][lane * rows.across + lane0];
		row[k / V * rows.channels + c] = k < V ? sum : sum * terms.inverse[c];
	}
	if (rows.parts == 1 || !partial_last(&partial, place.part, term))
		return;
	for (size_t c = threadIdx.x; c < partial.columns; c += LAUNCH_THREADS)
		to[c] = (float)partial_total(&partial, c, term);
}

size_t kernel_sums_bytes(size_t rows, size_t channels)
{
	size_t parts = rows < PARTIAL_PARTS ? rows : (size_t)PARTIAL_PARTS;

	return partial_bytes(parts ? parts : 1, 2 * channels);
}

template <typename T, int V, int KIND>
static void sums_launch(void *stream, size_t count, size_t channels, const struct terms<T> *terms,
			const struct kernel_scratch *scratch, float *sums)
{
	struct rows rows = rows_divide(count, channels, V, SUM_LEAST, PARTIAL_PARTS);
	struct partial partial = partial_of(scratch, rows.parts,
					    KIND == PLAIN ? channels : 2 * channels, rows.slabs);

	LAUNCH_BLOCKS((sums_of<T, V, KIND>), rows_blocks(&rows), LAUNCH_THREADS, stream, rows,
		      *terms, partial, sums);
}

void kernel_norm_sums(void *stream, const struct kernel_norm *norm, size_t batch, const void *x,
		      const float *statistics, const struct kernel_norm_relu *relu, const void *dy,
		      const void *more, void *dz, const struct kernel_scratch *scratch, float *sums,
		      enum ddp_type type)
{
	size_t channels = norm->channels, count = batch * norm->rows;
	const float *mean = statistics + 1, *inverse = mean + channels;
	const void *y = relu->y;

	if (!y && !relu->shift && !more && dz == dy)
		dz = NULL;
	WITH_TYPE(type, T, {
		struct terms<T> terms = {
			(const T *)dy, (const T *)more, (const T *)y,
				(const T *)x, mean, inverse, relu->scale, relu->shift, (T *)dz
		};

		WITH_PACK(packs_fit(channels, sizeof(T), {x, y, dy, more, dz}), T, V, {
			if (!y && relu->shift)
				sums_launch<T, V, AGAIN>(stream, count, channels, &terms, scratch,
							 sums);
			else
				sums_launch<T, V, WITH_X>(stream, count, channels, &terms, scratch,
							  sums);
		})
	})
}

void kernel_column_sums(void *stream, const void *dy, size_t rows, size_t channels,
			const struct kernel_scratch *scratch, float *sums, enum ddp_type type)
{
	WITH_TYPE(type, T, {
		struct terms<T> terms = {
		};

		terms.dy = (const T *)dy;
		WITH_PACK(packs_fit(channels, sizeof(T), {dy}), T, V,
			  sums_launch<T, V, PLAIN>(stream, rows, channels, &terms, scratch, sums))
	})
}

/* --- Backwards -------------------------------------------------------------------------------- */

/* dx = (dz - middle - (x - mean) * slope) * factor, for the channels of a thread. */
template <int V> struct back_line {
	float mean[V], factor[V], middle[V], slope[V], shift[V];
};

template <typename T> struct back {
	const T *x, *dz;
	T *dx;
	const float *statistics, *scale, *shift, *sums;
};

template <typename T, int V, bool AGAIN>
static __device__ inline void back_line_set(struct back_line<V> *line, const struct back<T> *back,
					    size_t channel, size_t channels)
{
	const float *mean = back->statistics + 1, *inverse = mean + channels;
	float part = back->statistics[0] > 0 ? 1 / back->statistics[0] : 0;

	UNROLL
	for (int v = 0; v < V; v++) {
		size_t c = channel + (size_t)v;

		line->mean[v] = mean[c];
		line->factor[v] = inverse[c] * back->scale[c];
		line->middle[v] = back->sums[c] * part;
		line->slope[v] = back->sums[channels + c] * part * inverse[c];
		line->shift[v] = AGAIN ? back->shift[c] : 0;
	}
}

/* All loads first: dx may be x or dz. Rows from [present] on get zeros. */
template <typename T, int V, bool AGAIN, int N>
static __device__ inline void back_rows(const struct back<T> *back, const struct back_line<V> *line,
					const struct rows *rows, size_t row, size_t present,
					size_t channel)
{
	pack<T, V> x[N], dz[N];

	rows_load(back->x, rows, row, channel, x);
	rows_load(back->dz, rows, row, channel, dz);
	UNROLL
	for (int i = 0; i < N; i++) {
		size_t at = row + (size_t)i * rows->down;

		UNROLL
		for (int v = 0; v < V; v++) {
			float off = load(x[i].numbers + v) - line->mean[v];
			float value = load(dz[i].numbers + v);

			if (AGAIN && !(line_at(off, line->factor[v], line->shift[v]) > 0))
				value = 0;
			value -= line->middle[v];
			value = (value - off * line->slope[v]) * line->factor[v];
			store(x[i].numbers + v, at < present ? value : 0);
		}
		pack_store(back->dx + at * rows->channels + channel, x[i]);
	}
}

template <typename T, int V, bool AGAIN>
static __global__ void __launch_bounds__(LAUNCH_THREADS, AGAIN ? 3 : 4)
	norm_back(struct rows rows, size_t image, const struct kernel_order *order,
		  struct back<T> back)
{
	GRID_WAIT();
	struct place place = rows_place(&rows, V, rows.rows);
	size_t row = place.first + place.lane, present = order->count * image;
	struct back_line<V> line;

	if (place.channel >= rows.channels)
		return;
	back_line_set<T, V, AGAIN>(&line, &back, place.channel, rows.channels);
	for (; row + (BACK_ROWS - 1) * rows.down < place.end; row += BACK_ROWS * rows.down)
		back_rows<T, V, AGAIN, BACK_ROWS>(&back, &line, &rows, row, present, place.channel);
	for (; row < place.end; row += rows.down)
		back_rows<T, V, AGAIN, 1>(&back, &line, &rows, row, present, place.channel);
}

void kernel_norm_back(void *stream, const struct kernel_norm *norm,
		      const struct kernel_order *order, size_t batch, const void *x,
		      const float *statistics, const float *scale, const float *shift,
		      const float *sums, const void *dz, void *dx, enum ddp_type type)
{
	size_t channels = norm->channels, count = batch * norm->rows;

	WITH_TYPE(type, T, WITH_PACK(packs_fit(channels, sizeof(T), {x, dz, dx}), T, V, {
			  struct rows rows = rows_divide(count, channels, V, LEAST, PARTS);
			  struct back<T> back = {
				  (const T *)x, (const T *)dz,
					  (T *)dx, statistics, scale, shift, sums
			  };

			  if (shift)
				  LAUNCH_EACH((norm_back<T, V, true>),
					      rows_blocks(&rows) * LAUNCH_THREADS, stream, rows,
					      norm->rows, order, back);
			  else
				  LAUNCH_EACH((norm_back<T, V, false>),
					      rows_blocks(&rows) * LAUNCH_THREADS, stream, rows,
					      norm->rows, order, back);
		  }))
}
