/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel.h - elementwise reductions for each type, operation and instruction set
 */
#ifndef DDP_BASE_KERNEL_H
#define DDP_BASE_KERNEL_H

#include "simd.h"

/*
 * For i < count: to[*][i] = (from[0][i] op from[1][i] ... op from[sources-1][i]) * scale, with the
 * same bits in all [targets] arrays. Sums are computed in this order. Sums of 16-bit types are
 * computed in f32 and rounded (to nearest, even) once at the end. A [scale] of 1 does not change
 * the result. MAX, MIN and integer types ignore [scale]. MAX and MIN return NaN if any source is
 * NaN, as PyTorch does. to[t] may be one of from[]; otherwise the arrays must not overlap.
 * [sources] and [targets] are at least 1.
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
	 * Order-independent sums. Elements are converted to integers that are stored in doubles, so
	 * their sums are exact. All functions work on [count] elements of [type], DDP_F32 or
	 * DDP_F64, and preserve inf and NaN.
	 *  - largest() returns the largest finite absolute value, 0 if there is none. If [to] is
	 *    not NULL, it also copies the elements to [to].
	 *  - enter() multiplies the elements by both factors, which are powers of two such that no
	 *    product exceeds 2^51. It rounds the products to integers, and stores them in [to] or
	 *    adds them to it.
	 *  - leave() converts the integers back.
	 */
	double (*largest)(void *to, const void *from, size_t count, enum ddp_type type);
	void (*enter)(double *to, const void *from, size_t count, enum ddp_type type,
		      const double factor[2], bool add);
	void (*leave)(void *to, const double *from, size_t count, enum ddp_type type,
		      const double factor[2]);

	/*
	 * Does in one pass what enter() for all [sources], in any order, and then leave() of their
	 * sum to all [targets] would do. [in] has the factors of enter(), [out] those of leave().
	 */
	void (*whole)(void *const *to, int targets, const void *const *from, int sources,
		      size_t count, enum ddp_type type, const double in[2], const double out[2]);
};
extern const struct ddp_kernel_table ddp_kernels_plain, ddp_kernels_avx2, ddp_kernels_avx512;

/* Returns the kernel for [type] and [op] that uses the instructions of [simd]. */
ddp_kernel *ddp_kernel_get(enum ddp_type type, enum ddp_op op, enum ddp_simd simd);

const struct ddp_kernel_table *ddp_kernel_table(enum ddp_simd simd);

/* Convert [count] elements, rounding to nearest (ties to even). Used for compressed gradients. */
void ddp_convert(void *to, enum ddp_type to_type, const void *from, enum ddp_type from_type,
		 size_t count, enum ddp_simd simd);

#endif /* DDP_BASE_KERNEL_H */
