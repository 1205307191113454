/* SPDX-License-Identifier: Apache-2.0 */
/* train-options.c - parse and check the options of ddp-train, and print its help */
#include "config.h"

#include "train-options.h"

#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/settings.h"
#include "base/text.h"

/* Kinds of options in train-options.def, with the lowest and highest value for numbers. */
#define KIND_FLAG OPTION_KIND_FLAG, 0, 0
#define KIND_TEXT OPTION_KIND_TEXT, 0, 0
#define KIND_WORD OPTION_KIND_WORD, 0, 0
#define KIND_COUNT(lowest, highest) OPTION_KIND_COUNT, lowest, highest
#define KIND_NUMBER(lowest, highest) OPTION_KIND_NUMBER, lowest, highest

const struct option_row option_rows[OPTION_COUNT] = {
#define OPTION(id, name, letter, argument, kind, mnist, cifar, section, help) \
	{name, letter, argument, KIND_##kind, {mnist, cifar}, OPTION_SECTION_##section, help},
#include "train-options.def"
#undef OPTION
};

const char *const option_nets[OPTION_NETS] = {"mnist", "cifar"};

/* Names that PyTorch's scripts use for these options, for suggestions. */
static const struct {
	const char *name;
	enum option_id id;
} aliases[] = {
	{"batch-size", OPTION_BATCH},	    {"test-batch-size", OPTION_TEST_BATCH},
	{"learning-rate", OPTION_RATE},	    {"wd", OPTION_DECAY},
	{"log-interval", OPTION_LOG_EVERY}, {"print-freq", OPTION_LOG_EVERY},
	{"resume", OPTION_CHECKPOINT},	    {"nproc-per-node", OPTION_RANKS},
};

/* All names: the options of the table, and two that are not in the table. */
static const char *const names[] = {
#define OPTION(id, name, ...) name,
#include "train-options.def"
#undef OPTION
	"help", "version"};

enum { OPTION_HELP = OPTION_COUNT, OPTION_VERSION, NAMES };

/* --- Error messages ------------------------------------------------------------------------ */

/*
 * Whether this process leaves messages to another rank. All ranks have the same command line, so
 * one message is enough.
 */
static bool is_silent(void)
{
	const char *rank = ddp_getenv("DDP_RANK", "RANK", "SLURM_PROCID", NULL);

	return rank && strtol(rank, NULL, 10) > 0;
}

DDP_FORMAT(2, 0)
static void print_line(const char *prefix, const char *format, va_list arguments)
{
	char text[512];

	if (is_silent())
		return;
	vsnprintf(text, sizeof(text), format, arguments);
	fprintf(stderr, "ddp-train: %s%s\n", prefix, text);
}

/* Prints a line on stderr, unless another rank does. Returns false, for the caller to return. */
static bool complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
static bool complain(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	print_line("", format, arguments);
	va_end(arguments);
	return false;
}

void options_warn(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	print_line("warning: ", format, arguments);
	va_end(arguments);
}

/* --- Values -------------------------------------------------------------------------------- */

/*
 * Parses [text] as a value of [kind]. A COUNT consists of digits. A NUMBER is what strtod()
 * accepts, except signs, nan, inf and hexadecimal.
 */
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

static bool check_number(const struct option_row *row, const char *text)
{
	const char *kind = row->kind == OPTION_KIND_COUNT ? "whole number" : "number";
	double value;

	if (read_number(row->kind, text, &value) && value >= row->lowest && value <= row->highest)
		return true;
	if (isfinite(row->highest))
		return complain("--%s %s is not valid. Give a %s from %.0f to %.0f.", row->name,
				text, kind, row->lowest, row->highest);
	return complain("--%s %s is not valid. Give a finite %s of %.0f or more.", row->name, text,
			kind, row->lowest);
}

/* Index of [text] in [list], "a|b|c"; -1: not in the list. */
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

static bool check_word(const struct option_row *row, const char *text)
{
	char words[128] = "";
	size_t used = 0;

	if (find_word(row->argument, text) >= 0)
		return true;
	for (const char *at = row->argument; *at && used < sizeof(words) - 8; at++) {
		const char *joint = strchr(at + 1, '|') ? ", " : " or ";

		used += (size_t)snprintf(words + used, sizeof(words) - used, "%.*s",
					 *at == '|' ? 4 : 1, *at == '|' ? joint : at);
	}
	return complain("--%s %s is not valid. Give %s.", row->name, text, words);
}

static bool check_text(const struct option_row *row, const char *text)
{
	double value;

	if (!*text)
		return complain("--%s has no value. Give --%s %s.", row->name, row->name,
				row->argument);
	if (row == &option_rows[OPTION_RANKS] && strcmp(text, "all") != 0 &&
	    !(read_number(OPTION_KIND_COUNT, text, &value) && value >= 1 && value <= 1024))
		return complain("--ranks %s is not valid. Give a whole number from 1 to 1024, or "
				"all.",
				text);
	return true;
}

/* Sets option [id] to [value]. [value] may be NULL only if the option is a flag. */
static bool set(struct options *options, int id, const char *value)
{
	const struct option_row *row = &option_rows[id];

	if (((row->kind == OPTION_KIND_COUNT || row->kind == OPTION_KIND_NUMBER) &&
	     !check_number(row, value)) ||
	    (row->kind == OPTION_KIND_TEXT && !check_text(row, value)) ||
	    (row->kind == OPTION_KIND_WORD && !check_word(row, value)))
		return false;
	options->values[id] = value ? value : "on";
	options->given[id] = true;
	return true;
}

static bool set_net(struct options *options, const char *text)
{
	for (int i = 0; i < OPTION_NETS && !options->net; i++)
		if (strcmp(text, option_nets[i]) == 0) {
			options->net = option_nets[i];
			return true;
		}
	if (options->net)
		return complain("%s is one argument too many after the network %s. Remove it.",
				text, options->net);
	return complain("%s is not a network. Give mnist or cifar.", text);
}

/* --- The command line ---------------------------------------------------------------------- */

enum { LONG = 256 }; /* getopt_long()'s codes: long names from LONG on, letters below */

/* The option for getopt_long()'s [code], or NAMES. */
static int find_code(int code)
{
	if (code >= LONG)
		return code - LONG;
	for (int i = 0; i < OPTION_COUNT; i++)
		if (option_rows[i].letter == code)
			return i;
	return code == 'h' ? OPTION_HELP : NAMES;
}

/* Whether [text] is [alias]. In [text], "_" counts as "-". */
static bool is_alias(const char *text, size_t length, const char *alias)
{
	bool same = strlen(alias) == length;

	for (size_t i = 0; i < length && same; i++)
		same = (text[i] == '_' ? '-' : text[i]) == alias[i];
	return same;
}

/* Reports that the name in [word] is unknown or ambiguous. [word] is "--" and the name. */
static bool complain_name(const char *word)
{
	const char *text = word + 2;
	size_t length = strcspn(text, "="), used = 0;
	char list[256] = "";

	for (size_t i = 0; i < NAMES; i++)
		if (strncmp(names[i], text, length) == 0 && used < sizeof(list))
			used += (size_t)snprintf(list + used, sizeof(list) - used, "%s--%s",
						 used ? ", " : "", names[i]);
	if (used > 0)
		return complain("--%.*s is ambiguous. Give one of %s.", (int)length, text, list);
	for (size_t i = 0; i < sizeof(aliases) / sizeof(aliases[0]); i++)
		if (is_alias(text, length, aliases[i].name))
			return complain("--%.*s is not an option. Did you mean --%s?", (int)length,
					text, names[aliases[i].id]);
	return complain("--%.*s is not an option. See --help.", (int)length, text);
}

/* Reports the error in [word] for which getopt_long() returned [code]. */
static bool complain_option(int code, const char *word)
{
	int id = find_code(optopt);

	if (optopt == 0)
		return complain_name(word);
	if (code == ':')
		return complain("--%s has no value. Give --%s %s.", names[id], names[id],
				option_rows[id].argument);
	if (id < NAMES)
		return complain("--%s takes no value. Remove \"%s\".", names[id],
				strchr(word, '='));
	return complain("-%c is not an option. See --help.", optopt);
}

/* Parses all arguments in any order. Sets asked[0] for --help, and asked[1] for --version. */
static bool parse_all(struct options *options, int argc, char **argv, bool asked[2])
{
	struct option longs[NAMES + 1] = {{NULL, 0, NULL, 0}};
	char letters[2 * OPTION_COUNT + 8] = "-:h";
	size_t used = strlen(letters);
	bool good = true;
	int code;

	for (int i = 0; i < NAMES; i++) {
		bool value = i < OPTION_COUNT && *option_rows[i].argument;

		longs[i] = (struct option){names[i], value, NULL, LONG + i};
		if (i < OPTION_COUNT && option_rows[i].letter)
			used += (size_t)snprintf(letters + used, sizeof(letters) - used, "%c%s",
						 option_rows[i].letter, value ? ":" : "");
	}
	optind = 0;
	while (good && (code = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
		int id = find_code(code);

		if (code == 1)
			good = set_net(options, optarg);
		else if (id < OPTION_COUNT)
			good = set(options, id, optarg);
		else if (id < NAMES)
			asked[id - OPTION_HELP] = true;
		else
			good = complain_option(code, argv[optind - 1]);
	}
	while (good && optind < argc)
		good = set_net(options, argv[optind++]);
	return good;
}

/* --- Combinations of options --------------------------------------------------------------- */

/* Checks that option [id] was given only if option [owner] has the value [word]. */
static bool check_owner(const struct options *options, enum option_id id, enum option_id owner,
			const char *word)
{
	if (!options->given[id] || strcmp(options->values[owner], word) == 0)
		return true;
	return complain("--%s needs --%s %s, not %s", names[id], names[owner], word,
			options->values[owner]);
}

/* Checks that option [id], which only network [net] supports, is not given for another network. */
static bool check_net(const struct options *options, enum option_id id, enum option_net net)
{
	if (!options->given[id] || options->net == option_nets[net])
		return true;
	return complain("--%s is an option of %s, not of %s", names[id], option_nets[net],
			options->net);
}

static bool check_checkpoint(const struct options *options)
{
	static const enum option_id parts[] = {OPTION_CHECKPOINT_STEPS, OPTION_KEEP, OPTION_FRESH,
					       OPTION_MARGIN};

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (options->given[parts[i]] && !options->given[OPTION_CHECKPOINT])
			return complain("--%s needs --checkpoint DIR", names[parts[i]]);
	if (!options->given[OPTION_EVALUATE])
		return true;
	if (options->given[OPTION_INIT] == options->given[OPTION_CHECKPOINT])
		return complain("--evaluate needs --init FILE or --checkpoint DIR%s",
				options->given[OPTION_INIT] ? ", not both" : "");
	if (options->given[OPTION_FRESH] || options->given[OPTION_SAVE_MODEL])
		return complain(
			"--evaluate trains nothing and cannot be combined with --%s",
			names[options->given[OPTION_FRESH] ? OPTION_FRESH : OPTION_SAVE_MODEL]);
	return true;
}

/*
 * Sets [real] to the path of [file] plus [suffix], without symbolic links. The file need not exist.
 */
static void find_path(const char *file, const char *suffix, char real[PATH_MAX])
{
	char path[PATH_MAX], directory[PATH_MAX];
	const char *slash;

	snprintf(path, sizeof(path), "%s%s", file, suffix);
	if (realpath(path, real))
		return;
	slash = strrchr(path, '/');
	snprintf(directory, sizeof(directory), "%.*s.", slash ? (int)(slash - path) + 1 : 0, path);
	if (!realpath(directory, real))
		snprintf(real, PATH_MAX, "%s", directory);
	snprintf(real + strlen(real), PATH_MAX - strlen(real), "/%s", slash ? slash + 1 : path);
}

/* Checks that no file is written by two options, or overwritten before it is read. */
static bool check_files(const struct options *options)
{
	static const struct {
		enum option_id id;
		const char *suffix;
	} files[] = {{OPTION_REPORT, ""},
		     {OPTION_LOG_JSON, ""},
		     {OPTION_SAVE_MODEL, ""},
		     {OPTION_SAVE_MODEL, ".best"},
		     {OPTION_INIT, ""}};
	enum { FILES = sizeof(files) / sizeof(files[0]) };
	char paths[FILES][PATH_MAX] = {""};

	for (size_t i = 0; i < FILES; i++) {
		const char *file = options->values[files[i].id];

		if (*file && strcmp(file, "-") != 0)
			find_path(file, files[i].suffix, paths[i]);
		/* --save-model may replace the file from which the initial weights were read. */
		for (size_t j = 0; j < i && files[j].id != OPTION_SAVE_MODEL; j++)
			if (*paths[i] && strcmp(paths[i], paths[j]) == 0)
				return complain("--%s %s would overwrite the file of --%s %s. Give "
						"another name.",
						names[files[j].id], options->values[files[j].id],
						names[files[i].id], file);
	}
	return true;
}

static bool check_self_test(const struct options *options)
{
	for (int i = 0; i < OPTION_COUNT; i++)
		if (options->given[i] && options->given[OPTION_SELF_TEST] && i != OPTION_SELF_TEST)
			return complain("--self-test has its own options and cannot be combined "
					"with --%s",
					names[i]);
	return true;
}

static bool check_all(const struct options *options)
{
	if (options->given[OPTION_BATCH] && option_count(options, OPTION_GLOBAL_BATCH) > 0)
		return complain("--batch %s is for each rank, and --global-batch %s for all ranks "
				"together. Give only one of them.",
				options->values[OPTION_BATCH],
				options->values[OPTION_GLOBAL_BATCH]);
	if (options->given[OPTION_SAMPLES] && options->given[OPTION_DATA])
		return complain("--samples is for drawn images, but --data %s has files",
				options->values[OPTION_DATA]);
	if (option_count(options, OPTION_VIRTUAL_RANKS) > 0 &&
	    option_flag(options, OPTION_SYNC_NORM))
		return complain("--sync-bn cannot be combined with --virtual-ranks, which compute "
				"their statistics separately");
	if (option_count(options, OPTION_VIRTUAL_RANKS) > 0 &&
	    option_word(options, OPTION_WIRE) != 0)
		return complain(
			"--wire %s cannot be combined with --virtual-ranks, whose gradients "
			"are sent as doubles for exact sums",
			options->values[OPTION_WIRE]);
	if (options->given[OPTION_NESTEROV] && option_word(options, OPTION_NESTEROV) == 0 &&
	    !(option_number(options, OPTION_MOMENTUM) > 0))
		return complain("--nesterov on needs a momentum, and --momentum is %s",
				options->values[OPTION_MOMENTUM]);
	return check_self_test(options) &&
	       check_owner(options, OPTION_MOMENTUM, OPTION_OPTIMIZER, "sgd") &&
	       check_owner(options, OPTION_NESTEROV, OPTION_OPTIMIZER, "sgd") &&
	       check_owner(options, OPTION_GAMMA, OPTION_SCHEDULE, "step") &&
	       check_owner(options, OPTION_STEP_SIZE, OPTION_SCHEDULE, "step") &&
	       check_net(options, OPTION_SYNC_NORM, OPTION_CIFAR) &&
	       check_net(options, OPTION_NO_AUGMENT, OPTION_CIFAR) &&
	       check_net(options, OPTION_NO_DROPOUT, OPTION_MNIST) && check_checkpoint(options) &&
	       check_files(options);
}

/* --- Help, generated from the table ------------------------------------------------------- */

enum { COLUMN = 29 };

static const char examples[] =
	"Examples\n"
	"  ddp-train mnist                        on all GPUs, or all CPUs, here\n"
	"  ddp-train mnist -n 4 -b 32             four ranks of 32 samples each\n"
	"  srun -N2 --ddp ddp-train mnist -d DIR  on two nodes, published files\n"
	"  srun -N8 --ddp ddp-train cifar -a bf16 -c state -r report.html\n"
	"  ddp-train cifar --evaluate -i model.safetensors\n";

/*
 * Prints an option. With [all], prints the whole help text and the default [standard], otherwise
 * only the first phrase of the help text.
 */
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
	column = ddp_print_words(column, COLUMN, row->help, length);
	snprintf(text, sizeof(text), "[%s]", standard);
	if (*standard)
		ddp_print_words(column, COLUMN, text, strlen(text));
	putchar('\n');
}

/* Prints the names of the options in [section] that have no letter. */
static void print_others(int section)
{
	char text[64];
	int column = 0;

	for (int i = 0; i < OPTION_COUNT; i++)
		if ((int)option_rows[i].section == section && !option_rows[i].letter) {
			snprintf(text, sizeof(text), "--%s", option_rows[i].name);
			column = ddp_print_words(column, 6, text, strlen(text));
		}
	if (column > 0)
		putchar('\n');
}

static void print_help(void)
{
	puts("usage: ddp-train mnist|cifar [OPTION...]\n\n"
	     "Trains a network on MNIST or CIFAR, on all tasks of srun, or on this machine.");
	for (int section = 0; section < OPTION_SECTION_COUNT; section++) {
		for (int i = 0; i < OPTION_COUNT; i++)
			if ((int)option_rows[i].section == section && option_rows[i].letter)
				print_option(&option_rows[i], false, "");
		print_others(section);
	}
	puts("ddp-train mnist --help prints all options, and man ddp-train explains them.");
	fputs(examples, stdout);
}

static void print_help_of(enum option_net net)
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

/* --- Parser ---------------------------------------------------------------------------------- */

/*
 * Sets the defaults of options that were not given. The network's default rate and decay are for
 * the network's default optimizer. Other optimizers have their own defaults.
 */
static void set_defaults(struct options *options, enum option_net net)
{
	static const char *const rates[] = {"0.05", "0.001", "1.0"};
	static const char *const decays[] = {"0", "0.01", "0"};
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
	bool asked[2] = {false, false};
	enum option_net net;

	*options = (struct options){.net = NULL};
	if (!parse_all(options, argc, argv, asked))
		return OPTIONS_WRONG;
	net = options->net == option_nets[OPTION_CIFAR] ? OPTION_CIFAR : OPTION_MNIST;
	if (asked[0] || asked[1]) {
		if (is_silent())
			return OPTIONS_DONE;
		if (asked[1])
			printf("ddp-train %s\n", PACKAGE_VERSION);
		else if (options->net)
			print_help_of(net);
		else
			print_help();
		return OPTIONS_DONE;
	}
	if (!options->net && !options->given[OPTION_SELF_TEST]) {
		complain("the network is missing. Run ddp-train mnist or ddp-train cifar, or "
			 "ddp-train --help.");
		return OPTIONS_WRONG;
	}
	set_defaults(options, net);
	return check_all(options) ? OPTIONS_RUN : OPTIONS_WRONG;
}

/* --- Access to values ------------------------------------------------------------------------ */

const char *option_text(const struct options *options, enum option_id id)
{
	return options->values[id];
}

uint64_t option_count(const struct options *options, enum option_id id)
{
	return strtoull(options->values[id], NULL, 10);
}

double option_number(const struct options *options, enum option_id id)
{
	return strtod(options->values[id], NULL);
}

bool option_flag(const struct options *options, enum option_id id)
{
	return *options->values[id] != '\0';
}

int option_word(const struct options *options, enum option_id id)
{
	return find_word(option_rows[id].argument, options->values[id]);
}

bool option_matters(enum option_id id)
{
	enum option_section section = option_rows[id].section;

	return (section == OPTION_SECTION_TRAINING || section == OPTION_SECTION_SPEED) &&
	       id != OPTION_STEPS && id != OPTION_TEST_BATCH && id != OPTION_SEED;
}
