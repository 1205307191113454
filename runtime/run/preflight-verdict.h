/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preflight-verdict.h - choose the pairs of nodes to test, and decide which nodes failed or are
 * slow; functions without I/O
 */
#ifndef DDP_RUN_PREFLIGHT_VERDICT_H
#define DDP_RUN_PREFLIGHT_VERDICT_H

#include <stdbool.h>
#include <stddef.h>

/* X(name, text), from the best to the worst. */
#define PREFLIGHT_VERDICTS(X) \
	X(OK, "ok")           \
	X(SLOW, "slow")       \
	X(FAILED, "failed")   \
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
	char kind[96]; /* hardware; only values of the same test and kind are compared */
	double value;  /* NAN: no value */
	double most; /* rate: [value] without waits for CPUs, 0: equal to [value]; clock: upper bound */
	bool is_rate;	 /* a larger value is better, and the value is compared with the median */
	double median;	 /* set by preflight_judge(); NAN: not compared */
	size_t compared; /* number of values from which the median was computed */
	char unit[16];	 /* of the value */
	char text[160];	 /* what failed, or a note */
	enum preflight_verdict verdict; /* set by preflight_judge() if the row is slow */
};

const char *preflight_word(enum preflight_verdict verdict);

/*
 * Returns the number of rounds in which each of [nodes] has a different partner: ceil(log2 n) + 1.
 * With [full], returns the number of rounds in which all pairs are tested.
 */
int preflight_rounds(int nodes, bool full);

/*
 * Set the [partner] of each of [nodes] in [round] (from 0) of a round-robin tournament. If the
 * number of nodes is odd, one node in each round has no partner: -1. In the first
 * preflight_rounds(nodes, true) rounds, no pair occurs twice.
 */
void preflight_pairs(int nodes, int round, int *partner);

/*
 * Judge [count] rows: set their medians, mark slow rates, and set the [verdicts] on [nodes]. A rate
 * is slow if it and its [most] are below [slow] times the median. If there are at least five
 * values, the rate must also be two standard deviations below the median, or below a third of that
 * limit.
 *
 * A clock is slow if it differs by more than a second from the median of at least three nodes. With
 * fewer nodes, it is compared with the clock of ddp-run's host.
 *
 * A row of one node counts for that node. A slow or failed pair counts for a node if, in the same
 * test, at least two and at least half of the node's pairs are slow or failed; pairs whose partner
 * is itself slow or failed are not considered. Otherwise the pair counts for neither node. If all
 * pairs of a test have failed, they count for no node.
 */
void preflight_judge(struct preflight_row *rows, size_t count, int nodes, double slow,
		     enum preflight_verdict *verdicts);

/*
 * Whether there are several pairs in [test] and all have failed, which means an error of the
 * network or its settings.
 */
bool preflight_all_pairs_failed(const struct preflight_row *rows, size_t count, const char *test);

#endif /* DDP_RUN_PREFLIGHT_VERDICT_H */
