/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "arena.h"
#include "collective.h"

struct ddp_arena {
	struct ddp_arena *next;
	void *memory;
	struct ddp_region *region;
};

static void arena_free(struct ddp_arena *arena)
{
	ddp_region_destroy(arena->region);
	free(arena);
}

/* All ranks must ask for the same: a group tells its own members apart, this the groups. */
static int agree(struct ddp *ddp, size_t bytes)
{
	int64_t limits[2] = {(int64_t)bytes, -(int64_t)bytes};
	int status = ddp_all_reduce(ddp, limits, limits, 2, DDP_I64, DDP_MAX);

	if (status < 0 || limits[0] == -limits[1])
		return status;
	return ddp_error_set(&ddp->error, DDP_ERR_MISMATCH,
			     "ddp_arena_create: %lld bytes on one rank, %lld on another",
			     (long long)limits[0], (long long)-limits[1]);
}

/* What a member has of a piece that is one for its group: the parts lie behind one another. */
static size_t part_of(const struct ddp *ddp, size_t bytes)
{
	const struct ddp_topology *topology = ddp->topology;
	int group = topology->places[ddp->identity.rank].group;
	size_t members = (size_t)ddp_topology_members(topology, group);

	return bytes / members + (bytes % members != 0);
}

/* [memory] becomes this member's part of its own, or the beginning of what is all members'. */
static int create(struct ddp *ddp, size_t bytes, bool shared, void **memory)
{
	struct ddp_arena *arena;
	struct ddp_watch watch;
	size_t part;
	int status;

	*memory = NULL;
	status = ddp_begin_call(ddp);
	if (status < 0)
		return status;
	arena = calloc(1, sizeof(*arena));
	if (!arena)
		return ddp_fail_call(ddp, ddp_error_set(&ddp->error, DDP_ERR_MEMORY,
							"ddp_arena_create: out of memory"));
	part = shared ? part_of(ddp, bytes) : bytes;
	status = agree(ddp, bytes);
	if (status == 0) {
		watch = ddp_watch_start(ddp->timeout, ddp_look_around, ddp);
		part = part ? part : 1;
		status = shared ? ddp_region_reserve(&arena->region, ddp->group, part, &watch,
						     &ddp->error)
				: ddp_region_create(&arena->region, ddp->group, part, &watch,
						    &ddp->error);
	}
	if (status < 0) {
		free(arena);
		return ddp_fail_call(ddp, status);
	}
	arena->memory = ddp_region_part(arena->region, shared ? 0 : ddp_own_member(ddp));
	arena->next = ddp->arenas;
	ddp->arenas = arena;
	*memory = arena->memory;
	return 0;
}

int ddp_arena_create(struct ddp *ddp, size_t bytes, void **memory)
{
	return create(ddp, bytes, false, memory);
}

int ddp_shared_create(struct ddp *ddp, size_t bytes, void **memory)
{
	return create(ddp, bytes, true, memory);
}

int ddp_arena_destroy(struct ddp *ddp, void *memory)
{
	struct ddp_arena **link = &ddp->arenas;
	struct ddp_arena *arena;
	int status;

	if (!memory)
		return 0;
	while (*link && (*link)->memory != memory)
		link = &(*link)->next;
	if (!*link)
		return ddp_fail_call(ddp,
				     ddp_error_set(&ddp->error, DDP_ERR_ARGUMENT,
						   "ddp_arena_destroy: %p is no arena", memory));
	status = ddp_barrier(ddp); /* others may be copying out of it */
	arena = *link;
	*link = arena->next;
	arena_free(arena);
	return status;
}

void ddp_arenas_free(struct ddp *ddp)
{
	struct ddp_arena *next;

	for (struct ddp_arena *arena = ddp->arenas; arena; arena = next) {
		next = arena->next;
		arena_free(arena);
	}
	ddp->arenas = NULL;
}
