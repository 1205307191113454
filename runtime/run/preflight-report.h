/* SPDX-License-Identifier: Apache-2.0 */
/* preflight-report.h - the results of a preflight as a table and as preflight.json */
#ifndef DDP_RUN_PREFLIGHT_REPORT_H
#define DDP_RUN_PREFLIGHT_REPORT_H

#include <stdio.h>

#include "nodes.h"
#include "preflight-verdict.h"

struct preflight_results {
	const struct node_list *nodes;
	enum preflight_verdict *verdicts; /* of each node */
	struct preflight_row *rows;
	size_t count;
	struct preflight_row
		all[2]; /* all-reduces of all nodes, and of all GPUs; test "": there was none */
	int rounds, rounds_wanted;
	char untested
		[2]
		[160]; /* why pairs and all nodes were not; why sums of GPUs were not; "": they were, or there are no GPUs */
	double took;   /* seconds */
	double slow;   /* part of the median */
};

/*
 * Print the table, the reasons, and how a node would be drained, on stderr. Write preflight.json into [dir], "": nowhere. Returns whether
 * all tests are in order.
 */
bool preflight_report(const struct preflight_results *results, const char *dir);

/* Print the table of preflight.json in [dir] again. Returns false if there is none. */
bool preflight_explain(const char *dir, FILE *screen);

#endif /* DDP_RUN_PREFLIGHT_REPORT_H */
