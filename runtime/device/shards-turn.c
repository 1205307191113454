/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shards-turn.c - what the ranks of a shared GPU enqueue
 *
 * Everything is made of turns in memory that lies at one place on all ranks: the caller's, where
 * ddp_device_alloc() gave it, else the staging memory, through which it goes in pieces. So all ranks
 * take as many turns, or their descriptions differ and ddp_device_wait() says so.
 */
#include "config.h"

#include "base/checksum.h"
#include "shards.h"

/* Where a turn works. */
struct place {
	struct ddp_shards_memory *memory;
	size_t at;
	void *stream;
};

static int refuse_call(const struct ddp_device *device, const char *what, struct ddp_error *error)
{
	return ddp_error_set(error, DDP_ERR_ARGUMENT, "rank %d: %s", device->ddp->identity.rank,
			     what);
}

/* --- One turn ---------------------------------------------------------------------------- */

/*
 * A queue of a device has room for some hundreds of moves; a host that fills it hangs in the driver, where
 * nothing can end its wait for another rank. So it waits here, by a limit, before that.
 */
static int wait_for_room(struct ddp_device *device, struct ddp_error *error)
{
	uint32_t ahead = (uint32_t)(DDP_SHARDS_AHEAD / (device->members + 3));

	if (device->members == 1 || !device->busy)
		return 0;
	if (ahead > DDP_SHARD_KEPT / 2)
		ahead = DDP_SHARD_KEPT / 2;
	return ddp_shards_wait_turn(device, device->turn - ahead, error);
}

static int sum(struct ddp_device *device, const struct place *place,
	       const struct ddp_shards_call *call, bool all, struct ddp_error *error)
{
	void *to[DDP_SHARD_MEMBERS];
	const void *from[DDP_SHARD_MEMBERS];

	for (int member = 0; member < device->members; member++)
		from[member] = to[member] = (char *)place->memory->parts[member] + place->at;
	return device->engine->sum(device->gpu, place->stream, to, all ? device->members : 1, from,
				   device->members, call->count, call->type, call->op, error);
}

static int spread(struct ddp_device *device, const struct place *place,
		  const struct ddp_shards_call *call, struct ddp_error *error)
{
	const char *own = (char *)place->memory->base + place->at;
	size_t bytes = call->count * ddp_type_size(call->type);
	int status = 0;

	for (int member = 1; member < device->members && status == 0; member++)
		status = device->engine->copy(device->gpu, place->stream,
					      (char *)place->memory->parts[member] + place->at, own,
					      bytes, error);
	return status;
}

static int sum_wide(struct ddp_device *device, const struct place *place,
		    const struct ddp_shards_call *call, struct ddp_error *error)
{
	void *own = (char *)place->memory->base + place->at;
	int status = device->between->all_reduce(device->wide, own, own, call->count, call->type,
						 call->op, place->stream, error);

	return ddp_shards_explain(device, status, error);
}

/* A sum of nothing is a turn, too, so that it cannot be taken for another. */
static int make_move(struct ddp_device *device, const struct ddp_shard_move *move,
		     const struct place *place, const struct ddp_shards_call *call,
		     struct ddp_error *error)
{
	struct ddp_shard_word *words = device->page->words;

	switch (move->act) {
	case DDP_SHARD_WRITE:
		return device->engine->write(device->gpu, place->stream, &words[move->word],
					     move->value, error);
	case DDP_SHARD_WAIT:
		return device->engine->wait(device->gpu, place->stream, &words[move->word],
					    move->value, error);
	case DDP_SHARD_SUM:
		return call->count ? sum(device, place, call, move->all, error) : 0;
	case DDP_SHARD_WIDE:
		return call->count ? sum_wide(device, place, call, error) : 0;
	case DDP_SHARD_SPREAD:
		return call->count ? spread(device, place, call, error) : 0;
	}
	return 0;
}

/* Say what the turn is, to who compares it after its end. */
static void publish_turn(struct ddp_device *device, const struct place *place,
			 const struct ddp_shards_call *call)
{
	uint64_t words[] = {device->chain,	call->count,	       (uint64_t)call->type,
			    (uint64_t)call->op, place->memory->number, place->at};

	device->chain = ddp_hash(DDP_HASH_INIT, words, sizeof(words));
	device->calls[device->turn % DDP_SHARD_KEPT] = *call;
	ddp_shard_page_tell(device->page, device->member, device->turn, call->count, call->type,
			    call->op, device->chain);
}

