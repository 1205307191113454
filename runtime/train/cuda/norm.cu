/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm.cu - BatchNorm, and sums of channels over rows
 *
 * Kernels that read activations are bound by memory. They read each byte once, have four to eight
 * instructions per element, and keep 16 to 48 KiB in flight on each multiprocessor. (512 x 32 x 32
 * x 64 elements in bf16 are 67 MB.) A sum takes one launch: each block sums a part of the rows, and
 * the last blocks add the parts (partial.cuh).
 *
 * A block has [down] rows of [across] adjacent threads. Each thread of such a row has a fixed pack
 * of channels. A thread processes rows first + lane, first + lane + down, ... of its part. It loads
 * several rows at once, to hide the latency of memory. It loads the parameters of its channels once
 * for all rows. How rows are divided depends only on sizes, not on the GPU or the number of used
 * samples, so sums have the same bits everywhere.
 */
#include <math.h>

#include "cuda-kernels.h"
#include "gpu/launch.cuh"
#include "gpu/number.cuh"
#include "gpu/pack.cuh"
#include "partial.cuh"

/*
 * x_ROWS: rows that a thread loads at once. x_LEAST: minimum rows per thread. PARTS: maximum parts
 * if nothing is summed: four waves of blocks, so that the last, incomplete wave is short.
 */
enum { SUM_ROWS = 4, SUM_ROWS_BACK = 2, SUM_LEAST = 8 };
enum { APPLY_ROWS = 4, BACK_ROWS = 2, LEAST = 4, PARTS = 2048 };

/* --- Rows ------------------------------------------------------------------------------------- */

struct rows {
	size_t rows, channels;
	size_t part;	/* rows per part */
	unsigned parts; /* blocks for the same channels */
	unsigned slabs; /* blocks for the same rows */
	unsigned across, down;
};

/* Divide the rows into at most [most] parts, one for each block, so that a thread has at least
 * [least] rows of its part. */
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

/* Position of a thread: its first channel, and its rows from first + lane on, below [end]. */
struct place {
	size_t channel, first, end;
	unsigned part, lane;
};

/* Returns the first channel of thread number [lane] in a row of adjacent threads. */
static __device__ inline size_t rows_channel(const struct rows *rows, int pack, unsigned lane)
{
	return ((size_t)(blockIdx.x % rows->slabs) * rows->across + lane) * (size_t)pack;
}

/* Returns the position of this thread. Only the first [present] rows of the batch are used. */
static __device__ inline struct place rows_place(const struct rows *rows, int pack, size_t present)
{
	struct place place;

	place.part = blockIdx.x / rows->slabs;
	place.lane = threadIdx.x / rows->across;
	place.channel = rows_channel(rows, pack, threadIdx.x % rows->across);
	place.first = place.part * rows->part;
	place.end = place.first + rows->part;
	place.end = place.end < present ? place.end : present;
	return place;
}

/* Offset of element [channel] in the thread's [i]th row from row [row] on. */
static __device__ inline size_t rows_at(const struct rows *rows, size_t row, int i, size_t channel)
{
	return (row + (size_t)i * rows->down) * rows->channels + channel;
}

template <typename T, int V, int N>
static __device__ inline void rows_load(const void *x, const struct rows *rows, size_t row,
					size_t channel, pack<T, V> (&packs)[N])
{
	UNROLL
	for (int i = 0; i < N; i++)
		packs[i] = pack_load<V>((const T *)x + rows_at(rows, row, i, channel));
}

/*
 * Calls f(constant<N>, row) for groups of N rows of the thread, then f(constant<1>, row) for each
 * remaining row.
 */
template <int N, typename F>
static __device__ inline void rows_each(const struct rows *rows, const struct place *place,
					const F &f)
{
	size_t row = place->first + place->lane;

	for (; row + (N - 1) * rows->down < place->end; row += N * rows->down)
		f(constant<N>(), row);
	for (; row < place->end; row += rows->down)
		f(constant<1>(), row);
}

