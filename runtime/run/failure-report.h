/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failure-report.h - report.txt and report.json of an attempt, by facts.h and verdict.h
 *
 * Texts of ranks and of Slurm are shown without the control characters that are in them.
 */
#ifndef DDP_RUN_FAILURE_REPORT_H
#define DDP_RUN_FAILURE_REPORT_H

#include <stdio.h>

#include "base/error.h"

/*
 * Write report.txt and report.json on the attempt that [dir] is about, and print the first on [screen], NULL: nowhere. Slurm is asked
 * about the nodes concerned, for five seconds at most, unless it was before. To be called again, which is cheap, when attempt.json has more
 * members.
 * Returns 0, or DDP_ERR_FILE or DDP_ERR_MEMORY after the report was printed as far as possible.
 */
int ddp_verdict_write(const char *dir, FILE *screen, struct ddp_error *error);

/* Print the report on [dir], as ddp-run --explain does, without asking Slurm or writing a file. Returns as above. */
int ddp_verdict_explain(const char *dir, FILE *screen, struct ddp_error *error);

/*
 * Describe where the attempt ended, in a line of [size] bytes at most: two attempts with the same line ended at the same point. It
 * is the first rank that failed, how, and its message, with "#" for numbers in that; "" if no rank stands out. [node] of
 * [node_size] bytes is that rank's; "": not known, or the rank was only late. NULL and 0: do not return it.
 */
int ddp_verdict_point(const char *dir, char *point, size_t size, char *node, size_t node_size,
		      struct ddp_error *error);

#endif /* DDP_RUN_FAILURE_REPORT_H */
