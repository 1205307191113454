/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unit.h - what the unit tests share
 *
 * One program a noun, one table of rows a question. A row's name is in the message, so a
 * failure says which row it was.
 */
#ifndef DDP_TESTS_UNIT_H
#define DDP_TESTS_UNIT_H

#include <check.h>
#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ROWS(table) ((int)(sizeof(table) / sizeof((table)[0])))

/* A test of its own for each row of [table]. */
#define UNIT_ROWS(tcase, test, table) tcase_add_loop_test(tcase, test, 0, ROWS(table))

/* An environment out of literals, which nobody writes to. */
static inline char *const *unit_env(const char *const *env)
{
	return (char *const *)env;
}

static inline void unit_text(const char *row, const char *what, const char *got, const char *want)
{
	if (!want)
		ck_assert_msg(!got, "%s: %s is \"%s\", want none", row, what, got);
	else
		ck_assert_msg(got && strcmp(got, want) == 0, "%s: %s is \"%s\", want \"%s\"", row,
			      what, got ? got : "(none)", want);
}

static inline void unit_number(const char *row, const char *what, int64_t got, int64_t want)
{
	ck_assert_msg(got == want, "%s: %s is %lld, want %lld", row, what, (long long)got,
		      (long long)want);
}

/* [text] must contain each of the [pieces], a NULL-terminated list. */
static inline void unit_pieces(const char *row, const char *text, const char *const *pieces)
{
	for (; *pieces; pieces++)
		ck_assert_msg(strstr(text, *pieces), "%s: \"%s\" does not say \"%s\"", row, text,
			      *pieces);
}

/* Numbers for properties: the same in every run (xorshift64*). */
static inline uint32_t unit_random(uint64_t *state, uint32_t below)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return (uint32_t)((*state * 0x2545f4914f6cdd1d) >> 32) % below;
}

/* What the directory [path] has, with "." and "..": as /proc/self/fd, before and after. */
static inline int unit_entries(const char *path)
{
	DIR *directory = opendir(path);
	int count = 0;

	ck_assert_msg(directory != NULL, "%s", path);
	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

/* Run what [fill] adds. Returns main's value. */
static inline int unit_run(const char *name, void (*fill)(TCase *tcase))
{
	Suite *suite = suite_create(name);
	TCase *tcase = tcase_create(name);
	SRunner *runner;
	int failed;

	/* Against hanging alone: a loaded machine, or valgrind, is no failure. */
	tcase_set_timeout(tcase, 60);
	fill(tcase);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif /* DDP_TESTS_UNIT_H */
