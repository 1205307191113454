/* SPDX-License-Identifier: Apache-2.0 */
/* run-options-doc - print the options as part of ddp-run(1) */
#include "config.h"

#include <stdio.h>

#include "base/roff.h"
#include "run-options.h"

int main(void)
{
	for (int i = 0; i < RUN_OPTION_COUNT; i++) {
		const struct run_option_row *row = &run_option_rows[i];

		printf(".TP\n\\fB\\-\\-");
		ddp_roff_print(row->name);
		printf("\\fR");
		if (*row->argument)
			printf("%s\\fI%s\\fR", *row->argument == '[' ? "" : " ", row->argument);
		putchar('\n');
		ddp_roff_print(row->help);
		puts(".");
	}
	return 0;
}