/*
 * Parameters of a thread's channels in y = (x - mean) * factor + shift. [factor] and [shift] are 0
 * if struct kernel_normed has no scale and no shift.
 */
template <int V> struct line {
	float mean[V], factor[V], shift[V];
};

template <int V>
static __device__ inline struct line<V> line_of(const struct rows *rows, size_t channel,
						const struct kernel_normed *normed) {
	const float *mean = normed->statistics + 1, *inverse = mean + rows->channels;
	struct line<V> line;

	UNROLL
	for (int v = 0; v < V; v++) {
		size_t c = channel + (size_t)v;

		line.mean[v] = mean[c];
		line.factor[v] = normed->scale ? inverse[c] * normed->scale[c] : 0;
		line.shift[v] = normed->shift ? normed->shift[c] : 0;
	}
	return line;
}

/* Computes y without fma, so that the backward pass gets the same value as the forward pass. */
template <int V>
static __device__ inline float line_at(const struct line<V> &line, int v, float off)
{
	return __fadd_rn(__fmul_rn(off, line.factor[v]), line.shift[v]);
}

/* --- Moments ---------------------------------------------------------------------------------- */

/* Updates a running value with the same sequence of roundings as the CPU engine. */
static __device__ inline void running_move(float *running, float value, float momentum)
{
	*running = __fadd_rn(__fmul_rn(1 - momentum, *running), __fmul_rn(momentum, value));
}

/* If there are no values (n is 0), sets mean and inverse to 0, so that results stay finite. */
static __device__ inline void statistics_set(const struct kernel_norm *norm, size_t c, double n,
					     double mean, double m2,
					     const struct kernel_measured *to)
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

/*
 * Stores moments for other ranks, or computes statistics from the moments. Other ranks get moments
 * in f32. Therefore moments are rounded to f32 even if there is only one rank.
 */
static __device__ inline void moments_store(const struct kernel_norm *norm, size_t c,
					    size_t present, float mean, float m2,
					    const struct kernel_measured *to)
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
 * Sums the values and their squares, after subtracting the channel's first value. Without this
 * subtraction, a large mean would cause cancellation. The first value differs from the mean of n
 * values by at most sqrt(n) deviations, so double precision loses nothing.
 */
template <typename T, int V = PACK<T>>
static __global__ void __launch_bounds__(LAUNCH_THREADS, V > 4 ? 3 : 4)
	norm_measure(struct rows rows, struct kernel_norm norm, const struct kernel_order *order,
		     const T *x, struct partial partial, struct kernel_measured to)
{
	size_t present = order->count * norm.rows, channels = norm.channels;
	struct place place = rows_place(&rows, V, present);
	double *row = partial.rows + place.part * partial.columns, sums[2 * V] = {};

	if (place.channel < channels) {
		pack<T, V> base = pack_load<V>(x + place.channel);

		rows_each<SUM_ROWS>(&rows, &place, [&](auto n, size_t first) {
			pack<T, V> values[n.value];

			rows_load(x, &rows, first, place.channel, values);
			UNROLL
			for (int i = 0; i < n.value; i++)
				UNROLL
			for (int v = 0; v < V; v++) {
				double off = (double)values[i][v] - (double)base[v];

				sums[v] += off;
				sums[V + v] += off * off;
			}
		});
	}
	partial_block(sums, rows.across, [&](unsigned k, unsigned lane, double sum) {
		size_t c = rows_channel(&rows, V, lane) + k % V;

		if (c < channels)
			row[k < V ? c : channels + c] = sum;
	});
	if (!partial_last(&partial, place.part))
		return;
	for (size_t c = threadIdx.x; c < channels; c += LAUNCH_THREADS) {
		double sum = partial_total(&partial, c);
		double mean = present ? sum / (double)present : 0;
		double m2 = partial_total(&partial, channels + c) - sum * mean;
		double base = present ? (double)load(x + c) : 0;

		moments_store(&norm, c, present, (float)(mean + base), m2 < 0 ? 0 : (float)m2, &to);
	}
}

