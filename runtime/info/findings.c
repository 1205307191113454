/* SPDX-License-Identifier: Apache-2.0 */
/* findings.c - which ranks share a GPU, and which settings are probably wrong */
#include "config.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "base/mps.h"
#include "base/text.h"
#include "info.h"

/* --- Ranks that share a GPU --------------------------------------------------------------- */

static bool same_gpu(const struct info_card *one, const struct info_card *other)
{
	if (one->node_rank != other->node_rank || strcmp(one->host, other->host) != 0)
		return false;
	if (one->uuid[0] || other->uuid[0])
		return strcmp(one->uuid, other->uuid) == 0;
	return one->slot[0] && strcmp(one->slot, other->slot) == 0;
}

/* Argument of has_mate(): selects the ranks on the GPU whose lowest rank is [first]. */
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

bool info_is_shared(const struct info_card *card)
{
	return card->mates > 1 || (card->share > 0 && card->share < 1);
}

bool info_through_mps(const struct info_card *card)
{
	return card->client >= 0 ? card->client > 0 : card->mps == DDP_MPS_SERVES;
}

bool info_sharing_at(const struct info_card *cards, int size, int rank,
		     struct info_sharing *sharing)
{
	const struct info_card *card = &cards[rank];

	if (card->first != rank || !info_is_shared(card))
		return false;
	*sharing = (struct info_sharing){.first = rank,
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
		sharing->quickest = fmax(sharing->quickest, card->threads);
		sharing->mps = sharing->mps && info_through_mps(card);
		sharing->threads = sharing->threads && card->threads > 0;
		sharing->memory = sharing->memory && card->memory_limit[0];
	}
	sharing->threads = sharing->threads && sharing->mps;
	sharing->memory = sharing->memory && sharing->mps;
	return true;
}

/* Write the name of the GPU, such as "GPU-... on n1". */
static void name_gpu(const struct info_card *card, char *text, size_t size)
{
	if (card->uuid[0])
		snprintf(text, size, "%s on %s", card->uuid, card->host);
	else
		snprintf(text, size, "GPU %s of %s", card->slot, card->host);
}

/* --- Warnings ------------------------------------------------------------------------------ */

struct facts {
	const struct info_card *cards;
	int size;
	struct info_warnings *warnings;
};

/* Add a warning. Always returns true, so that a rule can end with "return condition && warn()". */
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
 * A rule. It is called for each rank, in rank order, until it returns true. A rule that warns only
 * about the first matching rank returns true after adding the warning. A rule that warns about all
 * matching ranks always returns false.
 */
typedef bool rule(const struct facts *facts, const struct info_card *card);

static bool refused(const struct facts *facts, const struct info_card *card)
{
	return card->trouble[0] &&
	       warn(facts, "rank %d on %s cannot use device %d; the CUDA driver reports: %s",
		    card->rank, card->host, card->device, card->trouble);
}

/* Whether a lower rank uses the same GPU as [card]. */
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
	name_gpu(card, name, sizeof(name));
	return warn(facts,
		    "ranks %d and %d use the same GPU (%s) without shares%s. Request as many GPUs "
		    "as ranks, or shares with --gres=shard:N.",
		    card->first, card->rank, name, others ? ", and so do other ranks" : "");
}

/*
 * The plugin's shares of a GPU add up to at most 1, but a program or script may have set DDP_SHARE.
 */
static bool too_much(const struct facts *facts, const struct info_card *card)
{
	struct info_sharing sharing;
	char name[160], ranks[48];

	if (!info_sharing_at(facts->cards, facts->size, card->rank, &sharing))
		return false;
	name_gpu(card, name, sizeof(name));
	if (sharing.ranks > 1)
		snprintf(ranks, sizeof(ranks), "ranks %s", card->sharers);
	else
		snprintf(ranks, sizeof(ranks), "rank %d", card->rank);
	if (sharing.ranks > 1 && sharing.sum > 1 + 1e-6 * sharing.ranks)
		warn(facts,
		     "the shares of %s on %s add up to %.4g of the GPU. Unset DDP_SHARE, or set "
		     "smaller values.",
		     ranks, name, sharing.sum);
	else if (card->free && sharing.bytes > (double)card->free)
		warn(facts,
		     "%s may use %.1f GiB of %s, but only %.1f GiB are free. End other processes "
		     "on this GPU (see nvidia-smi).",
		     ranks, sharing.bytes / 0x1p30, name, (double)card->free / 0x1p30);
	return false;
}

/*
 * Warn about a share that has less memory than a CUDA context needs, which is several hundred MiB.
 * Of the ranks on a GPU, only the first with such a share is reported.
 */
static bool too_small(const struct facts *facts, const struct info_card *card)
{
	for (int rank = card->rank; rank < facts->size; rank++) {
		const struct info_card *mate = &facts->cards[rank];
		double bytes = mate->share * (double)mate->total;

		if (mate->first == card->rank && bytes > 0 && bytes <= (double)card->context) {
			warn(facts,
			     "rank %d's share of %s on %s is %.0f MiB, but a CUDA context needs "
			     "%.0f MiB. Request more shards, or fewer ranks.",
			     rank, card->uuid, card->host, bytes / 0x1p20,
			     (double)card->context / 0x1p20);
			break;
		}
	}
	return false;
}

