/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topology.h - which rank is in which group, and which ranks form a column
 *
 * A group shares memory: the ranks of one node, or each rank by itself where sharing is off.
 * Member i of each group stands in column i; there are as many columns as the smallest group
 * has members, so that every column reaches every group. Pure.
 */
#ifndef DDP_COMM_TOPOLOGY_H
#define DDP_COMM_TOPOLOGY_H

#include "base/error.h"

enum { DDP_HOST_NAME = 64 };

/* What a rank tells all others about itself. */
struct ddp_card {
	int32_t node_rank, node_count;
	int32_t local_rank, local_size;
	int32_t shares; /* 1: it shares memory with the ranks of its node */
	int32_t pid;
	uint64_t began; /* CLOCK_REALTIME in ns; rank 0's is the world's number */
	char host[DDP_HOST_NAME];
};

/* Where a rank stands. */
struct ddp_place {
	int32_t group, member;
};

struct ddp_topology {
	int size, groups, columns;
	struct ddp_place *places;     /* of each rank */
	int32_t *first;		      /* groups + 1: where each group begins in [ranks] */
	int32_t *ranks;		      /* by group, then by member */
	char (*hosts)[DDP_HOST_NAME]; /* of each group */
};

/*
 * Build from the [cards] of all [size] ranks.
 * Returns 0; DDP_ERR_MISMATCH naming the ranks whose cards do not go together; DDP_ERR_MEMORY.
 */
int ddp_topology_create(struct ddp_topology **topology, const struct ddp_card *cards, int size,
			struct ddp_error *error);

/*
 * The same for who knows the groups: allocate, fill in [places] with each rank in one, lower [groups] if there are fewer,
 * and have the rest made from these. [hosts] stay empty.
 * Returns NULL where memory is out.
 */
struct ddp_topology *ddp_topology_allocate(int size, int groups);
void ddp_topology_list(struct ddp_topology *topology);

/*
 * The number of [rank]'s node, counted by the first rank on each: launchers number nodes as they like, and
 * rank 0's need not be their first.
 */
int ddp_topology_node(const struct ddp_card *cards, int size, int rank);

/* NULL is legal. */
void ddp_topology_destroy(struct ddp_topology *topology);

/* Members of [group], and the world rank of [member] of it. */
int ddp_topology_members(const struct ddp_topology *topology, int group);
int ddp_topology_rank(const struct ddp_topology *topology, int group, int member);

#endif /* DDP_COMM_TOPOLOGY_H */
