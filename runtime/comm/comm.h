/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm.h - the handle and its collectives, for device/, gradient/ and state/
 *
 * comm/ implements the parts of ddp.h on the world and collectives. It calls store/, local/, wide/
 * and the directories below them. None of those directories calls comm/, except through a watch's
 * check() or another function pointer. gradient/ and state/ use a handle through ddp.h and this
 * header only. Start reading in world.c, then join.c.
 *
 *  world.c         ddp_init_with() to ddp_destroy()
 *  join.c          rendezvous, shared memory within nodes, topology, connections
 *  collective.c    collectives of host memory: within a group and between groups
 *  failure.c       how a failed rank's error reaches all other ranks
 *  compare.c recorder.c topology.c    need neither a store nor engines
 *  ddp-private.h   struct ddp, for these files and device/ only
 */
#ifndef DDP_COMM_H
#define DDP_COMM_H

#include "base/log.h"
#include "base/type.h"

/* --- Handle ------------------------------------------------------------------------------- */

/* Like ddp_init(). If ddp_options.device is set, [join_device] is called at the end. */
int ddp_init_with(struct ddp **ddp, const struct ddp_options *options,
		  int (*join_device)(struct ddp *ddp));

/*
 * A public call that fails ends with one of the next three functions. They store [status] and a
 * formatted text in the handle, and return [status]. But if the world has ended, in this call or
 * before, they return the status of the error that ended it, and the handle keeps that error.
 *
 * Call ddp_fail_with() if this rank fails, perhaps alone, for example because memory is short. It
 * ends the world. The other ranks get DDP_ERR_ABORTED with this rank's name and text. If [status]
 * belongs to the group "peer", the other ranks get [status] and the text unchanged.
 *
 * Call ddp_refuse() if this rank refuses the collective call [kind] because of its arguments or the
 * handle's state, instead of exchanging data. ddp_refuse() is a collective itself: if all ranks
 * refuse the call, the world continues; if a rank makes the call, all ranks get DDP_ERR_MISMATCH.
 *
 * Call ddp_report() if all ranks have agreed on the error, or if the call is not collective. The
 * world continues, unless [status] belongs to the group "peer".
 */
int ddp_fail_with(struct ddp *ddp, int status, const char *format, ...) DDP_FORMAT(3, 4);
int ddp_refuse(struct ddp *ddp, enum ddp_call_kind kind, int status, const char *format, ...)
	DDP_FORMAT(4, 5);
int ddp_report(struct ddp *ddp, int status, const char *format, ...) DDP_FORMAT(3, 4);

/*
 * Check that this process created [ddp], and did not inherit it as a forked child. Any thread may
 * call this function.
 * Returns 0, or DDP_ERR_STATE.
 */
int ddp_check_process(struct ddp *ddp);

/*
 * Check at the start of a collective that this process created the handle, that the handle has
 * joined the world, and that no rank was lost.
 * Returns 0, or the handle's error.
 */
int ddp_begin_call(struct ddp *ddp);

/*
 * Lock the handle. Each collective on host memory holds the lock. A thread that libddp has started
 * holds it from its first collective to its last. While the lock is held, another thread can call
 * ddp_abort() or ddp_exit(). These functions end the collective before they use the handle.
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

/* Like ddp_all_reduce(), but multiplies the result by [scale]. Only for floating-point types. */
int ddp_all_reduce_scaled(struct ddp *ddp, const void *send, void *recv, size_t count,
			  enum ddp_type type, enum ddp_op op, double scale);

/*
 * Returns the address, in this process, of [member]'s copy of [memory]: [memory] is in an arena,
 * and the copy has the same offset in [member]'s part of that arena.
 */
void *ddp_arena_of(const struct ddp *ddp, const void *memory, int member);

/* --- Comparisons (compare.c) -------------------------------------------------------------- */

enum { DDP_ITEM_LINE = 480 };

/* A list that must be equal on all ranks. */
struct ddp_items {
	const void *owner;
	size_t count;

	/*
	 * Function that returns a hash of item [i]. If [line] is not NULL, it also writes a
	 * description of the item to [line], which contains "nothing" before the call.
	 */
	uint64_t (*describe)(const void *owner, size_t i, char line[DDP_ITEM_LINE]);
};

/*
 * Check that all ranks have the same items in the same order. A difference ends the world.
 * Collective.
 * Returns 0; DDP_ERR_MISMATCH on all ranks, with the text "[what] 3: rank 0 has ..., rank 2 has
 * ..." in the handle; or the error of a collective.
 */
int ddp_compare(struct ddp *ddp, const char *what, const struct ddp_items *items);

/*
 * Returns the first rank whose [number] differs from rank 0's, or world.size if all numbers are
 * equal, or DDP_ERR_x. Collective.
 */
int ddp_find_differing(struct ddp *ddp, uint64_t number);

#endif /* DDP_COMM_H */
