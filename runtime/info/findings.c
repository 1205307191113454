/* SPDX-License-Identifier: Apache-2.0 */
/* findings.c - what the cards of all ranks say: who shares a GPU, and what looks wrong */
#include "config.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "base/mps.h"
#include "base/text.h"
#include "info.h"

/* --- Who shares a GPU ---------------------------------------------------------------------- */

static bool same_gpu(const struct info_card *one, const struct info_card *other)
{
	if (one->node_rank != other->node_rank || strcmp(one->host, other->host) != 0)
		return false;
	if (one->uuid[0] || other->uuid[0])
		return strcmp(one->uuid, other->uuid) == 0;
	return one->slot[0] && strcmp(one->slot, other->slot) == 0;
}

/* Cards, and the first rank of a GPU. */
struct mates {
	const struct info_card *cards;
	int first;
};

static bool has_mate(const void *set, int rank)
{
	const struct mates *mates = set;

	return mates->cards[rank].first == mates->first;
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
		const struct mates mates = {cards, rank};

		if (card->first < 0)
			continue;
		card->mates = cards[card->first].mates;
		if (card->mates > 1 && card->first == rank)
			ddp_list_numbers(has_mate, &mates, size, card->sharers,
					 sizeof(card->sharers));
		else if (card->mates > 1)
			memcpy(card->sharers, cards[card->first].sharers, sizeof(card->sharers));
	}
}

