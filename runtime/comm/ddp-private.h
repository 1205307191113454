/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ddp-private.h - what a struct ddp is made of
 *
 * For the files of comm/ and those above it (gradient/, state/), which use the functions of
 * ddp.h wherever these do.
 */
#ifndef DDP_COMM_PRIVATE_H
#define DDP_COMM_PRIVATE_H

#include "base/log.h"
#include "base/watch.h"
#include "local/group.h"
#include "store/store.h"
#include "topology.h"
#include "wide/ring.h"
#include "world/identity.h"

struct ddp_arena;
struct ddp_device;
struct ddp_device_engine;
struct ddp_kept;
struct ddp_recorder;

struct ddp {
	struct ddp_error error; /* the last one */
	struct ddp_log log;
	struct ddp_identity identity;
	struct ddp_world world;
	enum ddp_simd simd;
	double timeout;

	bool shares; /* memory with the ranks of this node, DDP_LOCAL */

	struct ddp_store *store;
	struct ddp_topology *topology; /* who is in which group */
	struct ddp_group *group;
	const struct ddp_host_engine *engine; /* NULL with one group */
	struct ddp_host *host;
	struct ddp_column column; /* of this rank; size 0 if it carries nothing */
	int *column_ranks;
	void *column_scratch;
	struct ddp_arena *arenas;
	struct ddp_device *device;
	const struct ddp_device_engine *device_engine;
	const struct ddp_device_engine *device_module; /* for what needs no peer, whoever sums */
	void (*leave_device)(struct ddp *ddp);	       /* where there is one */
	bool device_left; /* in a lost world: what was under way there has been ended */

	struct ddp_recorder *recorder;
	uint64_t sequence; /* of the last collective */
	uint64_t looked;   /* when the store was last asked for an abort */
	bool joined;	   /* ddp_init() succeeded */
	bool lost;	   /* an error of the group "peer" happened */

	char ticket[DDP_GROUP_TICKET];	    /* of the group's memory */
	char rank_name[DDP_HOST_NAME + 32]; /* ddp_rank_name() */

	struct ddp_kept *kept; /* ddp_keep() */
};

/* --- world.c ------------------------------------------------------------------------------ */

/*
 * [size] bytes, zeroed and aligned for any type, for a caller of ddp.h; they live until
 * ddp_destroy().
 * Returns NULL where memory is out.
 */
void *ddp_keep(struct ddp *ddp, size_t size);

/* --- collective.c ------------------------------------------------------------------------- */

/*
 * Before any collective: is there a world, and is it whole?
 * Returns 0, or the error that stands.
 */
int ddp_begin_call(struct ddp *ddp);

/* The member that this rank is in its group. */
int ddp_own_member(const struct ddp *ddp);

/* Free all arenas of [ddp]; waits for nobody. */
void ddp_arenas_free(struct ddp *ddp);

/*
 * An all-reduce with the result multiplied by [scale] (floating types): what ddp_all_reduce()
 * is with 1.
 */
int ddp_all_reduce_scaled(struct ddp *ddp, const void *send, void *recv, size_t count,
			  enum ddp_type type, enum ddp_op op, double scale);

/* --- compare.c ---------------------------------------------------------------------------- */

enum { DDP_ITEM_LINE = 480 };

/* What all ranks should have been given, one item after the other. */
struct ddp_items {
	const void *owner;
	size_t count;

	/* Returns a hash of item [i]; where [line] is given, which holds "nothing", it is told there. */
	uint64_t (*describe)(const void *owner, size_t i, char line[DDP_ITEM_LINE]);
};

/*
 * All ranks go on where they have the same items in the same order; else the world ends.
 * Collective. Returns 0; DDP_ERR_MISMATCH with "[what] 3: rank 0 has ..., rank 2 has ..." on all
 * ranks; or what a collective says. The text is in the handle.
 */
int ddp_compare(struct ddp *ddp, const char *what, const struct ddp_items *items);

/* The first rank whose [number] is not that of rank 0; world.size: none; or DDP_ERR_x. Collective. */
int ddp_find_odd(struct ddp *ddp, uint64_t number);

/* --- failure.c ---------------------------------------------------------------------------- */

/* The check of all watches of [owner], a struct ddp: has another rank given up, is one gone? */
int ddp_look_around(void *owner, struct ddp_error *error);

/* "rank 3 on n2"; the text holds until the next call. [owner] is a struct ddp. */
const char *ddp_rank_name(void *owner, int rank);

/* Tell the other ranks that this one gave up, if they can be told and do not know. */
void ddp_tell_failure(struct ddp *ddp);

/* Let one of the ranks that fail write and print the summary of all their records. */
void ddp_tell_summary(struct ddp *ddp);

/*
 * Let [status] and the text in ddp->error be the end of a public call: logs nothing, keeps the
 * error, and on one of the group "peer" tells the other ranks and writes the records.
 * Returns [status].
 */
int ddp_fail_call(struct ddp *ddp, int status);

/*
 * Leave the process with [status] and [text], which are not the end of a call: the others are told, and
 * records written, as ddp_exit() does. [owner] is a struct ddp that nobody else uses now.
 */
_Noreturn void ddp_end(void *owner, int status, const char *text);

#endif /* DDP_COMM_PRIVATE_H */
