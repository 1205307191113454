/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spank_test.h - shared by the tests of the plugin
 *
 * Every test starts in its own empty directory, with only PATH in the environment and an empty fake
 * slurmctld, and fails if the plugin did not free an answer of slurmctld.
 */
#ifndef DDP_TESTS_SPANK_TEST_H
#define DDP_TESTS_SPANK_TEST_H

#include "fake_slurm.h"
#include "unit.h"

/* Adds this setup and check to [tcase]. */
void spank_use(TCase *tcase);

/* Fails unless [name] is [want] in the environment of task [rank]. NULL: unless it is unset. */
void expect_var(const char *row, const struct fake_step *step, uint32_t rank, const char *name,
		const char *want);

/* Like expect_var(), for each word "NAME=VALUE" or "-NAME" of [wants]. NULL is legal. */
void expect_vars(const char *row, const struct fake_step *step, uint32_t rank, const char *wants);

/* Fails unless exactly [times] messages of [levels] contain [text]. */
void expect_messages(const char *row, int levels, const char *text, unsigned times);

/* Fails unless one message of [levels] contains each of the [pieces], which '|' separates. */
void expect_pieces(const char *row, int levels, const char *pieces);

/* Fails if there was any message. */
void expect_silence(const char *row);

/*
 * Fails unless task_init failed in all tasks, left no variable to train with, and DDP_ERROR
 * contains [why].
 */
void expect_refused(const char *row, const struct fake_step *step, const char *why);

void write_text(const char *path, const char *text);

#endif /* DDP_TESTS_SPANK_TEST_H */
