/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reduce.c - collectives of a group: all-reduce and its two halves, broadcast, all-gather, barrier
 */
#include "config.h"

#include "group-private.h"

/* --- Vectors and slices ------------------------------------------------------------------- */

struct vector {
	const char *send;
	char *recv;
	size_t count, size; /* number of elements, and bytes of each */
	double scale;
	ddp_kernel *kernel;
};

struct slice {
	size_t at;    /* offset of the slice in the vector, in bytes */
	size_t count; /* number of elements */
};

struct piece {
	size_t first, count;
	int slices;
	char *buffer; /* this member's buffer, to which it copies (stages) the piece */
};

enum path {
	PATH_DIRECT, /* the vectors of all members are at the same offset of the same region */
	PATH_STAGED, /* all members have staged the piece */
	/* some members have staged the piece; the vectors of the other members are in regions */
	PATH_UNSTAGED,
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
 * Returns slice [index] of [count] elements, which begin with element [first]. The elements are
 * divided into [slices], with boundaries between cache lines. The last slices may be empty. A slice
 * whose index is [slices] or more is empty, too.
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

/* Copy the piece to this member's buffer, for the other members. Omits this member's own slice. */
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

static bool is_same_place(const struct ddp_span *a, const struct ddp_span *b)
{
	return a->region == b->region && a->receives == b->receives && a->at == b->at &&
	       a->receives_at == b->receives_at && a->staged == b->staged;
}

/*
 * First step of a long vector: publish the vector's location; if it is not in a region, stage
 * [piece].
 * Returns an enum path, which is the same on all members, with this member's [place]; or an error.
 */
static int choose_path(struct ddp_group *group, const struct vector *vector,
		       const struct piece *piece, struct ddp_span *place,
		       const struct ddp_watch *watch, struct ddp_error *error)
{
	bool direct = true, staged = true;
	int status;

	*place = ddp_span_find(group, vector->send, vector->recv, vector->count * vector->size);
	if (!place->region || !place->receives) {
		stage(group, vector, piece);
		*place = (struct ddp_span){.staged = 1};
	}
	memcpy(ddp_step_line(group)->payload, place, sizeof(*place));
	status = ddp_step(group, watch, error);
	if (status < 0)
		return status;
	for (int m = 0; m < group->size; m++) {
		struct ddp_span other = *place;

		if (m != group->index)
			memcpy(&other, ddp_step_other(group, m)->payload, sizeof(other));
		direct = direct && !other.staged && is_same_place(&other, place);
		staged = staged && other.staged;
	}
	return direct ? PATH_DIRECT : staged ? PATH_STAGED : PATH_UNSTAGED;
}

/* --- Short vectors: every member reduces the whole vector --------------------------------- */

/*
 * Reduce a vector in one step. Each member's vector is in the member's line or buffer. The next
 * step uses another line and buffer, so no second step is needed before they are written again.
 */
static int reduce_short(struct ddp_group *group, const struct vector *vector,
			const struct ddp_watch *watch, struct ddp_error *error)
{
	size_t bytes = vector->count * vector->size;
	bool fits = bytes <= DDP_LINE_PAYLOAD;
	void *to = vector->recv;
	int status;

	memcpy(fits ? ddp_step_line(group)->payload
		    : ddp_step_buffer(group, group->index, group->step + 1),
	       vector->send, bytes);
	/* expect that the next call is a short all-reduce as well */
	group->expected = fits ? 0 : bytes;
	status = ddp_step(group, watch, error);
	group->expected = 0;
	if (status < 0)
		return status;
	for (int m = 0; m < group->size; m++)
		group->from[m] = fits ? ddp_step_other(group, m)->payload
				      : ddp_step_buffer(group, m, group->step);
	vector->kernel(&to, 1, group->from, group->size, vector->count, vector->scale);
	return 0;
}

/* --- Long vectors in regions: each member reduces one slice for all ----------------------- */

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

/* --- Other long vectors: chunk by chunk through the buffers ------------------------------- */

/* Returns the chunk that begins with element [first], in this member's buffer of [step]. */
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

/*
 * Reduce this member's slice of the staged chunk. The result goes to this member's recv and buffer.
 */
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

/* Copy the other members' reduced slices of the chunk from their buffers of [step]. */
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

/*
 * Reduce a vector chunk by chunk. Before the call, the first chunk is staged. Each step publishes
 * the sums of one chunk and the staged data of the next chunk.
 */
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
	int path = choose_path(group, vector, &chunk, &place, watch, error), status = 0;

