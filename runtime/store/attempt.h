/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attempt.h - attempts to meet, as they lie in the directory: names, listings, tables
 *
 * Each attempt to meet has a random number, A in hexadecimal, and everything of it bears it:
 *
 *	A.ranks/	made by rank 0 in one piece; holds one file of each rank
 *	    hello	rank 0's, from the beginning of the attempt until it leaves in peace
 *	    K.R		rank R's record for fence K
 *	A.table.K	the records of all ranks at fence K
 *	A.abort		who gave up, and why
 *	A.new, A.now, A.abort.R, *.tmp.*	not complete, or there for a moment
 *
 * The directory itself holds a handful of names, so that a listing of it is cheap: that is how
 * ranks wait, as NFS shows a changed listing long before it stops denying a name that was
 * missing once.
 */
#ifndef DDP_STORE_ATTEMPT_H
#define DDP_STORE_ATTEMPT_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "record.h"

enum {
	DDP_ATTEMPTS = 64,  /* that a listing can hold; further ones are not seen */
	DDP_NAME_SIZE = 80, /* bytes of the longest name, a temporary's, with "/" before it */
};

struct ddp_attempt {
	uint64_t number;
	bool ranks, aborted;
	int64_t table; /* the highest K of its tables, -1: none */
};

struct ddp_attempts {
	struct ddp_attempt attempts[DDP_ATTEMPTS];
	int count;
};

enum ddp_name {
	DDP_NAME_FOREIGN, /* not one of libddp's names */
	DDP_NAME_RANKS,
	DDP_NAME_NEW, /* a directory that becomes A.ranks */
	DDP_NAME_TABLE,
	DDP_NAME_ABORT,
	DDP_NAME_OTHER, /* a file that no rank reads */
};

/* What [name] is; [attempt] and, of a table, [fence] are set where it is ours. Pure. */
enum ddp_name ddp_attempt_parse(const char *name, uint64_t *attempt, uint32_t *fence);

/* Whether [name] is that of a rank's record, K.R. Pure. */
bool ddp_attempt_parse_rank(const char *name, uint32_t *fence, uint32_t *rank);

/* "directory/A" and what [format] says. Returns [path], which has PATH_MAX bytes. */
char *ddp_attempt_path(char *path, const char *directory, uint64_t attempt, const char *format, ...)
	DDP_FORMAT(4, 5);

/*
 * Make [directory] and what is missing above it, unless it is [own] and so must be there, and
 * see that it is a directory, no link, of this user, in which no other can write.
 * Returns 0 or DDP_ERR_FILE.
 */
int ddp_attempts_directory(const char *directory, bool own, struct ddp_error *error);

/*
 * What is in [directory]. Returns 0; 1 where it is not there (or its server says so, ESTALE);
 * DDP_ERR_FILE.
 */
int ddp_attempts_list(const char *directory, struct ddp_attempts *list, struct ddp_error *error);

/* The entry of [attempt] in [list], NULL if there is none. */
const struct ddp_attempt *ddp_attempts_find(const struct ddp_attempts *list, uint64_t attempt);

/* --- Attempts from before --------------------------------------------------------------- */

/*
 * Whether [attempt] began, by file times, after this process did and, unless 0, after [left] on ddp_now()'s clock:
 * then it is the one that this process looks for, or a later one. [process] is its random number, for a file to compare
 * with. An NFS server sets both times. On Lustre and GPFS the nodes do, and the answer is as good as their clocks; if
 * the attempt's time is in the future, the answer is false.
 */
bool ddp_attempt_is_younger(const char *directory, uint64_t attempt, uint64_t process,
			    uint64_t left);

/*
 * Remove what attempts left whose rank 0 did not leave in peace, and what is older than a day.
 * Attempts that rank 0 left in peace are not touched: other ranks may still be reading.
 */
void ddp_attempts_sweep(const char *directory);

/*
 * If no rank's file is left in [attempt], remove the rest of it, with table [fence], and, if it
 * is not [own], [directory] too when empty. All ranks call it; the last one succeeds.
 */
void ddp_attempts_leave(const char *directory, bool own, uint64_t attempt, uint32_t fence);

/* --- The table of a fence ---------------------------------------------------------------- */

/*
 * What all ranks put before a fence, as rank 0 published it in one file: a head, an index with
 * an entry for each rank, and the records of all ranks in their order. A rank reads the head,
 * and then what it asks for; nobody but rank 0 handles all of it. The file stays readable for
 * those who have it open after its name is gone.
 */
struct ddp_table;

/*
 * The bytes of the table of [records], one of each rank; [head] says rank 0, the attempt and
 * the fence. Pure.
 * Returns memory that the caller frees, with its [size]; NULL where there is none.
 */
uint8_t *ddp_table_encode(const struct ddp_record *head, const struct iovec *records, size_t *size);

/*
 * Open [path], which must be the table of [mine]'s attempt and fence and match it, and hold
 * [mine]'s own record.
 * Returns 0; 1 where it is not there (yet); DDP_ERR_FILE, DDP_ERR_FORMAT, DDP_ERR_MISMATCH,
 * DDP_ERR_MEMORY.
 */
int ddp_table_open(struct ddp_table **table, const char *path, const struct ddp_record *mine,
		   struct ddp_error *error);

/* NULL is legal. */
void ddp_table_close(struct ddp_table *table);

/*
 * Read [rank]'s record, checked, and point [body] to what it put, which stays
 * until the next call.
 * Returns 0, DDP_ERR_ARGUMENT, DDP_ERR_FILE, DDP_ERR_FORMAT or DDP_ERR_MEMORY.
 */
int ddp_table_get(struct ddp_table *table, int rank, struct ddp_record *record,
		  const uint8_t **body, struct ddp_error *error);

#endif /* DDP_STORE_ATTEMPT_H */
