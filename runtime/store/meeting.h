/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meeting.h - files of rendezvous meetings: names, listings, tables
 *
 * A meeting is one rendezvous of a world. Each meeting has a random number A. Its files are named
 * with A in hexadecimal:
 *
 *  A.ranks/                       created by rank 0 with one rename; has one file per rank:
 *      hello                      rank 0's file, from the start of the meeting to its clean end
 *      K.R                        record of rank R for fence K
 *  A.table.K                      the records of all ranks at fence K
 *  A.abort                        the rank that aborted the meeting, and its reason
 *  A.socket                       a rank's socket for passing its node's shared memory until the ranks
 *                                 have met; here A is another random number
 *  A.new, A.now, A.abort.R, *.tmp.*  temporary
 *
 * A rank waits for a file by listing its directory, since an NFS client shows a changed listing
 * long before it retries a name that was missing once. The directories hold few names, so that
 * listing them is cheap.
 */
#ifndef DDP_STORE_MEETING_H
#define DDP_STORE_MEETING_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "record.h"

enum {
	/* maximum number of meetings in a listing; further ones are ignored */
	DDP_MEETINGS = 64,
	DDP_NAME_SIZE = 80, /* maximum bytes of a (temporary) name with a leading "/" */
};

struct ddp_meeting {
	uint64_t number;
	bool ranks, aborted;
	int64_t table; /* number of the fence of the newest table, or -1 if there is no table */
};

struct ddp_meetings {
	struct ddp_meeting meetings[DDP_MEETINGS];
	int count;
};

enum ddp_name {
	DDP_NAME_FOREIGN, /* file that libddp did not create */
	DDP_NAME_RANKS,
	DDP_NAME_NEW, /* a directory that will be renamed to A.ranks */
	DDP_NAME_TABLE,
	DDP_NAME_ABORT,
	DDP_NAME_SOCKET, /* file of local/passing.c, whose number is not that of a meeting */
	DDP_NAME_OTHER,	 /* another file of libddp, which no rank reads */
};

/*
 * Returns the kind of the file with the name [name]. If libddp uses the name, sets [meeting]. If it
 * is the name of a table, also sets [fence]. Does no I/O.
 */
enum ddp_name ddp_meeting_parse(const char *name, uint64_t *meeting, uint32_t *fence);

/* If [name] is K.R, the name of a record, returns true and sets [fence] and [rank]. No I/O. */
bool ddp_meeting_parse_rank(const char *name, uint32_t *fence, uint32_t *rank);

/*
 * Write the path of a file of [meeting] to [path], which has PATH_MAX bytes. The path consists of
 * [directory], the meeting's number and a suffix, which is formatted from [format]. Returns [path].
 */
char *ddp_meeting_path(char *path, const char *directory, uint64_t meeting, const char *format, ...)
	DDP_FORMAT(4, 5);

/*
 * Check that [directory] is a directory of this user, not a link, and that no other user can write
 * to it. If [own] is false, create it and its missing parents; if [own] is true, srun has made it.
 * Returns 0 or DDP_ERR_FILE.
 */
int ddp_meetings_directory(const char *directory, bool own, struct ddp_error *error);

/* List [directory]. Returns 0; 1 if it does not exist (or NFS returns ESTALE); DDP_ERR_FILE. */
int ddp_meetings_list(const char *directory, struct ddp_meetings *list, struct ddp_error *error);

const struct ddp_meeting *ddp_meetings_find(const struct ddp_meetings *list, uint64_t meeting);

/* --- Earlier meetings ------------------------------------------------------------------- */

/*
 * Returns whether [meeting] started later than this process and, if [left] is not 0, later than the
 * time [left] of ddp_now(). If so, the meeting is not that of an earlier program, so this process
 * may join it. To compare the times, the timestamp of the meeting's hello is compared with the
 * timestamp of a new file, which is named after [process], the random number of this process. An
 * NFS server sets both timestamps. On Lustre and GPFS the nodes set them, so the result depends on
 * the nodes' clocks.
 * Returns false if the timestamp of hello is in the future.
 */
bool ddp_meeting_is_younger(const char *directory, uint64_t meeting, uint64_t process,
			    uint64_t left);

/*
 * Remove old meetings: those that rank 0 did not leave cleanly, and those that are older than a
 * day. If rank 0 has left a meeting cleanly within the last day, the meeting is kept, because its
 * other ranks may still read its files.
 */
void ddp_meetings_sweep(const char *directory);

/*
 * Remove sockets that are older than [meeting]. Rank 0 calls this before it leaves [meeting]
 * cleanly. At that time the meeting's own ranks have met and have removed their sockets. So the
 * remaining sockets belong to ranks that were killed earlier.
 */
void ddp_meetings_remove_sockets(const char *directory, uint64_t meeting);

/*
 * If no rank has a file left in [meeting], remove the meeting, together with the table of [fence].
 * If [own] is false, also remove [directory] if it is empty. Every rank calls this function. Only
 * the call of the last rank removes anything.
 */
void ddp_meetings_leave(const char *directory, bool own, uint64_t meeting, uint32_t fence);

/* --- The table of a fence ---------------------------------------------------------------- */

/*
 * A table has the values of all ranks at one fence. Rank 0 publishes it as one file: a head, an
 * index with one entry per rank, and the records in rank order. A rank reads the head and the
 * records that it needs; only rank 0 handles the whole file. An open table stays readable after its
 * name is removed.
 */
struct ddp_table;

/*
 * Encode a table of [records], one per rank. [head] describes rank 0, the meeting and the fence. No
 * I/O.
 * Returns memory that the caller frees, with its [size]; NULL if memory is short.
 */
uint8_t *ddp_table_encode(const struct ddp_record *head, const struct iovec *records, size_t *size);

/*
 * Open [path], and check that it is the table of the meeting and the fence in [mine], and that it
 * contains the record of the process in [mine].
 * Returns 0; 1 if the file does not exist (yet); or DDP_ERR_FILE, DDP_ERR_FORMAT, DDP_ERR_MISMATCH
 * or DDP_ERR_MEMORY.
 */
int ddp_table_open(struct ddp_table **table, const char *path, const struct ddp_record *mine,
		   struct ddp_error *error);

void ddp_table_close(struct ddp_table *table);

/*
 * Read and check the record of [rank]. Set [record] to its head, and [body] to its keys and values.
 * The body is valid until the next call.
 * Returns 0, DDP_ERR_ARGUMENT, DDP_ERR_FILE, DDP_ERR_FORMAT or DDP_ERR_MEMORY.
 */
int ddp_table_get(struct ddp_table *table, int rank, struct ddp_record *record,
		  const uint8_t **body, struct ddp_error *error);

#endif /* DDP_STORE_MEETING_H */
