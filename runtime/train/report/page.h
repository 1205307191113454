/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page.h - a run as one HTML file that needs nothing else: curves, times, tables
 */
#ifndef TRAIN_REPORT_PAGE_H
#define TRAIN_REPORT_PAGE_H

#include "report.h"

struct page;

/*
 * [run] and [path] stay the caller's and are read until close. The file is written at once, and
 * then after each epoch and at the end, each time as a whole.
 * Returns 0, DDP_ERR_FILE or DDP_ERR_MEMORY.
 */
int page_open(struct page **page, const char *path, bool append, const struct report_run *run,
	      struct ddp_error *error);

void page_beat(struct page *page, const struct report_beat *beat);
void page_say(struct page *page, const char *line, bool warning);

/* Each returns 0, or DDP_ERR_FILE if the file could not be written. NULL is legal. */
int page_epoch(struct page *page, const struct report_epoch *epoch, struct ddp_error *error);
int page_end(struct page *page, const struct report_end *end, struct ddp_error *error);
void page_close(struct page *page);

#endif /* TRAIN_REPORT_PAGE_H */
