/* SPDX-License-Identifier: Apache-2.0 */
/* preflight-report.h - print the results of a preflight as a table, and write preflight.json */
#ifndef DDP_RUN_PREFLIGHT_REPORT_H
#define DDP_RUN_PREFLIGHT_REPORT_H

#include "nodes.h"
#include "preflight-verdict.h"

struct preflight_results {
	const struct node_list *nodes;
	enum preflight_verdict *verdicts; /* one for each node */
	struct preflight_row *rows;
	size_t count;
	/*
	 * Rows of the all-reduces of all nodes [0], and of all GPUs [1]. If [test] is "", it was
	 * not run.
	 */
	struct preflight_row all[2];
	int rounds, rounds_wanted;
	/*
	 * Why tests of pairs and of all nodes [0], and sums of GPUs [1], were not run. "": they
	 * were run, or there are no GPUs.
	 */
	char untested[2][160];
	double took; /* seconds */
	double slow; /* rates below this fraction of the median are slow */
};

/*
 * Print on stderr the table, the reasons for bad verdicts, and the command that drains these nodes.
 * Write preflight.json to [dir], unless [dir] is "". Returns true if the file was written and not
 * all tests passed, so that the file should be kept.
 */
bool preflight_report(const struct preflight_results *results, const char *dir);

#endif /* DDP_RUN_PREFLIGHT_REPORT_H */
