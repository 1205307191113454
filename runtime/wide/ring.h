/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring.h - collectives between groups over any host engine
 *
 * Who takes part is a column: one rank of each group, in the order of the groups. Orders are
 * fixed, so that two runs give the same bits and all members of a column get the same bits.
 */
#ifndef DDP_WIDE_RING_H
#define DDP_WIDE_RING_H

#include "host.h"
#include "local/kernel.h"

/* Least scratch; and from where on more makes nothing faster. */
enum { DDP_COLUMN_SCRATCH = 4096, DDP_COLUMN_SCRATCH_FULL = 1 << 20 };

struct ddp_column {
	const struct ddp_host_engine *engine;
	struct ddp_host *host;
	int index, size;  /* of the column */
	const int *ranks; /* world rank of each */
	enum ddp_simd simd;
	const char *(*name)(void *owner, int rank); /* "rank 3 on n2", for messages */
	void *owner;
	void *scratch;	      /* for what is received; 64-aligned */
	size_t scratch_bytes; /* the same on all members, at least DDP_COLUMN_SCRATCH */
};

/*
 * A call that fails has told the other members why (a note), unless it was they who told, and
 * left nothing behind that still uses the caller's memory: DDP_ERR_TIMEOUT, naming who does not
 * answer; DDP_ERR_PEER, naming who was lost; DDP_ERR_ABORTED, with the text of who gave up;
 * DDP_ERR_MISMATCH, naming who made another call; or what the watch said.
 */

/* What the call is; goes into the tags, so that columns that disagree are told. */
struct ddp_column_call {
	uint32_t sequence;
	uint32_t check; /* a hash of kind, type, op and count */
	const char *name;
};

/*
 * [data] becomes the combination over the column: recursive doubling when small, ring reduce-
 * scatter and all-gather when large, any size of column. 16-bit types are summed in f32 and
 * rounded once a hop.
 */
int ddp_column_all_reduce(struct ddp_column *column, const struct ddp_column_call *call, void *data,
			  size_t count, enum ddp_type type, enum ddp_op op,
			  const struct ddp_watch *watch, struct ddp_error *error);

int ddp_column_broadcast(struct ddp_column *column, const struct ddp_column_call *call, void *data,
			 size_t bytes, int root, const struct ddp_watch *watch,
			 struct ddp_error *error);

/* recv has [offsets][i] to [offsets][i+1] of member i; parts may differ in size. */
int ddp_column_all_gather(struct ddp_column *column, const struct ddp_column_call *call, void *recv,
			  const size_t *offsets, const struct ddp_watch *watch,
			  struct ddp_error *error);

/* Wait until the whole column is here: an all-reduce of nothing. */
int ddp_column_barrier(struct ddp_column *column, const struct ddp_column_call *call,
		       const struct ddp_watch *watch, struct ddp_error *error);

#endif /* DDP_WIDE_RING_H */
