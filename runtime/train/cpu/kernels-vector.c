/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels-vector.c - the kernels for one instruction set
 *
 * If the parameter [half] is true, data in memory is bf16, otherwise f32. All functions with this
 * parameter are inlined, so that it is a constant and kernels do not branch on it.
 */
#include "config.h"

#include "base/vector.h"
#include "kernels.h"

/* Calls [function] with a constant last parameter [half]. */
#define FOR_TYPE(function, ...)                       \
	do {                                          \
		if (type == DDP_BF16)                 \
			function(__VA_ARGS__, true);  \
		else                                  \
			function(__VA_ARGS__, false); \
	} while (0)

/* The compiler makes this a fused multiply-add if the instruction set has one. */
INLINE v_f32 multiply_add(v_f32 a, v_f32 b, v_f32 c)
{
	return a * b + c;
}

/* Returns max(0, value), or NaN for NaN. */
INLINE v_f32 positive(v_f32 value)
{
	return only(~(value <= 0), value);
}

INLINE v_f32 load(const void *from, size_t at, bool half)
{
	if (half)
		return load_bf16((const uint16_t *)from + at);
	return load_f32((const float *)from + at);
}

INLINE void store(void *to, size_t at, v_f32 value, bool half)
{
	if (half)
		store_bf16((uint16_t *)to + at, value);
	else
		store_f32((float *)to + at, value);
}

/* Stores a [value] that needs no rounding, because it was loaded from memory of the same type. */
INLINE void store_same(void *to, size_t at, v_f32 value, bool half)
{
	if (half)
		*(v_half_loose *)((uint16_t *)to + at) =
			__builtin_convertvector((v_u32)value >> 16, v_half);
	else
		store(to, at, value, false);
}

/*
 * Load or store only the first [n] elements, at most LANES. When loading, the other elements become
 * 0.
 */
INLINE v_f32 load_some(const void *from, size_t at, size_t n, bool half)
{
	size_t size = half ? 2 : 4;

	if (n < LANES) {
		char part[VECTOR] = {0};

		memcpy(part, (const char *)from + at * size, n * size);
		return load(part, 0, half);
	}
	return load(from, at, half);
}

INLINE void store_some(void *to, size_t at, size_t n, v_f32 value, bool half)
{
	size_t size = half ? 2 : 4;

	if (n < LANES) {
		char part[VECTOR];

		store(part, 0, value, half);
		memcpy((char *)to + at * size, part, n * size);
	} else {
		store(to, at, value, half);
	}
}

INLINE void store_same_some(void *to, size_t at, size_t n, v_f32 value, bool half)
{
	if (n == LANES)
		store_same(to, at, value, half);
	else
		store_some(to, at, n, value, half);
}

INLINE v_i32 load_bytes(const uint8_t *from, size_t n)
{
	v_byte part = {0};

	if (n == LANES)
		part = *(const v_byte_loose *)from;
	else
		memcpy(&part, from, n);
	return __builtin_convertvector(part, v_i32);
}

INLINE void store_bytes(uint8_t *to, size_t n, v_i32 value)
{
	v_byte part = __builtin_convertvector(value, v_byte);

	memcpy(to, &part, n);
}

/* The [n] bits of [bits] from bit [at] on. Bytes without any of these bits are not read. */
INLINE uint32_t some_bits(const uint8_t *bits, size_t at, size_t n)
{
	uint32_t word = 0;

	for (size_t byte = at / 8; byte * 8 < at + n; byte++)
		word |= (uint32_t)bits[byte] << (byte - at / 8) * 8;
	return word >> at % 8 & ((1u << n) - 1);
}

/* Number of elements in the vector that starts at [at] of an array of [count]. */
INLINE size_t count_in_vector(size_t at, size_t count)
{
	return count - at < LANES ? count - at : LANES;
}

/* --- Element by element --------------------------------------------------------------------- */

INLINE void mask_all(const void *x, void *y, const uint8_t *keep, float scale, size_t count,
		     bool half)
{
	for (size_t i = 0; i < count; i += LANES) {
		size_t n = count_in_vector(i, count);
		v_i32 kept = spread(some_bits(keep, i, n));

		store_some(y, i, n, only(kept, load_some(x, i, n, half) * scale), half);
	}
}

