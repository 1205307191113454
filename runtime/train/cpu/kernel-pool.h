/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel-pool.h - max-pooling of 2 x 2, and means over whole images
 */
#include "kernel-vector.h"

/* A window's four pixels begin at row[0], row[0] + channels, row[1], row[1] + channels. */
INLINE void max_window(const void *x, size_t at, size_t row, size_t channels, void *y, size_t to,
		       uint8_t *which, bool half)
{
	const size_t pixels[] = {at, at + channels, at + row, at + row + channels};

	for (size_t c = 0; c < channels; c += LANES) {
		size_t n = some(c, channels);
		v_f32 best = load_some(x, pixels[0] + c, n, half);
		v_i32 index = {0};

		for (int k = 1; k < 4; k++) {
			v_f32 next = load_some(x, pixels[k] + c, n, half);
			v_i32 wins = (next > best) | (next != next);

			best = choose(wins, next, best);
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
		for (size_t h = 0; h + 1 < height; h += 2)
			for (size_t w = 0; w + 1 < width; w += 2, to += channels)
				max_window(x, (i * height + h) * row + w * channels, row, channels,
					   y, to, which, half);
}

static TARGET void max_pool(const void *x, void *y, uint8_t *which, size_t images, int height,
			    int width, int channels, enum ddp_type type)
{
	size_t h = (size_t)height, w = (size_t)width, c = (size_t)channels;

	if (type == DDP_BF16)
		max_pool_all(x, y, which, images, h, w, c, true);
	else
		max_pool_all(x, y, which, images, h, w, c, false);
}

INLINE void max_window_back(const void *dy, size_t from, const uint8_t *which, void *dx, size_t at,
			    size_t row, size_t channels, bool half)
{
	const size_t pixels[] = {at, at + channels, at + row, at + row + channels};

	for (size_t c = 0; c < channels; c += LANES) {
		size_t n = some(c, channels);
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

	if (height % 2 || width % 2)
		memset(dx, 0, images * height * row * (half ? 2 : 4));
	for (size_t i = 0; i < images; i++)
		for (size_t h = 0; h + 1 < height; h += 2)
			for (size_t w = 0; w + 1 < width; w += 2, from += channels)
				max_window_back(dy, from, which, dx,
						(i * height + h) * row + w * channels, row,
						channels, half);
}

static TARGET void max_pool_back(const void *dy, const uint8_t *which, void *dx, size_t images,
				 int height, int width, int channels, enum ddp_type type)
{
	size_t h = (size_t)height, w = (size_t)width, c = (size_t)channels;

	if (type == DDP_BF16)
		max_pool_back_all(dy, which, dx, images, h, w, c, true);
	else
		max_pool_back_all(dy, which, dx, images, h, w, c, false);
}

INLINE void average_pool_all(const void *x, void *y, size_t images, size_t rows, size_t channels,
			     bool half)
{
	float part = 1 / (float)rows;

	for (size_t i = 0; i < images; i++)
		for (size_t c = 0; c < channels; c += LANES) {
			size_t n = some(c, channels);
			v_f32 sum = {0};

			for (size_t r = 0; r < rows; r++)
				sum += load_some(x, (i * rows + r) * channels + c, n, half);
			store_some(y, i * channels + c, n, sum * part, half);
		}
}

static TARGET void average_pool(const void *x, void *y, size_t images, size_t rows, size_t channels,
				enum ddp_type type)
{
	if (type == DDP_BF16)
		average_pool_all(x, y, images, rows, channels, true);
	else
		average_pool_all(x, y, images, rows, channels, false);
}

INLINE void average_pool_back_all(const void *dy, void *dx, size_t images, size_t rows,
				  size_t channels, bool half)
{
	float part = 1 / (float)rows;

	for (size_t i = 0; i < images; i++)
		for (size_t c = 0; c < channels; c += LANES) {
			size_t n = some(c, channels);
			v_f32 value = load_some(dy, i * channels + c, n, half) * part;

			for (size_t r = 0; r < rows; r++)
				store_some(dx, (i * rows + r) * channels + c, n, value, half);
		}
}

static TARGET void average_pool_back(const void *dy, void *dx, size_t images, size_t rows,
				     size_t channels, enum ddp_type type)
{
	if (type == DDP_BF16)
		average_pool_back_all(dy, dx, images, rows, channels, true);
	else
		average_pool_back_all(dy, dx, images, rows, channels, false);
}
