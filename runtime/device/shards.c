/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shards.c - forming sums on devices that ranks share, the memory for them, and their end
 *
 * A leader maps what its followers have, and nobody else maps anything. Each step is agreed on by all ranks
 * before the next, so that all get memory or none does.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shards.h"

/* The engine between GPUs wants whole pages; those of one GPU round up by themselves. */
enum { PAGE = 4096 };

#define SHARD_ENGINE "shard"

/* Seconds that what is enqueued has to end in, at an orderly end. */
#define CLOSE_SECONDS 10.0

static bool leads(const struct ddp_device *device)
{
	return device->member == 0;
}

/* --- Memory: one rank's part ---------------------------------------------------------- */

static int obtain(struct ddp_device *device, struct ddp_shards_memory *memory,
		  const struct ddp_watch *watch, struct ddp_error *error)
{
	int status;

	memory->own.fd = -1;
	if (device->wide)
		return device->between->alloc(device->wide, memory->bytes, &memory->base, watch,
					      error);
	status = device->engine->alloc(device->gpu, memory->bytes, &memory->own, error);
	if (status == 0)
		memory->base = memory->own.base;
	return status;
}

/* Waits for nobody: the letter lies there until the leader looks. */
static int send(struct ddp_device *device, const struct ddp_shards_memory *memory,
		const struct ddp_watch *watch, struct ddp_error *error)
{
	struct ddp_passing_letter letter = {
		.member = device->member,
		.number = (int32_t)memory->number,
	};

	_Static_assert((int)DDP_SHARD_HANDLE <= (int)DDP_PASSING_BYTES,
		       "a handle goes into a letter");
	if (device->member == 0)
		return 0;
	if (memory->own.fd < 0) {
		letter.bytes = DDP_SHARD_HANDLE;
		memcpy(letter.room, memory->own.handle, DDP_SHARD_HANDLE);
	}
	return ddp_passing_send(device->name, memory->own.fd, &letter, watch, error);
}

/* What one letter brings. That of an alloc() which failed may still lie there. */
static int take(struct ddp_device *device, struct ddp_shards_memory *memory,
		const struct ddp_passing_letter *letter, int fd, int *missing,
		struct ddp_error *error)
{
	struct ddp_shard_memory theirs = {.bytes = memory->bytes, .fd = fd};
	int member = letter->member;

	if (letter->number != (int32_t)memory->number || member <= 0 || member >= device->members ||
	    memory->parts[member])
		return 0;
	if (fd < 0 && letter->bytes != DDP_SHARD_HANDLE)
		return ddp_error_set(error, DDP_ERR_SYSTEM,
				     "rank %d passed neither a descriptor nor a handle of its "
				     "device memory",
				     device->ranks[member]);
	memcpy(theirs.handle, letter->room, DDP_SHARD_HANDLE);
	--*missing;
	return device->engine->import(device->gpu, &theirs, &memory->parts[member], error);
}

static int receive(struct ddp_device *device, struct ddp_shards_memory *memory,
		   const struct ddp_watch *watch, struct ddp_error *error)
{
	struct ddp_passing_letter letter;
	int missing = device->members - 1, status = 0, fd;

	memory->parts[0] = memory->base;
	while (missing > 0 && status == 0) {
		status = ddp_passing_receive(device->passing, &fd, &letter, watch, error);
		if (status < 0)
			break;
		status = take(device, memory, &letter, fd, &missing, error);
		if (fd >= 0)
			close(fd);
	}
	if (status == DDP_ERR_TIMEOUT && !*error->text)
		ddp_error_set(error, status, "the device memory of %d ranks was not passed in %g s",
			      missing, watch->limit);
	return status;
}

/* Once all who need the memory have it. */
static void disclose(struct ddp_shards_memory *memory)
{
	if (memory->own.fd >= 0)
		close(memory->own.fd);
	memory->own.fd = -1;
}

/* A leader: what it sees of others. Before they give it back, as some kinds of memory want it. */
static void part_with(struct ddp_device *device, struct ddp_shards_memory *memory)
{
	for (int member = 1; member < device->members; member++) {
		device->engine->release(device->gpu, memory->parts[member]);
		memory->parts[member] = NULL;
	}
}

/* What of it there is. Returns what the engine between GPUs says of its own. */
static int give_back(struct ddp_device *device, struct ddp_shards_memory *memory,
		     struct ddp_error *error)
{
	int status = 0;

	part_with(device, memory);
	if (device->wide)
		status = device->between->free(device->wide, memory->base, error);
	else
		device->engine->release(device->gpu, memory->base);
	disclose(memory);
	free(memory);
	return status;
}

/* --- Memory: all ranks together ------------------------------------------------------- */

static int obtain_all(struct ddp_device *device, struct ddp_shards_memory *memory,
		      const struct ddp_watch *watch)
{
	struct ddp *ddp = device->ddp;
	struct ddp_watch later;
	int status = obtain(device, memory, watch, &ddp->error);

	if (status == 0)
		status = send(device, memory, watch, &ddp->error);
	status = ddp_devices_agree_late(ddp, status);
	if (status < 0)
		return status;
	later = ddp_watch_start(ddp->timeout, watch->check, watch->owner);
	if (device->member == 0)
		status = receive(device, memory, &later, &ddp->error);
	status = ddp_devices_agree_late(ddp, status);
	if (status == 0 && ddp_shards_wide(device))
		status = ddp_devices_enroll(ddp, device->between, device->wide, memory->base);
	return status;
}

