/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "mt19937.h"
#include "permutation.h"

int ddp_permutation_create(struct ddp_permutation *permutation, uint64_t count,
			   struct ddp_error *error)
{
	bool narrow = count <= (uint64_t)UINT32_MAX + 1;
	size_t size = narrow ? sizeof(*permutation->narrow) : sizeof(*permutation->wide);
	void *memory = NULL;

	*permutation = (struct ddp_permutation){.count = count};
	if (count <= PTRDIFF_MAX / size)
		memory = malloc(count ? count * size : 1);
	if (!memory)
		return ddp_error_set(error, DDP_ERR_MEMORY,
				     "sampler: no memory for the order of %llu samples, %zu bytes "
				     "for each",
				     (unsigned long long)count, size);
	if (narrow)
		permutation->narrow = memory;
	else
		permutation->wide = memory;
	return 0;
}

void ddp_permutation_destroy(struct ddp_permutation *permutation)
{
	free(permutation->narrow);
	free(permutation->wide);
	*permutation = (struct ddp_permutation){0};
}

static void put(struct ddp_permutation *permutation, uint64_t position, uint64_t value)
{
	if (permutation->narrow)
		permutation->narrow[position] = (uint32_t)value;
	else
		permutation->wide[position] = value;
}

void ddp_permutation_draw_small(struct ddp_permutation *permutation, uint64_t seed)
{
	struct ddp_mt19937 generator;
	uint64_t count = permutation->count, taken;

	for (uint64_t i = 0; i < count; i++)
		put(permutation, i, i);
	ddp_mt19937_seed(&generator, seed);
	for (uint64_t i = 0; i + 1 < count; i++) {
		uint64_t other = i + ddp_mt19937_next(&generator) % (count - i);

		taken = ddp_permutation_get(permutation, other);
		put(permutation, other, ddp_permutation_get(permutation, i));
		put(permutation, i, taken);
	}
}

void ddp_permutation_draw_large(struct ddp_permutation *permutation, uint64_t seed)
{
	struct ddp_mt19937 generator;

	ddp_mt19937_seed(&generator, seed);
	for (uint64_t i = 0; i < permutation->count; i++) {
		uint64_t other = ddp_mt19937_next64(&generator) % (i + 1);

		if (other != i)
			put(permutation, i, ddp_permutation_get(permutation, other));
		put(permutation, other, i);
	}
}

void ddp_permutation_draw(struct ddp_permutation *permutation, uint64_t seed)
{
	if (permutation->count < DDP_PERMUTATION_LARGE)
		ddp_permutation_draw_small(permutation, seed);
	else
		ddp_permutation_draw_large(permutation, seed);
}