	if (path < 0)
		return path;
	if (path == PATH_DIRECT)
		return reduce_direct(group, vector, &place, watch, error);
	if (path == PATH_UNSTAGED) {
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

/* --- All-reduce in two halves ------------------------------------------------------------- */

/*
 * All groups must divide a vector into the same pieces, although their sizes and the locations of
 * their vectors may differ. Therefore the pieces depend only on count, type and number of slices.
 */

/* Returns the next piece. The vector is divided into equal pieces that fit into a lane. */
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

/* --- First half --------------------------------------------------------------------------- */

/* Sum this member's slice over the group into [to], which is in recv or in this member's lane. */
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
	int path = choose_path(group, &vector, &piece, &group->place, watch, error);

	if (path < 0)
		return path;
	if (path == PATH_UNSTAGED) {
		int status;

		stage(group, &vector, &piece);
		status = ddp_step(group, watch, error);
		if (status < 0)
			return status;
	}
	group->direct = path == PATH_DIRECT;
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

/* --- Second half -------------------------------------------------------------------------- */

/* Write this member's slice to all members' recv. After the step, all slices have been written. */
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

/* Copy each slice from the lane of the member that owns the slice. */
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

/* Returns [member]'s data of the last step: in its line if [bytes] fit, else in its buffer. */
static const void *payload(struct ddp_group *group, int member, size_t bytes)
{
	return bytes <= DDP_LINE_PAYLOAD ? ddp_step_other(group, member)->payload
					 : ddp_step_buffer(group, member, group->step);
}

/* Returns the memory to which this member writes its data of the next step. */
static void *next_payload(struct ddp_group *group, size_t bytes)
{
	return bytes <= DDP_LINE_PAYLOAD ? ddp_step_line(group)->payload
					 : ddp_step_buffer(group, group->index, group->step + 1);
}

static struct ddp_span publish_span(struct ddp_group *group, const void *data, size_t bytes)
{
	struct ddp_span place = ddp_span_find(group, data, data, bytes);

	memcpy(ddp_step_line(group)->payload, &place, sizeof(place));
	return place;
}

static struct ddp_span read_span(struct ddp_group *group, int member)
{
	struct ddp_span place;

	memcpy(&place, ddp_step_other(group, member)->payload, sizeof(place));
	return place;
}

static size_t piece_of(size_t bytes, size_t at)
{
	return bytes - at < DDP_BUFFER_BYTES ? bytes - at : DDP_BUFFER_BYTES;
}

/* --- Broadcast ---------------------------------------------------------------------------- */

/* Broadcast through the buffers of [root], one piece per step. */
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

/*
 * Broadcast data that is longer than a buffer. If the root's data is in a region, the other members
 * copy it from there.
 */
static int broadcast_long(struct ddp_group *group, char *data, size_t bytes, int root,
			  const struct ddp_watch *watch, struct ddp_error *error)
{
	struct ddp_span place;
	int status;

	publish_span(group, data, bytes);
	status = ddp_step(group, watch, error);
	if (status < 0)
		return status;
	place = read_span(group, root);
	if (!place.region)
		return broadcast_pieces(group, data, bytes, root, watch, error);
	if (group->index != root)
		memcpy(data, ddp_span_memory(group, place.region, root, place.at), bytes);
	/* once this step has ended, the root can overwrite its data */
	return ddp_step(group, watch, error);
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

/*
 * Gather data that is longer than a buffer. If all members' data is in regions, members copy it
 * from there.
 */
static int gather_long(struct ddp_group *group, const char *send, char *recv, size_t bytes,
		       const struct ddp_watch *watch, struct ddp_error *error)
{
	int status;

	publish_span(group, send, bytes);
	status = ddp_step(group, watch, error);
	if (status < 0)
		return status;
	for (int m = 0; m < group->size; m++)
		if (!read_span(group, m).region)
			return gather_pieces(group, send, recv, bytes, watch, error);
	for (int m = 0; m < group->size; m++) {
		struct ddp_span place = read_span(group, m);

		if (m != group->index)
			memcpy(recv + (size_t)m * bytes,
			       ddp_span_memory(group, place.region, m, place.at), bytes);
	}
	/* once this step has ended, the members can overwrite their data */
	return ddp_step(group, watch, error);
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