void kernel_norm_measure(void *stream, const struct kernel_norm *norm,
			 const struct kernel_order *order, size_t batch, const void *x,
			 const struct kernel_scratch *scratch, const struct kernel_measured *to,
			 enum ddp_type type)
{
	size_t channels = norm->channels;
	struct rows rows = rows_divide(batch * norm->rows, channels, pack_count(type), SUM_LEAST,
				       PARTIAL_PARTS);
	struct partial partial = partial_of(scratch, rows.parts, 2 * channels, rows.slabs);

	WITH_TYPE(type, T,
		  LAUNCH_BLOCKS((norm_measure<T>), rows_blocks(&rows), LAUNCH_THREADS, stream, rows,
				*norm, order, (const T *)x, partial, *to))
}

static __global__ void norm_combine(struct kernel_norm norm, const float *moments, int ranks,
				    struct kernel_measured to)
{
	size_t c = thread_index(), channels = norm.channels;
	double n = 0, mean = 0, m2 = 0;

	if (c >= channels)
		return;
	if (ranks == 0) {
		n = 1;
		mean = (double)to.running_mean[c];
		m2 = (double)to.running_variance[c];
		to.running_mean = to.running_variance = NULL;
	}
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
			 int ranks, const struct kernel_measured *to)
{
	LAUNCH_EACH(norm_combine, norm->channels, stream, *norm, moments, ranks, *to);
}

/* --- Forward pass ----------------------------------------------------------------------------- */

/* All loads are before the stores, because y may be the same array as x or add. */
template <typename T, int V = PACK<T>>
static __global__ void __launch_bounds__(LAUNCH_THREADS)
	norm_apply(struct rows rows, struct kernel_normed normed, const T *add, bool relu, T *y)
{
	struct place place = rows_place(&rows, V, rows.rows);
	struct line<V> line;

	if (place.channel >= rows.channels)
		return;
	line = line_of<V>(&rows, place.channel, &normed);
	rows_each<APPLY_ROWS>(&rows, &place, [&](auto n, size_t row) {
		pack<T, V> x[n.value], more[n.value];

		rows_load(normed.x, &rows, row, place.channel, x);
		if (add)
			rows_load(add, &rows, row, place.channel, more);
		UNROLL
		for (int i = 0; i < n.value; i++)
			pack_store(y + rows_at(&rows, row, i, place.channel),
				   pack_of<T, V>([&](int v) {
					   float value = line_at(line, v, x[i][v] - line.mean[v]);

					   if (add)
						   value += more[i][v];
					   return relu ? rectified(value) : value;
				   }));
	});
}

void kernel_norm_apply(void *stream, const struct kernel_norm *norm, size_t batch,
		       const struct kernel_normed *normed, const void *add, bool relu, void *y,
		       enum ddp_type type)
{
	struct rows rows =
		rows_divide(batch * norm->rows, norm->channels, pack_count(type), LEAST, PARTS);

	WITH_TYPE(type, T,
		  LAUNCH_EACH((norm_apply<T>), rows_blocks(&rows) * LAUNCH_THREADS, stream, rows,
			      *normed, (const T *)add, relu, (T *)y))
}

/* --- Sums ------------------------------------------------------------------------------------- */

/*
 * Terms of the sums. The first kind is dy, or the rounded dy + more, masked by the ReLU. With
 * [normed], the second kind is the first multiplied by (x - mean) * inverse.
 */
struct terms {
	struct kernel_normed normed;
	const void *dy, *more, *y;
	void *dz; /* NULL: not needed */
};

/*
 * Kinds of sums. PLAIN sums columns, whose number need not be a multiple of a pack. WITH_X also
 * sums products with x. AGAIN does the same as WITH_X, and recomputes the ReLU's mask.
 */
enum { PLAIN, WITH_X, AGAIN };

/*
 * Adds the terms of N rows to the sums: first the sums of dz, then those of dz * (x - mean). All
 * loads are before the stores, as dz may be equal to dy.
 */
