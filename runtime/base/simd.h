/* SPDX-License-Identifier: Apache-2.0 */
/* simd.h - choice of the instruction set for loops over numbers */
#ifndef DDP_BASE_SIMD_H
#define DDP_BASE_SIMD_H

#include "error.h"

#if defined(__x86_64__)
#define DDP_SIMD_X86 1
#else
#define DDP_SIMD_X86 0
#endif

/* AVX2 here includes FMA and F16C; AVX-512 includes F, BW, DQ and VL. */
enum ddp_simd { DDP_SIMD_PLAIN, DDP_SIMD_AVX2, DDP_SIMD_AVX512, DDP_SIMD_COUNT };

/*
 * Choose the instruction set in DDP_SIMD or, if that is not set, the best one of this CPU.
 * Returns 0, or DDP_ERR_ENVIRONMENT if the CPU lacks the instruction set in DDP_SIMD.
 */
int ddp_simd_choose(enum ddp_simd *simd, struct ddp_error *error);

/* Returns "plain", "avx2" or "avx512". */
const char *ddp_simd_name(enum ddp_simd simd);

#endif /* DDP_BASE_SIMD_H */
