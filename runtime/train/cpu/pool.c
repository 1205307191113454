/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "pool.h"

static float value_of(const void *x, size_t at, enum ddp_type type)
{
	uint32_t bits;
	float value;

	if (type == DDP_F32)
		return ((const float *)x)[at];
	bits = (uint32_t)((const uint16_t *)x)[at] << 16;
	memcpy(&value, &bits, sizeof(value));
	return value;
}

static void copy(void *to, size_t to_at, const void *from, size_t from_at, enum ddp_type type)
{
	if (type == DDP_F32)
		((float *)to)[to_at] = ((const float *)from)[from_at];
	else
		((uint16_t *)to)[to_at] = ((const uint16_t *)from)[from_at];
}

/* The elements before channel 0 of the pixel that is place [which] of window (row, column). */
static size_t pixel(const struct pool *pool, size_t image, int row, int column, int which)
{
	int y = row * pool->size + which / pool->size, x = column * pool->size + which % pool->size;

	return ((image * (size_t)pool->height + (size_t)y) * (size_t)pool->width + (size_t)x) *
	       (size_t)pool->channels;
}

static int largest(const struct pool *pool, const void *x, size_t image, int row, int column,
		   size_t channel, enum ddp_type type)
{
	float best = value_of(x, pixel(pool, image, row, column, 0) + channel, type);
	int which = 0;

	for (int i = 1; i < pool->size * pool->size; i++) {
		float value = value_of(x, pixel(pool, image, row, column, i) + channel, type);

		/* A nan is not left for another one. */
		if (best == best && !(value <= best)) {
			best = value;
			which = i;
		}
	}
	return which;
}

void pool_forward(const struct pool *pool, size_t images, const void *x, void *y, uint8_t *which,
		  enum ddp_type type)
{
	int rows = pool->height / pool->size, columns = pool->width / pool->size;
	size_t channels = (size_t)pool->channels, windows = (size_t)(rows * columns), at = 0;

	for (size_t i = 0; i < images * windows; i++) {
		int row = (int)(i % windows) / columns, column = (int)(i % windows) % columns;

		for (size_t c = 0; c < channels; c++, at++) {
			int place = largest(pool, x, i / windows, row, column, c, type);

			which[at] = (uint8_t)place;
			copy(y, at, x, pixel(pool, i / windows, row, column, place) + c, type);
		}
	}
}

void pool_back(const struct pool *pool, size_t images, const void *dy, const uint8_t *which,
	       void *dx, enum ddp_type type)
{
	int rows = pool->height / pool->size, columns = pool->width / pool->size;
	size_t channels = (size_t)pool->channels, windows = (size_t)(rows * columns), at = 0;

	memset(dx, 0,
	       images * (size_t)pool->height * (size_t)pool->width * channels *
		       ddp_type_size(type));
	for (size_t i = 0; i < images * windows; i++) {
		int row = (int)(i % windows) / columns, column = (int)(i % windows) % columns;

		for (size_t c = 0; c < channels; c++, at++)
			copy(dx, pixel(pool, i / windows, row, column, which[at]) + c, dy, at,
			     type);
	}
}
