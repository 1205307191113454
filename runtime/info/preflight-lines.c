/* SPDX-License-Identifier: Apache-2.0 */
/* preflight-lines.c - print the lines in which a node reports its tests to ddp-run */
#include "config.h"

#include "node-tests.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/watch.h"

static int step_rank;

void info_preflight_set_rank(int rank)
{
	step_rank = rank;
}

void info_preflight_say(const char *event, const char *test, const char *kind, double value,
			const char *unit, const char *format, ...)
{
	char text[512], number[40] = "";
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	for (char *at = text; *at; at++)
		if (*at == '\t' || *at == '\n')
			*at = ' ';
	if (!isnan(value))
		snprintf(number, sizeof(number), "%.6f", value);
	printf("ddp-preflight\t%d\t%.6f\t%s\t%s\t%s\t%s\t%s\t%s\n", step_rank, ddp_date(NULL),
	       event, test, kind, number, unit, text);
	fflush(stdout);
}
