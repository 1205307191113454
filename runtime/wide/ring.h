/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring.h - collectives between groups, with any engine of host.h
 *
 * A column consists of one rank of each group, in the order of the groups. These ranks are its
 * members. The order of additions is fixed. So a sum has the same bits in each run and on all
 * members of a column.
 */
#ifndef DDP_WIDE_RING_H
#define DDP_WIDE_RING_H

#include "base/kernel.h"
#include "host.h"

enum { DDP_COLUMN_SCRATCH = 512 << 10 };

struct ddp_column {
	const struct ddp_host_engine *engine;
	struct ddp_host *host;
	int index, size;
	const int *ranks; /* world rank of each member */
	enum ddp_simd simd;
	/* returns a name for messages, such as "rank 3 on n2" */
	const char *(*name)(void *owner, int rank);
	void *owner;
	void *scratch; /* DDP_COLUMN_SCRATCH bytes for received data, aligned to 64 bytes */
};

/*
 * A failed call returns DDP_ERR_TIMEOUT, naming a member that does not answer; DDP_ERR_PEER, naming
 * a member that was lost; DDP_ERR_ABORTED, with the text of a member that reported a failure;
 * DDP_ERR_MISMATCH, naming a member that made a different call; or the status of the watch. Before
 * a call returns an error, it sends a note with the error to the other members, unless the error
 * came in a note. The caller's memory is then no longer in use.
 */

/*
 * Identification of a call. The tags of the call's messages contain it, so that two members which
 * make different calls are detected.
 */
struct ddp_column_call {
	uint32_t sequence;
	/*
	 * Upper bits: kind of the call (base/type.h). Lower DDP_COLUMN_HASH_BITS: hash of type,
	 * operation and count; in a refusal, the number of device collectives that the rank has
	 * made.
	 */
	uint32_t check;
	const char *name;
};

enum { DDP_COLUMN_HASH_BITS = 26 };

/* Maximum number of partners of a member, for any number of members. */
enum { DDP_COLUMN_PARTNERS = 96 };

/*
 * Write to [partners] the members with which member [index] of [size] exchanges messages in any of
 * the calls below: the members at distances of powers of two, and those of recursive doubling. If A
 * is a partner of B, then B is a partner of A. Returns the number of partners.
 */
int ddp_column_partners(int size, int index, int partners[static DDP_COLUMN_PARTNERS]);

/*
 * All-reduce [data] over the column. Small data uses recursive doubling; larger data uses a ring
 * reduce-scatter and all-gather. 16-bit types are summed in f32 and rounded after each message.
 */
int ddp_column_all_reduce(struct ddp_column *column, const struct ddp_column_call *call, void *data,
			  size_t count, enum ddp_type type, enum ddp_op op,
			  const struct ddp_watch *watch, struct ddp_error *error);

int ddp_column_broadcast(struct ddp_column *column, const struct ddp_column_call *call, void *data,
			 size_t bytes, int root, const struct ddp_watch *watch,
			 struct ddp_error *error);

/*
 * All-gather of parts whose sizes can differ. Member i contributes bytes offsets[i] to offsets[i+1]
 * of [recv].
 */
int ddp_column_all_gather(struct ddp_column *column, const struct ddp_column_call *call, void *recv,
			  const size_t *offsets, const struct ddp_watch *watch,
			  struct ddp_error *error);

int ddp_column_barrier(struct ddp_column *column, const struct ddp_column_call *call,
		       const struct ddp_watch *watch, struct ddp_error *error);

#endif /* DDP_WIDE_RING_H */
