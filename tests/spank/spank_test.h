/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spank_test.h - functions that the plugin's tests share
 *
 * Every test starts in its own empty directory, with only PATH in the environment and an empty fake
 * slurmctld. A test fails if the plugin did not free an answer of slurmctld.
 */
#ifndef DDP_TESTS_SPANK_TEST_H
#define DDP_TESTS_SPANK_TEST_H

#include "fake_slurm.h"
#include "unit.h"

/* Adds the setup of a test, and the check after it, to [tcase]. */
void spank_use(TCase *tcase);

/*
 * Fails unless the environment of task [rank] has [name] with the value [want]. If [want] is NULL,
 * the variable must be unset.
 */
void expect_var(const char *row, const struct fake_step *step, uint32_t rank, const char *name,
		const char *want);

/* Like expect_var(), for each word "NAME=VALUE" or "-NAME" (unset) of [wants]. NULL is legal. */
void expect_vars(const char *row, const struct fake_step *step, uint32_t rank, const char *wants);

/* Fails unless exactly [times] messages of [levels] contain [text]. */
void expect_messages(const char *row, int levels, const char *text, unsigned times);

/* Fails unless one message of [levels] contains every piece. '|' separates the pieces. */
void expect_pieces(const char *row, int levels, const char *pieces);

/* Fails if there was any message. */
void expect_silence(const char *row);

/*
 * Fails unless task_init failed for all tasks, and left the tasks no variables for training and a
 * DDP_ERROR that contains [why].
 */
void expect_refused(const char *row, const struct fake_step *step, const char *why);

void write_text(const char *path, const char *text);

#endif /* DDP_TESTS_SPANK_TEST_H */
