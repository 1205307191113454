/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ddp-private.h - struct ddp, and functions shared by the files of comm/ and device/
 *
 * comm.h has the interface for the directories above.
 */
#ifndef DDP_COMM_PRIVATE_H
#define DDP_COMM_PRIVATE_H

#include <pthread.h>

#include "base/log.h"
#include "base/watch.h"
#include "comm.h"
#include "identity/identity.h"
#include "local/group.h"
#include "store/store.h"
#include "topology.h"
#include "wide/ring.h"

struct ddp_arena;
struct ddp_device;
struct ddp_device_engine;
struct ddp_kept;
struct ddp_pace;
struct ddp_recorder;

/* State of slow-rank.c. */
struct ddp_slow {
	/*
	 * The ranks last exchanged times after collective [last], and do so next after collective
	 * [next].
	 */
	uint64_t last, next;
	/*
	 * [rank] is the slow rank. [times] counts successive exchanges with a slow rank on its
	 * host.
	 */
	int rank, times;
	time_t since;
	uint64_t logged_ms; /* time of the last warning, in milliseconds of ddp_now(); 0: none */
	unsigned int suspensions; /* ddp_watch_suspensions() at the last exchange */
	/* times of all ranks; allocated in advance, since no rank may fail alone in an exchange */
	struct ddp_pace *paces;
};

struct ddp {
	struct ddp_error error;
	struct ddp_log log;
	struct ddp_identity identity;
	struct ddp_world world;
	enum ddp_simd simd;
	double timeout;
	struct ddp_watch watch; /* time limit and check() of waits; each wait uses a copy */

	enum ddp_sharing sharing; /* value of DDP_LOCAL */
	bool shares;		  /* this rank shares memory with the other ranks of its node */
	/* why this rank cannot share memory; "" if it can or need not */
	char not_shared[DDP_ERROR_SIZE];

	struct ddp_store *store;
	struct ddp_topology *topology;
	struct ddp_group *group;
	const struct ddp_host_engine *engine; /* engine between groups; NULL with one group */
	struct ddp_host *host;
	/* this rank's column; its size is 0 if this rank exchanges no messages with other groups */
	struct ddp_column column;
	int *column_ranks;
	struct ddp_arena *arenas;
	struct ddp_device *device;
	const struct ddp_device_engine *device_engine;
	/* closes [device]; NULL if no device is open */
	void (*leave_device)(struct ddp *ddp);
	char *staged;	       /* pinned buffer of staged collectives; NULL if NCCL is used */
	char device_path[192]; /* result of ddp_device_path() */
	uint64_t device_bytes; /* size of the device's memory */
	uint64_t device_used;  /* bytes of ddp_device_alloc() that are not freed */
	uint64_t device_calls; /* number of collectives that this rank has started with NCCL */
	/* set once the world is lost and pending work on the device has been aborted */
	bool device_left;

	struct ddp_recorder *recorder;
	struct ddp_slow slow;
	uint64_t sequence;	/* number of the last collective */
	uint64_t store_checked; /* time of the last check for an abort in the store */
	bool joined;		/* ddp_init() succeeded */
	bool lost;		/* the world has ended with error [end] */
	struct ddp_error end;
	pthread_mutex_t use; /* see ddp_lock() */
	/* ddp_fork_generation() of the process that called ddp_init() */
	unsigned int generation;

	/* text with which other ranks can map the group's shared memory */
	char ticket[DDP_GROUP_TICKET];
	char transport[128];
	char rank_name[DDP_HOST_NAME + 32]; /* result of ddp_rank_name() */

	struct ddp_kept *kept; /* memory of ddp_keep() */
};

/* --- join.c ------------------------------------------------------------------------------- */

/*
 * Join the world by the rendezvous method [method]. If [method] is NULL, use DDP_METHOD or, if that
 * is unset, the first method that works.
 * Returns 0, or a DDP_ERR_x. After an error, call ddp_leave_world() to clean up.
 */
int ddp_join_world(struct ddp *ddp, const char *method);

/* Undo ddp_join_world(). [clean] is true if all ranks have agreed to end. */
void ddp_leave_world(struct ddp *ddp, bool clean);

/* --- collective.c ------------------------------------------------------------------------- */

int ddp_own_member(const struct ddp *ddp);

/* Check that all ranks request the same size from function [what]. Collective. */
int ddp_agree_size(struct ddp *ddp, const char *what, size_t bytes);

/* Like ddp_barrier(), but with another name, so that it does not match another call of any rank. */
int ddp_last_barrier(struct ddp *ddp);

/* Free all arenas of [ddp]. Not collective. */
void ddp_arenas_free(struct ddp *ddp);

/* --- slow-rank.c -------------------------------------------------------------------------- */

/* The ranks exchange times for the first time after the collective with this number. */
#define DDP_SLOW_FIRST 100

/*
 * Find the rank, of [size] ranks (2 or more), that spent the most time between collectives. Set
 * [median] to the median of the other ranks' times.
 * Returns that rank. Returns -1 if its time exceeds the median by at most a tenth of the whole
 * time, or if the whole time is too short.
 */
int ddp_slow_find(const struct ddp_pace *paces, int size, uint32_t *median);

/*
 * Exchange the times that the ranks spent between collectives. Rank 0 logs a slow rank. All ranks
 * call this after the collective with the number slow.next. Returns 0 or DDP_ERR_x.
 */
int ddp_slow_exchange(struct ddp *ddp);

/* --- failure.c ---------------------------------------------------------------------------- */

/*
 * The check() function of all watches. [owner] is a struct ddp. Returns 0, or an error if a rank
 * has aborted or ended.
 */
int ddp_check_peers(void *owner, struct ddp_error *error);

/* Returns "rank 3 on n2", valid until the next call. [owner] is a struct ddp. */
const char *ddp_rank_name(void *owner, int rank);

/* Returns whether this process is a forked child of the process that created [ddp]. */
bool ddp_is_inherited(const struct ddp *ddp);

/*
 * Like ddp_fail_with() and ddp_report(), but the text is already in ddp->error. A [status] of 0 or
 * more means success. Neither function logs anything.
 */
int ddp_fail_call(struct ddp *ddp, int status);
int ddp_report_call(struct ddp *ddp, int status);

/*
 * Exit like ddp_flush_and_exit(), with the exit status for [status]. No atexit handlers or
 * destructors run, since a broken engine might hang in one of them.
 */
_Noreturn void ddp_leave(int status);

/*
 * Log the error of [ddp], report it to the other ranks, write the failure record, and exit like
 * ddp_leave(). A forked child only logs the error and exits.
 */
_Noreturn void ddp_leave_failed(struct ddp *ddp);

/*
 * Fail with [status] and [text] outside of any call, and exit like ddp_leave_failed(). [owner] is a
 * struct ddp, which no other thread may use.
 */
_Noreturn void ddp_end(void *owner, int status, const char *text);

#endif /* DDP_COMM_PRIVATE_H */
