/* SPDX-License-Identifier: Apache-2.0 */
/* shards.c - the way to sums on devices that ranks share, and back */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shards-private.h"

#define SHARD_ENGINE "shard"

/* Seconds that what is enqueued has to end in, at an orderly end. */
#define CLOSE_SECONDS 10.0

static bool leads(const struct ddp_device *device)
{
	return device->member == 0;
}

/* --- Forming it: steps that all ranks agree on ------------------------------------------- */

static int take_places(struct ddp_device *device, const struct ddp_device_card *cards)
{
	const struct ddp_identity *identity = &device->ddp->identity;
	const struct ddp_place *place;
	int status =
		ddp_sharing_create(&device->sharing, cards, identity->size, &device->ddp->error);

	if (status < 0)
		return status;
	place = &device->sharing->places[identity->rank];
	device->shard = place->group;
	device->member = place->member;
	device->members = ddp_sharing_members(device->sharing, place->group);
	device->ranks = &device->sharing->ranks[device->sharing->first[place->group]];
	return 0;
}

static int take_gpu(struct ddp_device *device)
{
	struct ddp *ddp = device->ddp;
	const struct ddp_identity *identity = &ddp->identity;
	struct ddp_error story = {0, ""};

	device->engine = ddp_module_open(SHARD_ENGINE, "shard", DDP_SHARD_VERSION,
					 sizeof(struct ddp_shard_engine), &ddp->log, &story);
	if (!device->engine)
		return ddp_error_set(
			&ddp->error, story.status,
			"ranks of this job share GPUs, which needs libddp's module "
			"ddp_shard.so: %.600s; without it run one rank per GPU (srun "
			"--gpus-per-task=1), give each rank a MIG slice, or use the CPUs",
			story.text);
	return device->engine->open(&device->gpu, identity->device, identity->share, &ddp->log,
				    &ddp->error);
}

/* All ranks of a group make the region; those of a shard use its leader's part. */
static int make_page(struct ddp_device *device)
{
	struct ddp *ddp = device->ddp;
	struct ddp_watch watch = ddp_watch_start(ddp->timeout, ddp_look_around, ddp);
	int status = ddp_region_create(&device->region, ddp->group, sizeof(struct ddp_shards_part),
				       &watch, &ddp->error);
	struct ddp_shards_part *part;

	if (status < 0)
		return status;
	part = ddp_region_part(device->region, ddp->topology->places[device->ranks[0]].member);
	if (leads(device))
		ddp_shard_page_begin(&part->page, device->members);
	status = device->engine->know(device->gpu, &part->page, sizeof(part->page), &ddp->error);
	if (status == 0)
		device->page = &part->page;
	device->turn = DDP_SHARD_FIRST - 1;
	return status;
}

static int listen_to_others(struct ddp_device *device)
{
	if (!leads(device) || device->members == 1)
		return 0;
	return ddp_passing_listen(&device->passing, device->name, &device->ddp->error);
}

static int learn_name(struct ddp_device *device)
{
	struct ddp *ddp = device->ddp;
	char(*names)[DDP_PASSING_NAME] = calloc((size_t)ddp->identity.size, sizeof(*names));
	int status;

	if (!names)
		return ddp_error_set(&ddp->error, DDP_ERR_MEMORY, "no memory for %d names",
				     ddp->identity.size);
	status = ddp_all_gather(ddp, device->name, names, sizeof(*names));
	if (status == 0)
		memcpy(device->name, names[device->ranks[0]], sizeof(device->name));
	device->name[sizeof(device->name) - 1] = '\0';
	free(names);
	return status;
}

/* The engine between GPUs gives up by itself: what comes out of its sums now is no result for anybody here. */
static void refuse_results(void *owner)
{
	struct ddp_device *device = owner;

	atomic_store(&device->page->released, 1);
}

static int open_wide(struct ddp_device *device)
{
	const struct ddp_identity *identity = &device->ddp->identity;
	int status;

	if (!leads(device) || !ddp_shards_wide(device))
		return 0;
	status = device->between->open(&device->wide, device->shard, device->sharing->shards,
				       identity->device, identity->share, &device->ddp->log,
				       &device->ddp->error);
	if (status == 0)
		device->between->warn(device->wide, refuse_results, device);
	return status;
}

/* The leaders form a communicator, as which GPU they are; rank 0 leads the first. */
static int connect_wide(struct ddp_device *device)
{
	struct ddp *ddp = device->ddp;
	uint8_t id[DDP_DEVICE_ID] = {0};
	struct ddp_watch watch;
	int status = 0;

	if (!ddp_shards_wide(device))
		return 0;
	if (ddp->identity.rank == 0)
		status = device->between->identity(device->wide, id, &ddp->error);
	status = ddp_devices_agree(ddp, status);
	if (status == 0)
		status = ddp_broadcast(ddp, id, sizeof(id), 0);
	if (status < 0 || !leads(device))
		return status;
	watch = ddp_watch_start(ddp->timeout, ddp_look_around, ddp);
	status = device->between->connect(device->wide, id, &watch, &ddp->error);
	return ddp_shards_explain(device, status, &ddp->error);
}