template <typename T, int V, int KIND, int N>
static __device__ inline void terms_add(const struct terms *terms, const struct rows *rows,
					size_t row, size_t channel, const struct line<V> &line,
					float *sums)
{
	pack<T, V> dy[N], other[N], x[N];

	rows_load(terms->dy, rows, row, channel, dy);
	if (KIND != PLAIN)
		rows_load(terms->normed.x, rows, row, channel, x);
	if (KIND != PLAIN && terms->more) {
		rows_load(terms->more, rows, row, channel, other);
		UNROLL
		for (int i = 0; i < N; i++)
			dy[i] = pack_of<T, V>([&](int v) { return dy[i][v] + other[i][v]; });
	}
	if (KIND == WITH_X && terms->y) {
		rows_load(terms->y, rows, row, channel, other);
		UNROLL
		for (int i = 0; i < N; i++)
			dy[i] = pack_of<T, V>(
				[&](int v) { return other[i][v] > 0 ? dy[i][v] : 0; });
	}
	UNROLL
	for (int i = 0; i < N; i++) {
		float values[V];

		UNROLL
		for (int v = 0; v < V; v++) {
			float off = KIND == PLAIN ? 0 : x[i][v] - line.mean[v];

			values[v] = dy[i][v];
			if (KIND == AGAIN && !(line_at(line, v, off) > 0))
				values[v] = 0;
			sums[v] += values[v];
			if (KIND != PLAIN)
				sums[V + v] += values[v] * off;
		}
		if (KIND != PLAIN && terms->dz)
			pack_store((T *)terms->dz + rows_at(rows, row, i, channel),
				   pack_of<T, V>([&](int v) { return values[v]; }));
	}
}

/* Sums the columns of a part: [channels] columns for PLAIN, else 2 x [channels]. */
template <typename T, int KIND, int V = KIND == PLAIN ? 1 : PACK<T>>
static __global__ void __launch_bounds__(LAUNCH_THREADS, KIND == AGAIN ? 3 : 4)
	sums_of(struct rows rows, struct terms terms, struct partial partial, float *to)
{
	constexpr int N = KIND == PLAIN ? (int)SUM_ROWS : (int)SUM_ROWS_BACK;
	struct place place = rows_place(&rows, V, rows.rows);
	double *row = partial.rows + place.part * partial.columns;
	float sums[KIND == PLAIN ? V : 2 * V] = {};
	struct line<V> line;

	if (place.channel < rows.channels) {
		if (KIND != PLAIN)
			line = line_of<V>(&rows, place.channel, &terms.normed);
		rows_each<N>(&rows, &place, [&](auto n, size_t first) {
			terms_add<T, V, KIND, n.value>(&terms, &rows, first, place.channel, line,
						       sums);
		});
	}
	partial_block(sums, rows.across, [&](unsigned k, unsigned lane, float sum) {
		size_t c = rows_channel(&rows, V, lane) + k % V;

		if (c < rows.channels && k < V)
			row[c] = sum;
		else if (c < rows.channels)
			row[rows.channels + c] =
				sum * terms.normed.statistics[1 + rows.channels + c];
	});
	partial_sums(&partial, place.part, to);
}

size_t kernel_sums_bytes(size_t rows, size_t channels)
{
	size_t parts = rows < PARTIAL_PARTS ? rows : (size_t)PARTIAL_PARTS;

	return partial_bytes(parts ? parts : 1, 2 * channels);
}

template <int KIND>
static void sums_launch(void *stream, size_t count, size_t channels, const struct terms *terms,
			const struct kernel_scratch *scratch, float *sums, enum ddp_type type)
{
	int pack = KIND == PLAIN ? 1 : pack_count(type);
	struct rows rows = rows_divide(count, channels, pack, SUM_LEAST, PARTIAL_PARTS);
	struct partial partial = partial_of(scratch, rows.parts,
					    KIND == PLAIN ? channels : 2 * channels, rows.slabs);

	WITH_TYPE(type, T,
		  LAUNCH_BLOCKS((sums_of<T, KIND>), rows_blocks(&rows), LAUNCH_THREADS, stream,
				rows, *terms, partial, sums))
}

