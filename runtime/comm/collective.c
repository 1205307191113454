/* SPDX-License-Identifier: Apache-2.0 */
/* collective.c - arenas, and collectives on host memory: within groups of ranks and between them */
#include "config.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "ddp-private.h"
#include "recorder.h"

/* --- Arenas ------------------------------------------------------------------------------ */

struct ddp_arena {
	struct ddp_arena *next;
	void *memory;
	struct ddp_region *region;
};

static void arena_free(struct ddp_arena *arena)
{
	ddp_region_destroy(arena->region);
	free(arena);
}

int ddp_agree_size(struct ddp *ddp, const char *what, size_t bytes)
{
	int64_t limits[2] = {(int64_t)bytes, ~(int64_t)bytes};
	int status = ddp_all_reduce(ddp, limits, limits, 2, DDP_I64, DDP_MAX);

	if (status < 0 || limits[0] == ~limits[1])
		return status;
	return ddp_error_set(&ddp->error, DDP_ERR_MISMATCH,
			     "%s got %lld bytes on one rank, but %lld on another", what,
			     (long long)limits[0], (long long)~limits[1]);
}

/*
 * Returns the bytes that each member contributes to a group-wide allocation. The members' parts are
 * contiguous, in member order.
 */
static size_t part_of(const struct ddp *ddp, size_t bytes)
{
	const struct ddp_topology *topology = ddp->topology;
	int group = topology->places[ddp->identity.rank].group;
	size_t members = (size_t)ddp_topology_members(topology, group);

	return bytes / members + (bytes % members != 0);
}

/*
 * Agree on the results of creating the groups' regions. [status] is the result of this group.
 * Returns 0 if all groups have created their regions; otherwise returns an error on all ranks.
 */
static int agree_on_region(struct ddp *ddp, int status)
{
	if (!ddp->engine || ddp_is_peer_error(status))
		return status;
	return ddp_agree(ddp, status, ddp->error.text);
}

/* Create an arena. Set [memory] to this member's part; if [shared], to the start of the arena. */
static int create_arena(struct ddp *ddp, size_t bytes, bool shared, void **memory)
{
	struct ddp_arena *arena;
	struct ddp_watch watch;
	size_t part;
	int status;

	*memory = NULL;
	status = ddp_begin_call(ddp);
	if (status < 0)
		return status;
	arena = calloc(1, sizeof(*arena));
	if (!arena)
		return ddp_fail_with(ddp, DDP_ERR_MEMORY, "ddp_arena_create: out of memory");
	part = shared ? part_of(ddp, bytes) : bytes;
	status = ddp_agree_size(ddp, "ddp_arena_create", bytes);
	if (status == 0) {
		watch = ddp->watch;
		part = part ? part : 1;
		status = shared ? ddp_region_reserve(&arena->region, ddp->group, part, &watch,
						     &ddp->error)
				: ddp_region_create(&arena->region, ddp->group, part, &watch,
						    &ddp->error);
		status = agree_on_region(ddp, status);
	}
	if (status < 0) {
		ddp_region_destroy(arena->region);
		free(arena);
		return ddp_report_call(ddp, status);
	}
	arena->memory = ddp_region_part(arena->region, shared ? 0 : ddp_own_member(ddp));
	arena->next = ddp->arenas;
	ddp->arenas = arena;
	*memory = arena->memory;
	return 0;
}

int ddp_arena_create(struct ddp *ddp, size_t bytes, void **memory)
{
	return create_arena(ddp, bytes, false, memory);
}

int ddp_shared_create(struct ddp *ddp, size_t bytes, void **memory)
{
	return create_arena(ddp, bytes, true, memory);
}

int ddp_arena_destroy(struct ddp *ddp, void *memory)
{
	struct ddp_arena **link = &ddp->arenas;
	struct ddp_arena *arena;
	int status;

	if (!memory)
		return 0;
	status = ddp_check_process(ddp);
	if (status < 0)
		return status;
	while (*link && (*link)->memory != memory)
		link = &(*link)->next;
	if (!*link)
		return ddp_refuse(ddp, DDP_CALL_REFUSED_ARENA_DESTROY, DDP_ERR_ARGUMENT,
				  "%p is not an arena", memory);
	status = ddp_barrier(ddp); /* other members may still read the memory */
	arena = *link;
	*link = arena->next;
	arena_free(arena);
	return status;
}

