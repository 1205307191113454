/* SPDX-License-Identifier: Apache-2.0 */
/* preflight-verdict.h - which pairs of nodes are tested, and which nodes failed or are slow by what was measured: no I/O */
#ifndef DDP_RUN_PREFLIGHT_VERDICT_H
#define DDP_RUN_PREFLIGHT_VERDICT_H

#include <stdbool.h>
#include <stddef.h>

/* X(name, word), from the best to the worst. */
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

/* Tests of pairs of nodes. */
#define PREFLIGHT_PAIR "pair"
#define PREFLIGHT_GPU_PAIR "GPU pair"

enum { PREFLIGHT_SPREAD_LEAST = 5 /* values, to know their standard deviation */ };

/* A test of a node, or of a pair of nodes. */
struct preflight_row {
	int node, partner; /* partner: -1: the test is of one node */
	char test[24];
	char kind[96];			/* hardware: values of one test and kind are compared */
	double value;			/* NAN: there is no number */
	double most;			/* value without waits for CPUs; 0: the same */
	bool is_rate;			/* more is better: compared with the median */
	double median;			/* set by preflight_judge(); NAN: not compared */
	size_t compared;		/* set with the median: values that it is of */
	char unit[16];			/* of the value */
	char text[160];			/* what failed, or a remark */
	enum preflight_verdict verdict; /* set by preflight_judge() if the row is slow */
};

const char *preflight_word(enum preflight_verdict verdict);

/* Rounds in which each of [nodes] meets another partner: ceil(log2 n) + 1 of them, or with [full] all. */
int preflight_rounds(int nodes, bool full);

/*
 * Set [partner] of each of [nodes] in [round], from 0, of a round-robin tournament. If the number of nodes is odd, one node in each round
 * has no partner: -1. In the first preflight_rounds(nodes, true) rounds no pair meets twice.
 */
void preflight_pairs(int nodes, int round, int *partner);

/*
 * Judge [count] rows: set their medians, mark slow rates, and set [verdicts] of [nodes]. A rate is slow if it and its [most] are below [slow] of the median. Of
 * five or more values it must also be two standard deviations below the median, or below a third of that limit.
 *
 * A row of one node counts for that node. A pair that is slow, or has failed, counts for a node if at least two, and at least half, of
 * its pairs in the same test do, not counting those with partners that are slow or failed themselves. Else it counts for neither. If all
 * pairs of a test have failed, they count for no node.
 */
void preflight_judge(struct preflight_row *rows, size_t count, int nodes, double slow,
		     enum preflight_verdict *verdicts);

/* Whether all pairs in [test] have failed, of several: an error of the network, or of its settings. */
bool preflight_all_pairs_failed(const struct preflight_row *rows, size_t count, const char *test);

#endif /* DDP_RUN_PREFLIGHT_VERDICT_H */
