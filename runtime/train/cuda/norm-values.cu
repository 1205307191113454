/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm-values.cu - BatchNorm: statistics, and what is done to each value with them
 *
 * The kernels over values are bound by memory: each byte once, and four to eight instructions for an
 * element. Those over statistics have a thread for each channel and are bound by their launch.
 */
#include <math.h>

#include "gpu/launch.cuh"
#include "gpu/number.cuh"
#include "kernels.h"
#include "rows.cuh"

/* Rows that a thread loads at once and has at least; parts: four waves of blocks, so the last is short. */
enum { APPLY_ROWS = 4, BACK_ROWS = 2, LEAST = 4, PARTS = 2048 };

/* --- Statistics ------------------------------------------------------------------------------- */

/* As the CPU's engine moves them, each operation rounded by itself. */
static __device__ inline void running_move(float *running, float value, float momentum)
{
	*running = __fadd_rn(__fmul_rn(1 - momentum, *running), __fmul_rn(momentum, value));
}

/* Of no values: 0 and 0, so that what is normalised by them stays finite. */
static __global__ void norm_combine(struct kernel_norm norm, const float *moments, int ranks,
				    float *statistics, float *running_mean, float *running_variance)
{
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
	if (c == 0)
		statistics[0] = (float)n;
	statistics[1 + c] = (float)mean;
	statistics[1 + channels + c] = n > 0 ? (float)(1 / sqrt(m2 / n + (double)norm.epsilon)) : 0;
	if (n > 0 && running_mean)
		running_move(running_mean + c, (float)mean, norm.momentum);
	if (n > 0 && running_variance)
		running_move(running_variance + c, (float)(m2 / (n > 1 ? n - 1 : 1)),
			     norm.momentum);
}

void kernel_norm_combine(void *stream, const struct kernel_norm *norm, const float *moments,
			 int ranks, float *statistics, float *running_mean, float *running_variance)
{
	LAUNCH_EACH(norm_combine, norm->channels, stream, *norm, moments, ranks, statistics,
		    running_mean, running_variance);
}

static __global__ void norm_fixed(struct kernel_norm norm, const float *running_mean,
				  const float *running_variance, float *statistics)
{
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
			float value = off * line->factor[v] + line->shift[v];

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

			if (AGAIN && !(off * line->factor[v] + line->shift[v] > 0))
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
