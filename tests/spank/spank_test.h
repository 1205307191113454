/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spank_test.h - what the tests of the plugin share
 *
 * Every test begins in an empty directory of its own, with an environment of PATH alone and a
 * slurmctld that knows nothing; at its end no answer of slurmctld's may be left.
 */
#ifndef DDP_TESTS_SPANK_TEST_H
#define DDP_TESTS_SPANK_TEST_H

#include "fake_slurm.h"
#include "unit.h"

/* For all tests of [tcase]. */
void spank_use(TCase *tcase);

/* Task [rank] must have [want] as the value of [name]; NULL: it must not have the variable. */
void expect_var(const char *row, const struct fake_step *step, uint32_t rank, const char *name,
		const char *want);

/* As expect_var, for each word "NAME=VALUE" or "-NAME" of [wants]; NULL is legal. */
void expect_vars(const char *row, const struct fake_step *step, uint32_t rank, const char *wants);

/* A message of [levels] with [text] in it must have been said so often. */
void expect_said(const char *row, int levels, const char *text, unsigned times);

/* One message of [levels] must have all of the [pieces], separated by '|'. */
void expect_pieces(const char *row, int levels, const char *pieces);

/* Nothing may have been said. */
void expect_silence(const char *row);

/* All tasks must have refused: task_init failed, and no variable is left to train with. */
void expect_refused(const char *row, const struct fake_step *step, const char *why);

/* Write [text] to [path]. */
void write_text(const char *path, const char *text);

#endif /* DDP_TESTS_SPANK_TEST_H */
