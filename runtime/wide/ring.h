/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring.h - collectives between groups over any host engine
 *
 * The members of a column are one rank of each group, in the order of the groups. The order of additions
 * is fixed, so that two runs give the same bits and all members of a column get the same bits.
 */
#ifndef DDP_WIDE_RING_H
#define DDP_WIDE_RING_H

#include "base/kernel.h"
#include "host.h"

/* Bytes of scratch: the least, and the most that make calls faster. */
enum { DDP_COLUMN_SCRATCH = 4096, DDP_COLUMN_SCRATCH_FULL = 512 << 10 };

struct ddp_column {
	const struct ddp_host_engine *engine;
	struct ddp_host *host;
	int index, size;  /* of the column */
	const int *ranks; /* world rank of each */
	enum ddp_simd simd;
	const char *(*name)(void *owner, int rank); /* "rank 3 on n2", for messages */
	void *owner;
	void *scratch;	      /* for received data; 64-aligned */
	size_t scratch_bytes; /* the same on all members, at least DDP_COLUMN_SCRATCH */
};

/*
 * A call that fails returns DDP_ERR_TIMEOUT, naming a member that does not answer; DDP_ERR_PEER, naming a member
 * that was lost; DDP_ERR_ABORTED, with the text of a member that reported a failure; DDP_ERR_MISMATCH, naming a
 * member that made another call; or the status of the watch. Before it returns it reports its error to the other
 * members by a note, unless a member's note is the error, and the caller's memory is no longer used.
 */

/* Identifies a call; part of the tags of its messages, so that members that make different calls are detected. */
struct ddp_column_call {
	uint32_t sequence;
	uint32_t check; /* a hash of kind, type, op and count */
	const char *name;
};

/* Partners of a member at most, for any size of column. */
enum { DDP_COLUMN_PARTNERS = 96 };

/*
 * Write the members that member [index] of a column of [size] exchanges messages with, in any of the
 * calls below, to [partners]: at distances of powers of two, and those of recursive doubling. It is
 * mutual. Returns their number.
 */
int ddp_column_partners(int size, int index, int partners[static DDP_COLUMN_PARTNERS]);

/*
 * Combine [data] over the column: by recursive doubling if it is small, else by a ring reduce-scatter and
 * all-gather. 16-bit types are summed in f32 and rounded once a hop.
 */
int ddp_column_all_reduce(struct ddp_column *column, const struct ddp_column_call *call, void *data,
			  size_t count, enum ddp_type type, enum ddp_op op,
			  const struct ddp_watch *watch, struct ddp_error *error);

int ddp_column_broadcast(struct ddp_column *column, const struct ddp_column_call *call, void *data,
			 size_t bytes, int root, const struct ddp_watch *watch,
			 struct ddp_error *error);

/* Member i's part of [recv] is from [offsets][i] to [offsets][i+1]; parts may differ in size. */
int ddp_column_all_gather(struct ddp_column *column, const struct ddp_column_call *call, void *recv,
			  const size_t *offsets, const struct ddp_watch *watch,
			  struct ddp_error *error);

/* Wait until all members have called this. */
int ddp_column_barrier(struct ddp_column *column, const struct ddp_column_call *call,
		       const struct ddp_watch *watch, struct ddp_error *error);

#endif /* DDP_WIDE_RING_H */
