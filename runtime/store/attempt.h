/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attempt.h - files of rendezvous attempts: names, listings, tables
 *
 * Each attempt has a random number A. Its files are named with A in hexadecimal:
 *
 *  A.ranks/                       created by rank 0 with one rename; one file per rank
 *      hello                      rank 0's file, from the start of the attempt to its clean end
 *      K.R                        record of rank R for fence K
 *  A.table.K                      the records of all ranks at fence K
 *  A.abort                        the rank that aborted the attempt, and its reason
 *  A.socket                       a rank's socket for passing its node's shared memory until the ranks
 *                                 have met; A is another random number
 *  A.new, A.now, A.abort.R, *.tmp.*  temporary
 *
 * The directory holds few names, so that listing it is cheap. Ranks wait by listing it, since an
 * NFS client shows a changed listing long before it retries a name that was missing once.
 */
#ifndef DDP_STORE_ATTEMPT_H
#define DDP_STORE_ATTEMPT_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "record.h"

enum {
	DDP_ATTEMPTS = 64,  /* capacity of a listing; further attempts are ignored */
	DDP_NAME_SIZE = 80, /* bytes of the longest (temporary) name, with a leading "/" */
};

struct ddp_attempt {
	uint64_t number;
	bool ranks, aborted;
	int64_t table; /* fence of the newest table, -1: none */
};

struct ddp_attempts {
	struct ddp_attempt attempts[DDP_ATTEMPTS];
	int count;
};

enum ddp_name {
	DDP_NAME_FOREIGN, /* not created by libddp */
	DDP_NAME_RANKS,
	DDP_NAME_NEW, /* a directory that will be renamed to A.ranks */
	DDP_NAME_TABLE,
	DDP_NAME_ABORT,
	DDP_NAME_SOCKET, /* created by local/passing.c; A is not an attempt */
	DDP_NAME_OTHER,	 /* a file that no rank reads */
};

/* Returns the kind of [name]. Sets [attempt] for libddp's names and [fence] for tables. Pure. */
enum ddp_name ddp_attempt_parse(const char *name, uint64_t *attempt, uint32_t *fence);

/* Whether [name] is a rank's record, K.R. Pure. */
bool ddp_attempt_parse_rank(const char *name, uint32_t *fence, uint32_t *rank);

/* Write "directory/A" and the formatted suffix to [path] (PATH_MAX bytes). Returns [path]. */
char *ddp_attempt_path(char *path, const char *directory, uint64_t attempt, const char *format, ...)
	DDP_FORMAT(4, 5);

/*
 * Check that [directory] is a directory, not a link, of this user, and that no other user can write
 * to it. It is created with its missing parents, unless [own] is set: srun made it then.
 * Returns 0 or DDP_ERR_FILE.
 */
int ddp_attempts_directory(const char *directory, bool own, struct ddp_error *error);

/* List [directory]. Returns 0; 1 if it does not exist (or NFS returns ESTALE); DDP_ERR_FILE. */
int ddp_attempts_list(const char *directory, struct ddp_attempts *list, struct ddp_error *error);

/* Returns the entry of [attempt] in [list], or NULL. */
const struct ddp_attempt *ddp_attempts_find(const struct ddp_attempts *list, uint64_t attempt);

/* --- Earlier attempts ------------------------------------------------------------------- */

/*
 * Whether [attempt] started after this process and, if [left] is not 0, after the time [left] on
 * ddp_now()'s clock. If so, it is the attempt that this process waits for, or a later one. The start
 * times are compared through timestamps of two files: the attempt's hello file, and a new file named
 * after [process], this process's random number. An NFS server sets both timestamps. On Lustre and
 * GPFS the nodes set them, so the answer is as good as their clocks. Returns false if the attempt's
 * timestamp is in the future.
 */
bool ddp_attempt_is_younger(const char *directory, uint64_t attempt, uint64_t process,
			    uint64_t left);

/*
 * Remove attempts that rank 0 did not leave cleanly, and those older than a day. Attempts that rank
 * 0 left cleanly within a day stay: their other ranks may still be reading.
 */
void ddp_attempts_sweep(const char *directory);

/*
 * On rank 0, before it leaves [attempt] cleanly: remove sockets that are older than the attempt. Its
 * own ranks have met, and removed theirs, so that these are of ranks that were killed earlier.
 */
void ddp_attempts_remove_sockets(const char *directory, uint64_t attempt);

/*
 * If [attempt] has no rank's file left, remove it with the table of [fence] and, without [own], an
 * empty [directory]. Every rank calls this; the call of the last one succeeds.
 */
void ddp_attempts_leave(const char *directory, bool own, uint64_t attempt, uint32_t fence);

/* --- The table of a fence ---------------------------------------------------------------- */

/*
 * The values of all ranks at one fence, published by rank 0 as one file: a head, an index with one
 * entry per rank, and the records in rank order. A rank reads the head and the records it needs;
 * only rank 0 handles the whole file. An open table stays readable after its name is removed.
 */
struct ddp_table;

/*
 * Encode the table of [records], one per rank; [head] holds rank 0, the attempt and the fence.
 * Pure.
 * Returns memory that the caller frees, and its [size]; NULL if memory is short.
 */
uint8_t *ddp_table_encode(const struct ddp_record *head, const struct iovec *records, size_t *size);

/*
 * Open [path] and check that it is the table of [mine]'s attempt and fence, and that it contains
 * [mine]'s own record.
 * Returns 0; 1 if the file does not exist (yet); DDP_ERR_FILE, DDP_ERR_FORMAT, DDP_ERR_MISMATCH,
 * DDP_ERR_MEMORY.
 */
int ddp_table_open(struct ddp_table **table, const char *path, const struct ddp_record *mine,
		   struct ddp_error *error);

void ddp_table_close(struct ddp_table *table);

/*
 * Read and check [rank]'s record, and point [body] to its keys and values. They stay valid until
 * the next call.
 * Returns 0, DDP_ERR_ARGUMENT, DDP_ERR_FILE, DDP_ERR_FORMAT or DDP_ERR_MEMORY.
 */
int ddp_table_get(struct ddp_table *table, int rank, struct ddp_record *record,
		  const uint8_t **body, struct ddp_error *error);

#endif /* DDP_STORE_ATTEMPT_H */
