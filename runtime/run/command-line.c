/* SPDX-License-Identifier: Apache-2.0 */
/* command-line.c - parse ddp-run's command line, and compose those of srun and salloc */
#include "config.h"

#include "ddp-run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "base/xalloc.h"
#include "launch/options.h"

#define HANG_DEFAULT 600.0 /* seconds */

enum { EXIT_USAGE = 2, HELP_LIMIT = 10 /* seconds */ };

/* --- srun's options ------------------------------------------------------------------------ */

static bool read_help(struct srun_options *options, const char *command)
{
	char *const argv[] = {(char *)command, "--help", NULL};
	struct ddp_text out = {.data = NULL};
	int status = nodes_run(argv, HELP_LIMIT, &out);
	bool good = status == 0 && out.data;

	if (good)
		srun_options_read(options, out.data, strcmp(command, "salloc") == 0);
	else if (status == 127)
		fprintf(stderr,
			"ddp-run: cannot run %s --help. Install Slurm's commands, or add "
			"them to PATH.\n",
			command);
	else
		fprintf(stderr, "%sddp-run: %s --help %s\n", out.data ? out.data : "", command,
			status < 0 ? "has not ended in 10 s" : "failed");
	ddp_text_free(&out);
	return good;
}

/*
 * If srun has no plugin, find ddp-exec in ddp-run's directory, which is the same on all nodes, and
 * add ddp-exec's options to srun's options.
 */
static bool find_exec(struct launch *launch)
{
	char option[64];

	if (srun_has(&launch->srun, "ddp"))
		return true;
	for (int id = 0; id < DDP_OPT_COUNT; id++) {
		const struct ddp_option *o = ddp_option((enum ddp_option_id)id);

		if (!o->option || id == DDP_OPT_DDP || id == DDP_OPT_NO_DDP)
			continue;
		snprintf(option, sizeof(option), "--%s%s", o->option, o->argument ? "=" : "");
		srun_options_add(&launch->srun, option);
	}
	if (nodes_find_beside("ddp-exec", launch->exec, sizeof(launch->exec)) &&
	    access(launch->exec, X_OK) == 0)
		return true;
	fprintf(stderr,
		"ddp-run: srun has no --ddp, and %s does not exist. Install ddp-exec beside "
		"ddp-run, or the plugin of slurm-ddp.\n",
		launch->exec);
	return false;
}

/* Returns the value of --het-group, or NULL if the option is not given. */
static const char *het_group(const struct launch *launch)
{
	/* pack-group is the option's old name, which srun still accepts. */
	const char *value = NULL;

	if (!srun_given(&launch->srun, launch->words, "het-group", &value))
		(void)srun_given(&launch->srun, launch->words, "pack-group", &value);
	return value;
}

const char *launch_variable(const struct launch *launch, const char *name)
{
	const char *group = het_group(launch), *value = NULL;
	char of_group[128];

	if (group && snprintf(of_group, sizeof(of_group), "%s_HET_GROUP_%s", name, group) <
			     (int)sizeof(of_group))
		value = getenv(of_group);
	return value ? value : getenv(name);
}

const char *launch_option(const struct launch *launch, const char *name, const char *variable)
{
	const char *value = variable ? launch_variable(launch, variable) : NULL;

	(void)srun_given(&launch->srun, launch->words, name, &value);
	return value;
}

/*
 * Whether the step is heterogeneous. In a heterogeneous step, srun's messages count the tasks of
 * each component from 0, so the numbers in them are not ranks.
 */
static bool is_heterogeneous(const struct launch *launch)
{
	const char *groups = het_group(launch);

	for (char **at = launch->words; *at; at++)
		if (strcmp(*at, ":") == 0)
			return true;
	return groups && strpbrk(groups, ",-");
}

/*
 * Whether srun's option [name], or the first of the two variables that is set, has a file or "none"
 * as value. With the values "all" and a task number, the output stays on srun's streams.
 */
static bool goes_to_file(const struct launch *launch, const char *name, const char *variable,
			 const char *old_variable)
{
	const char *value =
		launch_option(launch, name, variable) ?: launch_option(launch, name, old_variable);

	return value && strcmp(value, "all") != 0 && value[strspn(value, "0123456789")];
}

static bool is_one_rank(const struct launch *launch)
{
	const char *tasks = launch_option(launch, "ntasks", NULL);

	if (!tasks && !launch_option(launch, "nodes", NULL) &&
	    !launch_option(launch, "ntasks-per-node", NULL))
		tasks = launch_variable(launch, "SLURM_NTASKS");
	return tasks && strcmp(tasks, "1") == 0;
}

/*
 * Choose how ddp-run finds out which rank wrote a line of output. It uses srun's labels, unless an
 * option changes how srun forwards lines.
 */
