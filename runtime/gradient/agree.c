/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agree.h"
#include "base/checksum.h"
#include "comm/context.h"

struct card {
	uint64_t options, count, names; /* hashes, but for the count */
};

struct label {
	char name[64]; /* as much of it as fits */
	uint64_t hash, count;
};

struct list {
	struct ddp *ddp;
	const struct ddp_parameter *parameters;
	size_t count;
	size_t common; /* what the shortest list has */
};

/* [bytes] of each rank at [all], which the caller frees. */
static int gather(struct ddp *ddp, const void *mine, size_t bytes, void **all)
{
	*all = calloc((size_t)ddp->world.size, bytes);
	if (!*all)
		return ddp_error_set(&ddp->error, DDP_ERR_MEMORY, "gradients: out of memory");
	return ddp_all_gather(ddp, mine, *all, bytes);
}

/* The first rank whose [bytes] are not those of rank 0, or -1. */
static int odd_one(const struct ddp *ddp, const void *all, size_t bytes)
{
	for (int rank = 1; rank < ddp->world.size; rank++) {
		if (memcmp(all, (const char *)all + (size_t)rank * bytes, bytes) != 0)
			return rank;
	}
	return -1;
}

static uint64_t hash_parameter(uint64_t hash, const struct ddp_parameter *parameter)
{
	uint64_t count = parameter->count;

	hash = ddp_hash(hash, parameter->name, strlen(parameter->name) + 1);
	return ddp_hash(hash, &count, sizeof(count));
}

static uint64_t hash_prefix(const struct list *list, size_t count)
{
	uint64_t hash = DDP_HASH_INIT;

	for (size_t i = 0; i < count; i++)
		hash = hash_parameter(hash, &list->parameters[i]);
	return hash;
}

/* Bisect for the number of parameters that all ranks have in common, from the first on. */
static int find_difference(const struct list *list, size_t *equal)
{
	size_t low = 0, high = list->common + 1;

	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;
		uint64_t mine = hash_prefix(list, middle);
		void *all;
		int status = gather(list->ddp, &mine, sizeof(mine), &all);

		if (status == 0 && odd_one(list->ddp, all, sizeof(mine)) < 0)
			low = middle;
		else
			high = middle;
		free(all);
		if (status < 0)
			return status;
	}
	*equal = low;
	return 0;
}

static void describe(char *text, size_t size, const struct label *label)
{
	if (label->hash == 0)
		snprintf(text, size, "none");
	else
		snprintf(text, size, "%s with %llu elements", label->name,
			 (unsigned long long)label->count);
}

static int tell(const struct list *list, size_t index, const struct label *labels)
{
	int rank = odd_one(list->ddp, labels, sizeof(*labels));
	char first[128], other[128];

	if (rank < 0)
		rank = 0;
	describe(first, sizeof(first), &labels[0]);
	describe(other, sizeof(other), &labels[rank]);
	return ddp_error_set(&list->ddp->error, DDP_ERR_MISMATCH,
			     "gradients: parameter %zu is %s on rank 0 and %s on rank %d", index,
			     first, other, rank);
}

/* The lists differ: find out where, and say so. */
static int tell_difference(const struct list *list)
{
	struct label mine;
	void *labels = NULL;
	size_t index = 0;
	int status = find_difference(list, &index);

	if (status < 0)
		return status;
	memset(&mine, 0, sizeof(mine));
	if (index < list->count) {
		const struct ddp_parameter *parameter = &list->parameters[index];

		snprintf(mine.name, sizeof(mine.name), "%.63s", parameter->name);
		mine.hash = hash_parameter(DDP_HASH_INIT, parameter) | 1;
		mine.count = parameter->count;
	}
	status = gather(list->ddp, &mine, sizeof(mine), &labels);
	if (status == 0)
		status = tell(list, index, labels);
	free(labels);
	return status;
}

static uint64_t hash_options(const struct ddp_gradients_options *options)
{
	uint64_t words[] = {(uint64_t)options->type,
			    (uint64_t)options->wire,
			    options->first_bytes,
			    options->bucket_bytes,
			    options->sum,
			    options->exact,
			    options->device};

	return ddp_hash(DDP_HASH_INIT, words, sizeof(words));
}

static int compare(struct list *list, const struct card *cards)
{
	struct ddp *ddp = list->ddp;
	bool same = odd_one(ddp, cards, sizeof(*cards)) < 0;

	for (int rank = 0; rank < ddp->world.size; rank++) {
		if (cards[rank].options != cards[0].options)
			return ddp_error_set(&ddp->error, DDP_ERR_MISMATCH,
					     "gradients: type, wire, bucket sizes, sum, exact or "
					     "device of rank %d are not those of rank 0",
					     rank);
		if (cards[rank].count < list->common)
			list->common = (size_t)cards[rank].count;
	}
	return same ? 0 : tell_difference(list);
}

int ddp_gradients_agree(struct ddp *ddp, const struct ddp_gradients_options *options,
			const struct ddp_parameter *parameters, size_t count)
{
	struct list list = {ddp, parameters, count, count};
	struct card mine = {hash_options(options), count, hash_prefix(&list, count)};
	void *cards;
	int status = gather(ddp, &mine, sizeof(mine), &cards);

	if (status == 0)
		status = compare(&list, cards);
	free(cards);
	return status;
}
