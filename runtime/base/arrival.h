/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arrival.h - which collective each rank was in, according to the ranks' failure records
 *
 * comm/recorder.c writes a record, rank-<rank>, when a rank fails or is ended by a signal. A rank
 * without a record was killed, or hangs outside of a collective. Such a rank did not reach the
 * collective in which most other ranks wait. run/decode-dumps.py finds the missing ranks in the
 * same way in dumps of PyTorch's flight recorder.
 */
#ifndef DDP_BASE_ARRIVAL_H
#define DDP_BASE_ARRIVAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ddp_arrival {
	bool there;	   /* the rank left a record */
	uint64_t world;	   /* number of the world, larger for later worlds; 0 if unknown */
	uint64_t sequence; /* number of the last collective, or 0 if there was none */
	bool waits;	   /* the last collective had not ended successfully */
	/* the rank did not reach the last collective; set by ddp_arrival_describe() */
	bool missing;
	bool outside; /* the comparison ignores this rank */
	long pid;
	double after; /* seconds from the rank's start until it wrote the record */
	char host[128];
	char last[128]; /* last collective, such as "#17 all-reduce 1000 F32 sum" */
	char reason[512];
	char slow[256]; /* in rank 0's record: "rank 3 on n2 is slow: ..." */
};

/* Parse the record [text] into [arrival], which must be all zero. Modifies [text]. */
void ddp_arrival_read(char *text, struct ddp_arrival *arrival);

/*
 * Clear all records in [all] that do not belong to the last world. Records of earlier worlds exist
 * if the step ran several programs in turn. Records without a world's number are kept.
 */
void ddp_arrival_keep_last_world(struct ddp_arrival *all, int size);

/*
 * Find the furthest collective in which a rank waits, and set [missing] for the ranks that did not
 * reach it. Describe the result in [text]: "did not arrive in #17 all-reduce 1000 F32 sum: rank 2".
 * If some ranks have no record, exactly these ranks are missing, since a rank in an earlier
 * collective may only be waiting for them. If all ranks have a record, the ranks in earlier
 * collectives are missing. If all ranks have reached that collective, but with different operations
 * (the second word of ddp_arrival.last), the text names two such ranks.
 */
void ddp_arrival_describe(struct ddp_arrival *all, int size, char *text, size_t capacity);

#endif /* DDP_BASE_ARRIVAL_H */
