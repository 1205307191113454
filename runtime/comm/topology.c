/* SPDX-License-Identifier: Apache-2.0 */
/* topology.c - divide the ranks into groups and columns, using the cards that the ranks publish */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "topology.h"

const char *const ddp_sharing_words[] = {"auto", "on", "off", NULL};

struct ddp_topology *ddp_topology_allocate(int size, int groups)
{
	struct ddp_topology *topology = calloc(1, sizeof(*topology));

	if (!topology)
		return NULL;
	topology->size = size;
	topology->groups = groups;
	topology->places = calloc((size_t)size, sizeof(*topology->places));
	topology->ranks = calloc((size_t)size, sizeof(*topology->ranks));
	topology->first = calloc((size_t)groups + 1, sizeof(*topology->first));
	topology->hosts = calloc((size_t)groups, sizeof(*topology->hosts));
	if (topology->places && topology->ranks && topology->first && topology->hosts)
		return topology;
	ddp_topology_destroy(topology);
	return NULL;
}

void ddp_topology_list(struct ddp_topology *topology)
{
	for (int rank = 0; rank < topology->size; rank++)
		topology->first[topology->places[rank].group + 1]++;
	topology->columns = topology->size;
	for (int group = 0; group < topology->groups; group++) {
		if (topology->first[group + 1] < topology->columns)
			topology->columns = topology->first[group + 1];
		topology->first[group + 1] += topology->first[group];
	}
	for (int rank = 0; rank < topology->size; rank++) {
		const struct ddp_place *place = &topology->places[rank];

		if (place->member < ddp_topology_members(topology, place->group))
			topology->ranks[topology->first[place->group] + place->member] = rank;
	}
}

/* Check the values in the card of [rank], and compare them with rank 0's. */
static int check_card(const struct ddp_card *cards, int rank, int size, struct ddp_error *error)
{
	const struct ddp_card *card = &cards[rank];

	if (card->sharing < 0 || card->sharing > DDP_SHARING_OFF)
		return ddp_error_set(error, DDP_ERR_MISMATCH,
				     "rank %d on %s runs another release of libddp. Install one "
				     "release on all nodes.",
				     rank, card->host);
	if (card->sharing != cards[0].sharing)
		return ddp_error_set(error, DDP_ERR_MISMATCH,
				     "DDP_LOCAL differs: rank %d on %s has %s, but rank 0 on %s "
				     "has %s",
				     rank, card->host, ddp_sharing_words[card->sharing],
				     cards[0].host, ddp_sharing_words[cards[0].sharing]);
	if (card->node_rank < 0 || card->node_rank >= card->node_count ||
	    card->node_count != cards[0].node_count || card->node_count > size ||
	    card->local_rank < 0 || card->local_rank >= card->local_size || card->local_size > size)
		return ddp_error_set(
			error, DDP_ERR_MISMATCH,
			"rank %d on %s says it is local rank %d of %d on node %d of %d, but rank "
			"0 on %s says there are %d nodes for %d ranks",
			rank, card->host, card->local_rank, card->local_size, card->node_rank,
			card->node_count, cards[0].host, cards[0].node_count, size);
	return 0;
}

/*
 * Check that no two ranks have the same place, and that a group which shares memory has all ranks
 * of its node.
 */
static int check_places(const struct ddp_topology *topology, const struct ddp_card *cards,
			const int *groups, struct ddp_error *error)
{
	if (topology->columns == 0)
		return ddp_error_set(
			error, DDP_ERR_MISMATCH,
			"%d ranks say there are %d nodes, but one of these has no rank",
			topology->size, topology->groups);
	for (int rank = 0; rank < topology->size; rank++) {
		const struct ddp_place *place = &topology->places[rank];
		int members = ddp_topology_members(topology, place->group);
		int other;

		if (groups[cards[rank].node_rank] > 0 && members != cards[rank].local_size)
			return ddp_error_set(
				error, DDP_ERR_MISMATCH,
				"rank %d on %s expects %d ranks on its node %d, but %d "
				"ranks are on it",
				rank, cards[rank].host, cards[rank].local_size,
				cards[rank].node_rank, members);
		other = ddp_topology_rank(topology, place->group, place->member);
		if (other != rank)
			return ddp_error_set(
				error, DDP_ERR_MISMATCH,
				"ranks %d and %d both say they are local rank %d on node "
				"%d (%s)",
				rank, other, cards[rank].local_rank, cards[rank].node_rank,
				cards[rank].host);
	}
	return 0;
}

