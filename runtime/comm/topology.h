/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topology.h - groups and columns of ranks
 *
 * The ranks of a group share memory. If the ranks of a node share memory, they are one group;
 * otherwise each rank is alone in its group. Member i of each group is in column i. There are as
 * many columns as the smallest group has members, so that every column has a member in every group.
 * No function of topology.c does I/O.
 */
#ifndef DDP_COMM_TOPOLOGY_H
#define DDP_COMM_TOPOLOGY_H

#include "base/error.h"

enum { DDP_HOST_NAME = 64, DDP_CARD_FAILURE = 320 };

/* Values of DDP_LOCAL: what to do if the ranks of a node cannot share memory. */
enum ddp_sharing {
	DDP_SHARING_AUTO, /* use the engine between groups within the node */
	DDP_SHARING_ON,	  /* fail */
	DDP_SHARING_OFF,  /* never share memory */
};

/* Names of the values of DDP_LOCAL, NULL-terminated. */
extern const char *const ddp_sharing_words[];

/* Properties of a rank that it publishes to all ranks. */
struct ddp_card {
	int32_t node_rank, node_count;
	int32_t local_rank, local_size;
	int32_t sharing; /* value of DDP_LOCAL, an enum ddp_sharing */
	/* 1 if the rank shares memory with the other ranks of its node, or could do so */
	int32_t shares;
	int32_t pid;
	uint64_t began; /* start time (CLOCK_REALTIME, ns); that of rank 0 identifies the world */
	char host[DDP_HOST_NAME];
	char failure[DDP_CARD_FAILURE]; /* why the rank cannot join; "" if it can */
};

/* A rank's group, and its index in the group. */
struct ddp_place {
	int32_t group, member;
};

struct ddp_topology {
	int size, groups, columns;
	struct ddp_place *places; /* group and member of each rank */
	int32_t *first; /* index in [ranks] of each group's first rank; has groups + 1 elements */
	int32_t *ranks; /* all ranks, sorted by group and, within a group, by member */
	char (*hosts)[DDP_HOST_NAME]; /* host name of each group */
};

/*
 * Build the topology from the [cards] of all [size] ranks. If one rank of a node does not share
 * memory, no rank of that node does. If all nodes share memory, each group has its node's number;
 * else groups are numbered in the order of their first ranks.
 * Returns 0; DDP_ERR_MISMATCH, with the ranks whose cards contradict each other; or DDP_ERR_MEMORY.
 */
int ddp_topology_create(struct ddp_topology **topology, const struct ddp_card *cards, int size,
			struct ddp_error *error);

/*
 * Build a topology without cards. ddp_topology_allocate() allocates it for at most [groups] groups.
 * Then the caller sets [places] and, if there are fewer groups, [groups]. ddp_topology_list() sets
 * the other members except [hosts], which stays empty.
 * Returns NULL if memory is short.
 */
struct ddp_topology *ddp_topology_allocate(int size, int groups);
void ddp_topology_list(struct ddp_topology *topology);

/*
 * Returns the number of [rank]'s node. Nodes are counted here in the order of their first ranks.
 * The launcher may number nodes in another order.
 */
int ddp_topology_node(const struct ddp_card *cards, int size, int rank);

void ddp_topology_destroy(struct ddp_topology *topology);

static inline int ddp_topology_members(const struct ddp_topology *topology, int group)
{
	return topology->first[group + 1] - topology->first[group];
}

static inline int ddp_topology_rank(const struct ddp_topology *topology, int group, int member)
{
	return topology->ranks[topology->first[group] + member];
}

#endif /* DDP_COMM_TOPOLOGY_H */
