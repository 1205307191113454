/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arrival.h - which collective each rank was in, according to the ranks' failure records
 *
 * comm/recorder.c writes a record, rank-<rank>, when a rank fails or is ended by a signal. A rank
 * without a record was killed, or hangs outside of a collective. The collective that most of the
 * other ranks are in is the one that it did not reach. run/decode-dumps.py derives the same from
 * PyTorch's flight recorder.
 */
#ifndef DDP_BASE_ARRIVAL_H
#define DDP_BASE_ARRIVAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ddp_arrival {
	bool there;	   /* the rank left a record */
	uint64_t world;	   /* number of the world, larger for later worlds; 0: unknown */
	uint64_t sequence; /* number of the last collective, 0: none */
	bool waits;	   /* the last collective had not succeeded */
	bool missing;	   /* set by ddp_arrival_compare() */
	bool outside;	   /* excluded from the comparison */
	long pid;
	double after; /* seconds from the rank's start to the record */
	char host[128];
	char last[128];	  /* "#17 all-reduce 1000 F32 sum" */
	char reason[512]; /* why the record was written */
	char slow[256];	  /* in rank 0's record: "rank 3 on n2 is slow: ..." */
};

/* Parse the record [text], which is modified, into [arrival], which must be all zero. */
void ddp_arrival_read(char *text, struct ddp_arrival *arrival);

/*
 * If a step runs several programs in turn, clear the records in [all] that an earlier world left.
 * Records without a world's number stay.
 */
void ddp_arrival_keep_last_world(struct ddp_arrival *all, int size);

/*
 * Find the furthest collective that a rank is waiting in, and set missing for the ranks that did
 * not reach it: the ranks without a record if there are any, since those behind may be waiting for
 * them; else the ranks behind.
 * Returns a rank that is waiting in that collective, or NULL.
 */
const struct ddp_arrival *ddp_arrival_compare(struct ddp_arrival *all, int size);

/*
 * Compare, and describe the result in [text]: "did not arrive in #17 all-reduce 1000 F32 sum: rank
 * 2". If all ranks have reached that collective, but with different operations (the second word of
 * last), name two such ranks.
 */
void ddp_arrival_describe(struct ddp_arrival *all, int size, char *text, size_t capacity);

#endif /* DDP_BASE_ARRIVAL_H */
