/* SPDX-License-Identifier: Apache-2.0 */
/* test_options.c - command line of ddp-train: accepted and rejected options, and messages */
#include "config.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "train-options.h"
#include "unit.h"

enum { WORDS = 12 };

static int count_words(const char *const *words)
{
	int count = 0;

	while (words[count])
		count++;
	return count;
}

static enum options_verdict parse(struct options *options, const char *const *words)
{
	static const char *argv[WORDS + 2];

	argv[0] = "ddp-train";
	for (int i = 0; i <= count_words(words); i++)
		argv[i + 1] = words[i];
	return options_parse(options, count_words(words) + 1, (char **)argv);
}

/* Parses [words], and copies the output on [stream] to [text]. Returns the parser's result. */
static int printed(const char *const *words, int stream, char *text, size_t size)
{
	struct options options;
	int ends[2], status;
	ssize_t got;
	size_t used = 0;
	pid_t pid;

	ck_assert_int_eq(pipe(ends), 0);
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		dup2(ends[1], stream);
		status = (int)parse(&options, words);
		fflush(NULL);
		_exit(status);
	}
	close(ends[1]);
	while ((got = read(ends[0], text + used, size - 1 - used)) > 0)
		used += (size_t)got;
	text[used] = '\0';
	close(ends[0]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* --- Accepted ------------------------------------------------------------------------------ */

static const struct {
	const char *words[WORDS];
	enum option_id option;
	const char *want;
} accepted[] = {
	{{"mnist"}, OPTION_BATCH, "64"},
	{{"cifar"}, OPTION_BATCH, "128"},
	{{"mnist", "--batch", "3"}, OPTION_BATCH, "3"},
	{{"mnist", "--batch=3"}, OPTION_BATCH, "3"},
	{{"mnist", "-b", "3"}, OPTION_BATCH, "3"},
	{{"mnist", "-b3"}, OPTION_BATCH, "3"},
	{{"mnist", "-qb3"}, OPTION_BATCH, "3"},
	{{"mnist", "-qb3"}, OPTION_QUIET, "on"},
	{{"mnist", "-q"}, OPTION_BATCH, "64"},
	{{"--batch", "3", "mnist"}, OPTION_BATCH, "3"},
	{{"--", "mnist"}, OPTION_BATCH, "64"},
	{{"mnist", "--bat", "3"}, OPTION_BATCH, "3"},
	{{"mnist", "-b", "3", "-b", "4"}, OPTION_BATCH, "4"},
	{{"mnist", "--checkpoint", "d"}, OPTION_CHECKPOINT, "d"},
	{{"mnist", "-c", "d", "--checkpoint-steps", "7"}, OPTION_CHECKPOINT_STEPS, "7"},
	{{"mnist", "--lr", "1e-3"}, OPTION_RATE, "1e-3"},
	{{"mnist", "--log-json", "-"}, OPTION_LOG_JSON, "-"},
	{{"mnist", "--ranks", "all"}, OPTION_RANKS, "all"},
	{{"mnist", "--seed", "9000000000000000000"}, OPTION_SEED, "9000000000000000000"},
	/* Another optimizer has another default rate and decay. */
	{{"mnist", "-o", "adamw"}, OPTION_RATE, "0.001"},
	{{"mnist", "-o", "adamw"}, OPTION_DECAY, "0.01"},
	{{"mnist", "-o", "adamw", "--lr", "2"}, OPTION_RATE, "2"},
	{{"mnist", "-o", "adamw", "--weight-decay", "0"}, OPTION_DECAY, "0"},
	{{"mnist", "-o", "sgd"}, OPTION_RATE, "0.05"},
	{{"mnist", "-o", "adadelta"}, OPTION_RATE, "1.0"},
	{{"cifar"}, OPTION_RATE, "0.05"},
	{{"mnist"}, OPTION_WARMUP, "0"},
	{{"cifar"}, OPTION_WARMUP, "1"},
	{{"cifar", "-o", "sgd"}, OPTION_DECAY, "0.0005"},
	/* --nesterov is on by default, which must not conflict with this. */
	{{"cifar", "--momentum", "0"}, OPTION_MOMENTUM, "0"},
	{{"cifar", "-o", "adadelta"}, OPTION_RATE, "1.0"},
	{{"cifar", "-o", "adadelta"}, OPTION_DECAY, "0"},
	{{"mnist", "--global-batch", "0", "-b", "3"}, OPTION_BATCH, "3"},
	{{"mnist", "--evaluate", "-i", "f"}, OPTION_INIT, "f"},
	{{"mnist", "-i", "f", "-m", "f", "-r", "g"}, OPTION_REPORT, "g"},
	{{"mnist", "--evaluate", "-c", "d"}, OPTION_CHECKPOINT, "d"},
	{{"mnist", "-a", "tf32"}, OPTION_AMP, "tf32"},
	{{"mnist"}, OPTION_AMP, "auto"},
	{{"mnist", "--det"}, OPTION_DETERMINISTIC, "on"},
	{{"mnist"}, OPTION_DETERMINISTIC, ""},
	{{"mnist", "--engine=cuda"}, OPTION_ENGINE, "cuda"},
};

TEST_ROWS(test_taken, accepted)
{
	struct options options;
	char row[128];

	snprintf(row, sizeof(row), "row %d, --%s", _i, option_rows[accepted[_i].option].name);
	ck_assert_msg(parse(&options, accepted[_i].words) == OPTIONS_RUN, "%s", row);
	unit_text(row, "value", option_text(&options, accepted[_i].option), accepted[_i].want);
}

TEST(test_values)
{
	static const char *const words[] = {"cifar", "-b",   "7",  "--lr",	 ".25",
					    "-a",    "fp16", "-q", "--schedule", "step",
					    "-n",    "3",    NULL};
	struct options options;

	ck_assert_int_eq(parse(&options, words), OPTIONS_RUN);
	ck_assert_str_eq(options.net, "cifar");
	ck_assert_uint_eq(option_count(&options, OPTION_BATCH), 7);
	ck_assert(option_number(&options, OPTION_RATE) == 0.25);
	ck_assert_int_eq(option_word(&options, OPTION_AMP), 4);
	ck_assert_int_eq(option_word(&options, OPTION_SCHEDULE), 1);
	ck_assert_int_eq(option_word(&options, OPTION_OPTIMIZER), 0);
	ck_assert(option_flag(&options, OPTION_QUIET));
	ck_assert(!option_flag(&options, OPTION_SYNC_NORM));
	ck_assert(options.given[OPTION_BATCH] && !options.given[OPTION_EPOCHS]);
	ck_assert_str_eq(option_text(&options, OPTION_DATA), "");
}

/* --- Rejected, with one line ----------------------------------------------------------------- */

static const struct {
	const char *words[WORDS];
	const char *pieces[5];
} rejected[] = {
	{{NULL}, {"the network is missing. Run ", "mnist", "cifar", NULL}},
	{{"resnet"}, {"resnet is not a network. Give mnist or cifar.", NULL}},
	{{"mnist", "cifar"}, {"cifar is one argument too many after the network mnist", NULL}},
	{{"mnist", "extra"}, {"extra is one argument too many after the network mnist", NULL}},
	{{"mnist", "--epoch-count"}, {"--epoch-count is not an option", "--help", NULL}},
	{{"mnist", "--batch-size", "3"},
	 {"--batch-size is not an option. Did you mean --batch?", NULL}},
	{{"mnist", "--batch_size=3"},
	 {"--batch_size is not an option. Did you mean --batch?", NULL}},
	{{"mnist", "--learning-rate", "1"}, {"Did you mean --lr?", NULL}},
	{{"mnist", "--resume", "d"}, {"Did you mean --checkpoint?", NULL}},
	{{"mnist", "--st", "3"},
	 {"--st is ambiguous. Give one of --steps, --step-size, --stop-before.", NULL}},
	{{"mnist", "-x"}, {"-x is not an option", "--help", NULL}},
	{{"mnist", "--quiet=yes"}, {"--quiet takes no value. Remove \"=yes\".", NULL}},
	{{"mnist", "--batch"}, {"--batch has no value. Give --batch N.", NULL}},
	{{"mnist", "-b"}, {"--batch has no value", NULL}},
	{{"mnist", "--batch="}, {"--batch", "a whole number from 1 to 65536", NULL}},
	{{"mnist", "--batch", "0"},
	 {"--batch 0 is not valid. Give a whole number from 1 to 65536.", NULL}},
	{{"mnist", "--batch", "65537"}, {"--batch 65537", "to 65536", NULL}},
	{{"mnist", "--batch", "6x"}, {"--batch 6x", NULL}},
	{{"mnist", "--batch", "-1"}, {"--batch -1", NULL}},
	{{"mnist", "--batch", "1.5"}, {"--batch 1.5", "whole number", NULL}},
	{{"mnist", "--seed", "99999999999999999999"},
	 {"--seed", "a whole number from 0 to 9000000000000000000", NULL}},
	{{"mnist", "--seed", "9100000000000000000"},
	 {"--seed", "a whole number from 0 to 9000000000000000000", NULL}},
	{{"mnist", "--lr", "-1"},
	 {"--lr -1 is not valid. Give a finite number of 0 or more.", NULL}},
	{{"mnist", "--lr", "inf"},
	 {"--lr inf is not valid. Give a finite number of 0 or more.", NULL}},
	{{"mnist", "--lr", "nan"}, {"--lr nan", NULL}},
	{{"mnist", "--lr", "1e999"}, {"--lr 1e999", NULL}},
	{{"mnist", "--lr", "1,5"}, {"--lr 1,5", NULL}},
	{{"mnist", "--lr", "0x10"}, {"--lr 0x10", NULL}},
	{{"mnist", "--lr", "1e"}, {"--lr 1e", NULL}},
	{{"mnist", "--label-smoothing", "2"}, {"--label-smoothing 2", "from 0 to 1", NULL}},
	{{"mnist", "--amp", "fp8"},
	 {"--amp fp8 is not valid. Give auto, off, tf32, bf16 or fp16.", NULL}},
	{{"mnist", "--amp", "bf1"}, {"--amp bf1 is not valid. Give", NULL}},
	{{"mnist", "--amp", "off|bf16"}, {"--amp off|bf16 is not valid. Give", NULL}},
	{{"mnist", "--nesterov", "yes"}, {"--nesterov yes is not valid. Give on or off.", NULL}},
	{{"mnist", "--data", ""}, {"--data has no value. Give --data DIR.", NULL}},
	{{"mnist", "-n", "0"}, {"--ranks 0", "from 1 to 1024, or all", NULL}},
	{{"mnist", "-n", "some"}, {"--ranks some", "or all", NULL}},
	/* Combinations of options that exclude each other. */
	{{"mnist", "--self-test", "-e", "3"},
	 {"--self-test has its own options", "with --epochs", NULL}},
	{{"mnist", "-b", "3", "--global-batch", "6"},
	 {"--batch 3 is", "--global-batch 6 for", "Give only one", NULL}},
	{{"mnist", "-d", "x", "--samples", "6"}, {"--samples", "--data x", NULL}},
	{{"mnist", "-r", "f", "-m", "f"},
	 {"--report f would overwrite the file of --save-model f. Give another name.", NULL}},
	{{"mnist", "-r", "./f", "-m", "f"}, {"--report ./f would overwrite", NULL}},
	{{"mnist", "-r", "/tmp/f.best", "-m", "/tmp/../tmp/f"},
	 {"--report /tmp/f.best would overwrite", "--save-model /tmp/../tmp/f.", NULL}},
	{{"mnist", "--log-json", "f", "-i", "f"}, {"--log-json f would", "--init f", NULL}},
	{{"mnist", "--evaluate"}, {"--evaluate", "--init FILE or --checkpoint DIR", NULL}},
	{{"mnist", "--evaluate", "-i", "f", "-c", "d"}, {"--evaluate", "not both", NULL}},
	{{"mnist", "--evaluate", "-i", "f", "-m", "g"}, {"trains nothing", "--save-model", NULL}},
	{{"mnist", "--evaluate", "-c", "d", "--fresh"}, {"trains nothing", "--fresh", NULL}},
	{{"mnist", "--keep", "3"}, {"--keep needs --checkpoint DIR", NULL}},
	{{"mnist", "--fresh"}, {"--fresh needs --checkpoint DIR", NULL}},
	{{"mnist", "--stop-before", "3"}, {"--stop-before needs --checkpoint DIR", NULL}},
	{{"mnist", "--momentum", "0.5"}, {"--momentum needs --optimizer sgd, not adadelta", NULL}},
	{{"cifar", "--gamma", "0.5"}, {"--gamma needs --schedule step, not cosine", NULL}},
	{{"cifar", "--nesterov", "on", "--momentum", "0"},
	 {"--nesterov on needs a momentum", "--momentum is 0", NULL}},
	{{"mnist", "--sync-bn"}, {"--sync-bn is an option of cifar, not of mnist", NULL}},
	{{"mnist", "--no-augment"}, {"--no-augment is an option of cifar, not of mnist", NULL}},
	{{"cifar", "--no-dropout"}, {"--no-dropout is an option of mnist, not of cifar", NULL}},
};

TEST_ROWS(test_refused, rejected)
{
	char text[1024], row[64];

	snprintf(row, sizeof(row), "row %d", _i);
	ck_assert_msg(printed(rejected[_i].words, STDERR_FILENO, text, sizeof(text)) ==
			      OPTIONS_WRONG,
		      "%s was taken", row);
	unit_pieces(row, text, rejected[_i].pieces);
	ck_assert_msg(strncmp(text, "ddp-train: ", 11) == 0, "%s: %s", row, text);
	ck_assert_msg(strchr(text, '\n') == text + strlen(text) - 1, "%s: not a line: %s", row,
		      text);
}

/* If ranks have the same command line, only one rank prints the error. */
TEST_LOOP(test_only_rank_0_prints, 0, 3)
{
	static const char *const names[] = {"DDP_RANK", "RANK", "SLURM_PROCID"};
	static const char *const words[] = {"mnist", "--bach", NULL};
	static const char *const help[] = {"--help", NULL};
	char text[8192];

	setenv(names[_i], "1", 1);
	ck_assert_int_eq(printed(words, STDERR_FILENO, text, sizeof(text)), OPTIONS_WRONG);
	ck_assert_str_eq(text, "");
	ck_assert_int_eq(printed(help, STDOUT_FILENO, text, sizeof(text)), OPTIONS_DONE);
	ck_assert_str_eq(text, "");
	setenv(names[_i], "0", 1);
	ck_assert_int_eq(printed(words, STDERR_FILENO, text, sizeof(text)), OPTIONS_WRONG);
	ck_assert_str_ne(text, "");
	unsetenv(names[_i]);
}

/* --- Help -------------------------------------------------------------------------------------- */

/* Counts the lines of [text], and checks that they fit on a terminal. */
static int count_lines(const char *text)
{
	int lines = 0;

	for (; *text; text++, lines++) {
		size_t length = strcspn(text, "\n");

		ck_assert_msg(length < 80, "%zu columns: %.*s", length, (int)length, text);
		text += length;
		ck_assert_int_eq(*text, '\n');
	}
	return lines;
}

static void check_help(const char *const *words, int most)
{
	static char text[16384];
	char name[64];

	ck_assert_int_eq(printed(words, STDOUT_FILENO, text, sizeof(text)), OPTIONS_DONE);
	ck_assert_int_le(count_lines(text), most);
	for (int i = 0; i < OPTION_COUNT; i++) {
		snprintf(name, sizeof(name), "--%s", option_rows[i].name);
		ck_assert_msg(strstr(text, name), "%s is missing", name);
	}
	ck_assert_ptr_nonnull(strstr(text, "srun -N2 --ddp ddp-train mnist"));
}

TEST(test_help)
{
	static const char *const brief[] = {"--help", NULL}, *const letter[] = {"-h", NULL};
	static const char *const all[] = {"mnist", "--help", NULL};
	static char text[16384];

	check_help(brief, 40);
	check_help(letter, 40);
	check_help(all, 200);
	printed(all, STDOUT_FILENO, text, sizeof(text));
	ck_assert_ptr_nonnull(strstr(text, "together [64]"));
}

TEST(test_version)
{
	static const char *const words[] = {"--version", NULL};
	char text[256];

	ck_assert_int_eq(printed(words, STDOUT_FILENO, text, sizeof(text)), OPTIONS_DONE);
	ck_assert_str_eq(text, "ddp-train " PACKAGE_VERSION "\n");
}

/* Each default is a valid value of its option. */
TEST_LOOP(test_defaults, 0, 2)
{
	static const char *const nets[] = {"mnist", "cifar"};
	const char *words[] = {nets[_i], NULL, NULL, NULL};
	struct options options, again;

	ck_assert_int_eq(parse(&options, words), OPTIONS_RUN);
	for (int i = 0; i < OPTION_COUNT; i++) {
		char name[64];

		if (!*option_text(&options, (enum option_id)i))
			continue;
		snprintf(name, sizeof(name), "--%s", option_rows[i].name);
		words[1] = name;
		words[2] = option_text(&options, (enum option_id)i);
		/* an option of another optimizer or network may be rejected only for that reason */
		if (parse(&again, words) == OPTIONS_RUN)
			ck_assert_str_eq(option_text(&again, (enum option_id)i), words[2]);
		else
			ck_assert(again.given[i]);
	}
}

int main(void)
{
	unsetenv("DDP_RANK");
	unsetenv("RANK");
	unsetenv("SLURM_PROCID");
	return unit_run("options", NULL);
}
