/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sampler.c - draw PyTorch's random order of the samples, and divide it among the ranks
 */
#include "config.h"

#include <stdlib.h>

#include "base/random.h"
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
	uint64_t count = permutation->count, chosen;

	for (uint64_t i = 0; i < count; i++)
		put(permutation, i, i);
	ddp_mt19937_seed(&generator, seed);
	for (uint64_t i = 0; i + 1 < count; i++) {
		uint64_t other = i + ddp_mt19937_next(&generator) % (count - i);

		chosen = ddp_permutation_get(permutation, other);
		put(permutation, other, ddp_permutation_get(permutation, i));
		put(permutation, i, chosen);
	}
}

void ddp_permutation_draw_large(struct ddp_permutation *permutation, uint64_t seed)
{
	struct ddp_mt19937 generator;

	ddp_mt19937_seed(&generator, seed);
	for (uint64_t i = 0; i < permutation->count; i++) {
		uint64_t high = ddp_mt19937_next(&generator);
		uint64_t other = (high << 32 | ddp_mt19937_next(&generator)) % (i + 1);

		if (other != i)
			put(permutation, i, ddp_permutation_get(permutation, other));
		put(permutation, other, i);
	}
}

static void permutation_draw(struct ddp_permutation *permutation, uint64_t seed)
{
	if (permutation->count < DDP_PERMUTATION_LARGE)
		ddp_permutation_draw_small(permutation, seed);
	else
		ddp_permutation_draw_large(permutation, seed);
}

/*
 * At position p of an epoch is sample order[p mod samples]. The positions from [samples] on are
 * PyTorch's padding, which repeats the order. The positions from [base] on are distributed to the
 * ranks in turn: sample k of rank r is at position base + k * ranks + r.
 */
struct ddp_sampler {
	struct ddp_sampler_options options;
	struct ddp_permutation order; /* order of epoch [drawn], valid if [ordered] */
	uint64_t drawn;
	bool ordered;

	uint64_t epoch;
	uint64_t base;	   /* first position to distribute, not 0 after a seek */
	uint64_t share;	   /* samples of this rank from [base] to the end */
	uint64_t returned; /* samples of [share] already returned */
};

static uint64_t rank_count(const struct ddp_sampler *sampler)
{
	return (uint64_t)sampler->options.ranks;
}

/* Returns how many of [left] samples this rank gets. */
static uint64_t compute_share(const struct ddp_sampler_options *options, uint64_t left)
{
	uint64_t ranks = (uint64_t)options->ranks, remainder = left % ranks;

	if (options->exact)
		return left / ranks + ((uint64_t)options->rank < remainder);
	return left / ranks + (remainder > 0 && !options->drop_last);
}

static void start(struct ddp_sampler *sampler, uint64_t epoch, uint64_t position)
{
	sampler->epoch = epoch;
	sampler->base = position;
	sampler->share = compute_share(&sampler->options, sampler->options.samples - position);
	sampler->returned = 0;
}

static int check_options(const struct ddp_sampler_options *options, struct ddp_error *error)
{
	if (options->size != sizeof(*options))
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "sampler: the options have %zu bytes, not %zu. Begin with "
				     "DDP_SAMPLER_OPTIONS_INIT.",
				     options->size, sizeof(*options));
	if (options->ranks < 1 || options->rank < 0 || options->rank >= options->ranks)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "sampler: rank %d of %d does not exist", options->rank,
				     options->ranks);
	if (options->exact && options->drop_last)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "sampler: exact and drop_last exclude each other");
	/* Below this limit, no position can overflow. */
	if (options->samples > UINT64_MAX / 4)
		return ddp_error_set(error, DDP_ERR_ARGUMENT, "sampler: %llu samples are too many",
				     (unsigned long long)options->samples);
	return 0;
}

int ddp_sampler_create(struct ddp_sampler **result, const struct ddp_sampler_options *options,
		       struct ddp_error *error)
{
	struct ddp_sampler *sampler = NULL;
	int status;

	*result = NULL;
	status = check_options(options, error);
	if (status < 0)
		return status;
	sampler = calloc(1, sizeof(*sampler));
	if (!sampler)
		return ddp_error_set(error, DDP_ERR_MEMORY, "sampler: out of memory");
	sampler->options = *options;
	if (options->shuffle) {
		status = ddp_permutation_create(&sampler->order, options->samples, error);
		if (status < 0) {
			ddp_sampler_destroy(sampler);
			return status;
		}
	}
	start(sampler, 0, 0);
	*result = sampler;
	return 0;
}

void ddp_sampler_destroy(struct ddp_sampler *sampler)
{
	if (!sampler)
		return;
	ddp_permutation_destroy(&sampler->order);
	free(sampler);
}

uint64_t ddp_sampler_length(const struct ddp_sampler *sampler)
{
	return compute_share(&sampler->options, sampler->options.samples);
}

/*
 * Draw the order of the epoch, unless it was drawn before. This is done only when the first sample
 * is requested, since drawing is slow for many samples.
 */
static void draw(struct ddp_sampler *sampler)
{
	if (!sampler->options.shuffle || (sampler->ordered && sampler->drawn == sampler->epoch))
		return;
	permutation_draw(&sampler->order, sampler->options.seed + sampler->epoch);
	sampler->drawn = sampler->epoch;
	sampler->ordered = true;
}

size_t ddp_sampler_take(struct ddp_sampler *sampler, uint64_t *indices, size_t count)
{
	uint64_t left = sampler->share - sampler->returned, samples = sampler->options.samples;

	if (count == 0)
		return 0;
	if (left == 0) {
		start(sampler, sampler->epoch + 1, 0);
		return 0;
	}
	draw(sampler);
	if (count > left)
		count = (size_t)left;
	for (size_t i = 0; i < count; i++) {
		uint64_t position = ddp_sampler_order(sampler) % samples;

		indices[i] = sampler->options.shuffle
				     ? ddp_permutation_get(&sampler->order, position)
				     : position;
		sampler->returned++;
	}
	return count;
}

int ddp_sampler_next(struct ddp_sampler *sampler, uint64_t *index)
{
	return (int)ddp_sampler_take(sampler, index, 1);
}

void ddp_sampler_set_epoch(struct ddp_sampler *sampler, uint64_t epoch)
{
	start(sampler, epoch, 0);
}

uint64_t ddp_sampler_epoch(const struct ddp_sampler *sampler)
{
	return sampler->epoch;
}

uint64_t ddp_sampler_position(const struct ddp_sampler *sampler)
{
	uint64_t position = sampler->base + sampler->returned * rank_count(sampler);

	return position < sampler->options.samples ? position : sampler->options.samples;
}

int ddp_sampler_seek(struct ddp_sampler *sampler, uint64_t epoch, uint64_t position,
		     struct ddp_error *error)
{
	uint64_t samples = sampler->options.samples;

	if (position > samples)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "sampler: position %llu of epoch %llu is beyond its %llu "
				     "samples. Check whether this is another data set.",
				     (unsigned long long)position, (unsigned long long)epoch,
				     (unsigned long long)samples);
	start(sampler, epoch, position);
	return 0;
}

uint64_t ddp_sampler_order(const struct ddp_sampler *sampler)
{
	return sampler->base + sampler->returned * rank_count(sampler) +
	       (uint64_t)sampler->options.rank;
}
