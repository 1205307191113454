/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel-loop.h - kernel_sum_TYPE, kernel_max_TYPE and kernel_min_TYPE
 *
 * Included by kernel-vector.h once for each TYPE, whose elements have SIZE bytes in memory and
 * are computed with as VALUE.
 */
#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define V JOIN(v_, VALUE)
#define LOAD JOIN(load_, TYPE)
#define STORE JOIN(store_, TYPE)
#define SCALE JOIN(scale_, VALUE)
#define LOOP JOIN(loop_, TYPE)
#define PIECE JOIN(piece_, TYPE)
/* Bytes in memory of what fills one vector. */
#define STRIDE ((size_t)(SIZE == 2 ? VECTOR / 2 : VECTOR))

/* Up to one vector, at [at]: a piece of one is filled up with zeros. */
INLINE void PIECE(void *const *to, int targets, const void *const *from, int sources, size_t at,
		  size_t bytes, double scale, V (*combine)(V, V))
{
	char part[STRIDE] = {0};
	V value;

	memcpy(part, (const char *)from[0] + at, bytes);
	value = LOAD(part);
	for (int s = 1; s < sources; s++) {
		memcpy(part, (const char *)from[s] + at, bytes);
		value = combine(value, LOAD(part));
	}
	STORE(part, SCALE(value, scale));
	for (int t = 0; t < targets; t++)
		memcpy((char *)to[t] + at, part, bytes);
}

/*
 * Four vectors at a time: enough loads in flight to hide what one takes. Where all sources are
 * targets, most lines come from another CPU's cache and will be written: they are asked for as
 * such from the beginning, as one transfer is less than two.
 */
INLINE void LOOP(void *const *to, int targets, const void *const *from, int sources, size_t bytes,
		 double scale, V (*combine)(V, V))
{
	bool owned = targets > 1 && targets == sources && to[0] == from[0];
	size_t at = 0;

	for (; bytes - at >= 4 * STRIDE; at += 4 * STRIDE) {
		const char *next = (const char *)from[0] + at;
		V a = LOAD(next), b = LOAD(next + STRIDE);
		V c = LOAD(next + 2 * STRIDE), d = LOAD(next + 3 * STRIDE);

		for (int s = 1; s < sources; s++) {
			next = (const char *)from[s] + at;
			for (size_t k = 0; k < 4 * STRIDE && owned; k += LINE)
				__builtin_prefetch(next + AHEAD + k, 1);
			a = combine(a, LOAD(next));
			b = combine(b, LOAD(next + STRIDE));
			c = combine(c, LOAD(next + 2 * STRIDE));
			d = combine(d, LOAD(next + 3 * STRIDE));
		}
		a = SCALE(a, scale);
		b = SCALE(b, scale);
		c = SCALE(c, scale);
		d = SCALE(d, scale);
		for (int t = 0; t < targets; t++) {
			char *out = (char *)to[t] + at;

			STORE(out, a);
			STORE(out + STRIDE, b);
			STORE(out + 2 * STRIDE, c);
			STORE(out + 3 * STRIDE, d);
		}
	}
	for (; bytes - at >= STRIDE; at += STRIDE)
		PIECE(to, targets, from, sources, at, STRIDE, scale, combine);
	if (at < bytes)
		PIECE(to, targets, from, sources, at, bytes - at, scale, combine);
}

/* Counts of arrays that are constants save a tenth where the data is in the cache. */
#define KERNEL(op, scale)                                                                   \
	static TARGET void JOIN(kernel_##op##_, TYPE)(void *const *to, int targets,         \
						      const void *const *from, int sources, \
						      size_t count, double factor)          \
	{                                                                                   \
		(void)factor;                                                               \
		LOOP(to, targets, from, sources, count *SIZE, scale, JOIN(op##_, VALUE));   \
	}

KERNEL(sum, factor)
KERNEL(max, 1)
KERNEL(min, 1)

#undef KERNEL
#undef STRIDE
#undef PIECE
#undef LOOP
#undef SCALE
#undef STORE
#undef LOAD
#undef V
#undef JOIN
#undef JOIN2
#undef SIZE
#undef VALUE
#undef TYPE
