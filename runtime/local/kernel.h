/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel.h - elementwise reductions, for each type, operation and instruction set
 */
#ifndef DDP_LOCAL_KERNEL_H
#define DDP_LOCAL_KERNEL_H

#include "base/simd.h"

/*
 * For i < count: to[*][i] = (from[0][i] op from[1][i] ... op from[sources-1][i]) * scale, the
 * same bits in all [targets] arrays. Sums run in this order, with f32 for 16-bit types, which
 * are rounded (to nearest, even) once at the end; [scale] is 1 for none, and is ignored by MAX,
 * MIN and integer types. NaN: MAX and MIN give NaN where any source has one, as PyTorch does.
 * to[t] may be one of from[]; otherwise they do not overlap. [sources] and [targets] >= 1.
 */
typedef void ddp_kernel(void *const *to, int targets, const void *const *from, int sources,
			size_t count, double scale);

/* What each instruction set has. */
struct ddp_kernel_table {
	ddp_kernel *kernels[DDP_TYPE_COUNT][DDP_OP_COUNT];
	void (*bf16_widen)(float *to, const void *from, size_t count);
	void (*f16_widen)(float *to, const void *from, size_t count);
	void (*bf16_narrow)(void *to, const float *from, size_t count);
	void (*f16_narrow)(void *to, const float *from, size_t count);

	/*
	 * Sums that neither order nor grouping changes, as whole numbers in doubles: of [count] elements of [type],
	 * DDP_F32 or DDP_F64. [largest] gives that without its sign, inf and nan left out, 0 where there is none; and
	 * copies to [to], unless that is NULL. [enter] multiplies by both factors, powers of two after which none is
	 * beyond 2^51, rounds to whole numbers, and puts them into [to] or adds them to it. [leave] goes back. Inf and nan
	 * stay what they are in these.
	 */
	double (*largest)(void *to, const void *from, size_t count, enum ddp_type type);
	void (*enter)(double *to, const void *from, size_t count, enum ddp_type type,
		      const double factor[2], bool add);
	void (*leave)(void *to, const double *from, size_t count, enum ddp_type type,
		      const double factor[2]);

	/* All of these at once: [enter] all [sources], in whichever order, and [leave] with the sum to all [targets]. */
	void (*whole)(void *const *to, int targets, const void *const *from, int sources,
		      size_t count, enum ddp_type type, const double in[2], const double out[2]);
};
extern const struct ddp_kernel_table ddp_kernels_plain, ddp_kernels_avx2, ddp_kernels_avx512;

/* The kernel for [type] and [op] with [simd]'s instructions. */
ddp_kernel *ddp_kernel_get(enum ddp_type type, enum ddp_op op, enum ddp_simd simd);

/* All that [simd] has. */
const struct ddp_kernel_table *ddp_kernel_table(enum ddp_simd simd);

/* Conversions of [count] elements, rounding to nearest even; used for compressed gradients. */
void ddp_convert(void *to, enum ddp_type to_type, const void *from, enum ddp_type from_type,
		 size_t count, enum ddp_simd simd);

#endif /* DDP_LOCAL_KERNEL_H */
