/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue-private.h - what the files of the queues share
 */
#ifndef QUEUE_PRIVATE_H
#define QUEUE_PRIVATE_H

#include "queue-host.h"

enum { LANES = DEVICE_STREAMS };

enum op_kind { OP_WORK, OP_AFTER, OP_LAUNCH };

struct op {
	struct op *next;
	enum op_kind kind;
	struct queue_work work;
	uint64_t ordinal;	    /* of a collective */
	enum device_stream earlier; /* AFTER: so many operations of that lane */
	uint64_t position;
	struct device_graph *graph; /* LAUNCH */
	uint64_t base;		    /* LAUNCH: ordinal of the graph's first collective */
};

/* A stream: live, or what a graph has of it. */
struct lane {
	struct op *first, **end; /* all that was not done; of a graph: all */
	uint64_t submitted, done;
	uint64_t last_work; /* position behind the last that is no AFTER */
	uint64_t known
		[LANES]; /* of a capture: so many of each lane are done before what comes next */
	bool captured;
	struct op *cursor; /* of a graph that runs */
};

struct device_graph {
	struct lane lanes[LANES];
	uint64_t collectives;
	size_t nodes;
	int users; /* the owner, and launches that were not done */
};

struct stream {
	struct queues *queues;
	enum device_stream which;
};

struct mark {
	enum device_stream stream;
	uint64_t position;
};

struct queues {
	struct lane lanes[LANES];
	struct stream streams[LANES];
	struct mark marks[DEVICE_MARKS];
	struct device_graph *capture; /* being recorded */
	struct op *running;	      /* the LAUNCH whose graph runs */
	uint64_t collectives, collectives_done;
	uint64_t chance;
	struct ddp_error failure; /* the first */
};

/* Of the live set or of a graph: nothing in them; free all that is. */
void lanes_open(struct lane *lanes);
void lanes_close(struct lane *lanes);

/* Put a copy of [what] at the end of [lane]. */
void lane_append(struct lane *lane, const struct op *what);

/* The first operation of a live lane is done. */
void lane_take_first(struct lane *lane);

/* Enqueue a copy of [op] or, where the stream is captured, record it. */
void queues_put(struct queues *queues, enum device_stream stream, struct op *op);

/* Do what chance wants until [stream] has done [position] operations; or do a few things. */
void queues_run_until(struct queues *queues, enum device_stream stream, uint64_t position);
void queues_run_some(struct queues *queues);

/* The first failure of what was done, ever. */
int queues_failure(const struct queues *queues, struct ddp_error *error);

/* queues_order() where one of the two is captured. */
int graph_order(struct device_graph *graph, enum device_stream later, enum device_stream earlier,
		struct ddp_error *error);

#endif /* QUEUE_PRIVATE_H */
