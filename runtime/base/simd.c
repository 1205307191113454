/* SPDX-License-Identifier: Apache-2.0 */
/* simd.c - choose the instruction set from DDP_SIMD and the CPU's features */
#include "config.h"

#include "settings.h"
#include "simd.h"

#if DDP_SIMD_X86
#include <cpuid.h>
#endif

static const char *const simd_names[] = {"plain", "avx2", "avx512", NULL};

const char *ddp_simd_name(enum ddp_simd simd)
{
	return simd_names[simd];
}

/* Returns whether the CPU has the instructions and the operating system saves their registers. */
static bool simd_works(enum ddp_simd simd)
{
#if DDP_SIMD_X86
	unsigned eax, ebx, ecx, edx;

	__builtin_cpu_init();
	if (simd == DDP_SIMD_AVX512)
		return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
	if (simd == DDP_SIMD_AVX2)
		return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
		       __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
#endif
	return simd == DDP_SIMD_PLAIN;
}

int ddp_simd_choose(enum ddp_simd *simd, struct ddp_error *error)
{
	int word, status = ddp_setting_word(DDP_SET_DDP_SIMD, simd_names, &word, error);

	*simd = DDP_SIMD_PLAIN;
	if (status < 0)
		return status;
	if (word >= 0) {
		if (!simd_works((enum ddp_simd)word))
			return ddp_error_set(error, DDP_ERR_ENVIRONMENT,
					     "this CPU does not support DDP_SIMD=%s",
					     simd_names[word]);
		*simd = (enum ddp_simd)word;
		return 0;
	}
	while (*simd + 1 < DDP_SIMD_COUNT && simd_works(*simd + 1))
		*simd = *simd + 1;
	return 0;
}
