/* SPDX-License-Identifier: Apache-2.0 */
/* shards-why.c - what a wait for ranks that share a GPU says when it fails, and of whom */
#include "config.h"

#include <stdio.h>

#include "shards-private.h"

enum { LIST_SIZE = 256 };

/* Nanoseconds after which a rank that has not looked is not waiting. */
#define SILENCE UINT64_C(1000000000)

static int say_mismatch(const struct ddp_device *device, int other, uint32_t turn,
			struct ddp_error *error)
{
	const struct ddp_shards_call *call = &device->calls[turn % DDP_SHARD_KEPT];

	return ddp_error_set(
		error, DDP_ERR_MISMATCH,
		"ranks %d and %d share a GPU and did not enqueue the same sum there: #%u "
		"is %zu x %s, %s, on rank %d; count, type, operation and place in memory "
		"of ddp_device_alloc() must be the same on all",
		device->ddp->identity.rank, device->ranks[other], turn - DDP_SHARD_FIRST + 1,
		call->count, ddp_type_name((uint32_t)call->type), ddp_op_name((uint32_t)call->op),
		device->ddp->identity.rank);
}

/* Whether others meant something else by what was enqueued, as far as they have told. */
int ddp_shards_mismatch(const struct ddp_device *device, struct ddp_error *error)
{
	uint32_t since = device->turn - (DDP_SHARD_FIRST - 1);
	int other;

	if (since > DDP_SHARD_KEPT / 2)
		since = DDP_SHARD_KEPT / 2;
	for (uint32_t turn = device->turn - since + 1; since > 0; since--, turn++) {
		other = ddp_shard_page_differ(device->page, device->members, device->member, turn);
		if (other >= 0)
			return say_mismatch(device, other, turn, error);
	}
	return 0;
}

/* The followers whose word [turn] lacks. Returns how many. */
static int list_missing(const struct ddp_device *device, uint32_t turn, char list[LIST_SIZE])
{
	size_t used = 0;
	int missing = 0;

	*list = '\0';
	for (int member = 1; member < device->members; member++) {
		if (ddp_shard_reached(ddp_shards_word(device, member), turn))
			continue;
		if (used < LIST_SIZE - 16)
			used += (size_t)snprintf(list + used, LIST_SIZE - used, "%s%d",
						 missing ? ", " : "", device->ranks[member]);
		missing++;
	}
	return missing;
}

/* The ranks of this node that have not waited for a sum of late: they hang, or do something else. */
static int list_silent(const struct ddp_device *device, char list[LIST_SIZE])
{
	const struct ddp_topology *topology = device->ddp->topology;
	int group = topology->places[device->ddp->identity.rank].group, silent = 0;
	uint64_t now = ddp_now();
	size_t used = 0;

	*list = '\0';
	for (int member = 0; member < ddp_topology_members(topology, group); member++) {
		if (now < atomic_load(&ddp_shards_part(device, member)->looked) + SILENCE)
			continue;
		if (used < LIST_SIZE - 16)
			used += (size_t)snprintf(list + used, LIST_SIZE - used, "%s%d",
						 silent ? ", " : "",
						 ddp_topology_rank(topology, group, member));
		silent++;
	}
	return silent;
}

/* The turn that is under way here: the first that has not ended. */
static bool under_way(const struct ddp_device *device, uint32_t *turn)
{
	*turn = device->members > 1 ? ddp_shards_word(device, 0) + 1 : device->turn;
	return device->busy && ddp_shard_reached(device->turn, *turn);
}

/* Whether it is not a rank of this node that is waited for. */
bool ddp_shards_wait_for_others(const struct ddp_device *device)
{
	char list[LIST_SIZE];
	uint32_t turn;

	return ddp_shards_wide(device) && under_way(device, &turn) &&
	       list_missing(device, turn, list) == 0 && list_silent(device, list) == 0;
}

static const char *list_leaders(const struct ddp_device *device, char list[LIST_SIZE])
{
	const struct ddp_sharing *sharing = device->sharing;
	size_t used = 0;

	for (int shard = 0; shard < sharing->shards && used < LIST_SIZE - 16; shard++)
		used += (size_t)snprintf(list + used, LIST_SIZE - used, "%s%d", shard ? ", " : "",
					 ddp_sharing_rank(sharing, shard, 0));
	return list;
}

int ddp_shards_say_late(const struct ddp_device *device, const struct ddp_watch *watch,
			struct ddp_error *error)
{
	const char *host = device->ddp->identity.host;
	int shards = device->sharing->shards, missing, silent;
	char list[LIST_SIZE];
	uint32_t turn;

	if (!under_way(device, &turn))
		return ddp_error_set(error, DDP_ERR_TIMEOUT,
				     "rank %d: the stream did not end in %g s, and no sum is under "
				     "way in it",
				     device->ddp->identity.rank, watch->limit);
	missing = list_missing(device, turn, list);
	turn -= DDP_SHARD_FIRST - 1;
	if (missing > 0)
		return ddp_error_set(
			error, DDP_ERR_TIMEOUT,
			"rank%s %s on %s did not arrive in sum #%u of the %d ranks of one "
			"GPU in %g s",
			missing > 1 ? "s" : "", list, host, turn, device->members, watch->limit);
	if (shards == 1)
		return ddp_error_set(
			error, DDP_ERR_TIMEOUT,
			"rank %d on %s did not end sum #%u of the %d ranks of one GPU, "
			"which it leads, in %g s",
			device->ranks[0], host, turn, device->members, watch->limit);
	silent = list_silent(device, list);
	if (silent > 0)
		return ddp_error_set(
			error, DDP_ERR_TIMEOUT,
			"sum #%u among %d GPUs did not end in %g s, and rank%s %s on %s "
			"did not wait for it",
			turn, shards, watch->limit, silent > 1 ? "s" : "", list, host);
	return ddp_error_set(
		error, DDP_ERR_TIMEOUT,
		"sum #%u among %d GPUs (led by ranks %s) did not end in %g s, for which "
		"all ranks of %s wait",
		turn, shards, list_leaders(device, list), watch->limit, host);
}

int ddp_shards_explain(const struct ddp_device *device, int status, struct ddp_error *error)
{
	struct ddp_error story = *error;
	char list[LIST_SIZE];

	if (status >= 0)
		return status;
	return ddp_error_set(
		error, status,
		"between %d GPUs, which are ranks there and led by ranks %s here: %.600s",
		device->sharing->shards, list_leaders(device, list), story.text);
}
