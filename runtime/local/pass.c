/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two halves of an all-reduce. Groups must cut a vector alike, whatever their sizes and
 * wherever their members have it: pieces depend on count, type and slices alone.
 */
#include "config.h"

#include "slice.h"

/* Equal pieces that fit a lane. */
static struct ddp_piece next_piece(const struct ddp_group *group, const struct ddp_vector *vector,
				   const struct ddp_group_pass *pass, uint32_t lane)
{
	size_t most = DDP_LANE_BYTES / vector->size, unit = DDP_ALIGN / vector->size;
	size_t pieces = (vector->count + most - 1) / most;
	size_t each = pieces ? (vector->count / pieces + unit) / unit * unit : 0;

	return (struct ddp_piece){
		.first = pass->at,
		.count = ddp_smaller(vector->count - pass->at, ddp_smaller(each, most)),
		.slices = pass->slices,
		.buffer = group->slots[group->index]->lanes[lane % DDP_LANES],
	};
}

static struct ddp_vector pass_vector(const struct ddp_group *group,
				     const struct ddp_group_pass *pass, double scale)
{
	return ddp_vector_of(group, pass->call, pass->send, pass->recv, scale);
}

static char *lane_of(struct ddp_group *group, int member)
{
	return group->slots[member]->lanes[group->lane % DDP_LANES];
}

/* --- The first half ------------------------------------------------------------------------ */

/* Into [to]: this member's part of recv, or its lane. */
static void sum_slice(struct ddp_group *group, const struct ddp_vector *vector,
		      struct ddp_slice slice, struct ddp_group_pass *pass, void *to)
{
	vector->kernel(&to, 1, group->from, group->size, slice.count, 1);
	pass->slice = to;
	pass->count = slice.count;
}

static void sum_direct(struct ddp_group *group, const struct ddp_vector *vector,
		       struct ddp_slice slice, struct ddp_group_pass *pass)
{
	const struct ddp_span *place = &group->place;

	for (int m = 0; m < group->size; m++)
		group->from[m] = ddp_span_memory(group, place->region, m, place->at) + slice.at;
	sum_slice(group, vector, slice, pass, vector->recv + slice.at);
}

static void sum_staged(struct ddp_group *group, const struct ddp_vector *vector,
		       const struct ddp_piece *piece, struct ddp_slice slice,
		       struct ddp_group_pass *pass)
{
	size_t within = slice.at - piece->first * vector->size;

	for (int m = 0; m < group->size; m++)
		group->from[m] = lane_of(group, m) + within;
	group->from[group->index] = vector->send + slice.at;
	sum_slice(group, vector, slice, pass, piece->buffer + within);
}

static int reduce(struct ddp_group *group, struct ddp_group_pass *pass,
		  const struct ddp_watch *watch, struct ddp_error *error)
{
	struct ddp_vector vector = pass_vector(group, pass, 1);
	struct ddp_piece piece = next_piece(group, &vector, pass, ++group->lane);
	struct ddp_slice slice =
		ddp_slice_of(&vector, piece.first, piece.count, pass->slices, group->index);
	int way = ddp_piece_meet(group, &vector, &piece, &group->place, watch, error);

	if (way < 0)
		return way;
	if (way == DDP_WAY_UNSTAGED) {
		int status;

		ddp_piece_stage(group, &vector, &piece);
		status = ddp_step(group, watch, error);
		if (status < 0)
			return status;
	}
	group->direct = way == DDP_WAY_DIRECT;
	if (slice.count > 0 && group->direct)
		sum_direct(group, &vector, slice, pass);
	else if (slice.count > 0)
		sum_staged(group, &vector, &piece, slice, pass);
	return 0;
}

int ddp_group_reduce(struct ddp_group *group, struct ddp_group_pass *pass,
		     const struct ddp_watch *watch, struct ddp_error *error)
{
	int status =
		ddp_call_begin(group, pass->call, DDP_ACTION_REDUCE, pass->at, pass->slices, error);

	pass->slice = NULL;
	pass->count = 0;
	pass->done = false;
	return status < 0 ? status : ddp_call_end(group, reduce(group, pass, watch, error));
}

/* --- The second half ----------------------------------------------------------------------- */

/* Write this member's slice to all; the step tells them that it is there. */
static int publish_direct(struct ddp_group *group, const struct ddp_vector *vector,
			  const struct ddp_piece *piece, const struct ddp_watch *watch,
			  struct ddp_error *error)
{
	const struct ddp_span *place = &group->place;
	struct ddp_slice slice =
		ddp_slice_of(vector, piece->first, piece->count, piece->slices, group->index);
	const void *from = vector->recv + slice.at;

	for (int m = 0; m < group->size; m++)
		group->to[m] =
			ddp_span_memory(group, place->receives, m, place->receives_at) + slice.at;
	if (slice.count > 0)
		vector->kernel(group->to, group->size, &from, 1, slice.count, vector->scale);
	return ddp_step(group, watch, error);
}

/* Take all slices from their owners' lanes. */
static int publish_staged(struct ddp_group *group, const struct ddp_vector *vector,
			  const struct ddp_piece *piece, const struct ddp_watch *watch,
			  struct ddp_error *error)
{
	int status = ddp_step(group, watch, error);

	if (status < 0)
		return status;
	for (int m = 0; m < piece->slices; m++) {
		struct ddp_slice slice =
			ddp_slice_of(vector, piece->first, piece->count, piece->slices, m);
		const void *from = lane_of(group, m) + (slice.at - piece->first * vector->size);
		void *to = vector->recv + slice.at;

		if (slice.count > 0)
			vector->kernel(&to, 1, &from, 1, slice.count, vector->scale);
	}
	return 0;
}

int ddp_group_publish(struct ddp_group *group, struct ddp_group_pass *pass,
		      const struct ddp_watch *watch, struct ddp_error *error)
{
	struct ddp_vector vector = pass_vector(group, pass, pass->scale);
	struct ddp_piece piece = next_piece(group, &vector, pass, group->lane);
	int status = ddp_call_begin(group, pass->call, DDP_ACTION_PUBLISH, pass->at, pass->slices,
				    error);

	if (status < 0)
		return status;
	if (group->direct)
		status = publish_direct(group, &vector, &piece, watch, error);
	else
		status = publish_staged(group, &vector, &piece, watch, error);
	pass->at += piece.count;
	pass->done = pass->at == vector.count;
	return ddp_call_end(group, status);
}
