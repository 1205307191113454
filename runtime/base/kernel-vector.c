/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel-vector.c - reductions and conversions, compiled once per instruction set (vector.h)
 *
 * The results are the same, bit by bit, with all instruction sets. The arguments [type] and [op] of
 * INLINE functions are constants after inlining.
 */
#include "config.h"

#include "kernel.h"
#include "vector.h"

/* LINE: bytes of a cache line. AHEAD: bytes between an access and the data that it prefetches. */
enum { LINE = 64, AHEAD = 512 };

/*
 * Returns how many bytes of memory fill one vector. 16-bit elements become f32 in the vector, so
 * they need half as many.
 */
INLINE size_t stride_of(enum ddp_type type)
{
	return type == DDP_BF16 || type == DDP_F16 ? VECTOR / 2 : VECTOR;
}

/*
 * Load one vector. Vectors of all types are passed as v_f32, and cast only for arithmetic. So all
 * loads and stores use the most frequent type, and no copies between registers are needed.
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

/* Integers are added as unsigned, since signed overflow is undefined. */
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
 * [a] is the earlier element, [b] the later one. MAX and MIN choose [b] if it is NaN or better than
 * [a]. If [a] is NaN, the comparison is false, so [a] stays.
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

/* Multiply sums of floating-point types by [scale]. */
INLINE v_f32 scaled(v_f32 value, double scale, enum ddp_type type, enum ddp_op op)
{
	if (op != DDP_SUM || type == DDP_I32 || type == DDP_I64 || type == DDP_U8)
		return value;
	if (type == DDP_F64)
		return (v_f32)((v_f64)value * scale);
	return value * (float)scale;
}

/* Reduce the elements at offset [at], at most one vector. A partial vector is padded with zeros. */
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
 * Reduce four vectors at a time, to hide the latency of loads. If all sources are also targets,
 * most of their cache lines are in other CPUs' caches, and this function also writes them.
 * Therefore they are prefetched for writing: that needs one transfer of each line instead of two.
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

/* --- Order-independent sums ------------------------------------------------------------------- */

/*
 * Returns, for each element, the larger absolute value of [most] and [bits]. The sign bits of both
 * are already 0. Elements of [bits] that are inf or NaN are ignored.
 */
INLINE v_u32 larger_f32(v_u32 most, v_u32 bits)
{
	v_i32 mask = ((v_i32)bits > (v_i32)most) & ((v_i32)bits < 0x7f800000);

	return choose(mask, bits, most);
}

INLINE v_u64 larger_f64(v_u64 most, v_u64 bits)
{
	v_u64 mask = (v_u64)(((v_i64)bits > (v_i64)most) & ((v_i64)bits < 0x7ff0000000000000));

	return (mask & bits) | (~mask & most);
}

INLINE v_f32 load_piece(const char *from, size_t bytes)
{
	v_f32 value = {0};

	memcpy(&value, from, bytes);
	return value;
}

INLINE v_f32 larger(v_f32 most, v_f32 x, bool wide)
{
	if (wide)
		return (v_f32)larger_f64((v_u64)most, (v_u64)x & 0x7fffffffffffffff);
	return (v_f32)larger_f32((v_u32)most, (v_u32)x & 0x7fffffff);
}

/*
 * Returns a vector whose element i is the largest absolute value of all elements i of the vectors
 * in [from]. If [copy] is true, also copies [from] to [to].
 */
INLINE v_f32 largest_vector(char *to, const char *from, size_t bytes, bool copy, bool wide)
{
	v_f32 most[2] = {{0}}, x;
	size_t at = 0;

	for (; bytes - at >= 2 * VECTOR; at += 2 * VECTOR)
		for (size_t k = 0; k < 2; k++) {
			x = load_f32(from + at + k * VECTOR);
			most[k] = larger(most[k], x, wide);
			if (copy)
				store_f32(to + at + k * VECTOR, x);
		}
	for (; at < bytes; at += VECTOR) {
		size_t length = bytes - at < VECTOR ? bytes - at : VECTOR;

		x = load_piece(from + at, length);
		most[0] = larger(most[0], x, wide);
		if (copy)
			memcpy(to + at, &x, length);
	}
	return larger(most[0], most[1], wide);
}

INLINE double largest_of_type(void *to, const void *from, size_t count, bool wide)
{
	size_t size = wide ? sizeof(double) : sizeof(float);
	v_f32 vector = to ? largest_vector(to, from, count * size, true, wide)
			  : largest_vector(NULL, from, count * size, false, wide);
	double most = 0;

	for (size_t i = 0; i < VECTOR / size; i++) {
		double x = wide ? ((v_f64)vector)[i] : (double)vector[i];

		most = x > most ? x : most;
	}
	return most;
}

static TARGET double largest(void *to, const void *from, size_t count, enum ddp_type type)
{
	return type == DDP_F64 ? largest_of_type(to, from, count, true)
			       : largest_of_type(to, from, count, false);
}

INLINE v_f64 load_few(const void *from, bool wide)
{
	if (wide)
		return *(const v_f64_loose *)from;
	return __builtin_convertvector(*(const v_f32_few_loose *)from, v_f64);
}

INLINE void store_few(void *to, v_f64 value, bool wide)
{
	if (wide)
		*(v_f64_loose *)to = value;
	else
		*(v_f32_few_loose *)to = __builtin_convertvector(value, v_f32_few);
}

