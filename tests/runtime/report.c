/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - print the report on an attempt that hung, from files of its ranks: report DIRECTORY RANKS */
#include "config.h"

#include <stdlib.h>

#include "run/failure-report.h"

int main(int argc, char **argv)
{
	static char *const none[] = {NULL};
	struct attempt attempt = {.job = "1",
				  .step = "0",
				  .ranks = argc == 3 ? atoi(argv[2]) : 0,
				  .end = RUN_END_HANG,
				  .command = none,
				  .tails = tails_create(NULL)};
	struct ddp_text text = {.data = NULL}, json = {.data = NULL};

	if (attempt.ranks < 1) {
		fputs("report DIRECTORY RANKS\n", stderr);
		return 2;
	}
	snprintf(attempt.dir, sizeof(attempt.dir), "%s", argv[1]);
	attempt_judge(&attempt);
	failure_report(&attempt, &text, &json);
	fputs(text.data, stdout);
	ddp_text_free(&text);
	ddp_text_free(&json);
	facts_free(&attempt.facts);
	tails_destroy(attempt.tails);
	return 0;
}