static int take_staging(struct ddp_device *device)
{
	struct ddp *ddp = device->ddp;
	struct ddp_watch watch = ddp_watch_start(ddp->timeout, ddp_look_around, ddp);
	void *base;
	int status = ddp_shards_alloc(device, DDP_SHARDS_PIECE, &base, &watch, &ddp->error);

	if (status == 0)
		device->staging = device->memory;
	return status;
}

static int form(struct ddp_device *device, const struct ddp_device_card *cards)
{
	static int (*const steps[])(
		struct ddp_device *) = {take_gpu,  make_page,	 listen_to_others, learn_name,
					open_wide, connect_wide, take_staging};
	int status = ddp_devices_agree(device->ddp, take_places(device, cards));

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]) && status == 0; i++)
		status = ddp_devices_agree_late(device->ddp, steps[i](device));
	return status;
}

int ddp_shards_join(struct ddp *ddp, const struct ddp_device_card *cards)
{
	struct ddp_device *device = calloc(1, sizeof(*device));
	int status = 0;

	/* What it was opened for is its card; where it goes on it does so as a GPU, not as a rank. */
	ddp->device_engine->close(ddp->device);
	ddp->device = NULL;
	if (device) {
		device->ddp = ddp;
		device->between = ddp->device_engine;
	} else {
		status = ddp_error_set(&ddp->error, DDP_ERR_MEMORY, "no memory for a shared GPU");
	}
	status = ddp_devices_agree(ddp, status);
	if (status == 0)
		status = form(device, cards);
	if (status < 0) {
		struct ddp_error story = ddp->error;

		ddp_shards_engine.close(device);
		ddp->error = story;
		return status;
	}
	ddp->device = device;
	ddp->device_engine = &ddp_shards_engine;
	ddp_log_print(&ddp->log, DDP_LEVEL_INFO, "shards",
		      "%d ranks on %d GPUs; rank %d is %d of the %d of its GPU", ddp->identity.size,
		      device->sharing->shards, ddp->identity.rank, device->member, device->members);
	return 0;
}

/* --- The end ------------------------------------------------------------------------------ */

/* All members close, so all turns that are under way have everybody. */
static bool come_to_rest(struct ddp_device *device)
{
	struct ddp_watch watch = ddp_watch_start(CLOSE_SECONDS, ddp_look_around, device->ddp);

	if (device->failure.status || device->ddp->lost)
		return ddp_shards_abort(device, DDP_SHARDS_REST);
	if (device->busy && ddp_shards_wait(device, device->stream, &watch, NULL) < 0)
		return !device->busy;
	return true;
}

static void close_shards(struct ddp_device *device)
{
	bool rest;

	if (!device)
		return;
	rest = come_to_rest(device);
	if (!rest) {
		/* The GPU may still write: what it works on stays, with all that leads there. */
		ddp_log_print(&device->ddp->log, DDP_LEVEL_WARNING, "shards",
			      "a stream of this GPU does not end and is left behind");
		return;
	}
	if (device->gpu)
		ddp_shards_memory_free(device);
	if (device->wide)
		device->between->close(device->wide);
	if (device->gpu)
		device->engine->close(device->gpu);
	ddp_passing_close(device->passing);
	ddp_sharing_destroy(device->sharing);
	ddp_region_destroy(device->region);
	free(device);
}

static void describe(struct ddp_device *device, char *text, size_t size)
{
	char gpu[256] = "", wide[256] = "";

	device->engine->describe(device->gpu, gpu, sizeof(gpu));
	if (device->wide)
		device->between->describe(device->wide, wide, sizeof(wide));
	snprintf(text, size, "%d ranks on %d GPUs, %d of them on this one, led by rank %d: %s%s%s",
		 device->sharing->size, device->sharing->shards, device->members, device->ranks[0],
		 gpu, *wide ? "; between GPUs: " : "", wide);
}

static void *own_stream(struct ddp_device *device)
{
	return ddp_shards_stream(device, NULL);
}

const struct ddp_device_engine ddp_shards_engine = {
	.head = {DDP_MODULE_MAGIC, DDP_DEVICE_VERSION, sizeof(struct ddp_device_engine), "device",
		 "shards", PACKAGE_VERSION},
	/* open(), card(), identity(), connect(): ddp_shards_join(). order() and the like: ddp->device_module. */
	.all_reduce = ddp_shards_all_reduce,
	.broadcast = ddp_shards_broadcast,
	.all_gather = ddp_shards_all_gather,
	.alloc = ddp_shards_alloc,
	.free = ddp_shards_free,
	.stream = own_stream,
	.wait = ddp_shards_wait,
	.health = ddp_shards_health,
	.abort = ddp_shards_abort,
	.describe = describe,
	.close = close_shards,
};
