/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group.c - create, join and leave a group, and create its shared regions
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "group-private.h"

enum {
	LARGE = 2 << 20,
	TRIES = 20, /* maximum number of attempts in listen_in_directory() */
};

struct ddp_region {
	struct ddp_region *next;
	struct ddp_group *group; /* NULL after the group was destroyed */
	struct ddp_segment segment;
	uint32_t number; /* number of the region, the same on all members */
	int index;
	size_t bytes, stride, first;
};

/* --- CPUs --------------------------------------------------------------------------------- */

static void get_cpus(uint64_t cpus[DDP_CPU_WORDS])
{
	size_t bytes = DDP_CPU_WORDS * sizeof(*cpus);

	/*
	 * If the machine has more CPUs than DDP_CPU_WORDS can hold, assume that there are enough.
	 */
	memset(cpus, 0, bytes);
	if (sched_getaffinity(0, bytes, (cpu_set_t *)(void *)cpus) < 0)
		memset(cpus, 0xff, bytes);
}

static bool is_within(const uint64_t *cpus, const uint64_t *others)
{
	for (int i = 0; i < DDP_CPU_WORDS; i++)
		if (cpus[i] & ~others[i])
			return false;
	return true;
}

static int count_cpus(const uint64_t *cpus)
{
	int count = 0;

	for (int i = 0; i < DDP_CPU_WORDS; i++)
		count += __builtin_popcountll(cpus[i]);
	return count;
}

/*
 * Returns whether every member can have its own CPU. For each CPU set to which a member is bound,
 * the number of members bound within the set must not exceed its number of CPUs.
 */
static bool has_enough_cpus(struct ddp_slot *const *slots, int size)
{
	uint64_t all[DDP_CPU_WORDS] = {0};

	for (int m = 0; m < size; m++) {
		int bound = 0;

		for (int i = 0; i < DDP_CPU_WORDS; i++)
			all[i] |= slots[m]->cpus[i];
		for (int other = 0; other < size; other++)
			bound += is_within(slots[other]->cpus, slots[m]->cpus);
		if (bound > count_cpus(slots[m]->cpus))
			return false;
	}
	return size <= count_cpus(all);
}

/* --- Joining and leaving ------------------------------------------------------------------ */

_Static_assert(sizeof(struct ddp_group_head) <= DDP_SEGMENT_HEAD, "the slots begin behind it");

static size_t segment_bytes(int size)
{
	return DDP_SEGMENT_HEAD * 2 + (size_t)size * sizeof(struct ddp_slot);
}

static struct ddp_group *group_new(const struct ddp_group_options *options)
{
	size_t size = (size_t)options->size;
	struct ddp_group *group = calloc(1, sizeof(*group));

	if (!group)
		return NULL;
	group->index = options->index;
	group->size = options->size;
	group->simd = options->simd;
	group->log = options->log;
	group->segment = (struct ddp_segment){.fd = -1};
	group->host = strdup(options->host);
	group->directory = strdup(options->directory ? options->directory : "");
	group->ranks = calloc(size, sizeof(*group->ranks));
	group->slots = calloc(size, sizeof(struct ddp_slot *));
	group->pidfds = calloc(size, sizeof(*group->pidfds));
	group->links = calloc(size, sizeof(*group->links));
	group->polls = calloc(size, sizeof(*group->polls));
	group->from = calloc(size, sizeof(void *));
	group->to = calloc(size, sizeof(void *));
	for (size_t m = 0; group->pidfds && m < size; m++)
		group->pidfds[m] = -1;
	for (size_t m = 0; group->links && m < size; m++)
		group->links[m] = -1;
	if (!group->host || !group->directory || !group->ranks || !group->slots || !group->pidfds ||
	    !group->links || !group->polls || !group->from || !group->to) {
		ddp_group_destroy(group);
		return NULL;
	}
	ddp_group_rename(group, options->ranks);
	return group;
}

/* Initialize [group] from the segment, which is mapped, and mark this member as joined. */
static int group_join(struct ddp_group *group, struct ddp_error *error)
{
	char *slots = group->segment.base + DDP_SEGMENT_HEAD * 2;
	struct ddp_slot *own;
	int status;

	for (int m = 0; m < group->size; m++)
		group->slots[m] =
			(struct ddp_slot *)(void *)(slots + (size_t)m * sizeof(struct ddp_slot));
	own = group->slots[group->index];
	status = ddp_segment_touch(own, offsetof(struct ddp_slot, buffers), error);
	if (status < 0)
		return status;
	own->pid = getpid();
	if (ddp_process_start(own->pid, &own->start) < 0)
		own->start = 0;
	own->pids = ddp_pid_namespace();
	get_cpus(own->cpus);
	atomic_store(&own->state, DDP_MEMBER_JOINED);
	return 0;
}