void *ddp_arena_of(const struct ddp *ddp, const void *memory, int member)
{
	size_t at;
	struct ddp_region *region = ddp_region_find(ddp->group, memory, 1, &at);

	return (char *)ddp_region_part(region, member) + at;
}

void ddp_arenas_free(struct ddp *ddp)
{
	struct ddp_arena *next;

	for (struct ddp_arena *arena = ddp->arenas; arena; arena = next) {
		next = arena->next;
		arena_free(arena);
	}
	ddp->arenas = NULL;
}

/* --- Collectives ------------------------------------------------------------------------- */

/*
 * Every collective has two levels: one exchange among the members of each group, and one between
 * the groups, in columns (topology.h).
 *
 * If rank A waits for B, and B waits for a missing rank C, then B must time out before A: A would
 * report B as missing. Therefore waits for other groups have a longer limit than waits within a
 * group. A rank that waits for other groups also announces this to its group (ddp_group_away()).
 */

/* Seconds by which the limit of waits for other groups exceeds that of waits within the group. */
#define GRACE_WIDE 1.0

struct step {
	struct ddp *ddp;
	struct ddp_call call;
	struct ddp_column_call column;
	struct ddp_watch watch, wide;
};

int ddp_own_member(const struct ddp *ddp)
{
	return ddp->topology->places[ddp->identity.rank].member;
}

static int own_group(const struct ddp *ddp)
{
	return ddp->topology->places[ddp->identity.rank].group;
}

static bool has_column(const struct ddp *ddp)
{
	return ddp->column.size > 1;
}

int ddp_begin_call(struct ddp *ddp)
{
	if (ddp_check_process(ddp) < 0)
		return DDP_ERR_STATE;
	if (!ddp->topology && !ddp->error.status)
		return ddp_error_set(&ddp->error, DDP_ERR_STATE,
				     "this handle has not joined a world");
	if (ddp->lost)
		return ddp_fail_call(ddp, ddp->end.status);
	return ddp->topology ? 0 : ddp->error.status;
}

static uint32_t hash_call(const struct ddp_call *call, int root)
{
	uint64_t words[4] = {call->type, call->op, call->count, (uint64_t)root};
	uint64_t hash =
		ddp_hash(DDP_HASH_INIT, words, sizeof(words)) >> (64 - DDP_COLUMN_HASH_BITS);

	if (ddp_call_is_refusal(call->kind))
		hash = call->count % (1u << DDP_COLUMN_HASH_BITS);
	return call->kind << DDP_COLUMN_HASH_BITS | (uint32_t)hash;
}

static int begin(struct step *step, struct ddp *ddp, struct ddp_call call, int root)
{
	int status = ddp_begin_call(ddp);

	if (status < 0)
		return status;
	ddp_lock(ddp); /* end() unlocks it */
	step->ddp = ddp;
	step->call = call;
	step->call.name = ddp_call_name(call.kind);
	step->call.sequence = ++ddp->sequence;
	step->watch = ddp->watch;
	if (ddp->engine) {
		step->wide = ddp_watch_later(&step->watch, GRACE_WIDE);
		step->column = (struct ddp_column_call){
			.sequence = (uint32_t)step->call.sequence,
			.check = hash_call(&call, root),
			.name = step->call.name,
		};
	}
	ddp_recorder_begin(ddp->recorder, &step->call);
	return 0;
}

static int end(struct step *step, int status)
{
	struct ddp *ddp = step->ddp;

	ddp_recorder_end(ddp->recorder, status);
	if (status == 0 && ddp->sequence >= ddp->slow.next)
		status = ddp_slow_exchange(ddp);
	status = ddp_fail_call(ddp, status);
	ddp_unlock(ddp);
	return status;
}

