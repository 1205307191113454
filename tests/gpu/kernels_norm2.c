/* SPDX-License-Identifier: Apache-2.0 */
/* The 2-norm of gradients on the device against ddp_norm(), and what of them is not finite */
#include "arrays.h"
#include "gradient/statistics.h"

enum { MOST = 3 * 1024 * 1024 };

static const size_t counts[] = {0, 1, 3, 255, 4096, 4097, 100003, MOST};

static struct {
	float *data, *unscaled; /* here */
	float *memory;		/* there */
	struct kernel_scratch scratch;
	struct kernel_state *state;
	struct kernel_norm2 *norm2;
} bench;

static struct kernel_norm2 norm_of(size_t count)
{
	struct kernel_gradients gradients = {.wide = bench.memory};
	struct kernel_norm2 norm2 = {-1, 7};

	bytes_fetch(bench.memory, bench.data, count * sizeof(float));
	bytes_fetch(bench.norm2, &norm2, sizeof(norm2));
	kernel_norm2(arrays_stream, &gradients, count, bench.state, &bench.scratch, bench.norm2,
		     DDP_F32);
	bytes_fetch(&norm2, bench.norm2, sizeof(norm2));
	return norm2;
}

/* Scaled as the loss was; some are so large that their squares are not f32. */
static void fill(size_t count)
{
	const struct ddp_scaler scaler = {3, 2, 0.5, 2000, 0};

	for (size_t i = 0; i < count; i++) {
		float value = (float)draw(&arrays_seed, 1 << 25) * 0x1p-24f - 1;

		bench.data[i] = bench.unscaled[i] =
			ldexpf(value, draw(&arrays_seed, 1000) == 0 ? 70 : 2);
	}
	ddp_scaler_unscale(&scaler, bench.unscaled, count);
}

static void test_norm(size_t count)
{
	struct kernel_norm2 norm2;
	double want;

	fill(count);
	want = ddp_norm(bench.unscaled, DDP_F32, count);
	norm2 = norm_of(count);
	ok(fabs(norm2.norm - want) <= 1e-13 * want && !norm2.overflow,
	   "the 2-norm of %zu gradients without their scale", count);
}

/* Wherever it is. What is finite and becomes infinite without its scale was no overflow. */
static void test_odd(size_t count)
{
	const float odd[] = {INFINITY, NAN, -INFINITY};
	const size_t places[] = {0, count / 2, count - 1};
	struct kernel_state state = {.scale = 1e-3f, .interval = 2000};
	struct kernel_norm2 norm2;
	bool found = true;

	for (size_t i = 0; i < 3; i++) {
		float kept = bench.data[places[i]];

		bench.data[places[i]] = odd[i];
		norm2 = norm_of(count);
		found = found && norm2.overflow && !isfinite(norm2.norm);
		bench.data[places[i]] = kept;
	}
	ok(found, "one of %zu gradients that is not finite is found", count);
	bytes_fetch(bench.state, &state, sizeof(state));
	bench.data[count - 1] = 3e38f;
	norm2 = norm_of(count);
	ok(!norm2.overflow && isinf(norm2.norm),
	   "%zu gradients: one that is infinite without its scale alone is no overflow", count);
}

int main(void)
{
	struct kernel_state state = {.scale = 3, .interval = 2000};

	if (!arrays_begin("the norm of gradients"))
		return tap_failed ? tap_end() : EXIT_SUCCESS;
	bench.data = malloc(MOST * sizeof(float));
	bench.unscaled = malloc(MOST * sizeof(float));
	bench.memory = bytes_make(MOST * sizeof(float), NULL);
	bench.scratch = scratch_make(kernel_norm2_bytes(MOST));
	bench.state = bytes_make(sizeof(state), NULL);
	bench.norm2 = bytes_make(sizeof(*bench.norm2), NULL);
	for (size_t i = 0; bench.data && bench.unscaled && i < ROWS(counts); i++) {
		bytes_fetch(bench.state, &state, sizeof(state));
		test_norm(counts[i]);
		if (counts[i] > 0)
			test_odd(counts[i]);
	}
	free(bench.unscaled);
	free(bench.data);
	return arrays_end();
}
