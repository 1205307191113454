/* SPDX-License-Identifier: Apache-2.0 */
/* train-options-help.c - what --help says, out of the table of options */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "train-options.h"

enum { WIDTH = 79, COLUMN = 29 };

static const char examples[] =
	"Examples\n"
	"  ddp-train mnist                        on all GPUs, or all CPUs, here\n"
	"  ddp-train mnist -n 4 -b 32             four ranks of 32 samples each\n"
	"  srun -N2 --ddp ddp-train mnist -d DIR  on two nodes, published files\n"
	"  srun -N8 --ddp ddp-train cifar -a bf16 -c state -r report.html\n"
	"  ddp-train cifar --evaluate -i model.safetensors\n";

/*
 * The words of [text] from [column] on, in lines that begin at [indent].
 * Returns the column after them.
 */
static int print_words(int column, int indent, const char *text, size_t length)
{
	while (length > 0) {
		const char *blank = memchr(text, ' ', length);
		int word = (int)(blank ? (size_t)(blank - text) : length);

		if (column > indent && column + 1 + word > WIDTH) {
			putchar('\n');
			column = 0;
		}
		if (column > indent)
			column += printf(" ");
		if (column < indent)
			column += printf("%*s", indent - column, "");
		column += printf("%.*s", word, text);
		length -= (size_t)word + (blank != NULL);
		text += word + (blank != NULL);
	}
	return column;
}

/* "  -b, --batch N", and what it is: the first phrase, or all of it with the default. */
static void print_option(const struct option_row *row, bool all, const char *standard)
{
	const char *end = strstr(row->help, "; ");
	size_t length = end && !all ? (size_t)(end - row->help) : strlen(row->help);
	char text[96] = "    ";
	int column;

	if (row->letter)
		snprintf(text, sizeof(text), "-%c, ", row->letter);
	column = printf("  %s--%s%s%s", text, row->name, *row->argument ? " " : "", row->argument);
	if (column >= COLUMN) {
		putchar('\n');
		column = 0;
	}
	column = print_words(column, COLUMN, row->help, length);
	snprintf(text, sizeof(text), "[%s]", standard);
	if (*standard)
		print_words(column, COLUMN, text, strlen(text));
	putchar('\n');
}

/* The options that have no letter, by their names alone. */
static void print_others(int section)
{
	char text[64];
	int column = 0;

	for (int i = 0; i < OPTION_COUNT; i++)
		if ((int)option_rows[i].section == section && !option_rows[i].letter) {
			snprintf(text, sizeof(text), "--%s", option_rows[i].name);
			column = print_words(column, 6, text, strlen(text));
		}
	if (column > 0)
		putchar('\n');
}

void options_print_help(void)
{
	puts("usage: ddp-train mnist|cifar [OPTION...]\n\n"
	     "Trains a network on MNIST or CIFAR, on all tasks of srun, or on this machine.");
	for (int section = 0; section < OPTION_SECTION_COUNT; section++) {
		for (int i = 0; i < OPTION_COUNT; i++)
			if ((int)option_rows[i].section == section && option_rows[i].letter)
				print_option(&option_rows[i], false, "");
		print_others(section);
	}
	puts("ddp-train mnist --help: all of them, with defaults; man ddp-train says more.");
	fputs(examples, stdout);
}

void options_print_help_of(enum option_net net)
{
#define OPTION_TITLE(id, title) title,
	static const char *const titles[] = {OPTION_SECTIONS(OPTION_TITLE)};
#undef OPTION_TITLE

	printf("usage: ddp-train %s [OPTION...]\n", option_nets[net]);
	for (int section = 0; section < OPTION_SECTION_COUNT; section++) {
		printf("\n%s\n", titles[section]);
		for (int i = 0; i < OPTION_COUNT; i++)
			if ((int)option_rows[i].section == section)
				print_option(&option_rows[i], true, option_rows[i].defaults[net]);
	}
	printf("\n%s", examples);
}
