/* SPDX-License-Identifier: Apache-2.0 */
/* preflight-verdict.h - decide which nodes failed or are slow; functions without I/O */
#ifndef DDP_RUN_PREFLIGHT_VERDICT_H
#define DDP_RUN_PREFLIGHT_VERDICT_H

#include <stdbool.h>
#include <stddef.h>

/* All verdicts, from best to worst. Columns: constant, text in the report. */
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

enum { PREFLIGHT_SPREAD_LEAST = 5 /* minimum number of values whose standard deviation is used */ };

/* Result of a test of a node, or of a pair of nodes. */
struct preflight_row {
	int node, partner; /* indices of the tested nodes; partner is -1 in a test of one node */
	char test[24];
	char kind[96];	 /* kind of hardware; values are compared only if test and kind are equal */
	double value;	 /* NAN: no value */
	bool is_rate;	 /* larger values are better, and low ones are slow */
	bool is_config;	 /* the value is a property of the hardware that all nodes should share */
	int run;	 /* number of the run that measured the value */
	size_t next;	 /* for preflight.c: index of the node's previous row; SIZE_MAX: none */
	double median;	 /* set by preflight_judge(); NAN if there is no median */
	size_t compared; /* number of values from which the median was computed */
	char unit[16];	 /* unit of [value] */
	char text[160];	 /* what failed, or a note */
	enum preflight_verdict verdict; /* set by preflight_judge() if the row is slow or differs */
	bool is_shared; /* the failure has the same cause on all nodes; set by preflight_judge() */
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
 * Returns the cause of the failure in [row] if it is not a node, or else NULL. It is not a node if
 * the same test failed on all nodes or in all pairs. Depending on the test, the cause is the
 * program, its directory, the network or NCCL. For other tests, the cause is a lack of time, if at
 * least two nodes did not answer and all other nodes had failed in another test.
 */
const char *preflight_find_cause(const struct preflight_row *rows, size_t count,
				 const struct preflight_row *row);

/* State of a node at the end of a run. */
struct preflight_node {
	bool has_ended; /* its last line has arrived; otherwise it was lost or did not start */
	int round;	/* last round in which the node waited for its partner; -1: none */
	int partner;	/* node for which it still waits; -1: none */
};

/*
 * Whether [node] ended its tests early because of other nodes. Each node may wait for the next one:
 * follow this chain to a node that waits for no other. That node is the reason if it was lost, or
 * if it did not reach its first pair. If the chain is a cycle, as when two nodes wait for each
 * other, the link between them is broken, and none of its nodes has failed.
 */
bool preflight_is_blocked(const struct preflight_node *nodes, int count, int node);

#endif /* DDP_RUN_PREFLIGHT_VERDICT_H */
