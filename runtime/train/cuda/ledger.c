/* SPDX-License-Identifier: Apache-2.0 */
/* ledger.c - list of allocated GPU memory, and its limit */
#include "config.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "base/xalloc.h"
#include "ledger.h"

#define MIB ((size_t)1 << 20)

#define TEXT(bytes) ddp_show_bytes(bytes).text

int ledger_limit(const struct ledger *ledger, struct device_info *info, size_t available,
		 double share, struct ddp_error *error)
{
	size_t had = available + ledger->context;
	size_t spare = info->total / 32 < 1536 * MIB ? info->total / 32 : 1536 * MIB;

	info->limit = share > 0 && share < 1 ? (size_t)(share * (double)info->total) : info->total;
	/*
	 * Without a share, this rank's required size is unknown. If too little memory is free,
	 * allocations fail later.
	 */
	if (!(share > 0) || had + spare >= info->limit)
		return 0;
	return ddp_error_set(
		error, DDP_ERR_MEMORY,
		"GPU %d (%s): this rank's share is %s of %s, but only %s is free, %s too little. "
		"End other processes on this GPU (see nvidia-smi), or use another GPU.",
		info->index, info->name, TEXT(info->limit), TEXT(info->total), TEXT(available),
		TEXT(info->limit - had));
}

bool ledger_allows(const struct ledger *ledger, const struct device_info *info, size_t bytes)
{
	return bytes <= info->limit && ledger->used + ledger->context <= info->limit - bytes;
}

int ledger_refuse(const struct ledger *ledger, const struct device_info *info, size_t available,
		  size_t bytes, const char *what, const char *remedy, const char *said,
		  struct ddp_error *error)
{
	static const char larger[] =
		" Or give this rank a larger share (DDP_SHARE, fewer ranks on this GPU).";
	size_t used = ledger->used + ledger->context;
	char context[64] = "", limits[256];

	if (ledger->context)
		snprintf(context, sizeof(context), " (%s of it for CUDA)", TEXT(ledger->context));
	if (!ledger_allows(ledger, info, bytes))
		snprintf(limits, sizeof(limits),
			 "this rank's share is %s, of which %s are in use%s, so %s are missing",
			 TEXT(info->limit), TEXT(used), context, TEXT(used + bytes - info->limit));
	else
		snprintf(limits, sizeof(limits),
			 "only %s of %s is free, this rank uses %s%s, and CUDA reports %s",
			 TEXT(available), TEXT(info->total), TEXT(used), context, said);
	return ddp_error_set(
		error, DDP_ERR_MEMORY, "GPU %d (%s) has no %s left for %s: %s.%s%s%s", info->index,
		info->name, TEXT(bytes), what, limits, remedy && *remedy ? " " : "",
		remedy ? remedy : "",
		ledger_allows(ledger, info, bytes) || info->limit >= info->total ? "" : larger);
}

void ledger_add(struct ledger *ledger, void *memory, size_t bytes, enum ledger_kind kind)
{
	struct ledger_entry *entry = ddp_xcalloc(1, sizeof(*entry), "records of a GPU's memory");

	*entry = (struct ledger_entry){ledger->entries, memory, bytes, kind};
	ledger->entries = entry;
	if (kind != LEDGER_HOST)
		ledger->used += bytes;
	if (ledger->used > ledger->most)
		ledger->most = ledger->used;
}

const struct ledger_entry *ledger_find(const struct ledger *ledger, const void *memory)
{
	uintptr_t place = (uintptr_t)memory;

	for (const struct ledger_entry *entry = ledger->entries; entry; entry = entry->next) {
		if (place >= (uintptr_t)entry->memory &&
		    place - (uintptr_t)entry->memory < entry->bytes)
			return entry;
	}
	return NULL;
}

bool ledger_remove(struct ledger *ledger, const void *memory, struct ledger_entry *entry)
{
	struct ledger_entry **link = &ledger->entries, *found;

	while (*link && memory && (*link)->memory != memory)
		link = &(*link)->next;
	found = *link;
	if (!found)
		return false;
	*entry = *found;
	*link = found->next;
	free(found);
	if (entry->kind != LEDGER_HOST)
		ledger->used -= entry->bytes;
	return true;
}