static TARGET void mask(const void *x, void *y, const uint8_t *keep, float scale, size_t count,
			enum ddp_type type)
{
	FOR_TYPE(mask_all, x, y, keep, scale, count);
}

INLINE void relu_back_all(const void *dy, const void *y, void *dx, size_t count, bool half)
{
	for (size_t i = 0; i < count; i += LANES) {
		size_t n = count_in_vector(i, count);
		v_i32 passed = load_some(y, i, n, half) > 0;

		store_same_some(dx, i, n, only(passed, load_some(dy, i, n, half)), half);
	}
}

static TARGET void relu_back(const void *dy, const void *y, void *dx, size_t count,
			     enum ddp_type type)
{
	FOR_TYPE(relu_back_all, dy, y, dx, count);
}

INLINE void relu_all(const void *x, void *y, size_t count, bool half)
{
	for (size_t i = 0; i < count; i += LANES) {
		size_t n = count_in_vector(i, count);

		store_same_some(y, i, n, positive(load_some(x, i, n, half)), half);
	}
}

static TARGET void relu(const void *x, void *y, size_t count, enum ddp_type type)
{
	FOR_TYPE(relu_all, x, y, count);
}

INLINE void add_all(const void *a, const void *b, void *y, size_t count, bool relu, bool half)
{
	for (size_t i = 0; i < count; i += LANES) {
		size_t n = count_in_vector(i, count);
		v_f32 sum = load_some(a, i, n, half) + load_some(b, i, n, half);

		store_some(y, i, n, relu ? positive(sum) : sum, half);
	}
}

static TARGET void add(const void *a, const void *b, void *y, size_t count, bool relu,
		       enum ddp_type type)
{
	FOR_TYPE(add_all, a, b, y, count, relu);
}

static TARGET void narrow(const float *from, void *to, size_t count)
{
	for (size_t i = 0; i < count; i += LANES) {
		size_t n = count_in_vector(i, count);

		store_some(to, i, n, load_some(from, i, n, false), true);
	}
}

static TARGET void widen(const void *from, float *to, size_t count)
{
	for (size_t i = 0; i < count; i += LANES) {
		size_t n = count_in_vector(i, count);

		store_some(to, i, n, load_some(from, i, n, true), false);
	}
}

/* --- 2 x 2 max-pooling, and means over whole images ------------------------------------------ */

/*
 * Computes the maximum of a window's four pixels for a vector of channels. In these pixels, the
 * channels start at [at], at + channels, at + row and at + row + channels.
 */
INLINE void max_window(const void *x, size_t at, size_t row, size_t channels, void *y, size_t to,
		       uint8_t *which, bool half)
{
	const size_t pixels[] = {at, at + channels, at + row, at + row + channels};

	for (size_t c = 0; c < channels; c += LANES) {
		size_t n = count_in_vector(c, channels);
		v_f32 best = load_some(x, pixels[0] + c, n, half);
		v_i32 index = {0};

		for (int k = 1; k < 4; k++) {
			v_f32 next = load_some(x, pixels[k] + c, n, half);
			v_i32 wins = (next > best) | (next != next);

			best = (v_f32)choose(wins, (v_u32)next, (v_u32)best);
			index = (wins & k) | (~wins & index);
		}
		store_same_some(y, to + c, n, best, half);
		store_bytes(which + to + c, n, index);
	}
}

INLINE void max_pool_all(const void *x, void *y, uint8_t *which, size_t images, size_t height,
			 size_t width, size_t channels, bool half)
{
	size_t row = width * channels, to = 0;

	for (size_t i = 0; i < images; i++)
		for (size_t h = 0; h < height; h += 2)
			for (size_t w = 0; w < width; w += 2, to += channels)
				max_window(x, (i * height + h) * row + w * channels, row, channels,
					   y, to, which, half);
}

