/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "options-table.h"

const struct option_row option_rows[OPTION_COUNT] = {
#define OPTION(id, name, letter, argument, kind, mnist, cifar, section, help)                  \
	{name, letter, argument, OPTION_KIND_##kind, {mnist, cifar}, OPTION_SECTION_##section, \
	 help},
#include "options.def"
#undef OPTION
};

const char *const options_net_names[OPTIONS_NETS] = {"mnist", "cifar"};

/* --- Names --------------------------------------------------------------------------------- */

static const char *name_of_option(size_t i)
{
	static const char *const others[] = {"help", "version"};

	return i < OPTION_COUNT ? option_rows[i].name : others[i - OPTION_COUNT];
}

static const char *name_of_net(size_t i)
{
	return options_net_names[i];
}

enum { OPTION_HELP = OPTION_COUNT, OPTION_VERSION, OPTION_ALL };

/* Name several options that begin alike. */
static bool complain_ambiguous(const char *text, size_t length)
{
	char list[256];
	size_t used = 0;

	list[0] = '\0';
	for (size_t i = 0; i < OPTION_ALL; i++)
		if (strncmp(name_of_option(i), text, length) == 0 && used < sizeof(list))
			used += (size_t)snprintf(list + used, sizeof(list) - used, "%s--%s",
						 used ? ", " : "", name_of_option(i));
	return options_complain("--%.*s: which one: %s?", (int)length, text, list);
}

/* The option called [text], or alone beginning so. Returns -1 after a complaint. */
static int find_long(const char *text, size_t length)
{
	const char *near;
	int found = -1, count = 0;

	for (size_t i = 0; i < OPTION_ALL; i++) {
		if (strncmp(name_of_option(i), text, length) != 0)
			continue;
		if (name_of_option(i)[length] == '\0')
			return (int)i;
		found = (int)i;
		count++;
	}
	if (count == 1)
		return found;
	near = options_nearest(text, length, name_of_option, OPTION_ALL);
	if (count > 1)
		complain_ambiguous(text, length);
	else if (near)
		options_complain("--%.*s: no such option; did you mean --%s?", (int)length, text,
				 near);
	else
		options_complain("--%.*s: no such option; --help lists them", (int)length, text);
	return -1;
}

static int find_letter(char letter)
{
	for (int i = 0; i < OPTION_COUNT; i++)
		if (option_rows[i].letter == letter)
			return i;
	if (letter == 'h')
		return OPTION_HELP;
	options_complain("-%c: no such option; --help lists them", letter);
	return -1;
}

/* --- Values -------------------------------------------------------------------------------- */

/* What [option] may be: most are from 0 on, without an end. */
static void limits(enum option option, double *lowest, double *highest)
{
	static const struct {
		enum option option;
		double lowest, highest;
	} rows[] = {
		{OPTION_SAMPLES, 0, 1e9},      {OPTION_EPOCHS, 1, 1e6},
		{OPTION_BATCH, 1, 65536},      {OPTION_GLOBAL_BATCH, 0, 1e7},
		{OPTION_TEST_BATCH, 1, 65536}, {OPTION_MOMENTUM, 0, 1},
		{OPTION_STEP_SIZE, 1, 1e6},    {OPTION_SMOOTHING, 0, 1},
		{OPTION_THREADS, 0, 4096},     {OPTION_KEEP, 0, 1e6},
	};

	*lowest = 0;
	*highest = option_rows[option].kind == OPTION_KIND_COUNT ? 9e18 : INFINITY;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].option == option) {
			*lowest = rows[i].lowest;
			*highest = rows[i].highest;
		}
}

/* Digits alone, or for a NUMBER what strtod knows, but no sign, nan, inf or 0x. */
static bool read_number(enum option_kind kind, const char *text, double *value)
{
	bool count = kind == OPTION_KIND_COUNT;
	char *end;

	if (!*text || strspn(text, count ? "0123456789" : "0123456789.eE+-") != strlen(text) ||
	    *text == '-' || *text == '+' || strlen(text) > (count ? 19 : 64))
		return false;
	*value = strtod(text, &end);
	return !*end && isfinite(*value);
}

