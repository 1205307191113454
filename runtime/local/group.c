/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "group-private.h"

/* --- CPUs --------------------------------------------------------------------------------- */

/* Where this thread may run. */
static void get_cpus(uint64_t cpus[DDP_CPU_WORDS])
{
	size_t bytes = DDP_CPU_WORDS * sizeof(*cpus);

	/* A machine with more CPUs than that has enough. */
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

/* For each member's CPUs, and for all of them: are more members bound to them than they are? */
static bool enough_cpus(struct ddp_slot *const *slots, int size)
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

/* A number for the namespace that this process's pid is of. */
static uint64_t pid_namespace(void)
{
	struct stat status;

	return stat("/proc/self/ns/pid", &status) == 0 ? (uint64_t)status.st_ino : 0;
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
	group->segment = (struct ddp_segment)DDP_SEGMENT_INIT;
	group->host = strdup(options->host);
	group->ranks = calloc(size, sizeof(*group->ranks));
	group->slots = calloc(size, sizeof(struct ddp_slot *));
	group->pidfds = calloc(size, sizeof(*group->pidfds));
	group->polls = calloc(size, sizeof(*group->polls));
	group->from = calloc(size, sizeof(void *));
	group->to = calloc(size, sizeof(void *));
	for (size_t m = 0; group->pidfds && m < size; m++)
		group->pidfds[m] = -1;
	if (!group->host || !group->ranks || !group->slots || !group->pidfds || !group->polls ||
	    !group->from || !group->to) {
		ddp_group_destroy(group);
		return NULL;
	}
	ddp_group_rename(group, options->ranks);
	return group;
}

/* The segment is mapped: find what is in it, and be in it. */
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
	own->start = ddp_process_start(own->pid);
	own->pids = pid_namespace();
	get_cpus(own->cpus);
	atomic_store(&own->state, DDP_MEMBER_JOINED);
	return 0;
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
	status = ddp_segment_create(&new->segment, segment_bytes(options->size), DDP_SEGMENT_HEAD,
				    ticket, error);
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

/* What member 0's library made must be what this one would make. */
static int check_layout(struct ddp_group *group, struct ddp_error *error)
{
	size_t bytes = segment_bytes(group->size);

	if (group->segment.bytes != bytes || group->head->slot_bytes != sizeof(struct ddp_slot) ||
	    group->head->size != (uint32_t)group->size)
		return ddp_error_set(error, DDP_ERR_SYSTEM,
				     "it has %zu bytes for %u ranks, not %zu for %d: the versions "
				     "of libddp differ",
				     group->segment.bytes, group->head->size, bytes, group->size);
	return 0;
}

static int group_attach(struct ddp_group *group, const char *ticket, struct ddp_error *error)
{
	int status = ddp_segment_attach(&group->segment, ticket, DDP_SEGMENT_HEAD, error);

	if (status < 0)
		return status;
	group->head = (struct ddp_group_head *)(void *)(group->segment.base + DDP_SEGMENT_HEAD);
	status = check_layout(group, error);
	return status < 0 ? status : group_join(group, error);
}

int ddp_group_attach(struct ddp_group **group, const struct ddp_group_options *options,
		     const char *ticket, struct ddp_error *error)
{
	struct ddp_group *new = group_new(options);
	struct ddp_error cause;
	int status;

	*group = NULL;
	if (!new)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for a group of %d ranks",
				     options->size);
	status = group_attach(new, ticket, &cause);
	if (status < 0) {
		ddp_group_destroy(new);
		return ddp_error_set(error, status,
				     "rank %d on %s cannot share the memory of rank %d: %s; "
				     "DDP_LOCAL=off does without",
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

int ddp_group_meet(struct ddp_group *group, const struct ddp_watch *watch, struct ddp_error *error)
{
	int status = ddp_wait_joined(group, watch, error);

	if (status < 0)
		return status;
	ddp_segment_seal(&group->segment);
	group->spins = enough_cpus(group->slots, group->size);
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
	ddp_regions_orphan(group);
	for (int m = 0; group->pidfds && m < group->size; m++)
		if (group->pidfds[m] >= 0)
			close(group->pidfds[m]);
	ddp_segment_close(&group->segment);
	free(group->to);
	free(group->from);
	free(group->polls);
	free(group->pidfds);
	free(group->slots);
	free(group->ranks);
	free(group->host);
	free(group);
}

size_t ddp_group_bytes(const struct ddp_group *group)
{
	return group->segment.bytes;
}

bool ddp_group_spins(const struct ddp_group *group)
{
	return group->spins;
}
