/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shards-memory.c - memory of a shared GPU that its leader sees
 *
 * A leader maps what its followers have, and nobody else maps anything. Each step is agreed on by all ranks
 * before the next, so that all get memory or none does.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shards-private.h"

/* The engine between GPUs wants whole pages; those of one GPU round up by themselves. */
enum { PAGE = 4096 };

/* --- One rank's part --------------------------------------------------------------------- */

static int obtain(struct ddp_device *device, struct ddp_shards_memory *memory,
		  const struct ddp_watch *watch, struct ddp_error *error)
{
	int status;

	memory->own.fd = -1;
	memory->wide = device->wide != NULL;
	if (memory->wide)
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
	if (memory->wide)
		status = device->between->free(device->wide, memory->base, error);
	else
		device->engine->release(device->gpu, memory->base);
	if (memory->own.fd >= 0)
		device->engine->disclose(device->gpu, &memory->own);
	free(memory);
	return status;
}

/* --- All ranks together ------------------------------------------------------------------ */

/* All ranks ask for the same, or a leader would write where a follower has nothing. */
static int agree_bytes(struct ddp *ddp, size_t bytes)
{
	int64_t limits[2] = {(int64_t)bytes, -(int64_t)bytes};
	int status = ddp_all_reduce(ddp, limits, limits, 2, DDP_I64, DDP_MAX);

	if (status < 0 || limits[0] == -limits[1])
		return status;
	return ddp_error_set(&ddp->error, DDP_ERR_MISMATCH,
			     "ddp_device_alloc: %lld bytes on one rank, %lld on another",
			     (long long)limits[0], (long long)-limits[1]);
}

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
	return ddp_devices_agree_late(ddp, status);
}

int ddp_shards_alloc(struct ddp_device *device, size_t bytes, void **memory,
		     const struct ddp_watch *watch, struct ddp_error *error)
{
	struct ddp *ddp = device->ddp;
	struct ddp_shards_memory *new;
	int status;

	*memory = NULL;
	if (bytes == 0 || bytes > INT64_MAX - PAGE)
		return ddp_error_set(error, DDP_ERR_ARGUMENT, "device memory of %zu bytes", bytes);
	status = ddp_shards_health(device, error);
	if (status == 0)
		status = agree_bytes(ddp, bytes);
	if (status < 0)
		return status;
	new = calloc(1, sizeof(*new));
	if (!new)
		ddp_error_set(&ddp->error, DDP_ERR_MEMORY, "no memory to note device memory");
	status = ddp_devices_agree(ddp, new ? 0 : DDP_ERR_MEMORY);
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
	if (!new->wide)
		device->engine->disclose(device->gpu, &new->own);
	new->next = device->memory;
	device->memory = new;
	*memory = new->base;
	return 0;
}

int ddp_shards_free(struct ddp_device *device, void *memory, struct ddp_error *error)
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

void ddp_shards_memory_free(struct ddp_device *device)
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

struct ddp_shards_memory *ddp_shards_find(const struct ddp_device *device, const void *pointer,
					  size_t bytes, size_t *at)
{
	for (struct ddp_shards_memory *memory = device->memory; memory; memory = memory->next) {
		uintptr_t base = (uintptr_t)memory->base, place = (uintptr_t)pointer;

		if (memory == device->staging || place < base || place - base > memory->bytes ||
		    bytes > memory->bytes - (place - base))
			continue;
		*at = place - base;
		return memory;
	}
	return NULL;
}
