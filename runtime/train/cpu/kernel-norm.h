/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel-norm.h - BatchNorm
 *
 * Sums over rows go in blocks that stay in the first cache: within one in f32, over blocks in
 * f64. Channels go in strips whose values fit on the stack.
 */
#include "kernel-vector.h"

enum { STRIP = 512, BLOCK = 16384 /* bytes of f32 */ };

/* The rows of a block of [width] channels: few enough for sums in f32. */
INLINE size_t block_rows(size_t width)
{
	size_t rows = BLOCK / (4 * width);

	return rows < 16 ? 16 : rows > 64 ? 64 : rows;
}

/* Of each channel of a strip, one value of a block (with what f32 lost), or of all blocks. */
struct strip {
	float here[STRIP], rest[STRIP];
	double sums[STRIP];
};

INLINE v_f64 load_wide(const float *from)
{
	return __builtin_convertvector(*(const v_f32_few_loose *)from, v_f64);
}

INLINE v_f64 load_sum(const double *from)
{
	return *(const v_f64_loose *)from;
}

INLINE void store_sum(double *to, v_f64 value)
{
	*(v_f64_loose *)to = value;
}

INLINE void strip_add(struct strip *strip, size_t width)
{
	for (size_t c = 0; c < width; c += LANES / 2)
		store_sum(strip->sums + c, load_sum(strip->sums + c) + load_wide(strip->here + c));
}

/* [rows] rows, [width] channels from [at] on, [pitch] elements from row to row. */
struct block {
	size_t at, rows, width, pitch;
};

/* The second pass corrects what the first one rounded. */
INLINE void block_moments(const struct block *block, const void *x, struct strip *mean,
			  struct strip *m2, bool half)
{
	float part = 1 / (float)block->rows;

	for (size_t c = 0; c < block->width; c += LANES) {
		size_t n = some(c, block->width);
		v_f32 sum = {0}, rest = {0}, squares = {0};

		for (size_t r = 0; r < block->rows; r++)
			sum += load_some(x, block->at + r * block->pitch + c, n, half);
		sum *= part;
		for (size_t r = 0; r < block->rows; r++) {
			v_f32 off = load_some(x, block->at + r * block->pitch + c, n, half) - sum;

			rest += off;
			squares = multiply_add(off, off, squares);
		}
		store(mean->here, c, sum, false);
		store(mean->rest, c, rest * part, false);
		store(m2->here, c, squares - rest * rest * part, false);
	}
}

/* The values of a block of [rows] with those of [before] rows before it. */
INLINE void strip_join(struct strip *mean, struct strip *m2, size_t width, double rows,
		       double before)
{
	double part = rows / (rows + before), weight = before * part;

	strip_add(m2, width);
	for (size_t c = 0; c < width; c += LANES / 2) {
		v_f64 apart = load_wide(mean->here + c) + load_wide(mean->rest + c) -
			      load_sum(mean->sums + c);

		store_sum(mean->sums + c, load_sum(mean->sums + c) + apart * part);
		store_sum(m2->sums + c, load_sum(m2->sums + c) + apart * apart * weight);
	}
}

INLINE void moments_all(const void *x, size_t rows, size_t channels, float *mean, float *m2,
			bool half)
{
	struct strip means = {0}, squares = {0};

	for (size_t c = 0; c < channels; c += STRIP) {
		size_t width = channels - c < STRIP ? channels - c : STRIP;
		size_t step = block_rows(width);

		memset(means.sums, 0, sizeof(means.sums));
		memset(squares.sums, 0, sizeof(squares.sums));
		for (size_t r = 0; r < rows; r += step) {
			struct block block = {r * channels + c, rows - r < step ? rows - r : step,
					      width, channels};

			block_moments(&block, x, &means, &squares, half);
			strip_join(&means, &squares, width, (double)block.rows, (double)r);
		}
		for (size_t i = 0; i < width; i++) {
			mean[c + i] = (float)means.sums[i];
			m2[c + i] = (float)squares.sums[i];
		}
	}
}

static TARGET void moments(const void *x, size_t rows, size_t channels, float *mean, float *m2,
			   enum ddp_type type)
{
	if (type == DDP_BF16)
		moments_all(x, rows, channels, mean, m2, true);
	else
		moments_all(x, rows, channels, mean, m2, false);
}

INLINE void norm_all(const struct kernel_norm *norm, const void *x, const void *add, void *y,
		     bool relu, bool half)
{
	size_t channels = norm->channels;

	for (size_t r = 0; r < norm->rows; r++)
		for (size_t c = 0; c < channels; c += LANES) {
			size_t n = some(c, channels), at = r * channels + c;
			v_f32 factor = load_some(norm->inverse, c, n, false) *
				       load_some(norm->scale, c, n, false);
			v_f32 off = load_some(x, at, n, half) - load_some(norm->mean, c, n, false);
			v_f32 value =
				multiply_add(off, factor, load_some(norm->shift, c, n, false));

			if (add)
				value += load_some(add, at, n, half);
			store_some(y, at, n, relu ? positive(value) : value, half);
		}
}

