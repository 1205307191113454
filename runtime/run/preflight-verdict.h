/* SPDX-License-Identifier: Apache-2.0 */
/* preflight-verdict.h - decide which nodes failed or are slow; functions without I/O */
#ifndef DDP_RUN_PREFLIGHT_VERDICT_H
#define DDP_RUN_PREFLIGHT_VERDICT_H

#include <stdbool.h>
#include <stddef.h>

/* X(name, text), from the best to the worst. */
#define PREFLIGHT_VERDICTS(X)     \
	X(OK, "ok")               \
	X(DIFFERS, "differs")     \
	X(UNTESTED, "not tested") \
	X(SLOW, "slow")           \
	X(FAILED, "failed")       \
	X(SILENT, "no answer")

enum preflight_verdict {
#define PREFLIGHT_VERDICT(name, word) PREFLIGHT_##name,
	PREFLIGHT_VERDICTS(PREFLIGHT_VERDICT)
#undef PREFLIGHT_VERDICT
};

/* Names of tests of pairs of nodes. */
#define PREFLIGHT_PAIR "pair"
#define PREFLIGHT_GPU_PAIR "GPU pair"

#define PREFLIGHT_CLOCK "clock" /* name of the test of clocks */

enum { PREFLIGHT_SPREAD_LEAST = 5 /* with fewer values, the standard deviation is useless */ };

/* Result of a test of a node, or of a pair of nodes. */
struct preflight_row {
	int node, partner; /* numbers of the tested nodes; partner -1: a test of one node */
	char test[24];
	char kind[96];	 /* hardware; only values of the same test and kind are compared */
	double value;	 /* NAN: no value */
	bool is_rate;	 /* a larger value is better, and the value is compared with the median */
	bool is_config;	 /* a property of the hardware, whose value should be equal on all nodes */
	int run;	 /* run in which the value was measured */
	size_t next;	 /* for preflight.c: index of the node's previous row; SIZE_MAX: none */
	double median;	 /* set by preflight_judge(); NAN: not compared */
	size_t compared; /* number of values from which the median was computed */
	char unit[16];	 /* unit of [value] */
	char text[160];	 /* what failed, or a note */
	enum preflight_verdict verdict; /* set by preflight_judge() if the row is slow or differs */
	bool is_shared; /* set by preflight_judge(): the cause is the same on all nodes */
};

const char *preflight_word(enum preflight_verdict verdict);

/*
 * Whether the [newer] result of a test replaces the [older] one. Both nodes of a pair report its
 * result. Of two rates the better one counts, of two results of a run the worse one, and of results
 * of two runs the newer one, unless the older one is a failure. If a node stops a test of a pair
 * because its time is over, its result is UNTESTED. That result counts, although its partner
 * reports a lost rank, so the pair fails for neither node.
 */
bool preflight_replaces(const struct preflight_row *newer, const struct preflight_row *older);

/*
 * Judge [count] rows: set their medians, mark slow rates, and set the [verdicts] on [nodes]. A rate
 * is slow if it is below [slow] times the median. If there are at least five values, the rate must
 * also be two standard deviations below the median, or below a third of that limit.
 *
 * A clock is slow if it differs by more than a second from the median of at least three nodes. With
 * fewer nodes, it is compared with the clock of ddp-run's host.
 *
 * A node differs if one of its rows with [is_config] has another value than all other nodes with
 * the same kind of hardware, of which there must be at least two.
 *
 * A row of one node counts for that node. A slow or failed pair counts for a node if, in the same
 * test, at least two and at least half of the node's pairs are slow or failed; pairs whose partner
 * is itself slow or failed are not considered. Otherwise the pair counts for neither node. If
 * preflight_find_cause() returns the cause of a failure, it counts for no node.
 */
void preflight_judge(struct preflight_row *rows, size_t count, int nodes, double slow,
		     enum preflight_verdict *verdicts);

/*
 * Returns the cause of the failure in [row] if the cause is not a node; else NULL. All nodes, or
 * all pairs, must have failed in the same test. Some tests show that the cause is the program, its
 * directory, the network or NCCL. In other tests it is too little time, if at least two nodes did
 * not answer and all others have failed in another test.
 */
const char *preflight_find_cause(const struct preflight_row *rows, size_t count,
				 const struct preflight_row *row);

/* State of a node at the end of a run. */
struct preflight_node {
	bool has_ended; /* its last line has arrived; else it has not started, or was lost */
	int round;	/* last round for which the node waited; -1: none */
	int partner;	/* node for which it waits; -1: none */
};

/*
 * Whether other nodes are the reason that the programme of [node] ended early. Follow the chain in
 * which each node waits for the next, to a node that waits for none. That node is the reason if it
 * was lost, or has not reached its first pair. Two nodes that wait for each other are each other's
 * reason: the link between them is broken, and neither has failed.
 */
bool preflight_is_blocked(const struct preflight_node *nodes, int count, int node);

#endif /* DDP_RUN_PREFLIGHT_VERDICT_H */
