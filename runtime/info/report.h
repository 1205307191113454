/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.h - the table for people, and the same as JSON
 */
#ifndef DDP_INFO_REPORT_H
#define DDP_INFO_REPORT_H

#include <stdio.h>

#include "selftest.h"
#include "warning.h"

struct info_report {
	const struct ddp_world *world;
	const struct info_card *cards; /* world->size of them, after info_sharing_find() */
	const struct info_warnings *warnings;
	const struct info_selftest *test; /* NULL: not run */
};

/* Columns that say nothing for any rank (no devices, no shares) are left out. */
void info_report_table(const struct info_report *report, FILE *out);

/* One object; keys are stable: ranks, sharing, warnings, selftest. */
void info_report_json(const struct info_report *report, FILE *out);

#endif /* DDP_INFO_REPORT_H */
