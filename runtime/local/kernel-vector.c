/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel-vector.c - the reductions and conversions of one instruction set
 *
 * All instruction sets give the same bits. Where [type] and [op] are parameters of an INLINE
 * function they are constants.
 */
#include "config.h"

#include "base/vector.h"
#include "kernel.h"

/* Of a cache line; and how far ahead of the loads lines are asked for. */
enum { LINE = 64, AHEAD = 512 };

/* Bytes in memory of what fills one vector: 16-bit types are computed with as f32. */
INLINE size_t stride_of(enum ddp_type type)
{
	return type == DDP_BF16 || type == DDP_F16 ? VECTOR / 2 : VECTOR;
}

/*
 * A vector of whatever type is one of f32, outside of what computes: loads and stores are then
 * those of what is mostly summed, and nothing is copied between registers.
 */
INLINE v_f32 load(const char *from, enum ddp_type type)
{
	if (type == DDP_BF16)
		return load_bf16(from);
	if (type == DDP_F16)
		return load_f16(from);
	return *(const v_f32_loose *)from;
}

INLINE void store(char *to, v_f32 value, enum ddp_type type)
{
	if (type == DDP_BF16)
		store_bf16(to, value);
	else if (type == DDP_F16)
		store_f16(to, value);
	else
		*(v_f32_loose *)to = value;
}

/* Integers wrap, which only unsigned ones may. */
INLINE v_f32 sum(v_f32 a, v_f32 b, enum ddp_type type)
{
	switch (type) {
	case DDP_F64:
		return (v_f32)((v_f64)a + (v_f64)b);
	case DDP_I32:
		return (v_f32)((v_u32)a + (v_u32)b);
	case DDP_I64:
		return (v_f32)((v_u64)a + (v_u64)b);
	case DDP_U8:
		return (v_f32)((v_u8)a + (v_u8)b);
	default:
		return a + b;
	}
}

/*
 * MAX and MIN take the later element if it is NaN or beats the earlier one; a comparison with
 * an earlier NaN is false, so that one stays.
 */
#define EXTREME(vector, bits)                                                        \
	do {                                                                         \
		vector x = (vector)a, y = (vector)b;                                 \
		bits later = (bits)(op == DDP_MAX ? y > x : y < x) | (bits)(y != y); \
		return (v_f32)((later & (bits)y) | (~later & (bits)x));              \
	} while (0)

INLINE v_f32 extreme(v_f32 a, v_f32 b, enum ddp_type type, enum ddp_op op)
{
	switch (type) {
	case DDP_F64:
		EXTREME(v_f64, v_u64);
	case DDP_I32:
		EXTREME(v_i32, v_u32);
	case DDP_I64:
		EXTREME(v_i64, v_u64);
	case DDP_U8:
		EXTREME(v_u8, v_u8);
	default:
		EXTREME(v_f32, v_u32);
	}
}

INLINE v_f32 combine(v_f32 a, v_f32 b, enum ddp_type type, enum ddp_op op)
{
	return op == DDP_SUM ? sum(a, b, type) : extreme(a, b, type, op);
}

/* Sums of numbers that are no integers. */
INLINE v_f32 scaled(v_f32 value, double scale, enum ddp_type type, enum ddp_op op)
{
	if (op != DDP_SUM || type == DDP_I32 || type == DDP_I64 || type == DDP_U8)
		return value;
	if (type == DDP_F64)
		return (v_f32)((v_f64)value * scale);
	return value * (float)scale;
}

/* Up to one vector, at [at]: a piece of one is filled up with zeros. */
INLINE void reduce_piece(void *const *to, int targets, const void *const *from, int sources,
			 size_t at, size_t bytes, double scale, enum ddp_type type, enum ddp_op op)
{
	char part[VECTOR] = {0};
	v_f32 value;

	memcpy(part, (const char *)from[0] + at, bytes);
	value = load(part, type);
	for (int s = 1; s < sources; s++) {
		memcpy(part, (const char *)from[s] + at, bytes);
		value = combine(value, load(part, type), type, op);
	}
	store(part, scaled(value, scale, type, op), type);
	for (int t = 0; t < targets; t++)
		memcpy((char *)to[t] + at, part, bytes);
}

