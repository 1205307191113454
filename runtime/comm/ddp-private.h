/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ddp-private.h - struct ddp
 *
 * For comm/ only; comm.h has the interface for the directories above.
 */
#ifndef DDP_COMM_PRIVATE_H
#define DDP_COMM_PRIVATE_H

#include "base/log.h"
#include "base/watch.h"
#include "comm.h"
#include "local/group.h"
#include "store/store.h"
#include "topology.h"
#include "wide/ring.h"
#include "world/identity.h"

struct ddp_arena;
struct ddp_device;
struct ddp_device_block;
struct ddp_device_engine;
struct ddp_kept;
struct ddp_pace;
struct ddp_recorder;

/* State of slow-rank.c. */
struct ddp_slow {
	/* numbers of the collectives with the last and the next exchange of times */
	uint64_t last, next;
	/* the slow rank, and the number of successive exchanges in which its host had one */
	int rank, times;
	time_t since;
	uint64_t logged_ms; /* time of the last warning, in milliseconds of ddp_now(); 0: none */
	/* for an exchange; allocated at the start, since no rank may fail alone in a collective */
	struct ddp_pace *paces;
};

struct ddp {
	struct ddp_error error; /* the last error */
	struct ddp_log log;
	struct ddp_identity identity;
	struct ddp_world world;
	enum ddp_simd simd;
	double timeout;

	enum ddp_sharing sharing; /* DDP_LOCAL */
	bool shares;		  /* this rank shares memory with the other ranks of its node */
	/* why this rank cannot share memory; "": it can, or need not */
	char not_shared[DDP_ERROR_SIZE];

	struct ddp_store *store;
	struct ddp_topology *topology; /* groups, columns and their members */
	struct ddp_group *group;
	const struct ddp_host_engine *engine; /* NULL with one group */
	struct ddp_host *host;
	/* this rank's column; size 0: this rank sends nothing to other groups */
	struct ddp_column column;
	int *column_ranks;
	void *column_scratch;
	struct ddp_arena *arenas;
	struct ddp_device *device;
	const struct ddp_device_engine *device_engine;
	void (*leave_device)(struct ddp *ddp); /* closes [device]; NULL: no device was opened */
	char *staged;	       /* pinned buffer of staged collectives; NULL: NCCL is used */
	char device_path[192]; /* ddp_device_path() */
	uint64_t device_bytes; /* of the device's memory */
	struct ddp_device_block *device_blocks; /* memory of ddp_device_alloc() */
	bool device_left; /* the world is lost, and pending work on the device has been aborted */

	struct ddp_recorder *recorder;
	struct ddp_slow slow;
	uint64_t sequence;	/* number of the last collective */
	uint64_t store_checked; /* time of the last check for an abort in the store */
	bool joined;		/* ddp_init() succeeded */
	bool lost;		/* an error of the group "peer" happened */

	char ticket[DDP_GROUP_TICKET]; /* key to the group's shared memory */
	char transport[128];
	char rank_name[DDP_HOST_NAME + 32]; /* result of ddp_rank_name() */

	struct ddp_kept *kept; /* memory of ddp_keep() */
};

/* --- join.c ------------------------------------------------------------------------------- */

/*
 * Join the world by rendezvous method [method], NULL: DDP_METHOD or what works.
 * Returns 0; or a DDP_ERR_x, after which ddp_leave_world() cleans up.
 */
int ddp_join_world(struct ddp *ddp, const char *method);

/* Undo ddp_join_world(). [clean]: all ranks agreed to end. */
void ddp_leave_world(struct ddp *ddp, bool clean);

/* --- collective.c ------------------------------------------------------------------------- */

/* Returns this rank's index in its group. */
int ddp_own_member(const struct ddp *ddp);

/* Free all arenas of [ddp]. Not collective. */
void ddp_arenas_free(struct ddp *ddp);

/* --- slow-rank.c -------------------------------------------------------------------------- */

/* Number of the collective after which the ranks exchange times for the first time. */
#define DDP_SLOW_FIRST 100

/*
 * Find the rank, of [size] (2 or more), that spent more time between collectives than the median of
 * the others, by more than a tenth of the whole time. Returns -1 if there is none. [median] gets
 * the median.
 */
int ddp_slow_find(const struct ddp_pace *paces, int size, uint32_t *median);

/*
 * Exchange times; rank 0 logs a slow rank. All ranks call it after collective slow.next. Returns 0
 * or DDP_ERR_x.
 */
int ddp_slow_exchange(struct ddp *ddp);

/* --- failure.c ---------------------------------------------------------------------------- */

/*
 * The check() of all watches; [owner] is a struct ddp. Returns 0, or an error if a rank has aborted
 * or ended.
 */
int ddp_check_peers(void *owner, struct ddp_error *error);

/* Returns "rank 3 on n2", valid until the next call. [owner] is a struct ddp. */
const char *ddp_rank_name(void *owner, int rank);

/* Report this rank's error to the other ranks, unless they know already or there are none. */
void ddp_publish_failure(struct ddp *ddp);

/* One of the failing ranks writes and logs the summary of all ranks' failure records. */
void ddp_log_summary(struct ddp *ddp);

/*
 * End a public call with [status] and the text in ddp->error. Logs nothing. For a status of the
 * group "peer", reports the error to the other ranks and writes the failure record.
 * Returns [status].
 */
int ddp_fail_call(struct ddp *ddp, int status);

/*
 * Exit with the exit status for [status], without running atexit handlers or destructors, since a
 * broken engine might hang in one of them.
 */
_Noreturn void ddp_leave(int status);

/*
 * Log the error of [ddp], report it to the other ranks, write the failure record, and exit as
 * ddp_leave() does.
 */
_Noreturn void ddp_leave_failed(struct ddp *ddp);

/*
 * Fail with [status] and [text] outside of any call, and exit as ddp_leave_failed() does. [owner]
 * is a struct ddp that no other thread uses.
 */
_Noreturn void ddp_end(void *owner, int status, const char *text);

#endif /* DDP_COMM_PRIVATE_H */