static bool choose_output(struct launch *launch)
{
	static const struct {
		const char *name, *variable;
	} unlabelled[] = {{"pty", NULL},
			  {"output", "SLURM_STDOUTMODE"},
			  {"output", "SRUN_OUTPUT"},
			  {"error", "SLURM_STDERRMODE"},
			  {"error", "SRUN_ERROR"},
			  {"unbuffered", "SLURM_UNBUFFEREDIO"}};
	const char *logs = launch->options.text[RUN_OPTION_LOGS];

	for (size_t i = 0; i < sizeof(unlabelled) / sizeof(unlabelled[0]); i++) {
		if (!launch_option(launch, unlabelled[i].name, unlabelled[i].variable))
			continue;
		launch->output = i == 0 ? OUTPUT_TERMINAL : OUTPUT_MIXED;
		if (logs)
			fprintf(stderr,
				"ddp-run: --logs cannot be combined with srun's --%s, with which "
				"the rank of an output line is unknown. Remove one of the "
				"options.\n",
				unlabelled[i].name);
		return !logs;
	}
	launch->output = launch_option(launch, "label", "SLURM_LABELIO") ? OUTPUT_KEEP_LABELS
			 : is_one_rank(launch)				 ? OUTPUT_ONE_RANK
									 : OUTPUT_LABELLED;
	return true;
}

bool launch_parse(struct launch *launch)
{
	const char *hang = launch->options.text[RUN_OPTION_HANG], *stay;
	const char *unknown;

	launch->words = launch->options.rest;
	if (!read_help(&launch->srun, "srun") || !find_exec(launch))
		return false;
	unknown = srun_unknown(&launch->srun, launch->words);
	if (unknown && run_options_have(unknown)) {
		fprintf(stderr,
			"ddp-run: %s is an option of ddp-run. Give it before srun's options.\n",
			unknown);
		return false;
	}
	if (unknown && strcmp(unknown, "--ddp") == 0) {
		fprintf(stderr,
			"ddp-run: this srun has no --ddp, so ddp-run starts ddp-exec instead. "
			"Remove --ddp.\n");
		return false;
	}
	if (srun_count(&launch->srun, launch->words, "quiet") > 1) {
		fprintf(stderr,
			"ddp-run: srun's --quiet, given twice, hides the errors that show which "
			"rank failed. Give it once.\n");
		return false;
	}
	if (is_heterogeneous(launch)) {
		fprintf(stderr,
			"ddp-run: srun does not report which rank of a heterogeneous step failed. "
			"Run one component with --het-group=N, or several programs with --multi-prog.\n");
		return false;
	}
	if (launch->options.number[RUN_OPTION_PREFLIGHT] > 0 && het_group(launch)) {
		fprintf(stderr,
			"ddp-run: --preflight tests only jobs with one component, so it cannot be "
			"combined with --het-group. Remove one of the options.\n");
		return false;
	}
	if (launch->exec[0] && launch_option(launch, "multi-prog", NULL)) {
		fprintf(stderr,
			"ddp-run: --multi-prog needs srun --ddp, and this srun has no --ddp. "
			"Start one program that reads its rank from RANK.\n");
		return false;
	}
	launch->program = srun_program(&launch->srun, launch->words);
	if (!launch_option(launch, "multi-prog", NULL) &&
	    !launch_option(launch, "bcast", "SLURM_BCAST"))
		launch->program_name = launch->words[launch->program];
	stay = launch_option(launch, "kill-on-bad-exit", NULL);
	launch->ranks_stay = stay && *stay && atoi(stay) == 0;
	launch->stdout_to_file = goes_to_file(launch, "output", "SRUN_OUTPUT", "SLURM_STDOUTMODE");
	launch->stderr_to_file = goes_to_file(launch, "error", "SRUN_ERROR", "SLURM_STDERRMODE");
	launch->hang_s = hang ? launch->options.number[RUN_OPTION_HANG] : HANG_DEFAULT;
	launch->exit_limit_s = launch->options.number[RUN_OPTION_EXIT_LIMIT];
	launch->grace_s = launch->options.number[RUN_OPTION_GRACE];
	if (!choose_output(launch))
		return false;
	launch->needs_heartbeat =
		!hang || launch->stdout_to_file || launch->output == OUTPUT_TERMINAL;
	return true;
}

/* --- The command lines of srun and salloc -------------------------------------------------- */

static size_t count_words(char **words)
{
	size_t count = 0;

	while (words[count])
		count++;
	return count;
}

/* Allocate a list with space for [count] words, and for the words that ddp-run adds. */
static char **new_words(size_t count)
{
	return ddp_xcalloc(count + 16, sizeof(char *), "words of a command");
}

/*
 * Whether [word] is srun's option [name], whose short form is [letter] (0 if it has none). In a
 * word with several short options, such as -lr1, only the first is checked.
 */
static bool is_option(const struct launch *launch, char *word, const char *name, char letter)
{
	char *pair[] = {word, (char *)"0", NULL};
	const char *value;

	return (strncmp(word, "--", 2) == 0 || word[1] == letter) &&
	       srun_given(&launch->srun, pair, name, &value);
}

/* Whether srun refuses the option [word] together with ddp-run's --nodelist or --overlap. */
static bool is_dropped(const struct launch *launch, char *word)
{
	return (launch->list_option && is_option(launch, word, "relative", 'r')) ||
	       (launch->overlap && is_option(launch, word, "exclusive", 0));
}