/* Announce to this rank's group that this rank will now wait for other groups. */
static void leave_group(struct step *step)
{
	ddp_group_away(step->ddp->group, true);
}

/*
 * Call this after the wait, with its result. After an error this rank stays marked as away, so that
 * its group does not report it as missing before it has published the error.
 */
static int return_to_group(struct step *step, int status)
{
	if (status == 0)
		ddp_group_away(step->ddp->group, false);
	return status;
}

/* --- Barrier ----------------------------------------------------------------------------- */

static int barrier(struct step *step)
{
	struct ddp *ddp = step->ddp;
	int status = ddp_group_barrier(ddp->group, &step->call, &step->watch, &ddp->error);

	if (!ddp->engine || status < 0)
		return status;
	if (has_column(ddp) && ddp_own_member(ddp) == 0) {
		leave_group(step);
		status = return_to_group(step, ddp_column_barrier(&ddp->column, &step->column,
								  &step->wide, &ddp->error));
	}
	if (status == 0)
		status = ddp_group_barrier(ddp->group, &step->call, &step->watch, &ddp->error);
	return status;
}

static int call_barrier(struct ddp *ddp, enum ddp_call_kind kind)
{
	struct step step;
	int status = begin(&step, ddp, (struct ddp_call){.kind = kind}, 0);

	return status < 0 ? status : end(&step, barrier(&step));
}

int ddp_barrier(struct ddp *ddp)
{
	return call_barrier(ddp, DDP_CALL_BARRIER);
}

int ddp_last_barrier(struct ddp *ddp)
{
	return call_barrier(ddp, DDP_CALL_LEAVE);
}

int ddp_refuse(struct ddp *ddp, enum ddp_call_kind kind, int status, const char *format, ...)
{
	char reason[DDP_ERROR_SIZE], name[DDP_ERROR_SIZE];
	struct step step;
	va_list arguments;
	int failed;

	va_start(arguments, format);
	vsnprintf(reason, sizeof(reason), format, arguments);
	va_end(arguments);
	/* Ranks that wait for NCCL learn from this count that this rank does not take part. */
	failed = begin(&step, ddp, (struct ddp_call){.kind = kind, .count = ddp->device_calls}, 0);
	if (failed < 0)
		return failed;
	/*
	 * Messages of this rank and its group contain this name. The recorder keeps the short one.
	 */
	snprintf(name, sizeof(name), "%s (refused: %.900s)", ddp_call_name(kind), reason);
	step.call.name = step.column.name = name;
	failed = end(&step, barrier(&step));
	if (failed < 0)
		return failed;
	return ddp_report(ddp, status, "%s: %.900s", ddp_call_name(kind), reason);
}

/* --- All-reduce -------------------------------------------------------------------------- */

/* Reduce the vector in place, without slices. Used if each group has one rank. */
static int reduce_alone(struct step *step, const void *send, void *recv, double scale)
{
	struct ddp *ddp = step->ddp;
	const struct ddp_call *call = &step->call;
	enum ddp_type type = (enum ddp_type)call->type;
	enum ddp_op op = (enum ddp_op)call->op;
	const void *const from[1] = {recv};
	void *const to[1] = {recv};
	int status;

	if (send != recv)
		memmove(recv, send, call->count * ddp_type_size(type));
	status = ddp_column_all_reduce(&ddp->column, &step->column, recv, call->count, type, op,
				       &step->wide, &ddp->error);
	if (status == 0 && scale != 1)
		ddp_kernel_get(type, op, ddp->simd)(to, 1, from, 1, call->count, scale);
	return status;
}

static int reduce_slice(struct step *step, void *slice, size_t count)
{
	struct ddp *ddp = step->ddp;

	leave_group(step);
	return return_to_group(step, ddp_column_all_reduce(&ddp->column, &step->column, slice,
							   count, (enum ddp_type)step->call.type,
							   (enum ddp_op)step->call.op, &step->wide,
							   &ddp->error));
}