/*
 * Four vectors at a time: enough loads in flight to hide what one takes. Where all sources are
 * targets, most lines come from another CPU's cache and will be written: they are asked for as
 * such from the beginning, as one transfer is less than two.
 */
INLINE void reduce(void *const *to, int targets, const void *const *from, int sources, size_t bytes,
		   double scale, enum ddp_type type, enum ddp_op op)
{
	const size_t stride = stride_of(type);
	bool owned = targets > 1 && targets == sources && to[0] == from[0];
	size_t at = 0;

	for (; bytes - at >= 4 * stride; at += 4 * stride) {
		const char *next = (const char *)from[0] + at;
		v_f32 a = load(next, type), b = load(next + stride, type);
		v_f32 c = load(next + 2 * stride, type), d = load(next + 3 * stride, type);

		for (int s = 1; s < sources; s++) {
			next = (const char *)from[s] + at;
			for (size_t k = 0; k < 4 * stride && owned; k += LINE)
				__builtin_prefetch(next + AHEAD + k, 1);
			a = combine(a, load(next, type), type, op);
			b = combine(b, load(next + stride, type), type, op);
			c = combine(c, load(next + 2 * stride, type), type, op);
			d = combine(d, load(next + 3 * stride, type), type, op);
		}
		a = scaled(a, scale, type, op);
		b = scaled(b, scale, type, op);
		c = scaled(c, scale, type, op);
		d = scaled(d, scale, type, op);
		for (int t = 0; t < targets; t++) {
			char *out = (char *)to[t] + at;

			store(out, a, type);
			store(out + stride, b, type);
			store(out + 2 * stride, c, type);
			store(out + 3 * stride, d, type);
		}
	}
	for (; bytes - at >= stride; at += stride)
		reduce_piece(to, targets, from, sources, at, stride, scale, type, op);
	if (at < bytes)
		reduce_piece(to, targets, from, sources, at, bytes - at, scale, type, op);
}

INLINE void widen(float *to, const void *from, size_t count, enum ddp_type type)
{
	const char *next = from;
	char part[VECTOR / 2] = {0}, wide[VECTOR];

	for (; count >= LANES; count -= LANES, to += LANES, next += VECTOR / 2)
		store_f32(to, load(next, type));
	memcpy(part, next, count * 2);
	store_f32(wide, load(part, type));
	memcpy(to, wide, count * 4);
}

INLINE void narrow(void *to, const float *from, size_t count, enum ddp_type type)
{
	char *next = to;
	char wide[VECTOR] = {0}, part[VECTOR / 2];

	for (; count >= LANES; count -= LANES, from += LANES, next += VECTOR / 2)
		store(next, load_f32(from), type);
	memcpy(wide, from, count * 4);
	store(part, load_f32(wide), type);
	memcpy(next, part, count * 2);
}

/* --- One function for each type ------------------------------------------------------------ */

#define REDUCE(type, op, size)                                                                  \
	static TARGET void reduce_##type##_##op(void *const *to, int targets,                   \
						const void *const *from, int sources,           \
						size_t count, double scale)                     \
	{                                                                                       \
		reduce(to, targets, from, sources, count *(size), scale, DDP_##type, DDP_##op); \
	}
#define REDUCTIONS(type, size, text) \
	REDUCE(type, SUM, size)      \
	REDUCE(type, MAX, size)      \
	REDUCE(type, MIN, size)
DDP_TYPE_MAP(REDUCTIONS)

#define CONVERSIONS(type)                                                           \
	static TARGET void widen_##type(float *to, const void *from, size_t count)  \
	{                                                                           \
		widen(to, from, count, DDP_##type);                                 \
	}                                                                           \
	static TARGET void narrow_##type(void *to, const float *from, size_t count) \
	{                                                                           \
		narrow(to, from, count, DDP_##type);                                \
	}
CONVERSIONS(BF16)
CONVERSIONS(F16)

#define ROW(type, size, text) \
	[DDP_##type] = {reduce_##type##_SUM, reduce_##type##_MAX, reduce_##type##_MIN},

const struct ddp_kernel_table SIMD(ddp_kernels) = {
	.kernels = {DDP_TYPE_MAP(ROW)},
	.bf16_widen = widen_BF16,
	.f16_widen = widen_F16,
	.bf16_narrow = narrow_BF16,
	.f16_narrow = narrow_F16,
};
