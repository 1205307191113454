/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compare.c - check that all ranks have equal lists, and find the first difference
 *
 * If the lists are equal, as usual, the check costs two small collectives. No memory is allocated,
 * so that no rank can fail alone.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "base/checksum.h"
#include "comm.h"

int ddp_find_differing(struct ddp *ddp, uint64_t number)
{
	uint64_t first = number;
	int64_t differing = ddp_world(ddp)->size;
	int status = ddp_broadcast(ddp, &first, sizeof(first), 0);

	if (number != first)
		differing = ddp_world(ddp)->rank;
	if (status == 0)
		status = ddp_all_reduce(ddp, &differing, &differing, 1, DDP_I64, DDP_MIN);
	return status < 0 ? status : (int)differing;
}

static uint64_t hash_first(const struct ddp_items *items, size_t count)
{
	uint64_t hash = DDP_HASH_INIT;

	for (size_t i = 0; i < count; i++) {
		uint64_t item = items->describe(items->owner, i, NULL);

		hash = ddp_hash(hash, &item, sizeof(item));
	}
	return hash;
}

/* Find by bisection how many leading items are equal on all ranks. */
static int count_common(struct ddp *ddp, const struct ddp_items *items, size_t *common)
{
	int64_t least = (int64_t)items->count;
	int status = ddp_all_reduce(ddp, &least, &least, 1, DDP_I64, DDP_MIN), differing;
	size_t low = 0, high = (size_t)least + 1;

	while (status == 0 && high - low > 1) {
		size_t middle = low + (high - low) / 2;

		differing = ddp_find_differing(ddp, hash_first(items, middle));
		if (differing < 0)
			return differing;
		if (differing == ddp_world(ddp)->size)
			low = middle;
		else
			high = middle;
	}
	*common = low;
	return status;
}

int ddp_compare(struct ddp *ddp, const char *what, const struct ddp_items *items)
{
	char first[DDP_ITEM_LINE] = "nothing", other[DDP_ITEM_LINE];
	uint64_t hash = hash_first(items, items->count);
	size_t place = 0;
	int differing =
		ddp_find_differing(ddp, ddp_hash(hash, &items->count, sizeof(items->count)));
	int status = differing < 0 || differing == ddp_world(ddp)->size
			     ? differing
			     : count_common(ddp, items, &place);

	if (status < 0)
		return status;
	if (status == ddp_world(ddp)->size)
		return 0;
	hash = 0;
	if (place < items->count)
		hash = items->describe(items->owner, place, first) | 1;
	differing = ddp_find_differing(ddp, hash);
	if (differing < 0)
		return differing;
	if (differing == ddp_world(ddp)->size)
		differing = 0;
	memcpy(other, first, sizeof(other));
	status = ddp_broadcast(ddp, first, sizeof(first), 0);
	if (status == 0)
		status = ddp_broadcast(ddp, other, sizeof(other), differing);
	/*
	 * A rank that returns reports the error, which ends the collectives of the other ranks. So
	 * no rank may return before all ranks have both texts.
	 */
	if (status == 0)
		status = ddp_barrier(ddp);
	if (status < 0)
		return status;
	return ddp_fail_with(ddp, DDP_ERR_MISMATCH,
			     "%s %zu differs: rank 0 has %s, but rank %d has %s", what, place,
			     first, differing, other);
}
