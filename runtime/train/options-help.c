/* SPDX-License-Identifier: Apache-2.0 */
/* options-help.c - what --help and ddp-train(1) say, out of the table of options */
#include "config.h"

#include <string.h>

#include "options-table.h"

enum { WIDTH = 79, COLUMN = 29 };

static const char *const titles[] = {
#define OPTION_TITLE(id, title) title,
	OPTION_SECTIONS(OPTION_TITLE)
#undef OPTION_TITLE
};

static const char examples[] =
	"Examples\n"
	"  ddp-train mnist                        on all GPUs, or all CPUs, here\n"
	"  ddp-train mnist -n 4 -b 32             four ranks of 32 samples each\n"
	"  srun -N2 --ddp ddp-train mnist -d DIR  on two nodes, published files\n"
	"  srun -N8 --ddp ddp-train cifar -a bf16 -c state -r report.html\n"
	"  ddp-train cifar --evaluate -i model.safetensors\n";

/* --- Text in columns ------------------------------------------------------------------------- */

/* Words from [column] on, in lines that begin at [indent]; "" ends the line. */
struct flow {
	int column, indent;
};

static void flow_word(struct flow *flow, const char *word, size_t length)
{
	if (flow->column > flow->indent && flow->column + 1 + (int)length > WIDTH) {
		putchar('\n');
		flow->column = 0;
	} else if (flow->column > flow->indent) {
		putchar(' ');
		flow->column++;
	}
	if (flow->column < flow->indent)
		printf("%*s", flow->indent - flow->column, "");
	if (flow->column < flow->indent)
		flow->column = flow->indent;
	printf("%.*s", (int)length, word);
	flow->column += (int)length;
}

static void flow_text(struct flow *flow, const char *text, size_t length)
{
	while (length > 0) {
		size_t n = 0;

		while (n < length && text[n] != ' ')
			n++;
		flow_word(flow, text, n);
		n += n < length;
		text += n;
		length -= n;
	}
}

static void flow_end(struct flow *flow)
{
	putchar('\n');
	flow->column = 0;
}

/* "  -b, --batch N"; returns the columns that it took. */
static int print_name(const struct option_row *row)
{
	char letter[8] = "    ";

	if (row->letter)
		snprintf(letter, sizeof(letter), "-%c, ", row->letter);
	return printf("  %s--%s%s%s", letter, row->name, *row->argument ? " " : "", row->argument);
}

/* The first phrase of the help, or all of it. */
static size_t phrase(const char *help, bool all)
{
	const char *end = strstr(help, "; ");

	return end && !all ? (size_t)(end - help) : strlen(help);
}

static void print_option(const struct option_row *row, bool all, const char *standard)
{
	struct flow flow = {print_name(row), COLUMN};
	char text[96];

	if (flow.column >= COLUMN)
		flow_end(&flow);
	flow_text(&flow, row->help, phrase(row->help, all));
	if (standard && *standard) {
		snprintf(text, sizeof(text), "[%s]", standard);
		flow_text(&flow, text, strlen(text));
	}
	flow_end(&flow);
}

/* --- --help ------------------------------------------------------------------------------- */

/* The options that have no letter, by their names alone. */
static void print_others(enum option_section section)
{
	struct flow flow = {0, 6};
	char text[64];

	for (int i = 0; i < OPTION_COUNT; i++) {
		if (option_rows[i].section != section || option_rows[i].letter)
			continue;
		snprintf(text, sizeof(text), "--%s", option_rows[i].name);
		flow_text(&flow, text, strlen(text));
	}
	if (flow.column > 0)
		flow_end(&flow);
}

void options_print_help(void)
{
	puts("usage: ddp-train mnist|cifar [OPTION...]\n\n"
	     "Trains a network on MNIST or CIFAR, on all tasks of srun, or on this machine.");
	for (int section = 0; section < OPTION_SECTION_COUNT; section++) {
		for (int i = 0; i < OPTION_COUNT; i++)
			if ((int)option_rows[i].section == section && option_rows[i].letter)
				print_option(&option_rows[i], false, NULL);
		print_others((enum option_section)section);
	}
	puts("ddp-train mnist --help: all of them, with defaults; man ddp-train says more.");
	fputs(examples, stdout);
}

void options_print_help_of(enum options_net net)
{
	printf("usage: ddp-train %s [OPTION...]\n", options_net_names[net]);
	for (int section = 0; section < OPTION_SECTION_COUNT; section++) {
		printf("\n%s\n", titles[section]);
		for (int i = 0; i < OPTION_COUNT; i++)
			if ((int)option_rows[i].section == section)
				print_option(&option_rows[i], true, option_rows[i].defaults[net]);
	}
	printf("\n%s", examples);
}

/* --- ddp-train(1) --------------------------------------------------------------------------- */

static void print_roff(FILE *file, const char *text)
{
	for (; *text; text++) {
		if (*text == '-' || *text == '\\')
			fputs(*text == '-' ? "\\-" : "\\e", file);
		else
			fputc(*text, file);
	}
}

static void print_roff_defaults(FILE *file, const struct option_row *row)
{
	const char *const *defaults = row->defaults;

	if (strcmp(defaults[OPTIONS_MNIST], defaults[OPTIONS_CIFAR]) != 0)
		fprintf(file, "Default: %s for mnist, %s for cifar.\n", defaults[OPTIONS_MNIST],
			defaults[OPTIONS_CIFAR]);
	else if (*defaults[OPTIONS_MNIST])
		fprintf(file, "Default: %s.\n", defaults[OPTIONS_MNIST]);
}

static void print_roff_option(FILE *file, const struct option_row *row)
{
	fputs(".TP\n", file);
	if (row->letter)
		fprintf(file, "\\fB\\-%c\\fR, ", row->letter);
	fputs("\\fB\\-\\-", file);
	print_roff(file, row->name);
	fputs("\\fR", file);
	if (*row->argument) {
		fprintf(file, " %s", row->kind == OPTION_KIND_WORD ? "" : "\\fI");
		print_roff(file, row->argument);
		fputs(row->kind == OPTION_KIND_WORD ? "" : "\\fR", file);
	}
	fputc('\n', file);
	print_roff(file, row->help);
	fputs(".\n", file);
	print_roff_defaults(file, row);
}

void options_print_roff(FILE *file)
{
	for (int section = 0; section < OPTION_SECTION_COUNT; section++) {
		fprintf(file, ".SS %s\n", titles[section]);
		for (int i = 0; i < OPTION_COUNT; i++)
			if ((int)option_rows[i].section == section)
				print_roff_option(file, &option_rows[i]);
	}
}
