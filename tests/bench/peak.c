/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peak.c - measures the peak rates of one core of this CPU, for the roofline
 *
 * Prints operations per second in f32 and in bf16, with operands in registers (a multiplication and
 * an addition are two operations), and bytes per second of a copy that exceeds all caches. The AMX
 * part has not been run yet. For x86 only. `roofline --cpu` compiles this program.
 */
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { CHAINS = 12, ROUNDS = 1 << 22, TRIALS = 7, ARRAY = 1 << 28 };
enum { XCOMP_PERMISSION = 0x1023, XCOMP_TILES = 18 }; /* values for arch_prctl(2) */

#define VECTORS __attribute__((target("avx512f,avx512bf16,fma")))

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A loop over independent sums, which the compiler must keep in registers. */
#define CHAIN_LOOP(type, step)                                                    \
	do {                                                                      \
		type sums[CHAINS] = {0};                                          \
		for (int i = 0; i < ROUNDS; i++)                                  \
			_Pragma("GCC unroll 16") for (int c = 0; c < CHAINS; c++) \
			{                                                         \
				sums[c] = step;                                   \
				__asm__ volatile("" : "+v"(sums[c]));             \
			}                                                         \
	} while (0)

__attribute__((target("avx2,fma"))) static double run_avx2(void)
{
	__m256 a = _mm256_set1_ps(0.5f), b = a;

	CHAIN_LOOP(__m256, _mm256_fmadd_ps(a, b, sums[c]));
	return 2.0 * 8 * CHAINS * ROUNDS;
}

VECTORS static double run_avx512(void)
{
	__m512 a = _mm512_set1_ps(0.5f), b = a;

	CHAIN_LOOP(__m512, _mm512_fmadd_ps(a, b, sums[c]));
	return 2.0 * 16 * CHAINS * ROUNDS;
}

VECTORS static double run_bf16(void)
{
	__m512bh a = (__m512bh)_mm512_set1_epi16(0x3f00), b = a;

	CHAIN_LOOP(__m512, _mm512_dpbf16_ps(sums[c], a, b));
	return 2.0 * 32 * CHAINS * ROUNDS;
}

/* Six of the eight tiles are sums. */
__attribute__((target("amx-tile,amx-bf16"))) static double run_tiles(void)
{
	static const struct {
		uint8_t palette, start, reserved[14];
		uint16_t row_bytes[16];
		uint8_t rows[16];
	} shape = {
		.palette = 1,
		.row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
		.rows = {16, 16, 16, 16, 16, 16, 16, 16},
	};

	_tile_loadconfig(&shape);
	for (int i = 0; i < ROUNDS; i++) {
		_tile_dpbf16ps(0, 6, 7);
		_tile_dpbf16ps(1, 6, 7);
		_tile_dpbf16ps(2, 6, 7);
		_tile_dpbf16ps(3, 6, 7);
		_tile_dpbf16ps(4, 6, 7);
		_tile_dpbf16ps(5, 6, 7);
	}
	_tile_release();
	return 2.0 * 16 * 16 * 32 * 6;
}

/* Copies memory. Returns the number of bytes read and written. */
static double run_memory(void)
{
	static char *from, *to;

	if (!from && (!(from = calloc(2, ARRAY)) ||
		      !(to = (char *)memset(from, 1, 2 * (size_t)ARRAY) + ARRAY)))
		exit(1);
	memcpy(to, from, ARRAY);
	return 2.0 * ARRAY;
}

static bool has_tiles(void)
{
	FILE *file = fopen("/proc/cpuinfo", "re");
	char line[8192];
	bool found = false;

	while (file && !found && fgets(line, sizeof(line), file))
		found = strncmp(line, "flags", 5) == 0 && strstr(line, " amx_bf16");
	if (file)
		fclose(file);
	return found && syscall(SYS_arch_prctl, XCOMP_PERMISSION, XCOMP_TILES) == 0;
}

static double best_rate(double (*run)(void))
{
	double best = 0;

	for (int t = 0; t < TRIALS; t++) {
		double begin = seconds(), work = run(), rate = work / (seconds() - begin);

		best = rate > best ? rate : best;
	}
	return best;
}

int main(void)
{
	bool vectors = __builtin_cpu_supports("avx512f"),
	     half = __builtin_cpu_supports("avx512bf16");
	bool tiles = has_tiles();

	printf("{\"f32\": %.4g, \"bf16\": %.4g, \"memory\": %.4g, \"unit\": \"%s\"}\n",
	       best_rate(vectors ? run_avx512 : run_avx2),
	       tiles  ? best_rate(run_tiles)
	       : half ? best_rate(run_bf16)
		      : 0,
	       best_rate(run_memory),
	       tiles  ? "AMX"
	       : half ? "AVX512_BF16"
		      : "no bf16");
	return 0;
}
