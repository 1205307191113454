/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "slice.h"

/* --- Short: everybody reads everything ----------------------------------------------------- */

/*
 * One step: the vector travels with the line, or in the buffer beside it. Nobody waits for the
 * others to have read, because the next step uses other memory.
 */
static int reduce_short(struct ddp_group *group, const struct ddp_vector *vector,
			const struct ddp_watch *watch, struct ddp_error *error)
{
	size_t bytes = vector->count * vector->size;
	bool fits = bytes <= DDP_LINE_ROOM;
	void *to = vector->recv;
	int status;

	memcpy(fits ? ddp_step_line(group)->room
		    : ddp_step_buffer(group, group->index, group->step + 1),
	       vector->send, bytes);
	group->expected = fits ? 0 : bytes; /* short ones often come in series */
	status = ddp_step(group, watch, error);
	group->expected = 0;
	if (status < 0)
		return status;
	for (int m = 0; m < group->size; m++)
		group->from[m] = fits ? ddp_step_other(group, m)->room
				      : ddp_step_buffer(group, m, group->step);
	vector->kernel(&to, 1, group->from, group->size, vector->count, vector->scale);
	return 0;
}

/* --- Long, in a region: everybody works on one slice of all parts -------------------------- */

static int reduce_direct(struct ddp_group *group, const struct ddp_vector *vector,
			 const struct ddp_span *place, const struct ddp_watch *watch,
			 struct ddp_error *error)
{
	struct ddp_slice slice = ddp_slice_of(vector, 0, vector->count, group->size, group->index);

	for (int m = 0; m < group->size; m++) {
		group->from[m] = ddp_span_memory(group, place->region, m, place->at) + slice.at;
		group->to[m] =
			ddp_span_memory(group, place->receives, m, place->receives_at) + slice.at;
	}
	if (slice.count > 0)
		vector->kernel(group->to, group->size, group->from, group->size, slice.count,
			       vector->scale);
	return ddp_step(group, watch, error);
}

/* --- Long, elsewhere: through the buffers, chunk by chunk ---------------------------------- */

/* The chunk from element [first] on; it goes through the buffers of [step]. */
static struct ddp_piece chunk_at(struct ddp_group *group, const struct ddp_vector *vector,
				 size_t first, uint32_t step)
{
	return (struct ddp_piece){
		.first = first,
		.count = ddp_smaller(vector->count - first, DDP_BUFFER_BYTES / vector->size),
		.slices = group->size,
		.buffer = ddp_step_buffer(group, group->index, step),
	};
}

/* Sum this member's slice of the chunk that all have staged: for itself and for the others. */
static void reduce_chunk(struct ddp_group *group, const struct ddp_vector *vector,
			 const struct ddp_piece *chunk)
{
	struct ddp_slice slice =
		ddp_slice_of(vector, chunk->first, chunk->count, group->size, group->index);
	size_t within = slice.at - chunk->first * vector->size;
	void *to[2] = {vector->recv + slice.at, chunk->buffer + within};

	for (int m = 0; m < group->size; m++)
		group->from[m] = ddp_step_buffer(group, m, group->step) + within;
	group->from[group->index] = vector->send + slice.at;
	if (slice.count > 0)
		vector->kernel(to, 2, group->from, group->size, slice.count, vector->scale);
}

/* Take the others' sums of the chunk, which went through the buffers of [step]. */
static void collect_chunk(struct ddp_group *group, const struct ddp_vector *vector,
			  const struct ddp_piece *chunk, uint32_t step)
{
	for (int m = 0; m < group->size; m++) {
		struct ddp_slice slice =
			ddp_slice_of(vector, chunk->first, chunk->count, group->size, m);
		size_t within = slice.at - chunk->first * vector->size;

		if (m != group->index && slice.count > 0)
			memcpy(vector->recv + slice.at, ddp_step_buffer(group, m, step) + within,
			       slice.count * vector->size);
	}
}

/* The first chunk is staged. The step that publishes the sums of one stages the next. */
static int reduce_staged(struct ddp_group *group, const struct ddp_vector *vector,
			 const struct ddp_watch *watch, struct ddp_error *error)
{
	struct ddp_piece chunk = chunk_at(group, vector, 0, group->step), next;

	for (; chunk.count > 0; chunk = next) {
		uint32_t step = group->step;
		int status;

		reduce_chunk(group, vector, &chunk);
		next = chunk_at(group, vector, chunk.first + chunk.count, step + 1);
		ddp_piece_stage(group, vector, &next);
		status = ddp_step(group, watch, error);
		if (status < 0)
			return status;
		collect_chunk(group, vector, &chunk, step);
	}
	return 0;
}

static int reduce_long(struct ddp_group *group, const struct ddp_vector *vector,
		       const struct ddp_watch *watch, struct ddp_error *error)
{
	struct ddp_piece chunk = chunk_at(group, vector, 0, group->step + 1);
	struct ddp_span place;
	int way = ddp_piece_meet(group, vector, &chunk, &place, watch, error), status = 0;

	if (way < 0)
		return way;
	if (way == DDP_WAY_DIRECT)
		return reduce_direct(group, vector, &place, watch, error);
	if (way == DDP_WAY_UNSTAGED) {
		chunk = chunk_at(group, vector, 0, group->step + 1);
		ddp_piece_stage(group, vector, &chunk);
		status = ddp_step(group, watch, error);
	}
	return status < 0 ? status : reduce_staged(group, vector, watch, error);
}

int ddp_group_all_reduce(struct ddp_group *group, const struct ddp_call *call, const void *send,
			 void *recv, double scale, const struct ddp_watch *watch,
			 struct ddp_error *error)
{
	struct ddp_vector vector = ddp_vector_of(group, call, send, recv, scale);
	size_t bytes = vector.count * vector.size;
	size_t most = group->spins ? DDP_SHORT_SPINNING : DDP_SHORT_SLEEPING;
	int status = ddp_call_begin(group, call, DDP_ACTION_ALL_REDUCE, bytes, 0, error);

	if (status < 0)
		return status;
	if (group->size == 1)
		vector.kernel(&recv, 1, &send, 1, vector.count, scale);
	else if (bytes <= most)
		status = reduce_short(group, &vector, watch, error);
	else
		status = reduce_long(group, &vector, watch, error);
	return ddp_call_end(group, status);
}