static bool check_number(enum option option, const char *text)
{
	const struct option_row *row = &option_rows[option];
	const char *kind = row->kind == OPTION_KIND_COUNT ? "whole number" : "number";
	double lowest, highest, value;

	limits(option, &lowest, &highest);
	if (read_number(row->kind, text, &value) && value >= lowest && value <= highest)
		return true;
	if (highest < 1e18)
		return options_complain("--%s %s: give a %s from %.0f to %.0f", row->name, text,
					kind, lowest, highest);
	return options_complain("--%s %s: give a %s of %.0f or more", row->name, text, kind,
				lowest);
}

/* The place of [text] among the words of [list], "a|b|c"; -1: none of them. */
static int find_word(const char *list, const char *text)
{
	size_t length = strlen(text);

	for (int i = 0;; i++) {
		size_t n = strcspn(list, "|");

		if (n == length && strncmp(list, text, n) == 0)
			return i;
		if (!list[n])
			return -1;
		list += n + 1;
	}
}

static bool check_word(enum option option, const char *text)
{
	const struct option_row *row = &option_rows[option];
	char words[128] = "";
	size_t used = 0;

	if (find_word(row->argument, text) >= 0)
		return true;
	for (const char *at = row->argument; *at && used < sizeof(words) - 8; at++) {
		const char *joint = strchr(at + 1, '|') ? ", " : " or ";

		if (*at != '|')
			words[used++] = *at;
		else
			used += (size_t)snprintf(words + used, sizeof(words) - used, "%s", joint);
	}
	words[used] = '\0';
	return options_complain("--%s %s: give %s", row->name, text, words);
}

static bool check_text(enum option option, const char *text)
{
	double value;

	if (!*text)
		return options_complain("--%s: the %s is empty", option_rows[option].name,
					option_rows[option].argument);
	if (option == OPTION_RANKS && strcmp(text, "all") != 0 &&
	    !(read_number(OPTION_KIND_COUNT, text, &value) && value >= 1 && value <= 1024))
		return options_complain("--ranks %s: give a whole number from 1 to 1024, or all",
					text);
	return true;
}

static bool set(struct options *options, enum option option, const char *value)
{
	static bool (*const checks[])(enum option, const char *) = {
		[OPTION_KIND_COUNT] = check_number,
		[OPTION_KIND_NUMBER] = check_number,
		[OPTION_KIND_TEXT] = check_text,
		[OPTION_KIND_WORD] = check_word,
	};
	enum option_kind kind = option_rows[option].kind;

	if (kind != OPTION_KIND_FLAG && !checks[kind](option, value))
		return false;
	options->values[option] = kind == OPTION_KIND_FLAG ? "on" : value;
	options->given[option] = true;
	return true;
}

/* --- The command line ---------------------------------------------------------------------- */

struct command_line {
	struct options *options;
	char **argv;
	int argc, at;
	bool help, version;
};

/* [value] is what stands after "=" or a letter; NULL: take the next word. */
static bool take(struct command_line *line, int option, const char *value)
{
	if (option == OPTION_HELP)
		line->help = true;
	else if (option == OPTION_VERSION)
		line->version = true;
	if (option >= OPTION_COUNT || option_rows[option].kind == OPTION_KIND_FLAG) {
		if (value)
			return options_complain("--%s=%s: it takes no value",
						name_of_option((size_t)option), value);
		return option >= OPTION_COUNT || set(line->options, (enum option)option, NULL);
	}
	if (!value && line->at + 1 < line->argc)
		value = line->argv[++line->at];
	if (!value)
		return options_complain("--%s: the value is missing: --%s %s",
					option_rows[option].name, option_rows[option].name,
					option_rows[option].argument);
	return set(line->options, (enum option)option, value);
}

static bool take_long(struct command_line *line, const char *text)
{
	size_t length = strcspn(text, "=");
	int option = find_long(text, length);

	return option >= 0 && take(line, option, text[length] ? text + length + 1 : NULL);
}

/* "-b 64", "-b64", "-qb64". */
static bool take_letters(struct command_line *line, const char *text)
{
	for (; *text; text++) {
		int option = find_letter(*text);

		if (option < 0)
			return false;
		if (option < OPTION_COUNT && option_rows[option].kind != OPTION_KIND_FLAG)
			return take(line, option, text[1] ? text + 1 : NULL);
		if (!take(line, option, NULL))
			return false;
	}
	return true;
}

