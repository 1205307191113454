/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel-elements.h - kernels that look at one element at a time
 */
#include "kernel-vector.h"

INLINE void mask_all(const void *x, void *y, const uint8_t *keep, float scale, size_t count,
		     bool half)
{
	for (size_t i = 0; i < count; i += LANES) {
		size_t n = some(i, count);
		v_i32 kept = spread(some_bits(keep, i, n));

		store_some(y, i, n, only(kept, load_some(x, i, n, half) * scale), half);
	}
}

static TARGET void mask(const void *x, void *y, const uint8_t *keep, float scale, size_t count,
			enum ddp_type type)
{
	if (type == DDP_BF16)
		mask_all(x, y, keep, scale, count, true);
	else
		mask_all(x, y, keep, scale, count, false);
}

INLINE void relu_back_all(const void *dy, const void *y, void *dx, size_t count, bool half)
{
	for (size_t i = 0; i < count; i += LANES) {
		size_t n = some(i, count);
		v_i32 passed = load_some(y, i, n, half) > 0;

		store_same_some(dx, i, n, only(passed, load_some(dy, i, n, half)), half);
	}
}

static TARGET void relu_back(const void *dy, const void *y, void *dx, size_t count,
			     enum ddp_type type)
{
	if (type == DDP_BF16)
		relu_back_all(dy, y, dx, count, true);
	else
		relu_back_all(dy, y, dx, count, false);
}

INLINE void relu_all(const void *x, void *y, size_t count, bool half)
{
	for (size_t i = 0; i < count; i += LANES) {
		size_t n = some(i, count);

		store_same_some(y, i, n, positive(load_some(x, i, n, half)), half);
	}
}

static TARGET void relu(const void *x, void *y, size_t count, enum ddp_type type)
{
	if (type == DDP_BF16)
		relu_all(x, y, count, true);
	else
		relu_all(x, y, count, false);
}

INLINE void add_all(const void *a, const void *b, void *y, size_t count, bool relu, bool half)
{
	for (size_t i = 0; i < count; i += LANES) {
		size_t n = some(i, count);
		v_f32 sum = load_some(a, i, n, half) + load_some(b, i, n, half);

		store_some(y, i, n, relu ? positive(sum) : sum, half);
	}
}

static TARGET void add(const void *a, const void *b, void *y, size_t count, bool relu,
		       enum ddp_type type)
{
	if (type == DDP_BF16)
		add_all(a, b, y, count, relu, true);
	else
		add_all(a, b, y, count, relu, false);
}

static TARGET void narrow(const float *from, void *to, size_t count, enum ddp_type type)
{
	if (type != DDP_BF16) {
		memmove(to, from, count * sizeof(*from));
		return;
	}
	for (size_t i = 0; i < count; i += LANES) {
		size_t n = some(i, count);

		store_some(to, i, n, load_some(from, i, n, false), true);
	}
}

static TARGET void widen(const void *from, float *to, size_t count, enum ddp_type type)
{
	if (type != DDP_BF16) {
		memmove(to, from, count * sizeof(*to));
		return;
	}
	for (size_t i = 0; i < count; i += LANES) {
		size_t n = some(i, count);

		store_some(to, i, n, load_some(from, i, n, true), false);
	}
}
