/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compare.c - whether all ranks were given the same, and if not, where they differ first
 *
 * Where they do not differ, which is nearly always, it takes two small collectives. No memory is
 * needed, so no rank can fail alone.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "base/checksum.h"
#include "ddp-private.h"

int ddp_find_odd(struct ddp *ddp, uint64_t number)
{
	uint64_t first = number;
	int64_t odd = ddp->world.size;
	int status = ddp_broadcast(ddp, &first, sizeof(first), 0);

	if (number != first)
		odd = ddp->world.rank;
	if (status == 0)
		status = ddp_all_reduce(ddp, &odd, &odd, 1, DDP_I64, DDP_MIN);
	return status < 0 ? status : (int)odd;
}

/* Of the first [count] items. */
static uint64_t hash_first(const struct ddp_items *items, size_t count)
{
	uint64_t hash = DDP_HASH_INIT;

	for (size_t i = 0; i < count; i++) {
		uint64_t item = items->describe(items->owner, i, NULL);

		hash = ddp_hash(hash, &item, sizeof(item));
	}
	return hash;
}

/* Bisect for how many items, from the first on, all ranks have in common. */
static int count_common(struct ddp *ddp, const struct ddp_items *items, size_t *common)
{
	int64_t least = (int64_t)items->count;
	int status = ddp_all_reduce(ddp, &least, &least, 1, DDP_I64, DDP_MIN), odd;
	size_t low = 0, high = (size_t)least + 1;

	while (status == 0 && high - low > 1) {
		size_t middle = low + (high - low) / 2;

		odd = ddp_find_odd(ddp, hash_first(items, middle));
		if (odd < 0)
			return odd;
		if (odd == ddp->world.size)
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
	int odd = ddp_find_odd(ddp, ddp_hash(hash, &items->count, sizeof(items->count)));
	int status = odd < 0 || odd == ddp->world.size ? odd : count_common(ddp, items, &place);

	if (status < 0)
		return status;
	if (status == ddp->world.size)
		return 0;
	hash = 0;
	if (place < items->count)
		hash = items->describe(items->owner, place, first) | 1;
	odd = ddp_find_odd(ddp, hash);
	if (odd < 0)
		return odd;
	if (odd == ddp->world.size)
		odd = 0;
	memcpy(other, first, sizeof(other));
	status = ddp_broadcast(ddp, first, sizeof(first), 0);
	if (status == 0)
		status = ddp_broadcast(ddp, other, sizeof(other), odd);
	/* All have the text before the first of them tells all to give up. */
	if (status == 0)
		status = ddp_barrier(ddp);
	if (status < 0)
		return status;
	ddp_error_set(&ddp->error, DDP_ERR_MISMATCH, "%s %zu: rank 0 has %s, rank %d has %s", what,
		      place, first, odd, other);
	return ddp_fail_call(ddp, DDP_ERR_MISMATCH);
}
