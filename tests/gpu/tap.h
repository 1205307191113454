/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tap.h - TAP lines for the programs of tests/gpu
 *
 * This header must not need CUDA: tests of kernels (kernels_X.c) include it, and are also compiled
 * for hosts without CUDA.
 */
#ifndef DDP_TESTS_TAP_H
#define DDP_TESTS_TAP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "ddp.h"

static int tap_count, tap_failed;

static inline bool DDP_FORMAT(2, 3) ok(bool good, const char *format, ...)
{
	va_list arguments;

	printf("%s %d - ", good ? "ok" : "not ok", ++tap_count);
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	putchar('\n');
	fflush(stdout);
	tap_failed += !good;
	return good;
}

/* Like ok(), for a call that returned [status] and should have returned [want]. */
#define OK_STATUS(status, want, error, ...)                                                   \
	do {                                                                                  \
		int status_ = (status);                                                       \
		if (!ok(status_ == (want), __VA_ARGS__))                                      \
			printf("# status %d, want %d: %s\n", status_, (want), (error)->text); \
	} while (0)

/* Prints the plan. Returns main()'s exit status. */
static inline int tap_end(void)
{
	printf("1..%d\n", tap_count);
	return tap_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif /* DDP_TESTS_TAP_H */
