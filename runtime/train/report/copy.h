/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy.h - a report's own copy of what describes the run
 */
#ifndef TRAIN_REPORT_COPY_H
#define TRAIN_REPORT_COPY_H

#include "report.h"

/* Texts that are NULL become "". Returns 0, or DDP_ERR_MEMORY with nothing kept. */
int copy_run(struct report_run *copy, const struct report_run *run);
void copy_run_free(struct report_run *copy);

/* Names of files that are "" become NULL. Returns as above. */
int copy_options(struct report_options *copy, const struct report_options *options);
void copy_options_free(struct report_options *copy);

#endif /* TRAIN_REPORT_COPY_H */
