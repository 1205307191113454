/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "buckets.h"
#include "comm/context.h"

size_t ddp_buckets_assign(const size_t *bytes, size_t count, size_t first, size_t limit,
			  size_t *bucket)
{
	size_t open = 0, size = 0;
	bool empty = true;

	for (size_t i = 0; i < count; i++) {
		bucket[i] = open;
		size += bytes[i];
		empty = false;
		if (size >= (open == 0 ? first : limit)) {
			open++;
			size = 0;
			empty = true;
		}
	}
	return empty ? open : open + 1;
}

/* Bytes of each gradient in the order in which they become ready. */
static int measure(const struct ddp_parameter *parameters, size_t count, size_t size, size_t *bytes,
		   struct ddp_error *error)
{
	size_t total = 0;

	for (size_t i = 0; i < count; i++) {
		const struct ddp_parameter *parameter = &parameters[count - 1 - i];

		if (__builtin_mul_overflow(parameter->count, size, &bytes[i]) ||
		    __builtin_add_overflow(total, bytes[i], &total) ||
		    __builtin_add_overflow(total, DDP_VIEW_ALIGNMENT, &total))
			return ddp_error_set(error, DDP_ERR_ARGUMENT,
					     "gradients: %zu elements of %s are too many",
					     parameter->count, parameter->name);
	}
	return 0;
}

/* Views one after the other, each at a multiple of DDP_VIEW_ALIGNMENT. */
static void place(struct ddp_layout *layout, const struct ddp_parameter *parameters,
		  const size_t *bucket, size_t size)
{
	size_t step = DDP_VIEW_ALIGNMENT / size, count = layout->view_count;

	for (size_t i = 0; i < count; i++) {
		struct ddp_bucket *into = &layout->buckets[bucket[i]];
		struct ddp_view *view = &layout->views[count - 1 - i];

		view->count = parameters[count - 1 - i].count;
		view->offset = layout->elements;
		view->bucket = bucket[i];
		layout->elements += (view->count + step - 1) / step * step;
		if (into->members++ == 0)
			into->offset = view->offset;
		into->count = layout->elements - into->offset;
	}
}

int ddp_layout_create(struct ddp_layout *layout, const struct ddp_parameter *parameters,
		      size_t count, size_t size, size_t first, size_t limit,
		      struct ddp_error *error)
{
	size_t *bytes = calloc(count, sizeof(*bytes));
	size_t *bucket = calloc(count, sizeof(*bucket));
	int status;

	*layout = (struct ddp_layout){.view_count = count};
	layout->views = calloc(count, sizeof(*layout->views));
	if (!bytes || !bucket || !layout->views)
		goto memory;
	status = measure(parameters, count, size, bytes, error);
	if (status < 0)
		goto out;
	layout->bucket_count = ddp_buckets_assign(bytes, count, first, limit, bucket);
	layout->buckets = calloc(layout->bucket_count, sizeof(*layout->buckets));
	if (!layout->buckets)
		goto memory;
	place(layout, parameters, bucket, size);
	ddp_layout_reset(layout);
	goto out;
memory:
	status = ddp_error_set(error, DDP_ERR_MEMORY,
			       "gradients: out of memory for the layout of %zu parameters", count);
out:
	if (status < 0)
		ddp_layout_destroy(layout);
	free(bucket);
	free(bytes);
	return status;
}

void ddp_layout_destroy(struct ddp_layout *layout)
{
	free(layout->buckets);
	free(layout->views);
	*layout = (struct ddp_layout){0};
}

size_t ddp_layout_largest(const struct ddp_layout *layout)
{
	size_t largest = 0;

	for (size_t i = 0; i < layout->bucket_count; i++) {
		if (layout->buckets[i].count > largest)
			largest = layout->buckets[i].count;
	}
	return largest;
}

void ddp_layout_reset(struct ddp_layout *layout)
{
	for (size_t i = 0; i < layout->view_count; i++)
		layout->views[i].ready = false;
	for (size_t i = 0; i < layout->bucket_count; i++)
		layout->buckets[i].waiting = layout->buckets[i].members;
}

/* --- Do all ranks have the same? --------------------------------------------------------- */

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

/* What differs at [index], by the labels of all ranks. */
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

int ddp_layout_agree(struct ddp *ddp, const struct ddp_gradients_options *options,
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