static int take_turn(struct ddp_device *device, const struct place *place,
		     struct ddp_shards_call call, struct ddp_error *error)
{
	struct ddp_shard_move moves[DDP_SHARD_MOVES];
	int status = wait_for_room(device, error), count;

	if (status < 0)
		return status;
	device->turn++;
	device->busy = true;
	publish_turn(device, place, &call);
	count = ddp_shard_moves(device->members, device->member, ddp_shards_wide(device),
				device->turn, moves);
	for (int i = 0; i < count && status == 0; i++)
		status = make_move(device, &moves[i], place, &call, error);
	return status;
}

/* --- What collectives have in common ------------------------------------------------------- */

/*
 * Before the first turn of a collective on [stream]. Turns are in the order of one stream; that of the last
 * turn is left for another when it has ended.
 */
static int begin(struct ddp_device *device, void **stream, const char *what,
		 struct ddp_error *error)
{
	int status = ddp_shards_health(device, error);

	if (status < 0)
		return ddp_shards_fail(device, error);
	*stream = ddp_shards_stream(device, *stream);
	if (device->engine->captured(device->gpu, *stream))
		return ddp_error_set(
			error, DDP_ERR_STATE,
			"rank %d: %s on a stream that is captured: ranks that share a GPU cannot sum "
			"in a CUDA graph (ddp_device_captures() says so); enqueue it outside",
			device->ddp->identity.rank, what);
	if (device->busy && device->stream != *stream)
		status = ddp_shards_settle(device, error);
	device->stream = *stream;
	return status;
}

/* What was half enqueued would never end. */
static int end(struct ddp_device *device, int status, struct ddp_error *error)
{
	return status < 0 ? ddp_shards_fail(device, error) : 0;
}

/* Whether [bytes] at [pointer] lie in memory that all ranks have, at [place], and turns of [unit] can be there. */
static bool find_place(const struct ddp_device *device, const void *pointer, size_t bytes,
		       size_t unit, struct place *place)
{
	uintptr_t at = (uintptr_t)pointer;

	for (place->memory = device->memory; place->memory; place->memory = place->memory->next) {
		const struct ddp_shards_memory *memory = place->memory;
		uintptr_t base = (uintptr_t)memory->base;

		place->at = at - base;
		if (memory != device->staging && at >= base && place->at <= memory->bytes &&
		    bytes <= memory->bytes - place->at)
			return place->at % unit == 0;
	}
	return false;
}

static int copy(struct ddp_device *device, const struct place *place, void *to, const void *from,
		size_t bytes, struct ddp_error *error)
{
	if (to == from || bytes == 0)
		return 0;
	return device->engine->copy(device->gpu, place->stream, to, from, bytes, error);
}

/* What this rank brings to a vector that is zero elsewhere: [bytes] at [at]. */
struct part {
	const char *from;
	size_t at, bytes;
};

/* Fill [to], bytes [begin] to [end] of the vector, with what this rank has of them. */
static int fill(struct ddp_device *device, const struct place *place, const struct part *part,
		char *to, size_t begin, size_t end, struct ddp_error *error)
{
	size_t first = part->at < begin ? begin : part->at < end ? part->at : end;
	size_t last = part->at + part->bytes;
	int status = 0;

	last = last < first ? first : last < end ? last : end;
	if (first > begin)
		status = device->engine->zero(device->gpu, place->stream, to, first - begin, error);
	if (status == 0 && end > last)
		status = device->engine->zero(device->gpu, place->stream, to + (last - begin),
					      end - last, error);
	if (status == 0 && last > first)
		status = copy(device, place, to + (first - begin), part->from + (first - part->at),
			      last - first, error);
	return status;
}

/*
 * Through the staging memory, by pieces of which each is a turn, be there nothing in it. Where whole elements are more
 * than the bytes, what is behind these is nobody's.
 */
static int sum_staged(struct ddp_device *device, struct place place, const struct part *part,
		      char *recv, size_t bytes, enum ddp_type type, enum ddp_op op,
		      struct ddp_error *error)
{
	struct ddp_shards_call call = {0, type, op};
	size_t unit = ddp_type_size(type), at = 0, next;
	char *room = device->staging->base;
	int status;

