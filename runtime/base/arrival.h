/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arrival.h - which collective each rank was in, by the records that they left
 *
 * comm/recorder.c writes a record, rank-<rank>, when a rank fails or is told to end. A rank that left none was
 * killed, or hangs outside of a collective. The collective that most of the others are in is the one that it did
 * not arrive in. run/flight.c makes the same of what PyTorch records.
 */
#ifndef DDP_BASE_ARRIVAL_H
#define DDP_BASE_ARRIVAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ddp_arrival {
	bool there;	   /* there is a record */
	uint64_t world;	   /* number of the world, larger for later worlds; 0: not known */
	uint64_t sequence; /* of the last collective, 0: none */
	bool waits;	   /* it had not ended well */
	bool missing;	   /* ddp_arrival_compare() says so */
	bool outside;	   /* it is not among those that are compared */
	long pid;
	double after; /* seconds from the rank's start to the record */
	char host[128];
	char last[128];	  /* "#17 all-reduce 1000 F32 sum" */
	char reason[512]; /* why the record was written */
};

/* Read the record [text], which is changed, into [arrival], which was all zero. */
void ddp_arrival_read(char *text, struct ddp_arrival *arrival);

/*
 * Clear the records in [all] that an earlier world left in the same directory, as when a step runs one program after
 * another. Records without a number stay.
 */
void ddp_arrival_keep_last_world(struct ddp_arrival *all, int size);

/*
 * Set missing in those of [all] ranks, of which there are [size], that did not arrive in the furthest collective that
 * one of them waits in: the ranks without a record, if there are any, since those behind may have been waiting for
 * them; else those behind.
 * Returns a rank that waits in it, or NULL where none waits.
 */
const struct ddp_arrival *ddp_arrival_compare(struct ddp_arrival *all, int size);

/*
 * The same in words: "did not arrive in #17 all-reduce 1000 F32 sum: rank 2". Where all are in the same one but not in the
 * same operation, which the second word of last says, two ranks that differ are named.
 */
void ddp_arrival_describe(struct ddp_arrival *all, int size, char *text, size_t room);

#endif /* DDP_BASE_ARRIVAL_H */
