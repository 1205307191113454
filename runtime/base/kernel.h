/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel.h - elementwise reductions, for each type, operation and instruction set
 */
#ifndef DDP_BASE_KERNEL_H
#define DDP_BASE_KERNEL_H

#include "simd.h"

/*
 * For i < count: to[*][i] = (from[0][i] op from[1][i] ... op from[sources-1][i]) * scale, with the
 * same bits in all [targets] arrays. Sums are formed in this order, in f32 for 16-bit types, which
 * are rounded (to nearest, even) once at the end. [scale] is 1 for none; MAX, MIN and integer types
 * ignore it. MAX and MIN return NaN if any source is NaN, as PyTorch does. to[t] may be one of
 * from[]; otherwise they must not overlap. [sources] and [targets] >= 1.
 */
typedef void ddp_kernel(void *const *to, int targets, const void *const *from, int sources,
			size_t count, double scale);

/* The kernels of one instruction set. */
struct ddp_kernel_table {
	ddp_kernel *kernels[DDP_TYPE_COUNT][DDP_OP_COUNT];
	void (*bf16_widen)(float *to, const void *from, size_t count);
	void (*f16_widen)(float *to, const void *from, size_t count);
	void (*bf16_narrow)(void *to, const float *from, size_t count);
	void (*f16_narrow)(void *to, const float *from, size_t count);

	/*
	 * Order-independent sums: elements are converted to integers in doubles, whose sums are
	 * exact. All take [count] elements of [type], DDP_F32 or DDP_F64, and keep inf and NaN.
	 * [largest] returns the largest finite absolute value, 0 if there is none, and copies the
	 * elements to [to], unless that is NULL. [enter] multiplies by both factors, powers of two
	 * such that no product exceeds 2^51, rounds to integers, and stores them in [to] or adds
	 * them to it. [leave] converts back.
	 */
	double (*largest)(void *to, const void *from, size_t count, enum ddp_type type);
	void (*enter)(double *to, const void *from, size_t count, enum ddp_type type,
		      const double factor[2], bool add);
	void (*leave)(void *to, const double *from, size_t count, enum ddp_type type,
		      const double factor[2]);

	/*
	 * [enter] for all [sources], in any order, and [leave] of the sum to all [targets], in one
	 * pass.
	 */
	void (*whole)(void *const *to, int targets, const void *const *from, int sources,
		      size_t count, enum ddp_type type, const double in[2], const double out[2]);
};
extern const struct ddp_kernel_table ddp_kernels_plain, ddp_kernels_avx2, ddp_kernels_avx512;

/* Returns the kernel for [type] and [op] with [simd]'s instructions. */
ddp_kernel *ddp_kernel_get(enum ddp_type type, enum ddp_op op, enum ddp_simd simd);

const struct ddp_kernel_table *ddp_kernel_table(enum ddp_simd simd);

/* Convert [count] elements, rounding to nearest, even. Used for compressed gradients. */
void ddp_convert(void *to, enum ddp_type to_type, const void *from, enum ddp_type from_type,
		 size_t count, enum ddp_simd simd);

#endif /* DDP_BASE_KERNEL_H */
