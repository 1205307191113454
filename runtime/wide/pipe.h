/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipe.h - large data on its way through a column, piece by piece
 *
 * A member takes parts from one neighbour and passes parts to the other. A vector is cut into
 * parts, parts into pieces; a piece is passed on as soon as it is here, while the next ones
 * are on their way. Rings and chains differ in which parts go where, and that is all that this
 * file has to be told.
 */
#ifndef DDP_WIDE_PIPE_H
#define DDP_WIDE_PIPE_H

#include "exchange.h"

/* Pieces on their way at a time, in each direction. */
enum { DDP_PIPE_WINDOW = 4 };

/* Part p of [count] is from offsets[p] to offsets[p+1]; or, offsets NULL, all of one length. */
struct ddp_parts {
	int count;
	const size_t *offsets;
	size_t length, total;
};

/* Walks through [left] parts downwards from [part], piece by piece. */
struct ddp_walk {
	int part, left;
	int step; /* how many parts were behind this one */
	size_t at, end;
};

struct ddp_piece {
	struct ddp_message message;
	size_t at, bytes;
};

struct ddp_pipe {
	/* Set by the caller. */
	struct ddp_exchange *exchange;
	struct ddp_parts parts;
	char *data;
	size_t chunk;		 /* of a piece, at most */
	int from, to;		 /* members */
	int own;		 /* this many of the parts that go out are here at the start */
	int combine;		 /* this many of the parts that come in are combined with ours */
	ddp_kernel *kernel;	 /* how */
	size_t element;		 /* bytes */
	char *scratch;		 /* DDP_PIPE_WINDOW chunks, if [combine] */
	struct ddp_walk in, out; /* begun with ddp_pipe_walk() */

	struct ddp_piece in_window[DDP_PIPE_WINDOW], out_window[DDP_PIPE_WINDOW];
	uint64_t in_begun, in_done, out_begun, out_done;
	uint64_t out_own;   /* pieces that went out without having come in */
	uint64_t in_placed; /* pieces begun that come to where they stay */
};

/* [walk] is to go through [steps] parts of the ring of [count], downwards from [part]. */
void ddp_pipe_walk(struct ddp_walk *walk, int part, int steps, int count);

/* Run it all. Returns 0, or what ddp_exchange_x() returned. */
int ddp_pipe_run(struct ddp_pipe *pipe);

#endif /* DDP_WIDE_PIPE_H */