/* Exclusive mode is meant for MPS; without MPS, only one rank gets a context. */
static bool exclusive(const struct facts *facts, const struct info_card *card)
{
	struct info_sharing sharing;

	if (card->exclusive && card->mates > 1 &&
	    info_sharing_at(facts->cards, facts->size, card->rank, &sharing) && !sharing.mps)
		warn(facts,
		     "%s on %s is in exclusive mode without MPS, but ranks %s share it. Start "
		     "MPS, or run nvidia-smi -c DEFAULT.",
		     card->uuid, card->host, card->sharers);
	return false;
}

/* Warn, because CUDA works without MPS and prints nothing if no MPS daemon responds. */
static bool mps_gone(const struct facts *facts, const struct info_card *card)
{
	return card->mps == DDP_MPS_STALE &&
	       warn(facts,
		    "the MPS daemon of %s on %s has ended, but its socket is still there, so "
		    "programs run without MPS. Start the daemon again (nvidia-cuda-mps-control "
		    "-d), or remove the directory.",
		    card->mps_directory, card->host);
}

static bool mps_missing(const struct facts *facts, const struct info_card *card)
{
	return card->mps == DDP_MPS_NONE && (card->threads > 0 || card->memory_limit[0]) &&
	       warn(facts,
		    "rank %d on %s has limits for MPS (%s), but no daemon runs in %s, so the "
		    "limits are not enforced. Start a daemon (nvidia-cuda-mps-control -d).",
		    card->rank, card->host, card->threads > 0 ? DDP_MPS_THREADS : DDP_MPS_MEMORY,
		    card->mps_directory);
}

static bool mps_unused(const struct facts *facts, const struct info_card *card)
{
	return card->mps == DDP_MPS_SERVES && card->client == 0 &&
	       warn(facts,
		    "an MPS daemon runs in %s on %s, but the driver reports that rank %d does not "
		    "use it. Check whether the daemon serves this user and GPU %s.",
		    card->mps_directory, card->host, card->rank, card->uuid);
}

/*
 * Warn if a rank sees only its own GPU. NCCL cannot copy directly to a GPU that the rank does not
 * see, and copies through host memory instead.
 */
static bool alone(const struct facts *facts, const struct info_card *card)
{
	return card->local_size > 1 && card->visible == 1 && card->device >= 0 && card->mates < 2 &&
	       (card->share <= 0 || card->share >= 1) &&
	       warn(facts,
		    "rank %d on %s sees only its own GPU, which can prevent direct copies between "
		    "the GPUs of a node. Use --gres=gpu:N and --gpu-bind=none instead of "
		    "--gpus-per-task or --gpu-bind.",
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
		     "%s has %d ranks and %s has %d, so fewer ranks can send data between nodes. "
		     "Use --ntasks-per-node to give each node the same number.",
		     most->host, most->local_size, least->host, least->local_size);
	return true;
}

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
		    "%d ranks on %s share %d CPU%s (%s). Use --cpus-per-task, or fewer ranks.",
		    card->local_size, card->host, count, count > 1 ? "s" : "", card->cpu_list);
}

/*
 * Returns the number of GPUs of this node if its ranks leave some of them unused, or else 0. [card]
 * is the card of the node's local rank 0; for other cards, returns 0. Also returns 0 if the device
 * numbers are not the local ranks, because then each rank may use several GPUs or see only its own.
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
	       warn(facts, "%s has %d tasks for %d GPUs. Use --ntasks-per-node=%d to use all.",
		    card->host, card->local_size, gpus, gpus);
}

static bool unused_by_one(const struct facts *facts, const struct info_card *card)
{
	int gpus = count_unused_of(facts, card);

	return gpus && card->local_size == 1 &&
	       warn(facts,
		    "%s has 1 task for %d GPUs. Use --ntasks-per-node=%d, unless the task starts "
		    "a process for each GPU, like torchrun.",
		    card->host, gpus, gpus);
}

enum { FEW_CPUS = 4, ENOUGH_CPUS = 8 }; /* CPUs for a rank with a GPU and its data loaders */

static bool few_cpus(const struct facts *facts, const struct info_card *card)
{
	int count = card->own_cpus, each = card->node_cpus / card->local_size;

	return card->device >= 0 && count > 0 && count < FEW_CPUS && each > count &&
	       warn(facts,
		    "%s has %d CPU%s for each rank with a GPU, of %d on the node. Use "
		    "--cpus-per-task=%d to give its data loaders more CPUs, if they are free.",
		    card->host, count, count > 1 ? "s" : "", card->node_cpus,
		    each < ENOUGH_CPUS ? each : ENOUGH_CPUS);
}

static bool unreached(const struct facts *facts, const struct info_card *card)
{
	return card->reached == 0 &&
	       warn(facts,
		    "rank 0's endpoint %s cannot be reached from %s: %s. Set another address with "
		    "--ddp-master-suffix or MASTER_ADDR.",
		    card->endpoint, card->host, card->why_not);
}

/* Warn if /dev/shm is small. By default, podman and docker provide 64 MiB. */
static bool small_shm(const struct facts *facts, const struct info_card *card)
{
	enum { ENOUGH = 512 << 20 };

	return card->shm > 0 && card->shm < ENOUGH &&
	       warn(facts,
		    "/dev/shm of rank %d on %s has %.0f MiB, but NCCL and PyTorch's DataLoader "
		    "may need more. Start podman or docker with --ipc=host or --shm-size=8g.",
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
