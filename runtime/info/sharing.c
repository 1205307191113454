/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "mps.h"
#include "sharing.h"

static bool same_gpu(const struct info_card *one, const struct info_card *other)
{
	if (one->node_rank != other->node_rank || strcmp(one->host, other->host) != 0)
		return false;
	if (one->uuid[0] || other->uuid[0])
		return strcmp(one->uuid, other->uuid) == 0;
	return one->slot[0] && strcmp(one->slot, other->slot) == 0;
}

/* The ranks whose first is [first], as "0-3,8" in [text], cut with "...". */
static void list_ranks(const struct info_card *cards, int size, int first, char *text, size_t room)
{
	size_t used = 0;

	text[0] = '\0';
	for (int rank = first; rank < size; rank++) {
		char range[32];
		int last = rank;

		if (cards[rank].first != first)
			continue;
		while (last + 1 < size && cards[last + 1].first == first)
			last++;
		snprintf(range, sizeof(range), last > rank ? "%s%d-%d" : "%s%d", used ? "," : "",
			 rank, last);
		if (used + strlen(range) + 4 >= room) {
			snprintf(text + used, room - used, "...");
			return;
		}
		used += (size_t)snprintf(text + used, room - used, "%s", range);
		rank = last;
	}
}

void info_sharing_find(struct info_card *cards, int size)
{
	for (int rank = 0; rank < size; rank++) {
		struct info_card *card = &cards[rank];

		card->first = card->uuid[0] || card->slot[0] ? rank : -1;
		card->mates = 0;
		for (int other = 0; other < rank && card->first == rank; other++)
			if (cards[other].first == other && same_gpu(&cards[other], card))
				card->first = other;
		if (card->first >= 0)
			cards[card->first].mates++;
	}
	for (int rank = 0; rank < size; rank++) {
		struct info_card *card = &cards[rank];

		if (card->first < 0)
			continue;
		card->mates = cards[card->first].mates;
		if (card->mates > 1 && card->first == rank)
			list_ranks(cards, size, rank, card->sharers, sizeof(card->sharers));
		else if (card->mates > 1)
			memcpy(card->sharers, cards[card->first].sharers, sizeof(card->sharers));
	}
}

/* The driver knows for certain; an older one does not say. */
static bool through_mps(const struct info_card *card)
{
	return card->client >= 0 ? card->client > 0 : card->mps == DDP_MPS_SERVES;
}

static void add(struct info_sharing *sharing, const struct info_card *card)
{
	sharing->ranks++;
	sharing->sum += card->share;
	sharing->bytes += card->share * (double)card->total;
	if (card->share < sharing->least)
		sharing->least = card->share;
	if (card->share > sharing->most)
		sharing->most = card->share;
	if (card->threads < sharing->slowest)
		sharing->slowest = card->threads;
	if (card->threads > sharing->quickest)
		sharing->quickest = card->threads;
	if (!through_mps(card))
		sharing->mps = false;
	if (card->threads <= 0)
		sharing->threads = false;
	if (!card->memory_limit[0])
		sharing->memory = false;
}

bool info_sharing_at(const struct info_card *cards, int size, int rank,
		     struct info_sharing *sharing)
{
	const struct info_card *card = &cards[rank];

	if (card->first != rank || (card->mates < 2 && (card->share <= 0 || card->share >= 1)))
		return false;
	*sharing = (struct info_sharing){.first = rank,
					 .least = card->share,
					 .most = card->share,
					 .slowest = card->threads,
					 .quickest = card->threads,
					 .mps = true,
					 .threads = true,
					 .memory = true};
	for (int other = rank; other < size && sharing->ranks < card->mates; other++)
		if (cards[other].first == rank)
			add(sharing, &cards[other]);
	sharing->threads = sharing->threads && sharing->mps;
	sharing->memory = sharing->memory && sharing->mps;
	return true;
}

void info_sharing_name(const struct info_card *card, char *text, size_t size)
{
	if (card->uuid[0])
		snprintf(text, size, "%s on %s", card->uuid, card->host);
	else
		snprintf(text, size, "GPU %s of %s", card->slot, card->host);
}

static void print_range(double least, double most, char *text, size_t size)
{
	if (least < most)
		snprintf(text, size, "%.4g to %.4g", least, most);
	else
		snprintf(text, size, "%.4g", least);
}

static void print_mode(const struct info_card *card, const struct info_sharing *sharing, char *text,
		       size_t size)
{
	char threads[48] = "", memory[64] = "";

	if (!sharing->mps) {
		snprintf(text, size, "by time-slicing: %s kernels take turns",
			 sharing->ranks > 1 ? "their" : "its own and others'");
		return;
	}
	if (sharing->threads) {
		print_range(sharing->slowest, sharing->quickest, memory, sizeof(memory));
		snprintf(threads, sizeof(threads), "threads limited to %s %%", memory);
		memory[0] = '\0';
	}
	if (sharing->memory)
		snprintf(memory, sizeof(memory), "%s to %s",
			 *threads ? ", memory" : "memory limited", card->memory_limit);
	if (*threads || *memory)
		snprintf(text, size, "through MPS (%s%s)", threads, memory);
	else
		snprintf(text, size, "through MPS, without limits");
}

static void print_part(const struct info_card *card, const struct info_sharing *sharing, char *text,
		       size_t size)
{
	const char *each = sharing->ranks > 1 ? " each" : "";
	char part[48];

	if (sharing->least <= 0) {
		snprintf(text, size, "no share is known");
		return;
	}
	print_range(sharing->least, sharing->most, part, sizeof(part));
	if (card->total && sharing->least == sharing->most)
		snprintf(text, size, "%s of it%s, %.1f of %.1f GiB", part, each,
			 sharing->least * (double)card->total / 0x1p30,
			 (double)card->total / 0x1p30);
	else
		snprintf(text, size, "%s of it%s", part, each);
}

static const char *enforced(const struct info_sharing *sharing)
{
	if (sharing->threads && sharing->memory)
		return "MPS enforces both limits";
	if (sharing->threads)
		return "MPS enforces the limit of threads, memory is kept to by agreement";
	if (sharing->memory)
		return "MPS enforces the limit of memory";
	return sharing->least > 0 ? "by agreement, nothing enforces it" : "nothing is enforced";
}

void info_sharing_how(const struct info_card *cards, const struct info_sharing *sharing,
		      char text[INFO_SHARING_SIZE])
{
	const struct info_card *card = &cards[sharing->first];
	char mode[128], part[128];

	print_mode(card, sharing, mode, sizeof(mode));
	print_part(card, sharing, part, sizeof(part));
	snprintf(text, INFO_SHARING_SIZE, "%s; %s; %s", mode, part, enforced(sharing));
}