static TARGET void norm(const struct kernel_norm *norm, const void *x, const void *add, void *y,
			bool relu, enum ddp_type type)
{
	if (type == DDP_BF16)
		norm_all(norm, x, add, y, relu, true);
	else
		norm_all(norm, x, add, y, relu, false);
}

/* Element [at]'s gradient, where y lets it through. */
INLINE v_f32 passed(const void *dy, const void *y, size_t at, size_t n, bool half)
{
	v_f32 value = load_some(dy, at, n, half);

	return y ? only(load_some(y, at, n, half) > 0, value) : value;
}

INLINE void block_sums(const struct block *block, const float *mean, const void *x, const void *y,
		       const void *dy, float *sums, float *dots, bool half)
{
	for (size_t c = 0; c < block->width; c += LANES) {
		size_t n = some(c, block->width);
		v_f32 sum = {0}, dot = {0}, middle = load_some(mean, c, n, false);

		for (size_t r = 0; r < block->rows; r++) {
			size_t at = block->at + r * block->pitch + c;
			v_f32 value = passed(dy, y, at, n, half);

			sum += value;
			dot = multiply_add(value, load_some(x, at, n, half) - middle, dot);
		}
		store(sums, c, sum, false);
		store(dots, c, dot, false);
	}
}

INLINE void norm_sums_all(const struct kernel_norm *norm, const void *x, const void *y,
			  const void *dy, float *sums, bool half)
{
	size_t channels = norm->channels, rows = norm->rows;
	struct strip sum = {0}, dot = {0};

	for (size_t c = 0; c < channels; c += STRIP) {
		size_t width = channels - c < STRIP ? channels - c : STRIP;
		size_t step = block_rows(width);

		memset(sum.sums, 0, sizeof(sum.sums));
		memset(dot.sums, 0, sizeof(dot.sums));
		for (size_t r = 0; r < rows; r += step) {
			struct block block = {r * channels + c, rows - r < step ? rows - r : step,
					      width, channels};

			block_sums(&block, norm->mean + c, x, y, dy, sum.here, dot.here, half);
			strip_add(&sum, width);
			strip_add(&dot, width);
		}
		for (size_t i = 0; i < width; i++) {
			sums[c + i] = (float)sum.sums[i];
			sums[channels + c + i] =
				(float)(dot.sums[i] * (double)norm->inverse[c + i]);
		}
	}
}

static TARGET void norm_sums(const struct kernel_norm *norm, const void *x, const void *y,
			     const void *dy, float *sums, enum ddp_type type)
{
	if (type == DDP_BF16)
		norm_sums_all(norm, x, y, dy, sums, true);
	else
		norm_sums_all(norm, x, y, dy, sums, false);
}

/* Per channel: dx = factor * (dy - middle - (x - mean) * slope). */
struct coefficients {
	float factor[STRIP], middle[STRIP], slope[STRIP];
};

INLINE void coefficients_set(struct coefficients *to, const struct kernel_norm *norm,
			     const float *sums, double n, size_t at, size_t width)
{
	for (size_t c = 0; c < width; c++) {
		double inverse = (double)norm->inverse[at + c];

		to->factor[c] = norm->scale[at + c] * norm->inverse[at + c];
		to->middle[c] = (float)((double)sums[at + c] / n);
		to->slope[c] = (float)((double)sums[norm->channels + at + c] * inverse / n);
	}
}

INLINE void norm_back_strip(const struct kernel_norm *norm, const struct coefficients *by,
			    size_t from, size_t width, const void *x, const void *y, const void *dy,
			    void *dx, void *dy_out, bool half)
{
	for (size_t r = 0; r < norm->rows; r++)
		for (size_t c = 0; c < width; c += LANES) {
			size_t n = some(c, width), at = r * norm->channels + from + c;
			v_f32 value = passed(dy, y, at, n, half);
			v_f32 off = load_some(x, at, n, half) -
				    load_some(norm->mean, from + c, n, false);
			v_f32 rest = value - load(by->middle, c, false);

			if (dy_out)
				store_same_some(dy_out, at, n, value, half);
			rest = multiply_add(-off, load(by->slope, c, false), rest);
			store_some(dx, at, n, rest * load(by->factor, c, false), half);
		}
}

INLINE void norm_back_all(const struct kernel_norm *norm, const void *x, const void *y,
			  const void *dy, const float *sums, double n, void *dx, void *dy_out,
			  bool half)
{
	struct coefficients by = {0};

	for (size_t c = 0; c < norm->channels; c += STRIP) {
		size_t width = norm->channels - c < STRIP ? norm->channels - c : STRIP;

		coefficients_set(&by, norm, sums, n, c, width);
		norm_back_strip(norm, &by, c, width, x, y, dy, dx, dy_out, half);
	}
}

static TARGET void norm_back(const struct kernel_norm *norm, const void *x, const void *y,
			     const void *dy, const float *sums, double n, void *dx, void *dy_out,
			     enum ddp_type type)
{
	if (type == DDP_BF16)
		norm_back_all(norm, x, y, dy, sums, n, dx, dy_out, true);
	else
		norm_back_all(norm, x, y, dy, sums, n, dx, dy_out, false);
}
