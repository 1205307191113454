/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "warning.h"

DDP_FORMAT(2, 3) static void warn(struct info_warnings *warnings, const char *format, ...)
{
	va_list arguments;

	if (warnings->count == INFO_WARNINGS)
		return;
	va_start(arguments, format);
	vsnprintf(warnings->text[warnings->count++], INFO_WARNING_SIZE, format, arguments);
	va_end(arguments);
}

/* The first rank before [rank] that has the same device, -1 if none. */
static int same_device(const struct info_card *cards, int rank)
{
	if (!cards[rank].uuid[0])
		return -1;
	for (int other = 0; other < rank; other++)
		if (strcmp(cards[other].uuid, cards[rank].uuid) == 0 &&
		    strcmp(cards[other].host, cards[rank].host) == 0)
			return other;
	return -1;
}

static void shared_devices(const struct info_card *cards, int size, struct info_warnings *warnings)
{
	int pairs = 0, first = -1, second = -1;

	for (int rank = 0; rank < size; rank++) {
		int other = same_device(cards, rank);

		if (other < 0 || (cards[rank].share > 0 && cards[rank].share < 1))
			continue;
		if (pairs++ == 0) {
			first = other;
			second = rank;
		}
	}
	if (pairs)
		warn(warnings,
		     "ranks %d and %d use one GPU (%s on %s)%s, and no share was given; ask for as "
		     "many GPUs as ranks, or for shares with --gres=shard:N",
		     first, second, cards[second].uuid, cards[second].host,
		     pairs > 1 ? ", others too" : "");
}

/* Each rank of a node sees its own device alone: NCCL then copies through host memory. */
static void lost_peers(const struct info_card *cards, int size, struct info_warnings *warnings)
{
	for (int rank = 0; rank < size; rank++) {
		const struct info_card *card = &cards[rank];

		if (card->local_size < 2 || card->visible != 1 || card->device < 0 ||
		    same_device(cards, rank) >= 0 || (card->share > 0 && card->share < 1))
			continue;
		warn(warnings,
		     "rank %d on %s sees its own GPU alone, so that GPUs of a node may not copy to "
		     "each other; ask with --gres=gpu:N and --gpu-bind=none instead of "
		     "--gpus-per-task or --gpu-bind",
		     rank, card->host);
		return;
	}
}

static void uneven(const struct info_card *cards, int size, struct info_warnings *warnings)
{
	const struct info_card *most = &cards[0], *least = &cards[0];

	for (int rank = 1; rank < size; rank++) {
		if (cards[rank].local_size > most->local_size)
			most = &cards[rank];
		if (cards[rank].local_size < least->local_size)
			least = &cards[rank];
	}
	if (most->local_size != least->local_size)
		warn(warnings,
		     "%s has %d ranks and %s has %d: fewer of them carry data between nodes; "
		     "--ntasks-per-node makes them even",
		     most->host, most->local_size, least->host, least->local_size);
}

static int count_bits(uint64_t word)
{
	return __builtin_popcountll(word);
}

/* More ranks than CPUs on a node: they take turns. */
static void crowded(const struct info_card *cards, int size, struct info_warnings *warnings)
{
	for (int rank = 0; rank < size; rank++) {
		uint64_t mask[16] = {0};
		int cpus = 0;

		if (cards[rank].local_rank != 0)
			continue;
		for (int other = 0; other < size; other++)
			for (int i = 0; i < 16 && cards[other].node_rank == cards[rank].node_rank;
			     i++)
				mask[i] |= cards[other].cpu_mask[i];
		for (int i = 0; i < 16; i++)
			cpus += count_bits(mask[i]);
		if (cpus == 0 || cpus >= cards[rank].local_size)
			continue;
		warn(warnings,
		     "%d ranks on %s share %d CPU%s (%s); ask for --cpus-per-task, or fewer ranks",
		     cards[rank].local_size, cards[rank].host, cpus, cpus > 1 ? "s" : "",
		     cards[rank].cpu_list);
		return;
	}
}

static void unreached(const struct info_card *cards, int size, struct info_warnings *warnings)
{
	for (int rank = 0; rank < size; rank++) {
		if (cards[rank].reached != 0)
			continue;
		warn(warnings,
		     "rank 0's endpoint %s cannot be reached from %s: %s; --ddp-master-suffix or "
		     "MASTER_ADDR name another address",
		     cards[rank].endpoint, cards[rank].host, cards[rank].why_not);
		return;
	}
}

static void different(const struct info_card *cards, int size, struct info_warnings *warnings)
{
	for (int rank = 1; rank < size; rank++) {
		if (!*cards[rank].libraries ||
		    strcmp(cards[rank].libraries, cards[0].libraries) == 0)
			continue;
		warn(warnings, "library versions differ: rank 0 on %s has %s, rank %d on %s has %s",
		     cards[0].host, *cards[0].libraries ? cards[0].libraries : "none", rank,
		     cards[rank].host, cards[rank].libraries);
		return;
	}
}

void info_warn(const struct info_card *cards, int size, struct info_warnings *warnings)
{
	warnings->count = 0;
	shared_devices(cards, size, warnings);
	lost_peers(cards, size, warnings);
	uneven(cards, size, warnings);
	crowded(cards, size, warnings);
	unreached(cards, size, warnings);
	different(cards, size, warnings);
}
