/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "group-private.h"

int ddp_group_barrier(struct ddp_group *group, const struct ddp_call *call,
		      const struct ddp_watch *watch, struct ddp_error *error)
{
	int status = ddp_call_begin(group, call, DDP_ACTION_BARRIER, 0, 0, error);

	return status < 0 ? status : ddp_call_end(group, ddp_step(group, watch, error));
}

/* Where [member]'s [bytes] of the last step are: they fit the line, or they do not. */
static const void *payload(struct ddp_group *group, int member, size_t bytes)
{
	return bytes <= DDP_LINE_ROOM ? ddp_step_other(group, member)->room
				      : ddp_step_buffer(group, member, group->step);
}

/* The same of this member and the next step. */
static void *next_payload(struct ddp_group *group, size_t bytes)
{
	return bytes <= DDP_LINE_ROOM ? ddp_step_line(group)->room
				      : ddp_step_buffer(group, group->index, group->step + 1);
}

static struct ddp_span tell_span(struct ddp_group *group, const void *data, size_t bytes)
{
	struct ddp_span place = ddp_span_find(group, data, data, bytes);

	memcpy(ddp_step_line(group)->room, &place, sizeof(place));
	return place;
}

static struct ddp_span hear_span(struct ddp_group *group, int member)
{
	struct ddp_span place;

	memcpy(&place, ddp_step_other(group, member)->room, sizeof(place));
	return place;
}

static size_t piece_of(size_t bytes, size_t at)
{
	return bytes - at < DDP_BUFFER_BYTES ? bytes - at : DDP_BUFFER_BYTES;
}

/* --- Broadcast ---------------------------------------------------------------------------- */

/* A piece a step, through root's buffers. */
static int broadcast_pieces(struct ddp_group *group, char *data, size_t bytes, int root,
			    const struct ddp_watch *watch, struct ddp_error *error)
{
	for (size_t at = 0, piece; at < bytes; at += piece) {
		int status;

		piece = piece_of(bytes, at);
		if (group->index == root)
			memcpy(next_payload(group, piece), data + at, piece);
		status = ddp_step(group, watch, error);
		if (status < 0)
			return status;
		if (group->index != root)
			memcpy(data + at, payload(group, root, piece), piece);
	}
	return 0;
}

/* Longer than a buffer: straight from root's memory, if that is in a region. */
static int broadcast_long(struct ddp_group *group, char *data, size_t bytes, int root,
			  const struct ddp_watch *watch, struct ddp_error *error)
{
	struct ddp_span place;
	int status;

	tell_span(group, data, bytes);
	status = ddp_step(group, watch, error);
	if (status < 0)
		return status;
	place = hear_span(group, root);
	if (!place.region)
		return broadcast_pieces(group, data, bytes, root, watch, error);
	if (group->index != root)
		memcpy(data, ddp_span_memory(group, place.region, root, place.at), bytes);
	return ddp_step(group, watch, error); /* root may change it again */
}

static int broadcast(struct ddp_group *group, char *data, size_t bytes, int root,
		     const struct ddp_watch *watch, struct ddp_error *error)
{
	if (bytes == 0)
		return ddp_step(group, watch, error);
	if (bytes <= DDP_BUFFER_BYTES)
		return broadcast_pieces(group, data, bytes, root, watch, error);
	return broadcast_long(group, data, bytes, root, watch, error);
}

int ddp_group_broadcast(struct ddp_group *group, const struct ddp_call *call, void *data,
			size_t bytes, int root, const struct ddp_watch *watch,
			struct ddp_error *error)
{
	int status = ddp_call_begin(group, call, DDP_ACTION_BROADCAST, bytes, root, error);

	if (status < 0)
		return status;
	return ddp_call_end(group, broadcast(group, data, bytes, root, watch, error));
}

/* --- All-gather --------------------------------------------------------------------------- */

static int gather_pieces(struct ddp_group *group, const char *send, char *recv, size_t bytes,
			 const struct ddp_watch *watch, struct ddp_error *error)
{
	for (size_t at = 0, piece; at < bytes; at += piece) {
		int status;

		piece = piece_of(bytes, at);
		memcpy(next_payload(group, piece), send + at, piece);
		status = ddp_step(group, watch, error);
		if (status < 0)
			return status;
		for (int m = 0; m < group->size; m++)
			if (m != group->index)
				memcpy(recv + (size_t)m * bytes + at, payload(group, m, piece),
				       piece);
	}
	return 0;
}

/* Longer than a buffer: straight from everybody's memory, if all of it is in regions. */
static int gather_long(struct ddp_group *group, const char *send, char *recv, size_t bytes,
		       const struct ddp_watch *watch, struct ddp_error *error)
{
	int status;

	tell_span(group, send, bytes);
	status = ddp_step(group, watch, error);
	if (status < 0)
		return status;
	for (int m = 0; m < group->size; m++)
		if (!hear_span(group, m).region)
			return gather_pieces(group, send, recv, bytes, watch, error);
	for (int m = 0; m < group->size; m++) {
		struct ddp_span place = hear_span(group, m);

		if (m != group->index)
			memcpy(recv + (size_t)m * bytes,
			       ddp_span_memory(group, place.region, m, place.at), bytes);
	}
	return ddp_step(group, watch, error); /* who sent may change it again */
}

static int all_gather(struct ddp_group *group, const char *send, char *recv, size_t bytes,
		      const struct ddp_watch *watch, struct ddp_error *error)
{
	char *own = recv + (size_t)group->index * bytes;
	int status;

	if (bytes == 0)
		return ddp_step(group, watch, error);
	if (bytes <= DDP_BUFFER_BYTES)
		status = gather_pieces(group, send, recv, bytes, watch, error);
	else
		status = gather_long(group, send, recv, bytes, watch, error);
	if (status == 0 && own != send)
		memmove(own, send, bytes);
	return status;
}

int ddp_group_all_gather(struct ddp_group *group, const struct ddp_call *call, const void *send,
			 void *recv, size_t bytes, const struct ddp_watch *watch,
			 struct ddp_error *error)
{
	int status = ddp_call_begin(group, call, DDP_ACTION_ALL_GATHER, bytes, 0, error);

	if (status < 0)
		return status;
	return ddp_call_end(group, all_gather(group, send, recv, bytes, watch, error));
}