static TARGET void max_pool(const void *x, void *y, uint8_t *which, size_t images, int height,
			    int width, int channels, enum ddp_type type)
{
	size_t h = (size_t)height, w = (size_t)width, c = (size_t)channels;

	FOR_TYPE(max_pool_all, x, y, which, images, h, w, c);
}

INLINE void max_window_back(const void *dy, size_t from, const uint8_t *which, void *dx, size_t at,
			    size_t row, size_t channels, bool half)
{
	const size_t pixels[] = {at, at + channels, at + row, at + row + channels};

	for (size_t c = 0; c < channels; c += LANES) {
		size_t n = count_in_vector(c, channels);
		v_f32 value = load_some(dy, from + c, n, half);
		v_i32 index = load_bytes(which + from + c, n);

		for (int k = 0; k < 4; k++)
			store_same_some(dx, pixels[k] + c, n, only(index == k, value), half);
	}
}

INLINE void max_pool_back_all(const void *dy, const uint8_t *which, void *dx, size_t images,
			      size_t height, size_t width, size_t channels, bool half)
{
	size_t row = width * channels, from = 0;

	for (size_t i = 0; i < images; i++)
		for (size_t h = 0; h < height; h += 2)
			for (size_t w = 0; w < width; w += 2, from += channels)
				max_window_back(dy, from, which, dx,
						(i * height + h) * row + w * channels, row,
						channels, half);
}

static TARGET void max_pool_back(const void *dy, const uint8_t *which, void *dx, size_t images,
				 int height, int width, int channels, enum ddp_type type)
{
	size_t h = (size_t)height, w = (size_t)width, c = (size_t)channels;

	FOR_TYPE(max_pool_back_all, dy, which, dx, images, h, w, c);
}

INLINE void average_pool_all(const void *x, void *y, size_t images, size_t rows, size_t channels,
			     bool half)
{
	float part = 1 / (float)rows;

	for (size_t i = 0; i < images; i++)
		for (size_t c = 0; c < channels; c += LANES) {
			size_t n = count_in_vector(c, channels);
			v_f32 sum = {0};

			for (size_t r = 0; r < rows; r++)
				sum += load_some(x, (i * rows + r) * channels + c, n, half);
			store_some(y, i * channels + c, n, sum * part, half);
		}
}

static TARGET void average_pool(const void *x, void *y, size_t images, size_t rows, size_t channels,
				enum ddp_type type)
{
	FOR_TYPE(average_pool_all, x, y, images, rows, channels);
}

INLINE void average_pool_back_all(const void *dy, void *dx, size_t images, size_t rows,
				  size_t channels, bool half)
{
	float part = 1 / (float)rows;

	for (size_t i = 0; i < images; i++)
		for (size_t c = 0; c < channels; c += LANES) {
			size_t n = count_in_vector(c, channels);
			v_f32 value = load_some(dy, i * channels + c, n, half) * part;

			for (size_t r = 0; r < rows; r++)
				store_some(dx, (i * rows + r) * channels + c, n, value, half);
		}
}

static TARGET void average_pool_back(const void *dy, void *dx, size_t images, size_t rows,
				     size_t channels, enum ddp_type type)
{
	FOR_TYPE(average_pool_back_all, dy, dx, images, rows, channels);
}

/* --- BatchNorm ------------------------------------------------------------------------------- */

/*
 * Sums over rows are computed in blocks that fit into the first-level cache. Sums within a block
 * are f32, sums over blocks are f64. Channels are divided into strips, whose values fit on the
 * stack.
 */
enum { STRIP = 512, BLOCK = 16384 /* bytes of f32 */ };

/*
 * Number of rows of a block with [width] channels, small enough that its sums in f32 are accurate.
 */
INLINE size_t block_rows(size_t width)
{
	size_t rows = BLOCK / (4 * width);

	return rows < 16 ? 16 : rows > 64 ? 64 : rows;
}

/*
 * For each channel of a strip: the value of one block, its rounding error, and the sum over blocks.
 */
