/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "group-private.h"

enum { LARGE = 2 << 20 };

struct ddp_region {
	struct ddp_region *next;
	struct ddp_group *group; /* NULL once it is destroyed */
	struct ddp_segment segment;
	uint32_t number; /* the same on all members */
	int index;
	size_t bytes, stride, first;
};

/* What a member says about its part in the making of a region. */
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
	region->segment = (struct ddp_segment)DDP_SEGMENT_INIT;
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

/* --- Making one, together ----------------------------------------------------------------- */

static int make_segment(struct ddp_group *group, struct ddp_region *region, char *ticket,
			struct ddp_error *error)
{
	size_t bytes;

	if (__builtin_mul_overflow(region->stride, (size_t)group->size, &bytes) ||
	    __builtin_add_overflow(bytes, region->first, &bytes) || bytes > INT64_MAX)
		return ddp_error_set(error, DDP_ERR_MEMORY, "%zu bytes for each of %d ranks",
				     region->bytes, group->size);
	return ddp_segment_create(&region->segment, bytes, region->first, ticket, error);
}

/*
 * A step in which each tells how its part went, so that all fail together or none does.
 * [report] is this member's, and member 0's afterwards.
 */
static int agree(struct ddp_group *group, struct report *report, const struct ddp_watch *watch,
		 struct ddp_error *error)
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
			return ddp_error_set(error, other->status, "an arena on rank %d: %.*s",
					     group->ranks[m], DDP_ERROR_SIZE - 1,
					     other->error.text);
	}
	memcpy(report, ddp_step_buffer(group, 0, group->step), sizeof(*report));
	report->ticket[sizeof(report->ticket) - 1] = '\0';
	return 0;
}

/*
 * Each makes the pages of its own part, where they are to be, and the others find them there;
 * unless the region is [sparse], whose pages come when they are used.
 */
static int map_region(struct ddp_group *group, struct ddp_region *region, bool sparse,
		      const struct ddp_watch *watch, struct ddp_error *error)
{
	struct report report = {.status = 0};
	int status;

	if (group->index == 0)
		report.status = make_segment(group, region, report.ticket, &report.error);
	status = agree(group, &report, watch, error);
	if (status < 0)
		return status;
	if (group->index > 0)
		report.status = ddp_segment_attach(&region->segment, report.ticket, region->first,
						   &report.error);
	if (report.status == 0 && !sparse)
		report.status = ddp_segment_touch(ddp_region_part(region, group->index),
						  region->stride, &report.error);
	status = agree(group, &report, watch, error);
	ddp_segment_seal(&region->segment);
	if (status == 0 && !sparse)
		status = ddp_segment_touch(ddp_region_part(region, 0),
					   region->stride * (size_t)group->size, error);
	return status;
}

static int create(struct ddp_region **region, struct ddp_group *group, size_t bytes, bool sparse,
		  const struct ddp_watch *watch, struct ddp_error *error)
{
	static const struct ddp_call call = {.kind = UINT32_MAX, .name = "making of an arena"};
	struct ddp_region *new = region_new(group, bytes);
	int status;

	*region = NULL;
	if (!new)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for an arena");
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
	return create(region, group, bytes, false, watch, error);
}

int ddp_region_reserve(struct ddp_region **region, struct ddp_group *group, size_t bytes,
		       const struct ddp_watch *watch, struct ddp_error *error)
{
	return create(region, group, bytes, true, watch, error);
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

void ddp_regions_orphan(struct ddp_group *group)
{
	for (struct ddp_region *region = group->regions; region; region = region->next)
		region->group = NULL;
}

/* --- Finding one -------------------------------------------------------------------------- */

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
