/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crowd.h - ranks as processes of their own, for tests of the rendezvous
 *
 * What each of them comes to is in memory that all share. Those that are still there when a test
 * fails go with it.
 */
#ifndef DDP_TESTS_CROWD_H
#define DDP_TESTS_CROWD_H

#include "store/record.h"
#include "store/store.h"
#include "unit.h"

enum { RANKS = 16 };

/* What the process of a rank came to; in shared memory. */
struct report {
	int status;
	char text[DDP_ERROR_SIZE];
	int fences;	    /* that succeeded */
	int stage;	    /* for others to wait for */
	bool mixed;	    /* got a value that no rank of its own world put */
	bool torn;	    /* got one that no rank put, or from two worlds' ranks of one number */
	char worlds[RANKS]; /* 'a' + the world of each rank's values; 0: all were empty */
	int exit;	    /* wait status */
	bool comes;	    /* started by begin_few() */
	pid_t process;
};

struct rank {
	struct ddp_identity identity;
	struct ddp_store *store;
	struct ddp_watch watch;
	struct ddp_error error;
	struct report *report;
	int world; /* which of two jobs, in what it puts */
};

typedef void (*deed)(struct rank *rank);

extern char base[256];	       /* of all directories of this program */
extern struct report *reports; /* RANKS of them */

/* For all tests of [tcase]. */
void crowd_use(TCase *tcase);

/* --- For the test ----------------------------------------------------------------------- */

/* A directory of the running test that is not there yet, and reports of zeros. */
const char *fresh_directory(void);

/* Rank [number] on node "n<number>", with 20 s. */
struct rank make_rank(const char *directory, bool own, int number, int size);

/* Run [run] as a process of its own for [rank]; or for ranks [first] and on of a world of [size]. */
void begin(struct rank *rank, deed run);
void begin_ranks(const char *directory, bool own, int first, int count, int size, deed run);

/* Start ranks that meet twice; their time limit ends once all ranks started here wait in [fence]. */
void begin_few(const char *directory, int first, int count, int size, int fence);

/* Wait for the processes of those ranks to end. */
void end(int first, int count);

/* They ended well, after so many fences. */
void succeeded(int first, int count, int fences);

/* [rank] failed, and its text has all of the pieces. */
void said(int rank, const char *const *pieces);
#define SAID(rank, ...) said(rank, (const char *const[]){__VA_ARGS__, NULL})

void milliseconds(int count);

/* Until [rank] has done so many fences. */
void wait_for_stage(int rank, int stage);

/* Whether [rank] waits in its first fence; and until it does. */
bool is_waiting(const char *directory, int rank);
void wait_for_record(const char *directory, int rank);

/* Make [name] in [directory], with a byte in it. */
void touch(const char *directory, const char *name);

/* --- For a rank -------------------------------------------------------------------------- */

/* The pieces: open; put what a rank puts at [fence]; do so, meet, and look at what all put. */
bool open_rank(struct rank *rank);
bool put_values(struct rank *rank, int fence);
bool meet(struct rank *rank, int fence);

/* Open, meet that often, close. */
void meet_times(struct rank *rank, int fences);

/*
 * Write [record], of rank 1 at fence 0, into [attempt] as it stands, with a body that is well
 * (unless it says pid 666).
 */
bool put_record(struct rank *rank, uint64_t attempt, struct ddp_record record);

/* Deeds: meet once, twice, four times; twice, and then not close as if well. */
void meet_once(struct rank *rank);
void meet_twice(struct rank *rank);
void meet_often(struct rank *rank);
void wait_and_tell(struct rank *rank);

/* Deeds that end with SIGKILL: open; open and meet once. */
void die_open(struct rank *rank);
void die_after_one(struct rank *rank);

#endif /* DDP_TESTS_CROWD_H */