/*
 * Listen on a socket in the directory. Try several times: until the socket is in the directory, the
 * last rank of an earlier world can still remove the directory.
 */
static void listen_in_directory(struct ddp_group *group, const struct ddp_group_options *options)
{
	for (int i = 0; i < TRIES; i++) {
		group->passing = ddp_passing_listen(group->directory, options->size);
		group->passing_errno = group->passing ? 0 : errno;
		if (group->passing ||
		    (group->passing_errno != ENOENT && group->passing_errno != ESTALE) ||
		    !options->make_directory || options->make_directory(options->owner) < 0)
			return;
	}
}

int ddp_group_create(struct ddp_group **group, const struct ddp_group_options *options,
		     char ticket[DDP_GROUP_TICKET], struct ddp_error *error)
{
	struct ddp_group *new = group_new(options);
	int status;

	*group = NULL;
	if (!new)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for a group of %d ranks",
				     options->size);
	if (options->size > 1 && *new->directory)
		listen_in_directory(new, options);
	status = ddp_segment_create(&new->segment, new, segment_bytes(options->size),
				    DDP_SEGMENT_HEAD, ticket, error);
	if (status < 0)
		goto fail;
	new->head = (struct ddp_group_head *)(void *)(new->segment.base + DDP_SEGMENT_HEAD);
	new->head->slot_bytes = sizeof(struct ddp_slot);
	new->head->size = (uint32_t)options->size;
	status = group_join(new, error);
	if (status < 0)
		goto fail;
	*group = new;
	return 0;
fail:
	ddp_group_destroy(new);
	return status;
}

static int check_layout(struct ddp_group *group, struct ddp_error *error)
{
	size_t bytes = segment_bytes(group->size);

	if (group->segment.bytes != bytes || group->head->slot_bytes != sizeof(struct ddp_slot) ||
	    group->head->size != (uint32_t)group->size)
		return ddp_error_set(
			error, DDP_ERR_SYSTEM,
			"the shared memory was made for %u ranks with %zu bytes, but this "
			"rank expects %d ranks with %zu. Install one release of libddp on "
			"all nodes.",
			group->head->size, group->segment.bytes, group->size, bytes);
	return 0;
}

static int group_attach(struct ddp_group *group, const char *ticket, const struct ddp_watch *watch,
			struct ddp_error *error)
{
	int status =
		ddp_segment_attach(&group->segment, group, ticket, DDP_SEGMENT_HEAD, watch, error);

	if (status < 0)
		return status;
	group->head = (struct ddp_group_head *)(void *)(group->segment.base + DDP_SEGMENT_HEAD);
	status = check_layout(group, error);
	return status < 0 ? status : group_join(group, error);
}

int ddp_group_attach(struct ddp_group **group, const struct ddp_group_options *options,
		     const char *ticket, const struct ddp_watch *watch, struct ddp_error *error)
{
	struct ddp_group *new = group_new(options);
	struct ddp_error cause = {0};
	int status;

	*group = NULL;
	if (!new)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for a group of %d ranks",
				     options->size);
	status = group_attach(new, ticket, watch, &cause);
	if (status < 0) {
		ddp_group_destroy(new);
		return ddp_error_set(error, status,
				     "rank %d on %s cannot share the memory of rank %d: %s",
				     options->ranks[options->index], options->host,
				     options->ranks[0], cause.text);
	}
	*group = new;
	return 0;
}

void ddp_group_rename(struct ddp_group *group, const int *ranks)
{
	memcpy(group->ranks, ranks, (size_t)group->size * sizeof(*ranks));
}

void ddp_group_stop_serving(struct ddp_group *group)
{
	ddp_passing_close(group->passing);
	group->passing = NULL;
}

int ddp_group_meet(struct ddp_group *group, const struct ddp_watch *watch, struct ddp_error *error)
{
	int status = ddp_wait_joined(group, watch, error);

	if (status < 0)
		return status;
	ddp_segment_seal(&group->segment);
	ddp_group_stop_serving(group);
	group->spins = has_enough_cpus(group->slots, group->size);
	return 0;
}

