/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crowd.h - ranks as child processes, for tests of the rendezvous
 *
 * Each rank records its result in shared memory. Ranks that still run when a test fails are killed
 * with it.
 */
#ifndef DDP_TESTS_CROWD_H
#define DDP_TESTS_CROWD_H

#include "store/record.h"
#include "store/store.h"
#include "unit.h"

enum { RANKS = 16 };

/* Result of a rank's process, in shared memory. */
struct report {
	int status;
	char text[DDP_ERROR_SIZE];
	int fences; /* completed fences */
	int stage;  /* for wait_for_stage() */
	bool mixed; /* got a value that another world put */
	bool torn;  /* got a value that nobody put, or one rank's values from both worlds */
	char worlds
		[RANKS]; /* 'a' + the world whose values it got from each rank; 0: only empty values */
	int exit;	 /* wait status */
	bool comes;	 /* started by start_until_waiting() */
	pid_t process;
};

struct rank {
	struct ddp_identity identity;
	struct ddp_store *store;
	struct ddp_watch watch;
	struct ddp_error error;
	struct report *report;
	int world; /* 0 or 1: number of the job, part of the values that it puts */
};

typedef void (*rank_function)(struct rank *rank);

extern char base[256];	       /* parent of all directories of this program */
extern struct report *reports; /* RANKS of them */

/* Adds the set-up to all tests of [tcase]. */
void crowd_use(TCase *tcase);

/* --- For the test ----------------------------------------------------------------------- */

/* Returns the path of a new rendezvous directory, which does not exist yet, and clears all reports. */
const char *fresh_directory(void);

/* Returns rank [number] of [size] on node "n<number>", with a time limit of 20 s. */
struct rank make_rank(const char *directory, bool own, int number, int size);

/*
 * Start [run] in a child process: for [rank], or for [count] ranks from [first] on of a world of
 * [size].
 */
void start_rank(struct rank *rank, rank_function run);
void start_ranks(const char *directory, bool own, int first, int count, int size,
		 rank_function run);

/*
 * Starts ranks that fence twice. Their time limit ends when all ranks started here wait in fence
 * number [fence].
 */
void start_until_waiting(const char *directory, int first, int count, int size, int fence);

void wait_ranks(int first, int count);

/* Fails unless these ranks succeeded after [fences] fences. */
void expect_success(int first, int count, int fences);

/* Fails unless [rank] failed and its error contains all of the pieces. */
void expect_error(int rank, const char *const *pieces);
#define EXPECT_ERROR(rank, ...) expect_error(rank, (const char *const[]){__VA_ARGS__, NULL})

void sleep_ms(int count);

/* Waits until [rank] has completed [stage] fences. */
void wait_for_stage(int rank, int stage);

/* Whether [rank] waits in its first fence; waits until it does. */
bool is_waiting(const char *directory, int rank);
void wait_for_record(const char *directory, int rank);

void create_file(const char *directory, const char *name);

/* --- For a rank -------------------------------------------------------------------------- */

/*
 * Steps of a rank: open the store; put the rank's values of [fence]; put, fence and check the
 * values of all ranks.
 */
bool open_rank(struct rank *rank);
bool put_values(struct rank *rank, int fence);
bool meet(struct rank *rank, int fence);

/* Opens the store, calls meet() [fences] times, and closes the store. */
void meet_times(struct rank *rank, int fences);

/*
 * Writes [record] into [attempt] as the record of rank 1 at fence 0. Its checksum is correct unless
 * its pid is 666.
 */
bool put_record(struct rank *rank, uint64_t attempt, struct ddp_record record);

/* Rank functions: fence once, twice or four times; twice, and close the store as after an error. */
void meet_once(struct rank *rank);
void meet_twice(struct rank *rank);
void meet_four_times(struct rank *rank);
void meet_twice_then_fail(struct rank *rank);

/* Rank functions that end with SIGKILL, after opening the store or after one fence. */
void die_open(struct rank *rank);
void die_after_one(struct rank *rank);

#endif /* DDP_TESTS_CROWD_H */