	place.memory = device->staging;
	place.at = 0;
	do {
		next = bytes - at < DDP_SHARDS_PIECE ? bytes : at + DDP_SHARDS_PIECE;
		call.count = (next - at + unit - 1) / unit;
		status = fill(device, &place, part, room, at, next, error);
		if (status == 0)
			status = take_turn(device, &place, call, error);
		if (status == 0)
			status = copy(device, &place, recv + at, room, next - at, error);
		at = next;
	} while (at < bytes && status == 0);
	return status;
}

/* --- All-reduce -------------------------------------------------------------------------- */

int ddp_shards_all_reduce(struct ddp_device *device, const void *send, void *recv, size_t count,
			  enum ddp_type type, enum ddp_op op, void *stream, struct ddp_error *error)
{
	struct ddp_shards_call call = {count, type, op};
	struct part part = {.from = send};
	struct place place;
	size_t bytes;
	int status;

	if ((unsigned int)type >= DDP_TYPE_COUNT || (unsigned int)op >= DDP_OP_COUNT)
		return refuse_call(device, "all-reduce of an unknown type or operation", error);
	if (__builtin_mul_overflow(count, ddp_type_size(type), &bytes))
		return refuse_call(device, "all-reduce of more than there is memory", error);
	status = begin(device, &stream, "all-reduce", error);
	if (status < 0)
		return status;
	place.stream = stream;
	part.bytes = bytes;
	if (!find_place(device, recv, bytes, ddp_type_size(type), &place))
		return end(device, sum_staged(device, place, &part, recv, bytes, type, op, error),
			   error);
	status = copy(device, &place, recv, send, bytes, error);
	if (status == 0)
		status = take_turn(device, &place, call, error);
	return end(device, status, error);
}

/* --- Bytes of one rank for all ------------------------------------------------------------- */

/* In place: whole words, and then the bytes that are left. */
static int gather_direct(struct ddp_device *device, struct place place, const struct part *part,
			 char *recv, size_t bytes, struct ddp_error *error)
{
	struct ddp_shards_call words = {bytes / sizeof(int64_t), DDP_I64, DDP_SUM};
	struct ddp_shards_call rest = {bytes % sizeof(int64_t), DDP_U8, DDP_SUM};
	int status = fill(device, &place, part, recv, 0, bytes, error);

	if (status == 0 && words.count > 0)
		status = take_turn(device, &place, words, error);
	place.at += bytes - rest.count;
	if (status == 0 && rest.count > 0)
		status = take_turn(device, &place, rest, error);
	return status;
}

/* Every byte is that of the one rank that has it and zero on all others: sums of integers are exact. */
static int gather(struct ddp_device *device, const struct part *part, void *recv, size_t bytes,
		  void *stream, const char *what, struct ddp_error *error)
{
	struct place place;
	int status = begin(device, &stream, what, error);

	if (status < 0 || bytes == 0)
		return status;
	place.stream = stream;
	status = find_place(device, recv, bytes, sizeof(int64_t), &place)
			 ? gather_direct(device, place, part, recv, bytes, error)
			 : sum_staged(device, place, part, recv, bytes, DDP_I64, DDP_SUM, error);
	return end(device, status, error);
}

int ddp_shards_broadcast(struct ddp_device *device, void *data, size_t bytes, int root,
			 void *stream, struct ddp_error *error)
{
	struct part part = {.from = data};

	if (root < 0 || root >= device->ddp->identity.size)
		return refuse_call(device, "broadcast from a rank that does not exist", error);
	if (root == device->ddp->identity.rank)
		part.bytes = bytes;
	return gather(device, &part, data, bytes, stream, "broadcast", error);
}

int ddp_shards_all_gather(struct ddp_device *device, const void *send, void *recv, size_t bytes,
			  void *stream, struct ddp_error *error)
{
	struct part part = {send, (size_t)device->ddp->identity.rank * bytes, bytes};
	size_t total;

	if (__builtin_mul_overflow(bytes, (size_t)device->ddp->identity.size, &total))
		return refuse_call(device, "all-gather of more than there is memory", error);
	return gather(device, &part, recv, total, stream, "all-gather", error);
}
