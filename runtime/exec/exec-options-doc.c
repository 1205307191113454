/* SPDX-License-Identifier: Apache-2.0 */
/* exec-options-doc.c - print the list of options for ddp-exec(1) */
#include "config.h"

#include <stdio.h>

#include "base/roff.h"
#include "exec-options.h"

static void print_option(const char *name, const char *argument, const char *text)
{
	printf(".TP\n\\fB\\-\\-");
	ddp_roff_print(name);
	if (argument) {
		printf("=\\fR\\fI");
		ddp_roff_print(argument);
	}
	puts("\\fR");
	ddp_roff_print(text);
	putchar('\n');
}

int main(void)
{
	for (int id = 0; id < EXEC_OPTION_COUNT; id++)
		print_option(exec_option_rows[id].name, NULL, exec_option_rows[id].manual);
	for (int id = 0; id < DDP_OPT_COUNT; id++) {
		const struct ddp_option *o = ddp_option((enum ddp_option_id)id);

		if (!exec_option_shared((enum ddp_option_id)id))
			continue;
		print_option(o->option, o->argument, o->manual);
		if (o->environment)
			printf("Default from the environment:\n.BR %s .\n", o->environment);
	}
	return 0;
}