static int reduce_two_levels(struct step *step, const void *send, void *recv, double scale)
{
	struct ddp *ddp = step->ddp;
	struct ddp_group_pass pass = {.call = &step->call,
				      .send = send,
				      .recv = recv,
				      .scale = scale,
				      .slices = ddp->topology->columns};
	int status;

	do {
		status = ddp_group_reduce(ddp->group, &pass, &step->watch, &ddp->error);
		if (status == 0 && pass.slice && pass.count > 0)
			status = reduce_slice(step, pass.slice, pass.count);
		if (status == 0)
			status = ddp_group_publish(ddp->group, &pass, &step->watch, &ddp->error);
	} while (status == 0 && !pass.done);
	return status;
}

static int all_reduce(struct step *step, const void *send, void *recv, double scale)
{
	struct ddp *ddp = step->ddp;

	if (!ddp->engine)
		return ddp_group_all_reduce(ddp->group, &step->call, send, recv, scale,
					    &step->watch, &ddp->error);
	/* All groups must choose the same function, or the sizes of their messages would differ. */
	if (ddp->topology->groups == ddp->topology->size)
		return reduce_alone(step, send, recv, scale);
	return reduce_two_levels(step, send, recv, scale);
}

int ddp_all_reduce_scaled(struct ddp *ddp, const void *send, void *recv, size_t count,
			  enum ddp_type type, enum ddp_op op, double scale)
{
	struct ddp_call call = {
		.kind = DDP_CALL_ALL_REDUCE, .type = type, .op = op, .count = count};
	struct step step;
	int status;

	if (!ddp_type_size(type) || op >= DDP_OP_COUNT)
		return ddp_refuse(ddp, DDP_CALL_REFUSED_ALL_REDUCE, DDP_ERR_ARGUMENT,
				  "type %d or operation %d does not exist", (int)type, (int)op);
	status = begin(&step, ddp, call, 0);
	return status < 0 ? status : end(&step, all_reduce(&step, send, recv, scale));
}

int ddp_all_reduce(struct ddp *ddp, const void *send, void *recv, size_t count, enum ddp_type type,
		   enum ddp_op op)
{
	return ddp_all_reduce_scaled(ddp, send, recv, count, type, op, 1);
}

/* --- Broadcast --------------------------------------------------------------------------- */

/*
 * Broadcast in three steps: within the root's group; then from member 0 of that group to member 0
 * of each other group; then within the other groups.
 */
static int broadcast(struct step *step, void *buffer, size_t bytes, int root)
{
	struct ddp *ddp = step->ddp;
	const struct ddp_place *place = &ddp->topology->places[root];
	bool in_roots_group = own_group(ddp) == place->group;
	int status = 0;

	if (in_roots_group)
		status = ddp_group_broadcast(ddp->group, &step->call, buffer, bytes, place->member,
					     &step->watch, &ddp->error);
	if (status < 0 || !ddp->engine)
		return status;
	if (has_column(ddp) && ddp_own_member(ddp) == 0) {
		leave_group(step);
		status = return_to_group(step, ddp_column_broadcast(&ddp->column, &step->column,
								    buffer, bytes, place->group,
								    &step->wide, &ddp->error));
	}
	if (status == 0 && !in_roots_group)
		status = ddp_group_broadcast(ddp->group, &step->call, buffer, bytes, 0,
					     &step->watch, &ddp->error);
	return status;
}

int ddp_broadcast(struct ddp *ddp, void *buffer, size_t bytes, int root)
{
	struct ddp_call call = {.kind = DDP_CALL_BROADCAST, .type = (uint32_t)root, .count = bytes};
	struct step step;
	int status;

	if (root < 0 || root >= ddp->world.size)
		return ddp_refuse(ddp, DDP_CALL_REFUSED_BROADCAST, DDP_ERR_ARGUMENT,
				  "root %d is not one of %d ranks", root, ddp->world.size);
	status = begin(&step, ddp, call, root);
	return status < 0 ? status : end(&step, broadcast(&step, buffer, bytes, root));
}

/* --- All-gather -------------------------------------------------------------------------- */

/* Copy the ranks' parts from [from], sorted by group and member, to [to], sorted by rank. */
static void sort_parts(const struct ddp_topology *topology, const char *from, char *to,
		       size_t bytes)
{
	for (int i = 0; i < topology->size; i++)
		memcpy(to + (size_t)topology->ranks[i] * bytes, from + (size_t)i * bytes, bytes);
}