/* The driver knows for certain; an older one does not say. */
static bool through_mps(const struct info_card *card)
{
	return card->client >= 0 ? card->client > 0 : card->mps == DDP_MPS_SERVES;
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
	for (; rank < size && sharing->ranks < cards[sharing->first].mates; rank++) {
		card = &cards[rank];
		if (card->first != sharing->first)
			continue;
		sharing->ranks++;
		sharing->sum += card->share;
		sharing->bytes += card->share * (double)card->total;
		sharing->least = fmin(sharing->least, card->share);
		sharing->most = fmax(sharing->most, card->share);
		sharing->slowest = fmin(sharing->slowest, card->threads);
		sharing->quickest = fmax(sharing->quickest, card->threads);
		sharing->mps = sharing->mps && through_mps(card);
		sharing->threads = sharing->threads && card->threads > 0;
		sharing->memory = sharing->memory && card->memory_limit[0];
	}
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

/* --- What looks wrong ---------------------------------------------------------------------- */

DDP_FORMAT(2, 3) static void warn(struct info_warnings *warnings, const char *format, ...)
{
	va_list arguments;

	if (warnings->count == INFO_WARNINGS)
		return;
	va_start(arguments, format);
	vsnprintf(warnings->text[warnings->count++], INFO_WARNING_SIZE, format, arguments);
	va_end(arguments);
}

static void shared_devices(const struct info_card *cards, int size, struct info_warnings *warnings)
{
	int pairs = 0, second = -1;
	char name[160];

	for (int rank = size - 1; rank >= 0; rank--) {
		if (cards[rank].first < 0 || cards[rank].first == rank || cards[rank].share > 0)
			continue;
		second = rank;
		pairs++;
	}
	if (!pairs)
		return;
	info_sharing_name(&cards[second], name, sizeof(name));
	warn(warnings,
	     "ranks %d and %d use one GPU (%s)%s, and no share was given; ask for as "
	     "many GPUs as ranks, or for shares with --gres=shard:N",
	     cards[second].first, second, name, pairs > 1 ? ", others too" : "");
}

/* Shares are parts of one GPU, but a program, or a script, may have set DDP_SHARE by itself. */
static void too_much(const struct info_card *cards, const struct info_sharing *sharing,
		     struct info_warnings *warnings)
{
	const struct info_card *card = &cards[sharing->first];
	char name[160], who[48];

	info_sharing_name(card, name, sizeof(name));
	if (sharing->ranks > 1)
		snprintf(who, sizeof(who), "ranks %s", card->sharers);
	else
		snprintf(who, sizeof(who), "rank %d", card->rank);
	if (sharing->ranks > 1 && sharing->sum > 1 + 1e-6 * sharing->ranks)
		warn(warnings,
		     "%s on %s have shares of %.4g together, more than there is; leave "
		     "DDP_SHARE to srun --ddp, or set less",
		     who, name, sharing->sum);
	else if (card->free && sharing->bytes > (double)card->free)
		warn(warnings,
		     "%s may take %.1f GiB of %s, and %.1f GiB are free: somebody holds more than "
		     "a share, nvidia-smi lists who",
		     who, sharing->bytes / 0x1p30, name, (double)card->free / 0x1p30);
}

/* A context comes first, and takes some hundred MiB. */
static void too_small(const struct info_card *cards, int size, int first,
		      struct info_warnings *warnings)
{
	const struct info_card *card = &cards[first];

	for (int rank = first; rank < size; rank++) {
		double bytes = cards[rank].share * (double)cards[rank].total;

		if (cards[rank].first != first || bytes <= 0 || bytes > (double)card->context)
			continue;
		warn(warnings,
		     "rank %d's share of %s on %s is %.0f MiB, and a CUDA context alone takes "
		     "%.0f MiB; ask for more shards, or for fewer ranks",
		     rank, card->uuid, card->host, bytes / 0x1p20, (double)card->context / 0x1p20);
		return;
	}
}

/* As administrators set it for MPS; without, the second rank gets no context. */
static void exclusive(const struct info_card *cards, const struct info_sharing *sharing,
		      struct info_warnings *warnings)
{
	const struct info_card *card = &cards[sharing->first];

	if (sharing->ranks > 1 && card->exclusive && !sharing->mps)
		warn(warnings,
		     "%s on %s is for one process at a time (exclusive mode), without MPS, and ranks %s "
		     "share it: all but one will fail; start MPS, or nvidia-smi -c DEFAULT",
		     card->uuid, card->host, card->sharers);
}

static void shares(const struct info_card *cards, int size, struct info_warnings *warnings)
{
	struct info_sharing sharing;

	for (int rank = 0; rank < size; rank++) {
		if (!info_sharing_at(cards, size, rank, &sharing))
			continue;
		too_much(cards, &sharing, warnings);
		too_small(cards, size, rank, warnings);
		exclusive(cards, &sharing, warnings);
	}
}

/* CUDA does without MPS where no daemon answers, and says nothing. The first of each state. */
static void mps(const struct info_card *cards, int size, struct info_warnings *warnings)
{
	bool told[DDP_MPS_SERVES + 1] = {false};

	for (int rank = 0; rank < size; rank++) {
		const struct info_card *card = &cards[rank];

		if (told[card->mps] ||
		    (card->mps == DDP_MPS_NONE && card->threads <= 0 && !card->memory_limit[0]) ||
		    (card->mps == DDP_MPS_SERVES && card->client != 0))
			continue;
		told[card->mps] = true;
		if (card->mps == DDP_MPS_STALE)
			warn(warnings,
			     "the MPS daemon of %s on %s is gone and left its socket: programs run "
			     "without MPS; start it again (nvidia-cuda-mps-control -d), or remove "
			     "the directory",
			     card->mps_directory, card->host);
		else if (card->mps == DDP_MPS_NONE)
			warn(warnings,
			     "rank %d on %s has limits for MPS (%s), and no daemon is at %s: they "
			     "limit nothing; start one (nvidia-cuda-mps-control -d)",
			     rank, card->host, card->threads > 0 ? DDP_MPS_THREADS : DDP_MPS_MEMORY,
			     card->mps_directory);
		else
			warn(warnings,
			     "an MPS daemon is at %s on %s, and rank %d runs without it, says the "
			     "driver; does it serve this user and this GPU (%s)?",
			     card->mps_directory, card->host, rank, card->uuid);
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
			cpus += __builtin_popcountll(mask[i]);
		if (cpus == 0 || cpus >= cards[rank].local_size)
			continue;
		warn(warnings,
		     "%d ranks on %s share %d CPU%s (%s); ask for --cpus-per-task, or fewer ranks",
		     cards[rank].local_size, cards[rank].host, cpus, cpus > 1 ? "s" : "",
		     cards[rank].cpu_list);
		return;
	}
}

enum kind { REFUSED, APART, ALONE, UNREACHED, DIFFERENT };

/* Whether [rank] has what [kind] is about; then it is told. */
static bool told(enum kind kind, const struct info_card *cards, int rank,
		 struct info_warnings *warnings)
{
	const struct info_card *card = &cards[rank];
	int first = card->first;
	char name[160];

	switch (kind) {
	case REFUSED:
		if (!card->trouble[0])
			return false;
		warn(warnings, "rank %d on %s cannot use device %d, says the CUDA driver: %s", rank,
		     card->host, card->device, card->trouble);
		return true;
	case APART: /* sums on the GPU need memory of the node that both ranks see */
		if (first < 0 || first == rank || (!card->apart && !cards[first].apart))
			return false;
		info_sharing_name(card, name, sizeof(name));
		warn(warnings,
		     "ranks %d and %d share %s and, with DDP_LOCAL=off, no memory: libddp and "
		     "ddp-train cannot sum their gradients there; unset DDP_LOCAL",
		     first, rank, name);
		return true;
	case ALONE: /* each rank sees its own device: NCCL then copies through host memory */
		if (card->local_size < 2 || card->visible != 1 || card->device < 0 ||
		    card->mates > 1 || (card->share > 0 && card->share < 1))
			return false;
		warn(warnings,
		     "rank %d on %s sees its own GPU alone, so that GPUs of a node may not copy to "
		     "each other; ask with --gres=gpu:N and --gpu-bind=none instead of "
		     "--gpus-per-task or --gpu-bind",
		     rank, card->host);
		return true;
	case UNREACHED:
		if (card->reached != 0)
			return false;
		warn(warnings,
		     "rank 0's endpoint %s cannot be reached from %s: %s; --ddp-master-suffix or "
		     "MASTER_ADDR name another address",
		     card->endpoint, card->host, card->why_not);
		return true;
	default:
		if (!*card->libraries || strcmp(card->libraries, cards[0].libraries) == 0)
			return false;
		warn(warnings, "library versions differ: rank 0 on %s has %s, rank %d on %s has %s",
		     cards[0].host, *cards[0].libraries ? cards[0].libraries : "none", rank,
		     card->host, card->libraries);
		return true;
	}
}

/* Of many ranks that have it the first is told. */
static void tell(enum kind kind, const struct info_card *cards, int size,
		 struct info_warnings *warnings)
{
	int rank = 0;

	while (rank < size && !told(kind, cards, rank, warnings))
		rank++;
}

void info_warn(const struct info_card *cards, int size, struct info_warnings *warnings)
{
	warnings->count = 0;
	tell(REFUSED, cards, size, warnings);
	shared_devices(cards, size, warnings);
	shares(cards, size, warnings);
	tell(APART, cards, size, warnings);
	mps(cards, size, warnings);
	tell(ALONE, cards, size, warnings);
	uneven(cards, size, warnings);
	crowded(cards, size, warnings);
	tell(UNREACHED, cards, size, warnings);
	tell(DIFFERENT, cards, size, warnings);
}
