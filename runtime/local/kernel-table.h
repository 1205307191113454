/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel-table.h - what each instruction set gives to kernel.c
 */
#ifndef DDP_LOCAL_KERNEL_TABLE_H
#define DDP_LOCAL_KERNEL_TABLE_H

#include "kernel.h"

/* All from the same text, kernel-vector.h, so that all give the same bits. */
struct ddp_kernel_table {
	ddp_kernel *kernels[DDP_TYPE_COUNT][DDP_OP_COUNT];
	void (*bf16_widen)(float *to, const void *from, size_t count);
	void (*f16_widen)(float *to, const void *from, size_t count);
	void (*bf16_narrow)(void *to, const float *from, size_t count);
	void (*f16_narrow)(void *to, const float *from, size_t count);
};

extern const struct ddp_kernel_table ddp_kernels_plain;
#if DDP_SIMD_X86
extern const struct ddp_kernel_table ddp_kernels_avx2;
extern const struct ddp_kernel_table ddp_kernels_avx512;
#endif

#endif /* DDP_LOCAL_KERNEL_TABLE_H */
