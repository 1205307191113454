/* SPDX-License-Identifier: Apache-2.0 */
/*
 * double.h - stands in for comm/: collectives of ranks that are threads of this program
 *
 * For what is above the collectives: sums are in rank order as the real ones, every collective
 * is noted, and any of them can be made to fail.
 */
#ifndef DDP_TESTS_DOUBLE_H
#define DDP_TESTS_DOUBLE_H

#include "comm/ddp-private.h"

enum { DOUBLE_RANKS = 8, DOUBLE_NOTES = 256 };

struct double_options {
	int size;
	bool wide;    /* pretend that there is an engine between groups */
	int fails_at; /* which all-reduce fails on all ranks, counted from 1; 0: none */
};

/* What rank 0 did: elements of each all-reduce, in order. */
struct double_notes {
	size_t counts[DOUBLE_NOTES];
	int reduces;
};

/*
 * Call [body] on each rank, in a thread of its own. Returns what rank 0 did, once all ranks are
 * through and all EXPECT()s held; else fails the test.
 */
struct double_notes double_run(const struct double_options *options,
			       void (*body)(struct ddp *ddp, void *argument), void *argument);

/* All-reduces so far, of this rank. */
int double_reduces(const struct ddp *ddp);

/* As ck_assert_msg, which threads cannot use: the test fails when all are through. */
#define EXPECT(condition, ...)                                                      \
	do {                                                                        \
		if (!(condition))                                                   \
			double_failed(__FILE__, __LINE__, #condition, __VA_ARGS__); \
	} while (0)
void double_failed(const char *file, int line, const char *condition, const char *format, ...)
	DDP_FORMAT(4, 5);

#endif /* DDP_TESTS_DOUBLE_H */