static bool is_for_exec(const struct launch *launch, const char *word)
{
	return launch->exec[0] && strncmp(word, "--ddp-", strlen("--ddp-")) == 0;
}

/*
 * Returns srun's command line. ddp-run's options come first, so that the user's options override
 * them. The options that select nodes come last, so that they override the user's. Without the
 * plugin, ddp-exec and its options precede the program.
 */
char **launch_words(const struct launch *launch, int number)
{
	bool to_file = launch->stdout_to_file || launch->stderr_to_file;
	size_t all = count_words(launch->words), count = 0, moved = 0;
	char **words = new_words(all), **for_exec = new_words(all), **at = launch->words;
	const struct ddp_shown nodes = ddp_show("--nodes=%d", launch->nodes),
			       tasks = ddp_show("--ntasks=%d", launch->tasks);
	const char *const chosen[] = {launch->nodes ? nodes.text : "",
				      launch->tasks ? tasks.text : "", launch->list_option,
				      launch->gpus_option, launch->node_gpus_option};

	words[count++] = "srun";
	if (!launch->exec[0])
		words[count++] = "--ddp";
	words[count++] = "--kill-on-bad-exit=1";
	words[count++] = "--wait=0";
	if (launch->output == OUTPUT_LABELLED)
		words[count++] = "--label";
	if (launch->overlap)
		words[count++] = "--overlap";
	if (number > 0 && to_file && !launch_option(launch, "open-mode", "SLURM_OPEN_MODE"))
		words[count++] = "--open-mode=append";
	while (at < launch->words + launch->program && strcmp(*at, "--") != 0) {
		char *pair[] = {*at, (char *)"0", NULL};
		size_t length = srun_program(&launch->srun, pair);
		bool dropped = is_dropped(launch, *at);

		for (size_t i = 0; i < length; i++)
			if (is_for_exec(launch, *at))
				for_exec[moved++] = at[i];
			else if (!dropped)
				words[count++] = at[i];
		at += length;
	}
	for (size_t i = 0; i < sizeof(chosen) / sizeof(chosen[0]); i++)
		if (chosen[i] && *chosen[i])
			words[count++] = ddp_xstrdup(chosen[i], "words of a command");
	while (at < launch->words + launch->program)
		words[count++] = *at++;
	if (launch->exec[0]) {
		words[count++] = (char *)launch->exec;
		for (size_t i = 0; i < moved; i++)
			words[count++] = for_exec[i];
		words[count++] = "--";
	}
	while (*at)
		words[count++] = *at++;
	free(for_exec);
	return words;
}

/*
 * Convert [option] of the step for salloc, which allocates [nodes] nodes and [more] spare nodes.
 * --ntasks and --gpus are totals over all nodes, so they are increased in the same proportion.
 * Otherwise the spare nodes would be missing, since salloc allocates at most one node per task.
 */
static char *add_nodes(char *option, int nodes, int more)
{
	static const char *const totals[] = {"--ntasks=", "--gpus="};
	char *changed;

	for (size_t i = 0; i < sizeof(totals) / sizeof(totals[0]) && more > 0; i++) {
		const char *number = option + strlen(totals[i]);

		if (strncmp(option, totals[i], strlen(totals[i])) == 0 &&
		    !number[strspn(number, "0123456789")] &&
		    asprintf(&changed, "%s%d", totals[i],
			     (atoi(number) + nodes - 1) / nodes * (nodes + more)) >= 0)
			return changed;
	}
	return option;
}

int launch_allocate(const struct launch *launch, char **argv)
{
	int more = (int)launch->options.number[RUN_OPTION_SPARE_NODES], nodes = 0;
	const char *value = launch_option(launch, "nodes", NULL);
	struct srun_options salloc;
	char **shared, **words, self[PATH_MAX], option[32];
	size_t count = 0;
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n < 0 || !read_help(&salloc, "salloc"))
		return EXIT_USAGE;
	self[n] = '\0';
	if (value && !value[strspn(value, "0123456789")])
		nodes = atoi(value);
	if (more > 0 && nodes < 1) {
		fprintf(stderr,
			"ddp-run: --spare-nodes without an allocation needs srun's -N with a number\n");
		return EXIT_USAGE;
	}
	shared = srun_shared(&launch->srun, launch->words, &salloc);
	words = new_words(count_words(shared) + count_words(argv));
	words[count++] = "salloc";
	words[count++] = "--no-kill";
	/*
	 * Pass --chdir only to srun. If salloc also changed the directory, a relative path would be
	 * applied twice.
	 */
	for (char **at = shared; *at; at++)
		if (strncmp(*at, "--chdir=", strlen("--chdir=")) != 0)
			words[count++] = add_nodes(*at, nodes, more);
	if (more > 0) {
		snprintf(option, sizeof(option), "--nodes=%d", nodes + more);
		words[count++] = option;
	}
	words[count++] = self;
	for (char **at = argv + 1; *at; at++)
		words[count++] = *at;
	execvp(words[0], words);
	fprintf(stderr, "ddp-run: cannot start salloc: %s\n", strerror(errno));
	return 127;
}
