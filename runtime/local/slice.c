/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "slice.h"

struct ddp_vector ddp_vector_of(const struct ddp_group *group, const struct ddp_call *call,
				const void *send, void *recv, double scale)
{
	enum ddp_type type = (enum ddp_type)call->type;

	return (struct ddp_vector){
		.send = send,
		.recv = recv,
		.count = call->count,
		.size = ddp_type_size(type),
		.scale = scale,
		.kernel = ddp_kernel_get(type, (enum ddp_op)call->op, group->simd),
	};
}

struct ddp_slice ddp_slice_of(const struct ddp_vector *vector, size_t first, size_t count,
			      int slices, int index)
{
	size_t unit = DDP_ALIGN / vector->size, units = (count + unit - 1) / unit;
	size_t each = (units + (size_t)slices - 1) / (size_t)slices * unit;
	size_t begin = ddp_smaller((size_t)index * each, count);
	size_t end = index < slices ? ddp_smaller(begin + each, count) : begin;

	return (struct ddp_slice){.at = (first + begin) * vector->size, .count = end - begin};
}

void ddp_piece_stage(const struct ddp_group *group, const struct ddp_vector *vector,
		     const struct ddp_piece *piece)
{
	struct ddp_slice own =
		ddp_slice_of(vector, piece->first, piece->count, piece->slices, group->index);
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

int ddp_piece_meet(struct ddp_group *group, const struct ddp_vector *vector,
		   const struct ddp_piece *piece, struct ddp_span *place,
		   const struct ddp_watch *watch, struct ddp_error *error)
{
	bool direct = true, staged = true;
	int status;

	*place = ddp_span_find(group, vector->send, vector->recv, vector->count * vector->size);
	if (!place->region || !place->receives) {
		ddp_piece_stage(group, vector, piece);
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
	return direct ? DDP_WAY_DIRECT : staged ? DDP_WAY_STAGED : DDP_WAY_UNSTAGED;
}
