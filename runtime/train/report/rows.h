/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows.h - the table of ranks, as cells
 */
#ifndef TRAIN_REPORT_ROWS_H
#define TRAIN_REPORT_ROWS_H

#include "report.h"

enum column {
	COLUMN_RANK,
	COLUMN_NODE,
	COLUMN_DEVICE,
	COLUMN_THREADS,
	COLUMN_SPEED,
	COLUMN_DATA,
	COLUMN_COMPUTE,
	COLUMN_REDUCE,
	COLUMN_TEST,
	COLUMN_OTHER,
	COLUMN_MEMORY,
	COLUMNS
};

struct row {
	char cells[COLUMNS][80]; /* without control characters */
};

/* Of a column: what is in it, and whether its cells are words. */
const char *column_title(enum column column);
bool column_words(enum column column);

/*
 * A row for each of [ranks], of a run that took [seconds]; where there are several, one more for
 * all of them: sums, and means of the shares. The caller frees [rows].
 * Returns how many, 0 without memory.
 */
int rows_create(struct row **rows, const struct report_run *run, const struct report_rank *ranks,
		double seconds);

/* Shares of [seconds], 0 to 1, that [rank] spent in each phase, in evaluation and elsewhere. */
struct shares {
	double data, compute, reduce, test, other;
};
struct shares rank_shares(const struct report_rank *rank, double seconds);

#endif /* TRAIN_REPORT_ROWS_H */
