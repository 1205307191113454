/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "cards.h"
#include "shard-protocol.h"

/* Texts of a card come from another process and need not end. */
#define TEXT(member) (int)sizeof(member) - 1, member

static int refuse_versions(const struct ddp_device_card *a, const struct ddp_device_card *b,
			   struct ddp_error *error)
{
	return ddp_error_set(
		error, DDP_ERR_MISMATCH,
		"rank %d on %.*s has version %d.%d.%d of the engine between devices, rank %d on "
		"%.*s has %d.%d.%d: install the same on all nodes, or load the same module or "
		"container",
		a->rank, TEXT(a->host), a->version / 10000, a->version / 100 % 100,
		a->version % 100, b->rank, TEXT(b->host), b->version / 10000,
		b->version / 100 % 100, b->version % 100);
}

#define ALTERNATIVES                                                                  \
	"run one rank per GPU (srun --gpus-per-task=1, or as many tasks per node as " \
	"--gres=gpu:N gives), or give each rank a MIG slice"

static int refuse_apart(const struct ddp_device_card *a, const struct ddp_device_card *b,
			struct ddp_error *error)
{
	return ddp_error_set(
		error, DDP_ERR_MISMATCH,
		"ranks %d and %d on %.*s have the same device %.*s and share no memory, through which "
		"ranks sum on one GPU: unset DDP_LOCAL, which is off, or run them on one node of "
		"Slurm; or " ALTERNATIVES,
		a->rank, b->rank, TEXT(a->host), TEXT(a->uuid));
}

static int refuse_many(const struct ddp_device_card *a, const struct ddp_device_card *b,
		       struct ddp_error *error)
{
	return ddp_error_set(
		error, DDP_ERR_MISMATCH,
		"more than %d ranks, from %d to %d, on %.*s have the same device %.*s: "
		"run fewer tasks; or " ALTERNATIVES,
		DDP_SHARD_MEMBERS, a->rank, b->rank, TEXT(a->host), TEXT(a->uuid));
}

static bool is_same(const struct ddp_device_card *a, const struct ddp_device_card *b)
{
	return a->boot == b->boot && strncmp(a->uuid, b->uuid, sizeof(a->uuid)) == 0;
}

/* The shard that [rank] is in: that of a rank before it, or a new one. */
static int find_shard(const struct ddp_sharing *sharing, const struct ddp_device_card *cards,
		      const int32_t *leaders, int rank)
{
	int shard = 0;

	while (shard < sharing->shards && !is_same(&cards[leaders[shard]], &cards[rank]))
		shard++;
	return shard;
}

/* Each rank's place; [first][s+1] counts the members of shard s, and [ranks] has the leaders. */
static void find_places(struct ddp_sharing *sharing, const struct ddp_device_card *cards)
{
	for (int rank = 0; rank < sharing->size; rank++) {
		int shard = find_shard(sharing, cards, sharing->ranks, rank);

		if (shard == sharing->shards)
			sharing->ranks[sharing->shards++] = rank;
		sharing->places[rank] = (struct ddp_place){shard, sharing->first[shard + 1]++};
		sharing->shared = sharing->shared || sharing->places[rank].member > 0;
	}
}

static void list_ranks(struct ddp_sharing *sharing)
{
	for (int shard = 0; shard < sharing->shards; shard++)
		sharing->first[shard + 1] += sharing->first[shard];
	for (int rank = 0; rank < sharing->size; rank++) {
		const struct ddp_place *place = &sharing->places[rank];

		sharing->ranks[sharing->first[place->group] + place->member] = rank;
	}
}

/* Whether all members of each shard share memory, and are not too many. */
static int check_shards(const struct ddp_sharing *sharing, const struct ddp_device_card *cards,
			const struct ddp_place *groups, struct ddp_error *error)
{
	for (int rank = 0; rank < sharing->size; rank++) {
		const struct ddp_place *place = &sharing->places[rank];
		int leader = ddp_sharing_rank(sharing, place->group, 0);

		if (groups && groups[leader].group != groups[rank].group)
			return refuse_apart(&cards[leader], &cards[rank], error);
		if (place->member >= DDP_SHARD_MEMBERS)
			return refuse_many(&cards[leader], &cards[rank], error);
	}
	return 0;
}

int ddp_sharing_create(struct ddp_sharing **sharing, const struct ddp_device_card *cards,
		       const struct ddp_place *groups, int size, struct ddp_error *error)
{
	struct ddp_sharing *new;
	int status;

	*sharing = NULL;
	for (int rank = 1; rank < size; rank++)
		if (cards[rank].version != cards[0].version)
			return refuse_versions(&cards[0], &cards[rank], error);
	new = calloc(1, sizeof(*new));
	if (new) {
		new->size = size;
		new->places = calloc((size_t)size, sizeof(*new->places));
		new->first = calloc((size_t)size + 1, sizeof(*new->first));
		new->ranks = calloc((size_t)size, sizeof(*new->ranks));
	}
	if (!new || !new->places || !new->first || !new->ranks) {
		ddp_sharing_destroy(new);
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for the devices of %d ranks",
				     size);
	}
	find_places(new, cards);
	list_ranks(new);
	status = check_shards(new, cards, groups, error);
	if (status < 0) {
		ddp_sharing_destroy(new);
		return status;
	}
	*sharing = new;
	return 0;
}

void ddp_sharing_destroy(struct ddp_sharing *sharing)
{
	if (!sharing)
		return;
	free(sharing->places);
	free(sharing->first);
	free(sharing->ranks);
	free(sharing);
}

int ddp_sharing_members(const struct ddp_sharing *sharing, int shard)
{
	return sharing->first[shard + 1] - sharing->first[shard];
}

int ddp_sharing_rank(const struct ddp_sharing *sharing, int shard, int member)
{
	return sharing->ranks[sharing->first[shard] + member];
}