static int gather_columns(struct step *step, char *parts, size_t bytes)
{
	struct ddp *ddp = step->ddp;
	const struct ddp_topology *topology = ddp->topology;
	size_t *offsets = calloc((size_t)topology->groups + 1, sizeof(*offsets));
	int status;

	if (!offsets)
		return ddp_error_set(&ddp->error, DDP_ERR_MEMORY, "all-gather: no memory");
	for (int group = 0; group <= topology->groups; group++)
		offsets[group] = (size_t)topology->first[group] * bytes;
	leave_group(step);
	status = return_to_group(step, ddp_column_all_gather(&ddp->column, &step->column, parts,
							     offsets, &step->wide, &ddp->error));
	free(offsets);
	return status;
}

static int all_gather(struct step *step, const void *send, void *recv, size_t bytes)
{
	struct ddp *ddp = step->ddp;
	const struct ddp_topology *topology = ddp->topology;
	size_t total = bytes * (size_t)topology->size;
	char *parts = malloc(total ? total : 1);
	char *own;
	int status;

	if (!parts)
		return ddp_error_set(&ddp->error, DDP_ERR_MEMORY,
				     "all-gather: no memory for %zu bytes", total);
	own = parts + (size_t)topology->first[own_group(ddp)] * bytes;
	status = ddp_group_all_gather(ddp->group, &step->call, send, own, bytes, &step->watch,
				      &ddp->error);
	if (status == 0 && ddp->engine) {
		if (has_column(ddp) && ddp_own_member(ddp) == 0)
			status = gather_columns(step, parts, bytes);
		if (status == 0)
			status = ddp_group_broadcast(ddp->group, &step->call, parts, total, 0,
						     &step->watch, &ddp->error);
	}
	if (status == 0)
		sort_parts(topology, parts, recv, bytes);
	free(parts);
	return status;
}

int ddp_all_gather(struct ddp *ddp, const void *send, void *recv, size_t bytes)
{
	struct ddp_call call = {.kind = DDP_CALL_ALL_GATHER, .count = bytes};
	struct step step;
	size_t total;
	int status;

	if (__builtin_mul_overflow(bytes, (size_t)ddp->world.size, &total))
		return ddp_refuse(ddp, DDP_CALL_REFUSED_ALL_GATHER, DDP_ERR_ARGUMENT,
				  "%zu bytes of each of %d ranks are too many", bytes,
				  ddp->world.size);
	status = begin(&step, ddp, call, 0);
	return status < 0 ? status : end(&step, all_gather(&step, send, recv, bytes));
}

/*
 * First agrees on numbers, so that usually no text is sent. Also called after a rank has lost a
 * peer on a device: the collectives then fail with the error of this or another rank, which names
 * the lost rank.
 */
int ddp_agree(struct ddp *ddp, int status, const char *text)
{
	int64_t sum = -1, least[3];
	struct ddp_error verdict;
	int first = ddp->identity.rank;

	memset(&verdict, 0, sizeof(verdict));
	if (status < 0) {
		ddp_error_set(&verdict, status, "%s", text ? text : ddp_strerror(status));
		sum = ddp_crc32c(0, verdict.text, strlen(verdict.text));
	}
	least[0] = status < 0 ? first : INT64_MAX;
	least[1] = sum;
	least[2] = -sum;
	status = ddp_all_reduce(ddp, least, least, 3, DDP_I64, DDP_MIN);
	if (status < 0 || least[0] == INT64_MAX)
		return status;
	first = (int)least[0];
	status = ddp_broadcast(ddp, &verdict, sizeof(verdict), first);
	if (status < 0)
		return status;
	if (least[1] == -least[2]) /* all failed ranks have the same text */
		return ddp_report(ddp, verdict.status, "%s", verdict.text);
	return ddp_report(ddp, verdict.status, "%s: %.900s", ddp_rank_name(ddp, first),
			  verdict.text);
}