/* 1.5 x 2^52. Adding and then subtracting it rounds a number of up to 2^51 to an integer. */
#define WHOLE 0x1.8p52

INLINE v_f64 whole(v_f64 value, const double factor[2])
{
	return value * factor[0] * factor[1] + WHOLE - WHOLE;
}

INLINE void to_whole(double *to, const void *from, size_t count, const double factor[2], bool add,
		     bool wide)
{
	enum { MANY = LANES / 2 };
	const size_t size = wide ? sizeof(double) : sizeof(float);
	char part[VECTOR] = {0};
	v_f64 value;

	for (; count >= MANY; count -= MANY, to += MANY) {
		value = whole(load_few(from, wide), factor);
		if (add)
			value += *(const v_f64_loose *)to;
		*(v_f64_loose *)to = value;
		from = (const char *)from + MANY * size;
	}
	if (count == 0)
		return;
	memcpy(part, from, count * size);
	value = whole(load_few(part, wide), factor);
	for (size_t i = 0; i < count; i++)
		to[i] = add ? to[i] + value[i] : value[i];
}

/*
 * Replace every NaN by the same NaN, since the bits of the NaN that a sum gives depend on the order
 * of additions.
 */
INLINE v_f64 canonical_nan(v_f64 value)
{
	v_u64 is = (v_u64)(value != value);

	return (v_f64)((is & 0x7ff8000000000000) | (~is & (v_u64)value));
}

INLINE void from_whole(void *to, const double *from, size_t count, const double factor[2],
		       bool wide)
{
	enum { MANY = LANES / 2 };
	const size_t size = wide ? sizeof(double) : sizeof(float);
	char part[VECTOR] = {0};

	for (; count >= MANY; count -= MANY, from += MANY) {
		v_f64 value = *(const v_f64_loose *)from * factor[0] * factor[1];

		store_few(to, canonical_nan(value), wide);
		to = (char *)to + MANY * size;
	}
	if (count == 0)
		return;
	memcpy(part, from, count * sizeof(double));
	store_few(part, canonical_nan(*(const v_f64_loose *)part * factor[0] * factor[1]), wide);
	memcpy(to, part, count * size);
}

static TARGET void enter(double *to, const void *from, size_t count, enum ddp_type type,
			 const double factor[2], bool add)
{
	if (type == DDP_F64 && add)
		to_whole(to, from, count, factor, true, true);
	else if (type == DDP_F64)
		to_whole(to, from, count, factor, false, true);
	else if (add)
		to_whole(to, from, count, factor, true, false);
	else
		to_whole(to, from, count, factor, false, false);
}

static TARGET void leave(void *to, const double *from, size_t count, enum ddp_type type,
			 const double factor[2])
{
	if (type == DDP_F64)
		from_whole(to, from, count, factor, true);
	else
		from_whole(to, from, count, factor, false);
}

/*
 * Add the elements at offset [at] of all sources. Each source has [bytes] there, at most one vector
 * of f64. A partial vector is padded with zeros.
 */
INLINE void sum_few(void *const *to, int targets, const void *const *from, int sources, size_t at,
		    size_t bytes, const double in[2], const double out[2], bool wide)
{
	char part[VECTOR] = {0};
	v_f64 sum = {0};

	for (int s = 0; s < sources; s++) {
		memcpy(part, (const char *)from[s] + at, bytes);
		sum += whole(load_few(part, wide), in);
	}
	store_few(part, canonical_nan(sum * out[0] * out[1]), wide);
	for (int t = 0; t < targets; t++)
		memcpy((char *)to[t] + at, part, bytes);
}

INLINE void sum_whole(void *const *to, int targets, const void *const *from, int sources,
		      size_t bytes, const double in[2], const double out[2], bool wide)
{
	enum { MANY = 4 };
	const size_t stride = wide ? VECTOR : VECTOR / 2;
	size_t at = 0;

	for (; bytes - at >= MANY * stride; at += MANY * stride) {
		v_f64 sums[MANY] = {{0}};

		for (int s = 0; s < sources; s++) {
			const char *next = (const char *)from[s] + at;

			UNROLL
			for (size_t k = 0; k < MANY; k++)
				sums[k] += whole(load_few(next + k * stride, wide), in);
		}
		UNROLL
		for (size_t k = 0; k < MANY; k++)
			sums[k] = canonical_nan(sums[k] * out[0] * out[1]);
		for (int t = 0; t < targets; t++) {
			char *next = (char *)to[t] + at;

			UNROLL
			for (size_t k = 0; k < MANY; k++)
				store_few(next + k * stride, sums[k], wide);
		}
	}
	for (; at < bytes; at += stride)
		sum_few(to, targets, from, sources, at, bytes - at < stride ? bytes - at : stride,
			in, out, wide);
}

static TARGET void sum_all(void *const *to, int targets, const void *const *from, int sources,
			   size_t count, enum ddp_type type, const double in[2],
			   const double out[2])
{
	if (type == DDP_F64)
		sum_whole(to, targets, from, sources, count * sizeof(double), in, out, true);
	else
		sum_whole(to, targets, from, sources, count * sizeof(float), in, out, false);
}

/* --- One function per type and operation --------------------------------------------------- */

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
	.largest = largest,
	.enter = enter,
	.leave = leave,
	.whole = sum_all,
};
