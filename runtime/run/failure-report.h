/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failure-report.h - write report.txt and report.json on an attempt, from facts.h and verdict.h
 *
 * Texts from ranks and Slurm are printed without their control characters.
 */
#ifndef DDP_RUN_FAILURE_REPORT_H
#define DDP_RUN_FAILURE_REPORT_H

#include <stdio.h>

#include "base/error.h"

/*
 * Write report.txt and report.json to [dir]. Unless [screen] is NULL, also print report.txt on
 * [screen]. The first call for [dir] asks Slurm about the nodes involved, for at most five seconds.
 * After adding members to attempt.json, call this function again; later calls take little time.
 * Returns 0, or DDP_ERR_FILE or DDP_ERR_MEMORY after printing as much of the report as possible.
 */
int ddp_verdict_write(const char *dir, FILE *screen, struct ddp_error *error);

/*
 * Print the report on [dir] for ddp-run --explain, without asking Slurm and without writing a file.
 * Returns the same values as ddp_verdict_write().
 */
int ddp_verdict_explain(const char *dir, FILE *screen, struct ddp_error *error);

/*
 * Describe in [point], a text of at most [size] bytes, where the attempt ended: the first rank that
 * failed, how it ended, and its message with "#" in place of numbers; "" if no rank was found. Two
 * attempts with equal texts ended at the same point. Set [node] to the node of that rank; "" if the
 * node is unknown or the rank was only late. [node] may be NULL.
 */
int ddp_verdict_point(const char *dir, char *point, size_t size, char *node, size_t node_size,
		      struct ddp_error *error);

#endif /* DDP_RUN_FAILURE_REPORT_H */
