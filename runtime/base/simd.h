/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simd.h - which instructions loops over numbers use
 */
#ifndef DDP_BASE_SIMD_H
#define DDP_BASE_SIMD_H

#include "error.h"

#if defined(__x86_64__)
#define DDP_SIMD_X86 1
#else
#define DDP_SIMD_X86 0
#endif

/* AVX2 with FMA and F16C; AVX-512 with F, BW, DQ and VL. */
enum ddp_simd { DDP_SIMD_PLAIN, DDP_SIMD_AVX2, DDP_SIMD_AVX512, DDP_SIMD_COUNT };

/*
 * The best instruction set that this CPU has, or what DDP_SIMD says.
 * Returns 0, or DDP_ERR_ENVIRONMENT where DDP_SIMD names one that the CPU lacks.
 */
int ddp_simd_choose(enum ddp_simd *simd, struct ddp_error *error);

/* "plain", "avx2", "avx512". */
const char *ddp_simd_name(enum ddp_simd simd);

#endif /* DDP_BASE_SIMD_H */
