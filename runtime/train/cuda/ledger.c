/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ledger.h"

#define MIB ((size_t)1 << 20)

enum { AMOUNT = 32, TOLD = 3 };

static const char *amount(char text[AMOUNT], size_t bytes)
{
	if (bytes >= 1024 * MIB)
		snprintf(text, AMOUNT, "%.1f GiB", (double)bytes / (1024.0 * (double)MIB));
	else if (bytes >= MIB)
		snprintf(text, AMOUNT, "%.1f MiB", (double)bytes / (double)MIB);
	else
		snprintf(text, AMOUNT, "%zu bytes", bytes);
	return text;
}

bool ledger_allows(const struct ledger *ledger, const struct device_info *info, size_t bytes)
{
	return bytes <= info->limit && ledger->used + ledger->context <= info->limit - bytes;
}

/* What this rank has, and how much of it nobody asked for. */
static const char *usage(const struct ledger *ledger, char text[2 * AMOUNT])
{
	char used[AMOUNT], context[AMOUNT];

	amount(used, ledger->used + ledger->context);
	if (ledger->context == 0)
		snprintf(text, 2 * AMOUNT, "%s", used);
	else
		snprintf(text, 2 * AMOUNT, "%s (%s of it for CUDA)", used,
			 amount(context, ledger->context));
	return text;
}

static const char larger_share[] = "; or let it have more (DDP_SHARE, fewer ranks on this GPU)";

int ledger_refuse(const struct ledger *ledger, const struct device_info *info,
		  const struct ledger_card *card, size_t bytes, const char *what,
		  const char *remedy, struct ddp_error *error)
{
	const char *clause = remedy && *remedy ? "; " : "", *last = remedy ? remedy : "";
	char wanted[AMOUNT], used[2 * AMOUNT], whole[AMOUNT], missing[AMOUNT];

	amount(wanted, bytes);
	usage(ledger, used);
	if (!ledger_allows(ledger, info, bytes))
		return ddp_error_set(
			error, DDP_ERR_MEMORY,
			"GPU %d (%s): no room for %s: %s wanted, this rank may have "
			"%s and uses %s: %s too little%s%s%s",
			info->index, info->name, what, wanted, amount(whole, info->limit), used,
			amount(missing, ledger->used + ledger->context + bytes - info->limit),
			clause, last, info->limit < info->total ? larger_share : "");
	return ddp_error_set(
		error, DDP_ERR_MEMORY,
		"GPU %d (%s): no room for %s: %s wanted, of %s only %s is free; this rank uses "
		"%s%s%s%s%s",
		info->index, info->name, what, wanted, amount(whole, info->total),
		amount((char[AMOUNT]){""}, card->free), used, *card->holders ? ", " : "",
		card->holders, clause, last);
}

bool ledger_add(struct ledger *ledger, void *memory, size_t bytes, enum ledger_kind kind)
{
	struct ledger_entry *entry = malloc(sizeof(*entry));

	if (!entry)
		return false;
	*entry = (struct ledger_entry){ledger->entries, memory, bytes, kind};
	ledger->entries = entry;
	if (kind != LEDGER_HOST)
		ledger->used += bytes;
	if (ledger->used > ledger->most)
		ledger->most = ledger->used;
	return true;
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

bool ledger_take(struct ledger *ledger, const void *memory, struct ledger_entry *entry)
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

/* The process that holds most and was not told, NULL: none. */
static struct ddp_card_holder *largest(struct ddp_card_holder *holders, int count)
{
	struct ddp_card_holder *found = NULL;

	for (int i = 0; i < count; i++) {
		if (holders[i].bytes == 0 || holders[i].pid == (unsigned int)getpid())
			continue;
		if (!found || holders[i].bytes > found->bytes)
			found = &holders[i];
	}
	return found;
}

static int tell_holder(const struct ddp_card_holder *holder, const struct engine_mate *mates,
		       int mate_count, char *text, size_t room)
{
	char bytes[AMOUNT];

	amount(bytes, holder->bytes);
	for (int i = 0; i < mate_count; i++)
		if ((unsigned int)mates[i].pid == holder->pid)
			return snprintf(text, room, "rank %d of this job (process %u) holds %s",
					(int)mates[i].rank, holder->pid, bytes);
	return snprintf(text, room, "process %u holds %s", holder->pid, bytes);
}

void ledger_tell_holders(struct ddp_card_holder *holders, int count,
			 const struct engine_mate *mates, int mate_count, char text[LEDGER_HOLDERS])
{
	struct ddp_card_holder *holder;
	size_t used = 0;

	text[0] = '\0';
	for (int i = 0; i < TOLD && (holder = largest(holders, count)); i++) {
		if (used > 0)
			used += (size_t)snprintf(text + used, LEDGER_HOLDERS - used, ", ");
		used += (size_t)tell_holder(holder, mates, mate_count, text + used,
					    LEDGER_HOLDERS - used);
		holder->bytes = 0;
	}
}

/* What the driver may keep for itself, of a card that nobody else uses. */
static size_t spare(const struct device_info *info)
{
	return info->total / 32 < 1536 * MIB ? info->total / 32 : 1536 * MIB;
}

int ledger_limit(struct device_info *info, const struct ledger_card *card, size_t context,
		 double share, struct ddp_error *error)
{
	char free_text[AMOUNT], limit_text[AMOUNT], total_text[AMOUNT], missing[AMOUNT];
	size_t had = card->free + context;

	info->limit = share > 0 && share < 1 ? (size_t)(share * (double)info->total) : info->total;
	/* Without a share nobody says how much is needed: allocations will. */
	if (!(share > 0) || had + spare(info) >= info->limit)
		return 0;
	return ddp_error_set(
		error, DDP_ERR_MEMORY,
		"GPU %d (%s): this rank's share is %s of %s, but only %s is free, %s too little%s%s; "
		"end what else runs there, or take another GPU",
		info->index, info->name, amount(limit_text, info->limit),
		amount(total_text, info->total), amount(free_text, card->free),
		amount(missing, info->limit - had), *card->holders ? "; " : "", card->holders);
}
