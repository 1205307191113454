/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "sharing.h"

/* The shard that [rank] is in: that of a rank before it, or a new one. */
static int find_shard(const struct ddp_sharing *sharing, const struct ddp_device_card *cards,
		      const int32_t *leaders, int rank)
{
	int shard = 0;

	while (shard < sharing->shards && !ddp_device_same(&cards[leaders[shard]], &cards[rank]))
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

int ddp_sharing_create(struct ddp_sharing **sharing, const struct ddp_device_card *cards, int size,
		       struct ddp_error *error)
{
	struct ddp_sharing *new = calloc(1, sizeof(*new));

	*sharing = NULL;
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
