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

struct facts {
	const struct info_card *cards;
	int size;
	struct info_warnings *warnings;
};

/* Returns true, for rules to return. */
DDP_FORMAT(2, 3) static bool warn(const struct facts *facts, const char *format, ...)
{
	struct info_warnings *warnings = facts->warnings;
	va_list arguments;

	if (warnings->count == INFO_WARNINGS)
		return true;
	va_start(arguments, format);
	vsnprintf(warnings->text[warnings->count++], INFO_WARNING_SIZE, format, arguments);
	va_end(arguments);
	return true;
}

/*
 * A rule looks at one rank after the other, until it returns true: of many that have what it is about the first is
 * told. It returns false for those that have it not, or all of whom are told.
 */
typedef bool rule(const struct facts *facts, const struct info_card *card);

static bool refused(const struct facts *facts, const struct info_card *card)
{
	return card->trouble[0] &&
	       warn(facts, "rank %d on %s cannot use device %d, says the CUDA driver: %s",
		    card->rank, card->host, card->device, card->trouble);
}

/* Whether a lower rank is on the GPU of [card]. */
static bool is_mate(const struct info_card *card)
{
	return card->first >= 0 && card->first != card->rank;
}

static bool shared(const struct facts *facts, const struct info_card *card)
{
	int others = 0;
	char name[160];

	if (!is_mate(card) || card->share > 0)
		return false;
	for (int other = card->rank + 1; other < facts->size; other++)
		others += is_mate(&facts->cards[other]) && facts->cards[other].share <= 0;
	info_sharing_name(card, name, sizeof(name));
	return warn(facts,
		    "ranks %d and %d use one GPU (%s)%s, and no share was given; ask for as "
		    "many GPUs as ranks, or for shares with --gres=shard:N",
		    card->first, card->rank, name, others ? ", others too" : "");
}

/* Shares are parts of one GPU, but a program, or a script, may have set DDP_SHARE by itself. */
static bool too_much(const struct facts *facts, const struct info_card *card)
{
	struct info_sharing sharing;
	char name[160], who[48];

	if (!info_sharing_at(facts->cards, facts->size, card->rank, &sharing))
		return false;
	info_sharing_name(card, name, sizeof(name));
	if (sharing.ranks > 1)
		snprintf(who, sizeof(who), "ranks %s", card->sharers);
	else
		snprintf(who, sizeof(who), "rank %d", card->rank);
	if (sharing.ranks > 1 && sharing.sum > 1 + 1e-6 * sharing.ranks)
		warn(facts,
		     "%s on %s have shares of %.4g together, more than there is; leave "
		     "DDP_SHARE to srun --ddp, or set less",
		     who, name, sharing.sum);
	else if (card->free && sharing.bytes > (double)card->free)
		warn(facts,
		     "%s may take %.1f GiB of %s, and %.1f GiB are free: somebody holds more than "
		     "a share, nvidia-smi lists who",
		     who, sharing.bytes / 0x1p30, name, (double)card->free / 0x1p30);
	return false;
}

/* A context comes first, and takes some hundred MiB. The first on each GPU is told. */
static bool too_small(const struct facts *facts, const struct info_card *card)
{
	for (int rank = card->rank; rank < facts->size; rank++) {
		const struct info_card *mate = &facts->cards[rank];
		double bytes = mate->share * (double)mate->total;

		if (mate->first == card->rank && bytes > 0 && bytes <= (double)card->context) {
			warn(facts,
			     "rank %d's share of %s on %s is %.0f MiB, and a CUDA context alone "
			     "takes %.0f MiB; ask for more shards, or for fewer ranks",
			     rank, card->uuid, card->host, bytes / 0x1p20,
			     (double)card->context / 0x1p20);
			break;
		}
	}
	return false;
}

