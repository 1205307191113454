/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failure-report.h - compose the report on an attempt that attempt_judge() has judged
 *
 * Texts from ranks and Slurm are printed without their control characters.
 */
#ifndef DDP_RUN_FAILURE_REPORT_H
#define DDP_RUN_FAILURE_REPORT_H

#include <stdio.h>

#include "ddp-run.h"

/* Add the content of report.txt to [text], with secrets replaced, and of report.json to [json]. */
void failure_report(const struct attempt *attempt, struct ddp_text *text, struct ddp_text *json);

/*
 * Print the member "report" of [dir]/[name], which is report.json or preflight.json. Returns false if
 * there is none.
 */
bool failure_explain(const char *dir, const char *name, FILE *screen);

/*
 * Describe in [point], a text of at most [size] bytes, where the attempt ended. Two attempts with
 * equal texts ended at the same point. The text says how the first rank that failed ended, and has
 * its message, with "#" in place of numbers. The rank's number is added only if the rank has no
 * message, or one about another rank: any rank can be the first if all fail in one line. [point] is
 * "" if no rank was found. Set [node] to that rank's node; "" if the node is unknown or the rank
 * was only late.
 */
void failure_point(const struct attempt *attempt, char *point, size_t size, char *node,
		   size_t node_size);

#endif /* DDP_RUN_FAILURE_REPORT_H */
