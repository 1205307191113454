/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reduce.c - collectives of a group: all-reduce and its two halves, broadcast, all-gather, barrier
 */
#include "config.h"

#include "group-private.h"

/* --- Vectors and slices -------------------------------------------------------------------------- */

struct vector {
	const char *send;
	char *recv;
	size_t count, size; /* elements, bytes of one */
	double scale;
	ddp_kernel *kernel;
};

struct slice {
	size_t at;    /* bytes from the vector's beginning */
	size_t count; /* elements */
};

/* Some of a vector: what is worked on at a time. */
struct piece {
	size_t first, count;
	int slices;
	char *buffer; /* of this member, to stage it in for the others */
};

enum way {
	WAY_DIRECT,   /* all have the vectors at the same place of a region */
	WAY_STAGED,   /* all have staged the piece */
	WAY_UNSTAGED, /* some have and some not */
};

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

static struct vector vector_of(const struct ddp_group *group, const struct ddp_call *call,
			       const void *send, void *recv, double scale)
{
	enum ddp_type type = (enum ddp_type)call->type;

	return (struct vector){
		.send = send,
		.recv = recv,
		.count = call->count,
		.size = ddp_type_size(type),
		.scale = scale,
		.kernel = ddp_kernel_get(type, (enum ddp_op)call->op, group->simd),
	};
}

/*
 * Slice [index] of the [count] elements from [first] on, cut into [slices] at whole cache lines.
 * Later ones may be empty, those from [slices] on are.
 */
static struct slice slice_of(const struct vector *vector, size_t first, size_t count, int slices,
			     int index)
{
	size_t unit = DDP_ALIGN / vector->size, units = (count + unit - 1) / unit;
	size_t each = (units + (size_t)slices - 1) / (size_t)slices * unit;
	size_t begin = smaller((size_t)index * each, count);
	size_t end = index < slices ? smaller(begin + each, count) : begin;

	return (struct slice){.at = (first + begin) * vector->size, .count = end - begin};
}

/* Copy into the buffer what the others need: all but this member's slice. */
static void stage(const struct ddp_group *group, const struct vector *vector,
		  const struct piece *piece)
{
	struct slice own =
		slice_of(vector, piece->first, piece->count, piece->slices, group->index);
	const char *from = vector->send + piece->first * vector->size;
	size_t bytes = piece->count * vector->size;
	size_t before = own.at - piece->first * vector->size;
	size_t after = before + own.count * vector->size;

	if (before > 0)
		memcpy(piece->buffer, from, before);
	if (after < bytes)
		memcpy(piece->buffer + after, from + after, bytes - after);
}

static bool same_place(const struct ddp_span *a, const struct ddp_span *b)
{
	return a->region == b->region && a->receives == b->receives && a->at == b->at &&
	       a->receives_at == b->receives_at && a->staged == b->staged;
}

/*
 * The first step of a long vector: tell where it is, and stage [piece] if that is no region.
 * Returns an enum way, the same on all members, with this member's [place]; or an error.
 */
static int meet(struct ddp_group *group, const struct vector *vector, const struct piece *piece,
		struct ddp_span *place, const struct ddp_watch *watch, struct ddp_error *error)
{
	bool direct = true, staged = true;
	int status;

	*place = ddp_span_find(group, vector->send, vector->recv, vector->count * vector->size);
	if (!place->region || !place->receives) {
		stage(group, vector, piece);
		*place = (struct ddp_span){.staged = 1};
	}
	memcpy(ddp_step_line(group)->room, place, sizeof(*place));
	status = ddp_step(group, watch, error);
	if (status < 0)
		return status;
	for (int m = 0; m < group->size; m++) {
		struct ddp_span other = *place;

		if (m != group->index)
			memcpy(&other, ddp_step_other(group, m)->room, sizeof(other));
		direct = direct && !other.staged && same_place(&other, place);
		staged = staged && other.staged;
	}
	return direct ? WAY_DIRECT : staged ? WAY_STAGED : WAY_UNSTAGED;
}