/* As administrators set it for MPS; without, the second rank gets no context. */
static bool exclusive(const struct facts *facts, const struct info_card *card)
{
	struct info_sharing sharing;

	if (card->exclusive && card->mates > 1 &&
	    info_sharing_at(facts->cards, facts->size, card->rank, &sharing) && !sharing.mps)
		warn(facts,
		     "%s on %s is for one process at a time (exclusive mode), without MPS, and ranks %s "
		     "share it: all but one will fail; start MPS, or nvidia-smi -c DEFAULT",
		     card->uuid, card->host, card->sharers);
	return false;
}

/* CUDA does without MPS where no daemon answers, and says nothing. */
static bool mps_gone(const struct facts *facts, const struct info_card *card)
{
	return card->mps == DDP_MPS_STALE &&
	       warn(facts,
		    "the MPS daemon of %s on %s is gone and left its socket: programs run "
		    "without MPS; start it again (nvidia-cuda-mps-control -d), or remove "
		    "the directory",
		    card->mps_directory, card->host);
}

static bool mps_missing(const struct facts *facts, const struct info_card *card)
{
	return card->mps == DDP_MPS_NONE && (card->threads > 0 || card->memory_limit[0]) &&
	       warn(facts,
		    "rank %d on %s has limits for MPS (%s), and no daemon is at %s: they "
		    "limit nothing; start one (nvidia-cuda-mps-control -d)",
		    card->rank, card->host, card->threads > 0 ? DDP_MPS_THREADS : DDP_MPS_MEMORY,
		    card->mps_directory);
}

static bool mps_unused(const struct facts *facts, const struct info_card *card)
{
	return card->mps == DDP_MPS_SERVES && card->client == 0 &&
	       warn(facts,
		    "an MPS daemon is at %s on %s, and rank %d runs without it, says the "
		    "driver; does it serve this user and this GPU (%s)?",
		    card->mps_directory, card->host, card->rank, card->uuid);
}

/* NCCL then copies through host memory. */
static bool alone(const struct facts *facts, const struct info_card *card)
{
	return card->local_size > 1 && card->visible == 1 && card->device >= 0 && card->mates < 2 &&
	       (card->share <= 0 || card->share >= 1) &&
	       warn(facts,
		    "rank %d on %s sees its own GPU alone, so that GPUs of a node may not copy to "
		    "each other; ask with --gres=gpu:N and --gpu-bind=none instead of "
		    "--gpus-per-task or --gpu-bind",
		    card->rank, card->host);
}

static bool uneven(const struct facts *facts, const struct info_card *card)
{
	const struct info_card *most = card, *least = card;

	for (int other = 0; other < facts->size; other++) {
		card = &facts->cards[other];
		most = card->local_size > most->local_size ? card : most;
		least = card->local_size < least->local_size ? card : least;
	}
	if (most != least)
		warn(facts,
		     "%s has %d ranks and %s has %d: fewer of them carry data between nodes; "
		     "--ntasks-per-node makes them even",
		     most->host, most->local_size, least->host, least->local_size);
	return true;
}

/* More ranks than CPUs on a node: they take turns. */
static bool crowded(const struct facts *facts, const struct info_card *card)
{
	cpu_set_t all;
	int count;

	if (card->local_rank != 0)
		return false;
	CPU_ZERO(&all);
	for (int other = 0; other < facts->size; other++)
		if (facts->cards[other].node_rank == card->node_rank)
			CPU_OR(&all, &all, &facts->cards[other].cpus);
	count = CPU_COUNT(&all);
	return count > 0 && count < card->local_size &&
	       warn(facts,
		    "%d ranks on %s share %d CPU%s (%s); ask for --cpus-per-task, or fewer ranks",
		    card->local_size, card->host, count, count > 1 ? "s" : "", card->cpu_list);
}

/*
 * GPUs of the node of [card], a local rank 0, if its ranks leave some of them unused; else 0. Ranks that use another device
 * than that of their number have several GPUs each, or one alone.
 */
