/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm.h - the handle and its collectives, for gradient/ and state/
 *
 * comm/ implements the parts of ddp.h on the world, collectives and devices. It may call store/,
 * local/, wide/, device/ and the directories below them. None of those directories calls comm/,
 * except through a watch or a function pointer. gradient/ and state/ use a handle through ddp.h and
 * this header only. Start reading in world.c (ddp_init), then join.c.
 *
 *  world.c         ddp_init() to ddp_destroy()
 *  join.c          rendezvous, shared memory within nodes, topology, connections
 *  collective.c    collectives of host memory: within a group and between groups
 *  device-calls.c  collectives of device memory: by NCCL, or staged through host memory
 *  failure.c       how a failed rank's error reaches all other ranks
 *  compare.c recorder.c topology.c    need neither a store nor engines
 *  ddp-private.h   struct ddp, for these files only
 */
#ifndef DDP_COMM_H
#define DDP_COMM_H

#include "base/log.h"

/* --- Handle ------------------------------------------------------------------------------- */

/*
 * End a public call with [status] and a formatted text: store both in the handle. If the status is
 * of the group "peer", also report the error to the other ranks and write this rank's failure
 * record.
 * Returns [status].
 */
int ddp_fail_with(struct ddp *ddp, int status, const char *format, ...) DDP_FORMAT(3, 4);

/*
 * Check at the start of a collective that this rank has joined the world and that no rank was lost.
 * Returns 0, or the handle's error.
 */
int ddp_begin_call(struct ddp *ddp);

/*
 * A thread that libddp has started holds this lock during its collectives. Meanwhile the program may
 * call ddp_abort() or ddp_exit(), which end the collective before they use the handle.
 */
void ddp_lock(struct ddp *ddp);
void ddp_unlock(struct ddp *ddp);

/*
 * Allocate [size] zero bytes, aligned for any type. ddp_destroy() frees them.
 * Returns NULL if memory is short.
 */
void *ddp_keep(struct ddp *ddp, size_t size);

const struct ddp_log *ddp_handle_log(const struct ddp *ddp);

/* --- Collectives -------------------------------------------------------------------------- */

/* As ddp_all_reduce(), with the result multiplied by [scale] (floating-point types only). */
int ddp_all_reduce_scaled(struct ddp *ddp, const void *send, void *recv, size_t count,
			  enum ddp_type type, enum ddp_op op, double scale);

/*
 * Returns the address, in this process, of [member]'s memory at the same arena offset as [memory],
 * which must be in an arena.
 */
void *ddp_arena_of(const struct ddp *ddp, const void *memory, int member);

/* --- Comparisons (compare.c) -------------------------------------------------------------- */

enum { DDP_ITEM_LINE = 480 };

/* A list that must be equal on all ranks. */
struct ddp_items {
	const void *owner;
	size_t count;

	/*
	 * Returns a hash of item [i]. If [line] is not NULL, also writes a description of the item
	 * to [line]. [line] is "nothing" before the call.
	 */
	uint64_t (*describe)(const void *owner, size_t i, char line[DDP_ITEM_LINE]);
};

/*
 * Check that all ranks have the same items in the same order. A difference ends the world.
 * Collective.
 * Returns 0; DDP_ERR_MISMATCH with "[what] 3: rank 0 has ..., rank 2 has ..." on all ranks; or the
 * error of a collective. The text is in the handle.
 */
int ddp_compare(struct ddp *ddp, const char *what, const struct ddp_items *items);

/*
 * Returns the first rank whose [number] differs from rank 0's; world.size if no rank's does; or
 * DDP_ERR_x. Collective.
 */
int ddp_find_differing(struct ddp *ddp, uint64_t number);

/* --- Devices (device-calls.c) ------------------------------------------------------------- */

/*
 * Functions from which gradient/ builds sums in device memory; device-engine.h describes them. A
 * stream is a void pointer; NULL is the library's own stream. All functions but the first two need
 * ddp_device_join(); the last four also need staged collectives. A function that returns an int
 * returns 0 or a DDP_ERR_x, with its text in the handle.
 */

/* Returns the library's own stream; NULL before ddp_device_join(). */
void *ddp_device_stream(struct ddp *ddp);

/* Make [later] wait for the work enqueued on [earlier]. Does nothing before ddp_device_join(). */
int ddp_device_order(struct ddp *ddp, void *later, void *earlier);
int ddp_device_convert(struct ddp *ddp, void *stream, void *to, enum ddp_type to_type,
		       const void *from, enum ddp_type from_type, size_t count, double factor);
int ddp_device_count(struct ddp *ddp, void *stream, uint64_t *counter, uint64_t *word);
int ddp_device_copy(struct ddp *ddp, void *to, const void *from, size_t bytes, void *stream);
bool ddp_device_is_captured(struct ddp *ddp, void *stream);

/*
 * Wait until [word], which the device increments on [stream], has reached [value]. Fails at the
 * time limit.
 */
int ddp_device_await(struct ddp *ddp, void *stream, const uint64_t *word, uint64_t value);

/*
 * As ddp_arena_create(), for memory that the device can access as well. Fails on all ranks or on
 * none. Collective.
 */
int ddp_device_arena(struct ddp *ddp, size_t bytes, void **memory);

#endif /* DDP_COMM_H */
