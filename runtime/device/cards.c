/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

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

/* Whether all members of each shard share memory, and are not too many. */
static int check_shards(const struct ddp_topology *sharing, const struct ddp_device_card *cards,
			const struct ddp_place *groups, struct ddp_error *error)
{
	for (int rank = 0; rank < sharing->size; rank++) {
		const struct ddp_place *place = &sharing->places[rank];
		int leader = ddp_topology_rank(sharing, place->group, 0);

		if (groups && groups[leader].group != groups[rank].group)
			return refuse_apart(&cards[leader], &cards[rank], error);
		if (place->member >= DDP_SHARD_MEMBERS)
			return refuse_many(&cards[leader], &cards[rank], error);
	}
	return 0;
}

int ddp_sharing_create(struct ddp_topology **sharing, const struct ddp_device_card *cards,
		       const struct ddp_place *groups, int size, struct ddp_error *error)
{
	struct ddp_topology *made;
	int status, shards = 0;

	*sharing = NULL;
	for (int rank = 1; rank < size; rank++)
		if (cards[rank].version != cards[0].version)
			return refuse_versions(&cards[0], &cards[rank], error);
	made = ddp_topology_allocate(size, size);
	if (!made)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for the devices of %d ranks",
				     size);
	/* Behind the last rank before it that is on the same device, or in a new shard. */
	for (int rank = 0; rank < size; rank++) {
		int other = rank - 1;

		while (other >= 0 && !is_same(&cards[other], &cards[rank]))
			other--;
		made->places[rank] = (struct ddp_place){
			.group = other < 0 ? shards++ : made->places[other].group,
			.member = other < 0 ? 0 : made->places[other].member + 1,
		};
	}
	made->groups = shards;
	ddp_topology_list(made);
	status = check_shards(made, cards, groups, error);
	if (status < 0) {
		ddp_topology_destroy(made);
		return status;
	}
	*sharing = made;
	return 0;
}