void kernel_norm_sums(void *stream, const struct kernel_norm *norm, size_t batch,
		      const struct kernel_normed *normed, const void *y, const void *dy,
		      const void *more, void *dz, const struct kernel_scratch *scratch, float *sums,
		      enum ddp_type type)
{
	bool again = !y && normed->shift, is_unchanged = !y && !again && !more && dz == dy;
	const struct terms terms = {*normed, dy, more, y, is_unchanged ? NULL : dz};

	(again ? sums_launch<AGAIN> : sums_launch<WITH_X>)(stream, batch * norm->rows,
							   norm->channels, &terms, scratch, sums,
							   type);
}

void kernel_column_sums(void *stream, const void *dy, size_t rows, size_t channels,
			const struct kernel_scratch *scratch, float *sums, enum ddp_type type)
{
	struct terms terms = {};

	terms.dy = dy;
	sums_launch<PLAIN>(stream, rows, channels, &terms, scratch, sums, type);
}

/* --- Backward pass ---------------------------------------------------------------------------- */

/*
 * Sets dx to (dz - middle - (x - mean) * slope) * factor, or to 0 in rows of unused samples. All
 * loads are before the stores, because dx may be the same array as x or dz.
 */
template <typename T, bool AGAIN, int V = PACK<T>>
static __global__ void __launch_bounds__(LAUNCH_THREADS, AGAIN ? 3 : 4)
	norm_back(struct rows rows, size_t image, const struct kernel_order *order,
		  struct kernel_normed normed, const float *sums, const T *dz, T *dx)
{
	struct place place = rows_place(&rows, V, rows.rows);
	const float *statistics = normed.statistics;
	float part = statistics[0] > 0 ? 1 / statistics[0] : 0, middle[V], slope[V];
	size_t present = order->count * image;
	struct line<V> line;

	if (place.channel >= rows.channels)
		return;
	line = line_of<V>(&rows, place.channel, &normed);
	UNROLL
	for (int v = 0; v < V; v++) {
		size_t c = place.channel + (size_t)v;

		middle[v] = sums[c] * part;
		slope[v] = sums[rows.channels + c] * part * statistics[1 + rows.channels + c];
	}
	rows_each<BACK_ROWS>(&rows, &place, [&](auto n, size_t row) {
		pack<T, V> x[n.value], dy[n.value];

		rows_load(normed.x, &rows, row, place.channel, x);
		rows_load(dz, &rows, row, place.channel, dy);
		UNROLL
		for (int i = 0; i < n.value; i++) {
			bool there = row + (size_t)i * rows.down < present;

			pack_store(dx + rows_at(&rows, row, i, place.channel),
				   pack_of<T, V>([&](int v) {
					   float off = x[i][v] - line.mean[v], value = dy[i][v];

					   if (AGAIN && !(line_at(line, v, off) > 0))
						   value = 0;
					   value -= middle[v];
					   value = (value - off * slope[v]) * line.factor[v];
					   return there ? value : 0;
				   }));
		}
	});
}

void kernel_norm_back(void *stream, const struct kernel_norm *norm,
		      const struct kernel_order *order, size_t batch,
		      const struct kernel_normed *normed, const float *sums, const void *dz,
		      void *dx, enum ddp_type type)
{
	struct rows rows =
		rows_divide(batch * norm->rows, norm->channels, pack_count(type), LEAST, PARTS);

	WITH_TYPE(type, T, {
		auto kernel = normed->shift ? norm_back<T, true> : norm_back<T, false>;

		LAUNCH_EACH(kernel, rows_blocks(&rows) * LAUNCH_THREADS, stream, rows, norm->rows,
			    order, *normed, sums, (const T *)dz, (T *)dx);
	})
}