/* --- Short: everybody reads everything ----------------------------------------------------- */

/*
 * One step: the vector travels with the line, or in the buffer beside it. Nobody waits for the
 * others to have read, because the next step uses other memory.
 */
static int reduce_short(struct ddp_group *group, const struct vector *vector,
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

static int reduce_direct(struct ddp_group *group, const struct vector *vector,
			 const struct ddp_span *place, const struct ddp_watch *watch,
			 struct ddp_error *error)
{
	struct slice slice = slice_of(vector, 0, vector->count, group->size, group->index);

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
static struct piece chunk_at(struct ddp_group *group, const struct vector *vector, size_t first,
			     uint32_t step)
{
	return (struct piece){
		.first = first,
		.count = smaller(vector->count - first, DDP_BUFFER_BYTES / vector->size),
		.slices = group->size,
		.buffer = ddp_step_buffer(group, group->index, step),
	};
}

/* Sum this member's slice of the chunk that all have staged: for itself and for the others. */
static void reduce_chunk(struct ddp_group *group, const struct vector *vector,
			 const struct piece *chunk)
{
	struct slice slice =
		slice_of(vector, chunk->first, chunk->count, group->size, group->index);
	size_t within = slice.at - chunk->first * vector->size;
	void *to[2] = {vector->recv + slice.at, chunk->buffer + within};

	for (int m = 0; m < group->size; m++)
		group->from[m] = ddp_step_buffer(group, m, group->step) + within;
	group->from[group->index] = vector->send + slice.at;
	if (slice.count > 0)
		vector->kernel(to, 2, group->from, group->size, slice.count, vector->scale);
}

/* Take the others' sums of the chunk, which went through the buffers of [step]. */
static void collect_chunk(struct ddp_group *group, const struct vector *vector,
			  const struct piece *chunk, uint32_t step)
{
	for (int m = 0; m < group->size; m++) {
		struct slice slice = slice_of(vector, chunk->first, chunk->count, group->size, m);
		size_t within = slice.at - chunk->first * vector->size;

		if (m != group->index && slice.count > 0)
			memcpy(vector->recv + slice.at, ddp_step_buffer(group, m, step) + within,
			       slice.count * vector->size);
	}
}

/* The first chunk is staged. The step that publishes the sums of one stages the next. */
static int reduce_staged(struct ddp_group *group, const struct vector *vector,
			 const struct ddp_watch *watch, struct ddp_error *error)
{
	struct piece chunk = chunk_at(group, vector, 0, group->step), next;

	for (; chunk.count > 0; chunk = next) {
		uint32_t step = group->step;
		int status;

		reduce_chunk(group, vector, &chunk);
		next = chunk_at(group, vector, chunk.first + chunk.count, step + 1);
		stage(group, vector, &next);
		status = ddp_step(group, watch, error);
		if (status < 0)
			return status;
		collect_chunk(group, vector, &chunk, step);
	}
	return 0;
}

static int reduce_long(struct ddp_group *group, const struct vector *vector,
		       const struct ddp_watch *watch, struct ddp_error *error)
{
	struct piece chunk = chunk_at(group, vector, 0, group->step + 1);
	struct ddp_span place;
	int way = meet(group, vector, &chunk, &place, watch, error), status = 0;

	if (way < 0)
		return way;
	if (way == WAY_DIRECT)
		return reduce_direct(group, vector, &place, watch, error);
	if (way == WAY_UNSTAGED) {
		chunk = chunk_at(group, vector, 0, group->step + 1);
		stage(group, vector, &chunk);
		status = ddp_step(group, watch, error);
	}
	return status < 0 ? status : reduce_staged(group, vector, watch, error);
}

int ddp_group_all_reduce(struct ddp_group *group, const struct ddp_call *call, const void *send,
			 void *recv, double scale, const struct ddp_watch *watch,
			 struct ddp_error *error)
{
	struct vector vector = vector_of(group, call, send, recv, scale);
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

/* --- The two halves of an all-reduce ------------------------------------------------------------- */

/*
 * The two halves of an all-reduce. Groups must cut a vector alike, whatever their sizes and
 * wherever their members have it: pieces depend on count, type and slices alone.
 */

/* Equal pieces that fit a lane. */
static struct piece next_piece(const struct ddp_group *group, const struct vector *vector,
			       const struct ddp_group_pass *pass, uint32_t lane)
{
	size_t most = DDP_LANE_BYTES / vector->size, unit = DDP_ALIGN / vector->size;
	size_t pieces = (vector->count + most - 1) / most;
	size_t each = pieces ? (vector->count / pieces + unit) / unit * unit : 0;

	return (struct piece){
		.first = pass->at,
		.count = smaller(vector->count - pass->at, smaller(each, most)),
		.slices = pass->slices,
		.buffer = group->slots[group->index]->lanes[lane % DDP_LANES],
	};
}

static struct vector pass_vector(const struct ddp_group *group, const struct ddp_group_pass *pass,
				 double scale)
{
	return vector_of(group, pass->call, pass->send, pass->recv, scale);
}

static char *lane_of(struct ddp_group *group, int member)
{
	return group->slots[member]->lanes[group->lane % DDP_LANES];
}

/* --- The first half ------------------------------------------------------------------------ */

/* Into [to]: this member's part of recv, or its lane. */
static void sum_slice(struct ddp_group *group, const struct vector *vector, struct slice slice,
		      struct ddp_group_pass *pass, void *to)
{
	vector->kernel(&to, 1, group->from, group->size, slice.count, 1);
	pass->slice = to;
	pass->count = slice.count;
}

static void sum_direct(struct ddp_group *group, const struct vector *vector, struct slice slice,
		       struct ddp_group_pass *pass)
{
	const struct ddp_span *place = &group->place;

	for (int m = 0; m < group->size; m++)
		group->from[m] = ddp_span_memory(group, place->region, m, place->at) + slice.at;
	sum_slice(group, vector, slice, pass, vector->recv + slice.at);
}

static void sum_staged(struct ddp_group *group, const struct vector *vector,
		       const struct piece *piece, struct slice slice, struct ddp_group_pass *pass)
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
	struct vector vector = pass_vector(group, pass, 1);
	struct piece piece = next_piece(group, &vector, pass, ++group->lane);
	struct slice slice =
		slice_of(&vector, piece.first, piece.count, pass->slices, group->index);
	int way = meet(group, &vector, &piece, &group->place, watch, error);

	if (way < 0)
		return way;
	if (way == WAY_UNSTAGED) {
		int status;

		stage(group, &vector, &piece);
		status = ddp_step(group, watch, error);
		if (status < 0)
			return status;
	}
	group->direct = way == WAY_DIRECT;
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
static int publish_direct(struct ddp_group *group, const struct vector *vector,
			  const struct piece *piece, const struct ddp_watch *watch,
			  struct ddp_error *error)
{
	const struct ddp_span *place = &group->place;
	struct slice slice =
		slice_of(vector, piece->first, piece->count, piece->slices, group->index);
	const void *from = vector->recv + slice.at;

	for (int m = 0; m < group->size; m++)
		group->to[m] =
			ddp_span_memory(group, place->receives, m, place->receives_at) + slice.at;
	if (slice.count > 0)
		vector->kernel(group->to, group->size, &from, 1, slice.count, vector->scale);
	return ddp_step(group, watch, error);
}

/* Take all slices from their owners' lanes. */
static int publish_staged(struct ddp_group *group, const struct vector *vector,
			  const struct piece *piece, const struct ddp_watch *watch,
			  struct ddp_error *error)
{
	int status = ddp_step(group, watch, error);

	if (status < 0)
		return status;
	for (int m = 0; m < piece->slices; m++) {
		struct slice slice = slice_of(vector, piece->first, piece->count, piece->slices, m);
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
	struct vector vector = pass_vector(group, pass, pass->scale);
	struct piece piece = next_piece(group, &vector, pass, group->lane);
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