void ddp_group_leave(struct ddp_group *group)
{
	atomic_store(&group->slots[group->index]->state, DDP_MEMBER_LEFT);
}

void ddp_group_destroy(struct ddp_group *group)
{
	if (!group)
		return;
	for (struct ddp_region *region = group->regions; region; region = region->next)
		region->group = NULL;
	for (int m = 0; group->pidfds && m < group->size; m++)
		if (group->pidfds[m] >= 0)
			close(group->pidfds[m]);
	for (int m = 0; group->links && m < group->size; m++)
		if (group->links[m] >= 0)
			ddp_fork_close_socket(group->links[m]);
	ddp_passing_close(group->passing);
	ddp_segment_close(&group->segment);
	free(group->to);
	free(group->from);
	free(group->polls);
	free(group->links);
	free(group->pidfds);
	free(group->slots);
	free(group->ranks);
	free(group->directory);
	free(group->host);
	free(group);
}

bool ddp_group_spins(const struct ddp_group *group)
{
	return group->spins;
}

/* --- Regions ------------------------------------------------------------------------------ */

/* What a member publishes after its part of creating a region: its status and its error. */
struct report {
	int32_t status;
	struct ddp_error error;
	char ticket[DDP_GROUP_TICKET];
};

static size_t round_up(size_t bytes, size_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

static struct ddp_region *region_new(struct ddp_group *group, size_t bytes)
{
	struct ddp_region *region = calloc(1, sizeof(*region));

	if (!region)
		return NULL;
	region->segment = (struct ddp_segment){.fd = -1};
	region->index = group->index;
	region->bytes = bytes;
	region->first = bytes >= LARGE ? LARGE : DDP_SEGMENT_HEAD;
	region->stride = round_up(bytes ? bytes : 1, region->first);
	return region;
}

void *ddp_region_part(const struct ddp_region *region, int member)
{
	return region->segment.base + region->first + (size_t)member * region->stride;
}

/* --- Regions: creation ------------------------------------------------------------------- */

/*
 * On member 0, create the memory of [region], and send its descriptor to the members that have a
 * connection. A member with a connection receives the descriptor after the next step.
 */
static int region_segment(struct ddp_group *group, struct ddp_region *region, char *ticket,
			  struct ddp_error *error)
{
	struct ddp_segment *segment = &region->segment;
	size_t bytes;
	int status;

	if (region->stride < region->bytes ||
	    __builtin_mul_overflow(region->stride, (size_t)group->size, &bytes) ||
	    __builtin_add_overflow(bytes, region->first, &bytes) || bytes > INT64_MAX)
		return ddp_error_set(error, DDP_ERR_MEMORY,
				     "%zu bytes of shared memory for each of %d ranks are too many",
				     region->bytes, group->size);
	status = ddp_segment_create(segment, group, bytes, region->first, ticket, error);
	for (int m = 1; m < group->size && status == 0; m++)
		if (group->links[m] >= 0 &&
		    ddp_passing_send(group->links[m], ddp_segment_token(segment), segment->fd) < 0)
			status = ddp_error_errno(error, DDP_ERR_SYSTEM,
						 "cannot pass a descriptor to rank %d",
						 group->ranks[m]);
	return status;
}

/*
 * Publish each member's report in one step, so that either all members fail or no member does. On
 * entry, [report] is this member's report. On return, it is member 0's report.
 */
static int region_agree(struct ddp_group *group, struct report *report,
			const struct ddp_watch *watch, struct ddp_error *error)
{
	const struct report *other;
	int status;

	memcpy(ddp_step_buffer(group, group->index, group->step + 1), report, sizeof(*report));
	status = ddp_step(group, watch, error);
	if (status < 0)
		return status;
	for (int m = 0; m < group->size; m++) {
		other = (const void *)ddp_step_buffer(group, m, group->step);
		if (other->status < 0)
			return ddp_error_set(error, other->status,
					     "the arena failed on rank %d: %.*s", group->ranks[m],
					     DDP_ERROR_SIZE - 1, other->error.text);
	}
	memcpy(report, ddp_step_buffer(group, 0, group->step), sizeof(*report));
	report->ticket[sizeof(report->ticket) - 1] = '\0';
	return 0;
}

/*
 * Create and map the memory of [region], which is NULL if this member could not allocate it. Each
 * member allocates the pages of its part on its NUMA node, before the others map them. If the
 * region is [sparse], pages are allocated on first use instead. After each phase that can fail,
 * members agree, so that all of them have the region or none has.
 */
static int map_region(struct ddp_group *group, struct ddp_region *region, bool sparse,
		      const struct ddp_watch *watch, struct ddp_error *error)
{
	struct report report = {.status = 0};
	int status;

	if (!region)
		report.status =
			ddp_error_set(&report.error, DDP_ERR_MEMORY, "no memory for an arena");
	else if (group->index == 0)
		report.status = region_segment(group, region, report.ticket, &report.error);
	status = region_agree(group, &report, watch, error);
	if (status < 0)
		return status;
	if (group->index > 0)
		report.status = ddp_segment_attach(&region->segment, group, report.ticket,
						   region->first, watch, &report.error);
	if (report.status == 0 && !sparse)
		report.status = ddp_segment_touch(ddp_region_part(region, group->index),
						  region->stride, &report.error);
	status = region_agree(group, &report, watch, error);
	ddp_segment_seal(&region->segment);
	if (status < 0 || sparse)
		return status;
	report.status = ddp_segment_touch(ddp_region_part(region, 0),
					  region->stride * (size_t)group->size, &report.error);
	return region_agree(group, &report, watch, error);
}

static int region_create(struct ddp_region **region, struct ddp_group *group, size_t bytes,
			 bool sparse, const struct ddp_watch *watch, struct ddp_error *error)
{
	static const struct ddp_call call = {.kind = UINT32_MAX, .name = "creation of an arena"};
	struct ddp_region *new = region_new(group, bytes);
	int status;

	*region = NULL;
	status = ddp_call_begin(group, &call, DDP_ACTION_REGION, bytes, 0, error);
	if (status == 0)
		status = ddp_call_end(group, map_region(group, new, sparse, watch, error));
	if (status < 0) {
		ddp_region_destroy(new);
		return status;
	}
	new->number = ++group->region_count;
	new->group = group;
	new->next = group->regions;
	group->regions = new;
	*region = new;
	return 0;
}

int ddp_region_create(struct ddp_region **region, struct ddp_group *group, size_t bytes,
		      const struct ddp_watch *watch, struct ddp_error *error)
{
	return region_create(region, group, bytes, false, watch, error);
}

int ddp_region_reserve(struct ddp_region **region, struct ddp_group *group, size_t bytes,
		       const struct ddp_watch *watch, struct ddp_error *error)
{
	return region_create(region, group, bytes, true, watch, error);
}

void ddp_region_destroy(struct ddp_region *region)
{
	struct ddp_region **link;

	if (!region)
		return;
	if (region->group) {
		for (link = &region->group->regions; *link != region; link = &(*link)->next)
			;
		*link = region->next;
	}
	ddp_segment_close(&region->segment);
	free(region);
}

/* --- Regions: lookup ---------------------------------------------------------------------- */

struct ddp_region *ddp_region_find(const struct ddp_group *group, const void *pointer, size_t bytes,
				   size_t *offset)
{
	for (struct ddp_region *region = group->regions; region; region = region->next) {
		uintptr_t part = (uintptr_t)ddp_region_part(region, region->index);
		uintptr_t at = (uintptr_t)pointer - part;

		if ((uintptr_t)pointer < part || at > region->stride || bytes > region->stride - at)
			continue;
		*offset = at;
		return region;
	}
	return NULL;
}

struct ddp_span ddp_span_find(const struct ddp_group *group, const void *send, const void *recv,
			      size_t bytes)
{
	struct ddp_span place = {0};
	struct ddp_region *region;
	size_t at = 0;

	region = ddp_region_find(group, send, bytes, &at);
	if (region) {
		place.region = region->number;
		place.at = at;
	}
	region = ddp_region_find(group, recv, bytes, &at);
	if (region) {
		place.receives = region->number;
		place.receives_at = at;
	}
	return place;
}

char *ddp_span_memory(const struct ddp_group *group, uint32_t number, int member, uint64_t at)
{
	struct ddp_region *region = group->regions;

	while (region && region->number != number)
		region = region->next;
	return region ? (char *)ddp_region_part(region, member) + at : NULL;
}