struct strip {
	float here[STRIP], error[STRIP];
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

/* [rows] rows of [width] channels from [at] on; [pitch] is the distance between rows. */
struct block {
	size_t at, rows, width, pitch;
};

/*
 * Computes the mean and the sum of squared deviations of each channel of a block. The pass for the
 * deviations also finds the rounding error of the mean, and corrects the sum for that error.
 */
INLINE void block_moments(const struct block *block, const void *x, struct strip *mean,
			  struct strip *m2, bool half)
{
	float part = 1 / (float)block->rows;

	for (size_t c = 0; c < block->width; c += LANES) {
		size_t n = count_in_vector(c, block->width);
		v_f32 sum = {0}, error = {0}, squares = {0};

		for (size_t r = 0; r < block->rows; r++)
			sum += load_some(x, block->at + r * block->pitch + c, n, half);
		sum *= part;
		for (size_t r = 0; r < block->rows; r++) {
			v_f32 off = load_some(x, block->at + r * block->pitch + c, n, half) - sum;

			error += off;
			squares = multiply_add(off, off, squares);
		}
		store(mean->here, c, sum, false);
		store(mean->error, c, error * part, false);
		store(m2->here, c, squares - error * error * part, false);
	}
}

/* Combines the moments of a block of [rows] rows with those of the [before] rows before it. */
INLINE void strip_join(struct strip *mean, struct strip *m2, size_t width, double rows,
		       double before)
{
	double part = rows / (rows + before), weight = before * part;

	strip_add(m2, width);
	for (size_t c = 0; c < width; c += LANES / 2) {
		v_f64 apart = load_wide(mean->here + c) + load_wide(mean->error + c) -
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
	FOR_TYPE(moments_all, x, rows, channels, mean, m2);
}

INLINE void norm_all(const struct kernel_norm *norm, const void *x, const void *add, void *y,
		     bool relu, bool half)
{
	size_t channels = norm->channels;

	for (size_t r = 0; r < norm->rows; r++)
		for (size_t c = 0; c < channels; c += LANES) {
			size_t n = count_in_vector(c, channels), at = r * channels + c;
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
	FOR_TYPE(norm_all, norm, x, add, y, relu);
}

/* Returns the gradient of [n] elements that start at index [at]. The gradient is 0 where y <= 0. */
INLINE v_f32 passed(const void *dy, const void *y, size_t at, size_t n, bool half)
{
	v_f32 value = load_some(dy, at, n, half);

	return y ? only(load_some(y, at, n, half) > 0, value) : value;
}

INLINE void block_sums(const struct block *block, const float *mean, const void *x, const void *y,
		       const void *dy, float *sums, float *dots, bool half)
{
	for (size_t c = 0; c < block->width; c += LANES) {
		size_t n = count_in_vector(c, block->width);
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
	FOR_TYPE(norm_sums_all, norm, x, y, dy, sums);
}

/* Coefficients for each channel in dx = factor * (dy - middle - (x - mean) * slope). */
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
			size_t n = count_in_vector(c, width), at = r * norm->channels + from + c;
			v_f32 value = passed(dy, y, at, n, half);
			v_f32 off = load_some(x, at, n, half) -
				    load_some(norm->mean, from + c, n, false);
			v_f32 error = value - load(by->middle, c, false);

			if (dy_out)
				store_same_some(dy_out, at, n, value, half);
			error = multiply_add(-off, load(by->slope, c, false), error);
			store_some(dx, at, n, error * load(by->factor, c, false), half);
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
	FOR_TYPE(norm_back_all, norm, x, y, dy, sums, n, dx, dy_out);
}

#include "kernels-list.h"

const struct kernels SIMD(kernels) = {
	.name = SIMD_NAME,
	.max_pool = max_pool,
	.max_pool_back = max_pool_back,
	.mask = mask,
	.relu_back = relu_back,
	.relu = relu,
	.add = add,
	.moments = moments,
	.norm = norm,
	.norm_sums = norm_sums,
	.norm_back = norm_back,
	.average_pool = average_pool,
	.average_pool_back = average_pool_back,
	.list = list,
	.list_weights = list_weights,
	.list_data = list_data,
	.narrow = narrow,
	.widen = widen,
};