static int alloc_memory(struct ddp_device *device, size_t bytes, void **memory,
			const struct ddp_watch *watch, struct ddp_error *error)
{
	struct ddp_shards_memory *new = calloc(1, sizeof(*new));
	struct ddp *ddp = device->ddp;
	int status;

	*memory = NULL;
	status = new ? ddp_shards_health(device, error)
		     : ddp_error_set(error, DDP_ERR_MEMORY, "no memory to note device memory");
	status = ddp_devices_agree(ddp, status);
	if (status < 0) {
		free(new);
		return status;
	}
	new->bytes = (bytes + PAGE - 1) / PAGE *PAGE;
	new->number = ++device->numbers;
	status = obtain_all(device, new, watch);
	if (status < 0) {
		struct ddp_error story = ddp->error;

		part_with(device, new);
		if (!ddp->lost)
			(void)ddp_barrier(ddp);
		(void)give_back(device, new, NULL);
		ddp->error = story;
		return status;
	}
	disclose(new);
	new->next = device->memory;
	device->memory = new;
	*memory = new->base;
	return 0;
}

static int free_memory(struct ddp_device *device, void *memory, struct ddp_error *error)
{
	struct ddp_shards_memory **link = &device->memory, *found;
	int status;

	if (!memory)
		return 0;
	while (*link && ((*link)->base != memory || *link == device->staging))
		link = &(*link)->next;
	found = *link;
	if (!found)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "ddp_device_free: %p is no memory of ddp_device_alloc",
				     memory);
	/* A turn may be under way in it. */
	status = ddp_shards_settle(device, error);
	if (status < 0)
		return status;
	part_with(device, found);
	status = ddp_barrier(device->ddp);
	if (status < 0)
		return status;
	*link = found->next;
	return give_back(device, found, error);
}

static void free_all(struct ddp_device *device)
{
	for (struct ddp_shards_memory *memory = device->memory; memory; memory = memory->next)
		part_with(device, memory);
	if (device->memory && !device->ddp->lost)
		(void)ddp_barrier(device->ddp);
	while (device->memory) {
		struct ddp_shards_memory *memory = device->memory;

		device->memory = memory->next;
		(void)give_back(device, memory, NULL);
	}
	device->staging = NULL;
}

/* --- Forming it: steps that all ranks agree on ---------------------------------------- */

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

/* All ranks of a group make the region; those of a shard use its leader's part, which they read after all agreed. */
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
	device->name = part->name;
	device->turn = DDP_SHARD_FIRST - 1;
	if (leads(device))
		ddp_shard_page_begin(&part->page, device->members);
	if (leads(device) && device->members > 1)
		status = ddp_passing_listen(&device->passing, part->name, &ddp->error);
	if (status < 0)
		return status;
	status = device->engine->know(device->gpu, &part->page, sizeof(part->page), &ddp->error);
	if (status == 0)
		device->page = &part->page;
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
	status = device->between->open(&device->wide, device->sharing->places[identity->rank].group,
				       device->sharing->groups, identity->device, &device->ddp->log,
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
	int status = alloc_memory(device, DDP_SHARDS_PIECE, &base, &watch, &ddp->error);

	if (status == 0)
		device->staging = device->memory;
	return status;
}

static int form(struct ddp_device *device)
{
	static int (*const steps[])(struct ddp_device *) = {take_gpu, make_page, open_wide,
							    connect_wide, take_staging};
	int status = 0;

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]) && status == 0; i++)
		status = ddp_devices_agree_late(device->ddp, steps[i](device));
	return status;
}

int ddp_shards_join(struct ddp *ddp, struct ddp_topology *sharing)
{
	struct ddp_place place = sharing->places[ddp->identity.rank];
	struct ddp_device *device = calloc(1, sizeof(*device));
	int status = 0;

	/* What it was opened for is its card; where it goes on it does so as a GPU, not as a rank. */
	ddp->leave_device(ddp);
	if (device) {
		*device = (struct ddp_device){
			.ddp = ddp,
			.between = ddp->device_engine,
			.sharing = sharing,
			.member = place.member,
			.members = ddp_topology_members(sharing, place.group),
			.ranks = &sharing->ranks[sharing->first[place.group]],
		};
	} else {
		ddp_topology_destroy(sharing);
		status = ddp_error_set(&ddp->error, DDP_ERR_MEMORY, "no memory for a shared GPU");
	}
	status = ddp_devices_agree(ddp, status);
	if (status == 0)
		status = form(device);
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
		      device->sharing->groups, ddp->identity.rank, device->member, device->members);
	return 0;
}

/* --- The end -------------------------------------------------------------------------- */

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
		free_all(device);
	if (device->wide)
		device->between->close(device->wide);
	if (device->gpu)
		device->engine->close(device->gpu);
	ddp_passing_close(device->passing);
	ddp_topology_destroy(device->sharing);
	ddp_region_destroy(device->region);
	free(device);
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
	.alloc = alloc_memory,
	.free = free_memory,
	.stream = own_stream,
	.wait = ddp_shards_wait,
	.health = ddp_shards_health,
	.abort = ddp_shards_abort,
	.close = close_shards,
};
