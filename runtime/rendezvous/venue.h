/* SPDX-License-Identifier: Apache-2.0 */
/*
 * venue.h - the directory where ranks meet, and the names in it
 *
 * Each attempt to meet has a random number, A in hexadecimal, and everything of it bears it:
 *
 *	A.ranks/	made by rank 0 in one piece; holds one file of each rank
 *	    hello	rank 0's, from the beginning of the attempt until it leaves in peace
 *	    K.R		rank R's record for fence K
 *	A.table.K	the records of all ranks at fence K
 *	A.abort		who gave up, and why
 *
 * The directory itself holds a handful of names, so that a listing of it is cheap: that is how
 * ranks wait, as NFS shows a changed listing long before it stops denying a name that was
 * missing once.
 */
#ifndef DDP_RENDEZVOUS_VENUE_H
#define DDP_RENDEZVOUS_VENUE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum {
	DDP_VENUE_ATTEMPTS = 64, /* that a listing can hold; further ones are not seen */
	DDP_VENUE_NAME = 64,	 /* bytes that the longest name needs, with "/" before it */
};

/*
 * Whether files are synced before they are renamed. Closing a file is what shows it to other
 * nodes (NFS), and says that the disk is full; none need survive a power failure, and a torn one
 * is refused by its checksum. Thousands of syncs at once would be all that a file system does:
 * with them 64 ranks on ext4 needed three times as long to meet.
 */
#define DDP_VENUE_SYNC false

struct ddp_venue_attempt {
	uint64_t number;
	bool ranks, aborted;
	int64_t table; /* the highest K of its tables, -1: none */
};

struct ddp_venue_list {
	struct ddp_venue_attempt attempts[DDP_VENUE_ATTEMPTS];
	int count;
};

enum ddp_venue_kind {
	DDP_VENUE_FOREIGN, /* not a name of ours */
	DDP_VENUE_RANKS,
	DDP_VENUE_TABLE,
	DDP_VENUE_ABORT,
	DDP_VENUE_OTHER, /* ours, not whole yet */
};

/* What [name] is; [attempt] and, of a table, [fence] are set where it is ours. Pure. */
enum ddp_venue_kind ddp_venue_parse(const char *name, uint64_t *attempt, uint32_t *fence);

/* Whether [name] is that of a rank's record, K.R. Pure. */
bool ddp_venue_parse_rank(const char *name, uint32_t *fence, uint32_t *rank);

/* "directory/A" and what [format] says. Returns [path], which has PATH_MAX bytes. */
char *ddp_venue_path(char *path, const char *directory, uint64_t attempt, const char *format, ...)
	DDP_FORMAT(4, 5);

/*
 * Make [directory] and what is missing above it, unless it is [own] and so must be there, and
 * see that it is a directory, no link, of this user, in which no other can write.
 * Returns 0 or DDP_ERR_FILE.
 */
int ddp_venue_make(const char *directory, bool own, struct ddp_error *error);

/*
 * What is in [directory]. Returns 0; 1 where it is not there (or its server says so, ESTALE);
 * DDP_ERR_FILE.
 */
int ddp_venue_list(const char *directory, struct ddp_venue_list *list, struct ddp_error *error);

/* The entry of [attempt] in [list], NULL if there is none. */
const struct ddp_venue_attempt *ddp_venue_find(const struct ddp_venue_list *list, uint64_t attempt);

/*
 * Remove what attempts left whose rank 0 did not leave in peace, and what is older than a day.
 * Attempts that rank 0 left in peace are not touched: other ranks may still be reading.
 */
void ddp_venue_sweep(const char *directory);

/*
 * If no rank's file is left in [attempt], remove the rest of it, with table [fence], and, if it
 * is not [own], [directory] too when empty. All ranks call it; the last one succeeds.
 */
void ddp_venue_leave(const char *directory, bool own, uint64_t attempt, uint32_t fence);

#endif /* DDP_RENDEZVOUS_VENUE_H */