static bool take_net(struct command_line *line, const char *text)
{
	const char *near;

	if (line->options->net)
		return options_complain("%s: one network at a time; %s was named already", text,
					line->options->net);
	for (int i = 0; i < OPTIONS_NETS; i++)
		if (strcmp(text, options_net_names[i]) == 0) {
			line->options->net = options_net_names[i];
			return true;
		}
	near = options_nearest(text, strlen(text), name_of_net, OPTIONS_NETS);
	return options_complain("%s: no such network; %s%s?", text,
				near ? "did you mean " : "mnist or cifar", near ? near : "");
}

static bool take_all(struct command_line *line)
{
	bool names = true;

	for (line->at = 1; line->at < line->argc; line->at++) {
		const char *text = line->argv[line->at];
		bool taken;

		if (names && strcmp(text, "--") == 0) {
			names = false;
			continue;
		}
		if (names && strncmp(text, "--", 2) == 0)
			taken = take_long(line, text + 2);
		else if (names && *text == '-' && text[1])
			taken = take_letters(line, text + 1);
		else
			taken = take_net(line, text);
		if (!taken)
			return false;
	}
	return true;
}

/* --- Defaults ---------------------------------------------------------------------------- */

static enum options_net net_index(const struct options *options)
{
	return strcmp(options->net, options_net_names[OPTIONS_CIFAR]) == 0 ? OPTIONS_CIFAR
									   : OPTIONS_MNIST;
}

/* The network's defaults are those of its own optimizer. */
static void set_defaults(struct options *options)
{
	static const char *const rates[] = {"0.05", "0.001", "1.0"};
	static const char *const decays[] = {"0", "0.01", "0"};
	enum options_net net = net_index(options);
	int optimizer;

	for (int i = 0; i < OPTION_COUNT; i++)
		if (!options->given[i])
			options->values[i] = option_rows[i].defaults[net];
	if (strcmp(options->values[OPTION_OPTIMIZER],
		   option_rows[OPTION_OPTIMIZER].defaults[net]) == 0)
		return;
	optimizer = option_word(options, OPTION_OPTIMIZER);
	if (!options->given[OPTION_RATE])
		options->values[OPTION_RATE] = rates[optimizer];
	if (!options->given[OPTION_DECAY])
		options->values[OPTION_DECAY] = decays[optimizer];
}

enum options_verdict options_parse(struct options *options, int argc, char **argv)
{
	struct command_line line = {options, argv, argc, 0, false, false};

	*options = (struct options){.net = NULL};
	if (!take_all(&line))
		return OPTIONS_WRONG;
	if (line.version || line.help) {
		if (options_silent())
			return OPTIONS_DONE;
		if (line.version)
			printf("ddp-train %s\n", PACKAGE_VERSION);
		else if (options->net)
			options_print_help_of(net_index(options));
		else
			options_print_help();
		return OPTIONS_DONE;
	}
	if (!options->net) {
		options_complain(
			"which network? ddp-train mnist or ddp-train cifar; --help says more");
		return OPTIONS_WRONG;
	}
	set_defaults(options);
	return options_check(options) ? OPTIONS_RUN : OPTIONS_WRONG;
}

/* --- What was parsed ------------------------------------------------------------------------- */

const char *option_text(const struct options *options, enum option option)
{
	return options->values[option];
}

uint64_t option_count(const struct options *options, enum option option)
{
	return strtoull(options->values[option], NULL, 10);
}

double option_number(const struct options *options, enum option option)
{
	return strtod(options->values[option], NULL);
}

bool option_flag(const struct options *options, enum option option)
{
	return *options->values[option] != '\0';
}

int option_word(const struct options *options, enum option option)
{
	return find_word(option_rows[option].argument, options->values[option]);
}

const char *option_name(enum option option)
{
	return option_rows[option].name;
}

bool option_matters(enum option option)
{
	enum option_section section = option_rows[option].section;

	return (section == OPTION_SECTION_TRAINING || section == OPTION_SECTION_SPEED) &&
	       option != OPTION_STEPS && option != OPTION_TEST_BATCH && option != OPTION_SEED;
}
