/* SPDX-License-Identifier: Apache-2.0 */
/* train-options-doc - prints the options as a section of ddp-train(1) */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "base/roff.h"
#include "train-options.h"

static void print_option(const struct option_row *row)
{
	const char *mnist = row->defaults[OPTION_MNIST], *cifar = row->defaults[OPTION_CIFAR];
	bool literal = row->kind == OPTION_KIND_WORD;

	puts(".TP");
	if (row->letter)
		printf("\\fB\\-%c\\fR, ", row->letter);
	printf("\\fB\\-\\-");
	ddp_roff_print(row->name);
	printf("\\fR");
	if (*row->argument) {
		printf(" %s", literal ? "" : "\\fI");
		ddp_roff_print(row->argument);
		printf("%s", literal ? "" : "\\fR");
	}
	putchar('\n');
	ddp_roff_print(row->help);
	puts(".");
	if (strcmp(mnist, cifar) != 0)
		printf("Default: %s for mnist, %s for cifar.\n", mnist, cifar);
	else if (*mnist)
		printf("Default: %s.\n", mnist);
}

int main(void)
{
#define OPTION_TITLE(id, title) title,
	static const char *const titles[] = {OPTION_SECTIONS(OPTION_TITLE)};
#undef OPTION_TITLE

	for (int section = 0; section < OPTION_SECTION_COUNT; section++) {
		printf(".SS %s\n", titles[section]);
		for (int i = 0; i < OPTION_COUNT; i++)
			if ((int)option_rows[i].section == section)
				print_option(&option_rows[i]);
	}
	return 0;
}
