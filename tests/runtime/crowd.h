/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crowd.h - ranks as child processes, for tests of the rendezvous
 *
 * Each rank stores its result in shared memory. When a test fails, its ranks that are still running
 * are killed.
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
	bool mixed; /* received a value of the other world */
	bool torn;  /* received a value that no rank put, or values of both worlds from one rank */
	/* for each rank: 'a' + the number of the world whose values it sent; 0: only empty values */
	char worlds[RANKS];
	int exit;   /* wait status */
	bool comes; /* the rank was started by start_until_waiting() */
	pid_t process;
};

struct rank {
	struct ddp_identity identity;
	struct ddp_store *store;
	struct ddp_watch watch;
	struct ddp_error error;
	struct report *report;
	int world; /* number of the world, 0 or 1; the rank's values contain the number */
};

typedef void (*rank_function)(struct rank *rank);

extern char base[256];	       /* parent of all rendezvous directories */
extern struct report *reports; /* array of RANKS results */

/* Adds this file's setup and teardown to [tcase]. */
void crowd_use(TCase *tcase);

/* --- Functions for the test --------------------------------------------------------------- */

/*
 * Clears all reports, and returns the path of a new rendezvous directory. The directory does not
 * exist yet.
 */
const char *fresh_directory(void);

/* Returns rank [number] of [size] on node "n<number>", with a time limit of 20 s. */
struct rank make_rank(const char *directory, bool own, int number, int size);

/*
 * start_rank() starts [run] in a child process as [rank]. start_ranks() starts the
 * [count] ranks from [first] on, in a world that has [size] ranks.
 */
void start_rank(struct rank *rank, rank_function run);
void start_ranks(const char *directory, bool own, int first, int count, int size,
		 rank_function run);

/*
 * Starts ranks that fence once. Their wait ends with a timeout as soon as all ranks that this
 * function started wait.
 */
void start_until_waiting(const char *directory, int first, int count, int size);

void wait_ranks(int first, int count);

/* Fails unless these ranks succeeded after [fences] fences. */
void expect_success(int first, int count, int fences);

/* Fails unless [rank] failed with an error that contains all of the pieces. */
void expect_error(int rank, const char *const *pieces);
#define EXPECT_ERROR(rank, ...) expect_error(rank, (const char *const[]){__VA_ARGS__, NULL})

void sleep_ms(int count);

/* Waits until [rank] has completed [stage] fences. */
void wait_for_stage(int rank, int stage);

/*
 * is_waiting() returns whether [rank] waits in its first fence. wait_for_record() returns when the
 * rank does.
 */
bool is_waiting(const char *directory, int rank);
void wait_for_record(const char *directory, int rank);

void create_file(const char *directory, const char *name);

/* --- Functions for a rank's process ------------------------------------------------------- */

/*
 * Steps of a rank: open_rank() opens the store. put_values() puts the rank's values for [fence].
 * meet() puts these values, waits in the fence, and checks the values of all ranks.
 */
bool open_rank(struct rank *rank);
bool put_values(struct rank *rank, int fence);
bool meet(struct rank *rank, int fence);

/* Opens the store, calls meet() [fences] times, and closes the store. */
void meet_times(struct rank *rank, int fences);

/*
 * Writes [record] into [meeting] as the record of rank 1 at fence 0. The record's checksum is
 * correct unless its pid is 666.
 */
bool put_record(struct rank *rank, uint64_t meeting, struct ddp_record record);

/*
 * Rank functions: the first three fence once, twice and four times. The last one fences twice and
 * closes the store as after an error.
 */
void meet_once(struct rank *rank);
void meet_twice(struct rank *rank);
void meet_four_times(struct rank *rank);
void meet_twice_then_fail(struct rank *rank);

/*
 * Rank functions that end with SIGKILL: the first after opening the store, the second after one
 * fence.
 */
void die_open(struct rank *rank);
void die_after_one(struct rank *rank);

#endif /* DDP_TESTS_CROWD_H */