/*
 * Set each rank's group and member. [groups] has one entry per node, which must be 0. It becomes
 * the number of the node's group, from 1 on, or NOT_SHARED.
 * Returns the number of groups.
 */
static int place_ranks(struct ddp_place *places, const struct ddp_card *cards, int size,
		       int *groups)
{
	enum { NOT_SHARED = -1 };
	int nodes = cards[0].node_count, next = 0;
	bool all = true;

	for (int rank = 0; rank < size; rank++)
		if (!cards[rank].shares) {
			groups[cards[rank].node_rank] = NOT_SHARED;
			all = false;
		}
	for (int node = 0; node < nodes && all; node++)
		groups[node] = ++next;
	for (int rank = 0; rank < size; rank++) {
		int *group = &groups[cards[rank].node_rank];

		if (*group == 0)
			*group = ++next;
		if (*group == NOT_SHARED)
			places[rank] = (struct ddp_place){next++, 0};
		else
			places[rank] = (struct ddp_place){*group - 1, cards[rank].local_rank};
	}
	return next;
}

static int check_members(const struct ddp_topology *topology, const struct ddp_card *cards,
			 struct ddp_error *error)
{
	for (int rank = 0; rank < topology->size; rank++) {
		const struct ddp_place *place = &topology->places[rank];
		int members = ddp_topology_members(topology, place->group);

		if (place->member >= members)
			return ddp_error_set(error, DDP_ERR_MISMATCH,
					     "rank %d on %s says it is local rank %d, but only %d "
					     "ranks say they are on node %d",
					     rank, cards[rank].host, cards[rank].local_rank,
					     members, cards[rank].node_rank);
	}
	return 0;
}

int ddp_topology_create(struct ddp_topology **topology, const struct ddp_card *cards, int size,
			struct ddp_error *error)
{
	struct ddp_topology *made;
	int *groups;
	int status = 0;

	*topology = NULL;
	for (int rank = 0; rank < size && status == 0; rank++)
		status = check_card(cards, rank, size, error);
	if (status < 0)
		return status;
	made = ddp_topology_allocate(size, size);
	groups = calloc((size_t)cards[0].node_count, sizeof(*groups));
	if (!made || !groups) {
		status = ddp_error_set(error, DDP_ERR_MEMORY, "no memory for %d ranks", size);
		goto out;
	}
	made->groups = place_ranks(made->places, cards, size, groups);
	for (int rank = 0; rank < size; rank++)
		memcpy(made->hosts[made->places[rank].group], cards[rank].host, DDP_HOST_NAME);
	ddp_topology_list(made);
	status = check_members(made, cards, error);
	if (status == 0)
		status = check_places(made, cards, groups, error);
out:
	free(groups);
	if (status < 0) {
		ddp_topology_destroy(made);
		return status;
	}
	*topology = made;
	return 0;
}

int ddp_topology_node(const struct ddp_card *cards, int size, int rank)
{
	int node = 0;

	for (int other = 0; other < size && cards[other].node_rank != cards[rank].node_rank;
	     other++)
		node += cards[other].local_rank == 0;
	return node;
}

void ddp_topology_destroy(struct ddp_topology *topology)
{
	if (!topology)
		return;
	free(topology->places);
	free(topology->ranks);
	free(topology->first);
	free(topology->hosts);
	free(topology);
}