static int count_unused_of(const struct facts *facts, const struct info_card *card)
{
	if (card->local_rank != 0 || card->whole <= card->local_size)
		return 0;
	for (int other = 0; other < facts->size; other++)
		if (facts->cards[other].node_rank == card->node_rank &&
		    facts->cards[other].device != facts->cards[other].local_rank)
			return 0;
	return card->whole;
}

static bool unused(const struct facts *facts, const struct info_card *card)
{
	int gpus = count_unused_of(facts, card);

	return gpus && card->local_size > 1 &&
	       warn(facts, "%s: %d tasks for %d GPUs; --ntasks-per-node=%d uses all", card->host,
		    card->local_size, gpus, gpus);
}

static bool unused_by_one(const struct facts *facts, const struct info_card *card)
{
	int gpus = count_unused_of(facts, card);

	return gpus && card->local_size == 1 &&
	       warn(facts,
		    "%s: 1 task for %d GPUs; --ntasks-per-node=%d uses all, unless the task starts a "
		    "process for each, like torchrun",
		    card->host, gpus, gpus);
}

enum { FEW_CPUS = 4, ENOUGH_CPUS = 8 }; /* for a rank with a GPU and its data loaders */

static bool few_cpus(const struct facts *facts, const struct info_card *card)
{
	int count = card->own_cpus, each = card->node_cpus / card->local_size;

	return card->device >= 0 && count > 0 && count < FEW_CPUS && each > count &&
	       warn(facts,
		    "%s: %d CPU%s for each rank with a GPU, of %d on the node; --cpus-per-task=%d "
		    "gives its data loaders more, if they are free",
		    card->host, count, count > 1 ? "s" : "", card->node_cpus,
		    each < ENOUGH_CPUS ? each : ENOUGH_CPUS);
}

static bool unreached(const struct facts *facts, const struct info_card *card)
{
	return card->reached == 0 &&
	       warn(facts,
		    "rank 0's endpoint %s cannot be reached from %s: %s; --ddp-master-suffix or "
		    "MASTER_ADDR name another address",
		    card->endpoint, card->host, card->why_not);
}

/* podman and docker give 64 MiB. */
static bool small_shm(const struct facts *facts, const struct info_card *card)
{
	enum { ENOUGH = 512 << 20 };

	return card->shm > 0 && card->shm < ENOUGH &&
	       warn(facts,
		    "/dev/shm of rank %d on %s has %.0f MiB, and NCCL and DataLoader of PyTorch may "
		    "need more: podman or docker --ipc=host or --shm-size=8g",
		    card->rank, card->host, (double)card->shm / (1 << 20));
}

static bool different(const struct facts *facts, const struct info_card *card)
{
	const struct info_card *zero = &facts->cards[0];

	return *card->libraries && strcmp(card->libraries, zero->libraries) != 0 &&
	       warn(facts, "library versions differ: rank 0 on %s has %s, rank %d on %s has %s",
		    zero->host, *zero->libraries ? zero->libraries : "none", card->rank, card->host,
		    card->libraries);
}

static void apply(rule *const *rules, const struct facts *facts)
{
	facts->warnings->count = 0;
	for (; *rules; rules++)
		for (int rank = 0; rank < facts->size && !(*rules)(facts, &facts->cards[rank]);)
			rank++;
}

void info_warn(const struct info_card *cards, int size, struct info_warnings *warnings)
{
	static rule *const rules[] = {refused,	 shared,    too_much,	 too_small,
				      exclusive, mps_gone,  mps_missing, mps_unused,
				      alone,	 uneven,    unused,	 crowded,
				      unreached, small_shm, different,	 NULL};

	apply(rules, &(struct facts){cards, size, warnings});
}

void info_advise(const struct info_card *cards, int size, struct info_warnings *advice)
{
	static rule *const rules[] = {unused_by_one, few_cpus, NULL};

	apply(rules, &(struct facts){cards, size, advice});
}
