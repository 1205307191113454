/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options-doc - print the option table for the manual page and the shell completion
 *
 *     options-doc man         roff: command line options and their environment defaults
 *     options-doc arguments   roff: arguments of the line in plugstack.conf
 *     options-doc bash        options for completion; "=" marks those with a value
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "base/roff.h"
#include "options.h"

static void print_options(void)
{
	for (int id = 0; id < DDP_OPT_COUNT; id++) {
		const struct ddp_option *o = ddp_option((enum ddp_option_id)id);

		if (!o->option)
			continue;
		fputs(".TP\n.B \\-\\-", stdout);
		ddp_roff_print(o->option);
		if (o->argument) {
			fputs("=", stdout);
			ddp_roff_print(o->argument);
		}
		putchar('\n');
		ddp_roff_print(o->manual);
		putchar('\n');
		if (o->environment)
			printf("Default from the environment:\n.BR %s .\n", o->environment);
	}
}

static void print_arguments(void)
{
	for (int id = 0; id < DDP_OPT_COUNT; id++) {
		const struct ddp_option *o = ddp_option((enum ddp_option_id)id);

		if (!o->plugstack)
			continue;
		printf(".TP\n.BI %s= \"", o->plugstack);
		ddp_roff_print(o->argument);
		fputs("\"\n", stdout);
		ddp_roff_print(o->manual);
		putchar('\n');
	}
}

static void print_words(void)
{
	const char *space = "";

	for (int id = 0; id < DDP_OPT_COUNT; id++) {
		const struct ddp_option *o = ddp_option((enum ddp_option_id)id);

		if (!o->option)
			continue;
		printf("%s--%s%s", space, o->option, o->argument ? "=" : "");
		space = " ";
	}
	putchar('\n');
}

int main(int argc, char **argv)
{
	const char *mode = argc == 2 ? argv[1] : "";

	if (strcmp(mode, "man") == 0)
		print_options();
	else if (strcmp(mode, "arguments") == 0)
		print_arguments();
	else if (strcmp(mode, "bash") == 0)
		print_words();
	else {
		fprintf(stderr, "usage: options-doc man|arguments|bash\n");
		return 2;
	}
	return 0;
}
