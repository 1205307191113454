/* SPDX-License-Identifier: Apache-2.0 */
/* pretend-test.h - what the test programs on a GPU that is not there begin and end with */
#ifndef DDP_TESTS_PRETEND_TEST_H
#define DDP_TESTS_PRETEND_TEST_H

#include <stdio.h>

#include "pretend.h"
#include "unit.h"

enum { PRETEND_SKIPPED = 77 };

static inline void pretend_nothing_left(void)
{
	ck_assert_int_eq(pretend.handles, 0);
	ck_assert_int_eq(pretend.descriptors, 0);
	ck_assert_uint_eq(pretend.allocations, 0);
}

static void (*pretend_fill)(TCase *tcase);

static inline void pretend_begin_test(void)
{
	memset(&pretend, 0, sizeof(pretend));
	pretend_restart();
}

static inline void pretend_fill_all(TCase *tcase)
{
	tcase_add_checked_fixture(tcase, pretend_begin_test, NULL);
	pretend_fill(tcase);
}

/* As unit_run(); each test begins with a GPU that nothing has happened to. */
static inline int pretend_run(const char *name, void (*fill)(TCase *tcase))
{
	int failed;

	if (!pretend_begin()) {
		printf("this cuDNN has other names for the properties of a GPU\n");
		return cudnnGetVersion() / 100 == 919 ? EXIT_FAILURE : PRETEND_SKIPPED;
	}
	pretend_fill = fill;
	failed = unit_run(name, pretend_fill_all);
	pretend_end();
	return failed;
}

#endif /* DDP_TESTS_PRETEND_TEST_H */
