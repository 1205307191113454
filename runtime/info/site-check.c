/* SPDX-License-Identifier: Apache-2.0 */
/*
 * site-check.c - ddp-info --check: check this host, check the nodes through srun, and print one
 * table of the verdicts
 */
#include "config.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launch/devices.h"
#include "site.h"

/*
 * Prefix of the lines that --check-node prints, as in "ddp-check\tn1\t...". srun's output may
 * contain other lines.
 */
#define MARK "ddp-check\t"

enum { MEMORY = 200 }; /* MiB to request on each node, for ddp-info and its child processes */

/* --- Rows ---------------------------------------------------------------------------------- */

/* Returns [memory], or exits if an allocation returned NULL. */
static void *check_memory(void *memory)
{
	if (!memory)
		ddp_exit(NULL);
	return memory;
}

static const char *string_of(const struct ddp_text *text)
{
	if (text->failed)
		ddp_exit(NULL);
	return text->data ? text->data : "";
}

/* Provide space for at least [count] + 1 items of [size] bytes. The capacity doubles. */
static void *grow(void *items, size_t count, size_t size)
{
	return count & (count - 1) ? items
				   : check_memory(reallocarray(items, count ? 2 * count : 1, size));
}

/* Copy the next field of a line that site_add_verdict() has written. */
static char *next_field(const char **at)
{
	size_t n = strcspn(*at, "\t\n");
	char *field = check_memory(strndup(*at, n));

	*at += n + ((*at)[n] == '\t');
	return field;
}

static void free_row(struct site_row *row)
{
	free(row->what);
	free(row->finding);
	free(row->remedy);
	ddp_text_free(&row->nodes);
}

static bool is_equal(const struct site_row *one, const struct site_row *other)
{
	return one->level == other->level && strcmp(one->what, other->what) == 0 &&
	       strcmp(one->finding, other->finding) == 0 && strcmp(one->remedy, other->remedy) == 0;
}

/*
 * If [report] has a row equal to [row], free [row] and return that row. Otherwise insert [row]
 * after the last row about the same item.
 */
static struct site_row *insert_row(struct site_report *report, struct site_row *row)
{
	size_t at = report->count;

	for (size_t i = 0; i < report->count; i++) {
		if (is_equal(&report->rows[i], row)) {
			free_row(row);
			return &report->rows[i];
		}
		if (strcmp(report->rows[i].what, row->what) == 0)
			at = i + 1;
	}
	report->rows = grow(report->rows, report->count, sizeof(*row));
	memmove(&report->rows[at + 1], &report->rows[at], (report->count - at) * sizeof(*row));
	report->rows[at] = *row;
	report->count++;
	return &report->rows[at];
}

void site_add_lines(struct site_report *report, const char *node, const char *lines)
{
	while (*lines) {
		char *level = next_field(&lines);
		struct site_row new = {.level = (enum site_level)atoi(level)}, *row;

		new.what = next_field(&lines);
		new.finding = next_field(&lines);
		new.remedy = next_field(&lines);
		free(level);
		lines += strcspn(lines, "\n");
		lines += *lines == '\n';
		row = insert_row(report, &new);
		row->hosts++;
		if (node)
			ddp_text_add(&row->nodes, "%s%s", row->nodes.size ? "," : "", node);
		else
			row->here = true;
	}
}

void site_compare(struct site_report *report)
{
	static const char *const compared[] = {"ddp.so", "arguments", "step", "network"};

	for (size_t s = 0; s < sizeof(compared) / sizeof(compared[0]); s++) {
		const struct site_row *most = NULL;
		struct ddp_text remedy = {.data = NULL};

		for (size_t i = 0; i < report->count; i++) {
			const struct site_row *row = &report->rows[i];

			if (row->level == SITE_OK && strcmp(row->what, compared[s]) == 0 &&
			    (!most || row->hosts > most->hosts))
				most = row;
		}
		if (!most)
			continue;
		ddp_text_add(&remedy, "other hosts have: %s; use the same on all hosts",
			     most->finding);
		for (size_t i = 0; i < report->count; i++) {
			struct site_row *row = &report->rows[i];

			if (row == most || row->level != SITE_OK ||
			    strcmp(row->what, compared[s]) != 0)
				continue;
			row->level = SITE_WARNING;
			free(row->remedy);
			row->remedy = check_memory(strdup(string_of(&remedy)));
		}
		ddp_text_free(&remedy);
	}
}

void site_report_free(struct site_report *report)
{
	for (size_t i = 0; i < report->count; i++)
		free_row(&report->rows[i]);
	free(report->rows);
	*report = (struct site_report){.count = 0};
}

/* --- Nodes --------------------------------------------------------------------------------- */

struct node {
	char *name, *state, *release, *gres;
	enum site_ask ask;
	bool now, asked, answered;  /* now: the next srun is to run on the node */
	struct ddp_text partitions; /* partitions of the node that are up: ",main,gpu," */
	struct ddp_text lines;	    /* output of site_check_host() on the node */
	char series[8];		    /* Slurm release of the node's ddp.so */
};

struct nodes {
	struct node *all;
	size_t count;
};

enum site_ask site_node_state(const char *state)
{
	static const char *const free_states[] = {"idle", "mixed", "planned", "completing"};
	static const char *const busy_states[] = {"allocated", "reserved", "maint"};
	size_t n = strspn(state, "abcdefghijklmnopqrstuvwxyz_");

	/* Not responding, powered down or changing power state, or rebooting. */
	if (strpbrk(state + n, "*~#!%^@"))
		return SITE_AWAY;
	for (size_t i = 0; i < sizeof(busy_states) / sizeof(busy_states[0]); i++)
		if (strlen(busy_states[i]) == n && strncmp(state, busy_states[i], n) == 0)
			return SITE_BUSY;
	for (size_t i = 0; i < sizeof(free_states) / sizeof(free_states[0]); i++)
		if (strlen(free_states[i]) == n && strncmp(state, free_states[i], n) == 0)
			return strchr(state + n, '$') ? SITE_BUSY : SITE_ASK;
	return SITE_AWAY;
}

static struct node *find_node(const struct nodes *nodes, const char *name)
{
	for (size_t i = 0; i < nodes->count; i++)
		if (strcmp(nodes->all[i].name, name) == 0)
			return &nodes->all[i];
	return NULL;
}

#define SINFO_FORMAT "%N\t%T\t%v\t%G\t%a\t%P"

/*
 * Parse a line of sinfo, which prints one line for each partition of a node, in consecutive lines.
 */
static void parse_node(struct nodes *nodes, const char *line)
{
	struct node new = {.name = next_field(&line), .state = next_field(&line)}, *node;
	char *up, *partition;

	new.release = next_field(&line);
	new.gres = next_field(&line);
	new.ask = site_node_state(new.state);
	up = next_field(&line);
	partition = next_field(&line);
	partition[strcspn(partition, "*")] = '\0';
	node = nodes->count ? &nodes->all[nodes->count - 1] : NULL;
	if (node && strcmp(node->name, new.name) == 0) {
		free(new.name);
		free(new.state);
		free(new.release);
		free(new.gres);
	} else {
		nodes->all = grow(nodes->all, nodes->count, sizeof(new));
		node = &nodes->all[nodes->count++];
		*node = new;
	}
	if (strcmp(up, "up") == 0)
		ddp_text_add(&node->partitions, "%s%s,", node->partitions.size ? "" : ",",
			     partition);
	free(partition);
	free(up);
}

static void free_nodes(struct nodes *nodes)
{
	for (size_t i = 0; i < nodes->count; i++) {
		free(nodes->all[i].name);
		free(nodes->all[i].state);
		free(nodes->all[i].release);
		free(nodes->all[i].gres);
		ddp_text_free(&nodes->all[i].partitions);
		ddp_text_free(&nodes->all[i].lines);
	}
	free(nodes->all);
}

/*
 * Returns the text after "error: " or "fatal: " in a line of a Slurm command; NULL if there is
 * none.
 */
static const char *error_text(const char *line, size_t size)
{
	const char *at = memmem(line, size, "error: ", 7);

	at = at ? at : memmem(line, size, "fatal: ", 7);
	return at ? at + 7 : NULL;
}

/*
 * Find the last error in the output of a Slurm command or, with [node], the first error that
 * contains this word; "" if there is none.
 */
static void find_error(const char *text, const char *node, char *found, size_t size)
{
	const size_t n = node ? strlen(node) : 0;

	*found = '\0';
	for (const char *end; *text; text = *end ? end + 1 : end) {
		const char *said, *at = text;

		end = text + strcspn(text, "\n");
		said = error_text(text, (size_t)(end - text));
		while (node && (at = memmem(at, (size_t)(end - at), node, n)) &&
		       (isalnum((unsigned char)at[n]) ||
			(at > text && isalnum((unsigned char)at[-1]))))
			at++;
		/*
		 * Prefer a line of the node to srun's line about the exit status of the task, which
		 * says less.
		 */
		if (said && at && (!node || !*found || strstr(found, "Exited with exit code")))
			snprintf(found, size, "%.*s", (int)(end - said), said);
	}
}

/* Returns the error without the prefix "NODE: ", which the plugin adds. */
static const char *strip_node_name(const char *line, const char *node)
{
	const char *rest = strncmp(line, "ddp: ", 5) == 0 ? line + 5 : line;
	size_t n = strlen(node);

	return strncmp(rest, node, n) == 0 && strncmp(rest + n, ": ", 2) == 0 ? rest + n + 2 : rest;
}

static void describe_failure(const struct ddp_command_said *output, char *why, size_t size)
{
	if (output->timed_out)
		snprintf(why, size, "no response in time");
	else
		find_error(string_of(&output->err), NULL, why, size);
	if (!*why)
		snprintf(why, size, "exit status %d", output->status);
}

/* --- One srun ------------------------------------------------------------------------------ */

struct survey {
	const struct site_options *options;
	const char *config; /* slurmctld's settings */
	bool ddp;	    /* srun of this host loads the plugin without errors */
	struct nodes nodes;
	struct ddp_text lines; /* buffer for one verdict */
	struct site_report *report;
};

/* Convert "n1,n2,n3" to "n[1-3]" with scontrol. The caller frees the result. */
static char *compress_nodes(const char *list)
{
	struct ddp_command_said output;
	char *text;

	site_run((char *[]){"scontrol", "show", "hostlistsorted", (char *)list, NULL}, 20, &output);
	if (output.status == 0 && output.out.size > 1) {
		output.out.data[strcspn(output.out.data, "\n")] = '\0';
		list = output.out.data;
	}
	text = check_memory(strdup(list));
	ddp_command_said_free(&output);
	return text;
}

static void report_node(struct survey *survey, const struct node *node, enum site_level level,
			const char *what, const char *remedy, const char *finding)
{
	ddp_text_clear(&survey->lines);
	site_add_verdict(&survey->lines, level, what, remedy, "%s", finding);
	site_add_lines(survey->report, node->name, string_of(&survey->lines));
}

/*
 * Parse srun's output. For each node, it has lines from site_add_verdict(), and then a line with
 * the release of the node's plugin.
 */
static void parse_output(struct survey *survey, const char *text)
{
	struct node *node = NULL;

	for (const char *line = text, *next; *line; line = next) {
		const char *at = line + strlen(MARK);
		char *name;

		next = line + strcspn(line, "\n");
		next += *next == '\n';
		if (strncmp(line, MARK, strlen(MARK)) != 0)
			continue;
		name = next_field(&at);
		/* Consecutive lines are usually from the same node. */
		if (!node || strcmp(node->name, name) != 0)
			node = find_node(&survey->nodes, name);
		free(name);
		if (node && strncmp(at, "end\t", 4) == 0) {
			node->answered = true;
			snprintf(node->series, sizeof(node->series), "%.*s",
				 (int)strcspn(at + 4, "\n"), at + 4);
		} else if (node) {
			ddp_text_put(&node->lines, at, (size_t)(next - at));
		}
	}
}

static void report_unanswered(struct survey *survey, const struct node *node,
			      const struct ddp_command_said *output, const char *why, bool any)
{
	char line[1024];

	find_error(string_of(&output->err), node->name, line, sizeof(line));
	if (strstr(line, "execve") || strstr(line, "exit code 2") || strstr(line, "exit code 127"))
		report_node(survey, node, SITE_WRONG, "node",
			    "install the package slurm-ddp-tools there",
			    strip_node_name(line, node->name));
	else if (*line)
		report_node(survey, node, SITE_WRONG, "node", "",
			    strip_node_name(line, node->name));
	else if (output->timed_out)
		report_node(survey, node, SITE_WRONG, "node",
			    "check slurmd there, or increase --limit", "no response in time");
	else if (!any && strstr(string_of(&output->err), "llocat"))
		report_node(survey, node, SITE_WARNING, "node",
			    "check it when it is free, or run ddp-info --check --here on it", why);
	else
		report_node(survey, node, SITE_WRONG, "node", "", why);
}

static void collect_results(struct survey *survey, struct ddp_command_said *output)
{
	struct nodes *nodes = &survey->nodes;
	char why[1024];
	bool any = false;

	parse_output(survey, string_of(&output->out));
	for (size_t i = 0; i < nodes->count; i++)
		any = any || (nodes->all[i].now && nodes->all[i].answered);
	describe_failure(output, why, sizeof(why));
	for (size_t i = 0; i < nodes->count; i++) {
		struct node *node = &nodes->all[i];

		if (node->now && node->answered)
			site_add_lines(survey->report, node->name, string_of(&node->lines));
		else if (node->now)
			report_unanswered(survey, node, output, why, any);
		node->asked = node->asked || node->now;
		node->now = false;
	}
}

/*
 * Start ddp-info through srun on the nodes that are marked [now], in [partition]; if [partition] is
 * NULL, in this job. A node that fails must neither end the check of the other nodes nor delay it
 * beyond the limit.
 */
static void run_srun(struct survey *survey, const char *partition)
{
	const double limit = survey->options->limit;
	struct ddp_text list = {.data = NULL}, words = {.data = NULL}, config = {.data = NULL};
	char self[PATH_MAX] = "ddp-info", *argv[32], *nodes, *rest;
	struct ddp_command_said output;
	int count = 0, argc = 0;

	for (size_t i = 0; i < survey->nodes.count; i++)
		if (survey->nodes.all[i].now)
			ddp_text_add(&list, "%s%s", count++ ? "," : "", survey->nodes.all[i].name);
	nodes = compress_nodes(string_of(&list));
	ddp_text_add(&words,
		     "srun\t%s\t--nodelist=%s\t--nodes=%d\t--ntasks=%d\t--ntasks-per-node=1",
		     survey->ddp ? "--ddp" : "--quiet", nodes, count, count);
	ddp_text_add(&words, "\t--cpus-per-task=1\t--time=%d\t--immediate=%d\t--no-kill",
		     (int)(limit / 60) + 1, (int)(limit / 2) + 1);
	ddp_text_add(&words, "\t--kill-on-bad-exit=0\t--mpi=none\t--chdir=/\t--export=ALL");
	if (partition)
		ddp_text_add(&words, "\t--partition=%s\t--job-name=ddp-check\t--mem=%dM", partition,
			     MEMORY);
	else
		ddp_text_add(&words, "\t--overlap");
	(void)string_of(&words);
	rest = words.data;
	while (rest)
		argv[argc++] = strsep(&rest, "\t");
	(void)!readlink("/proc/self/exe", self, sizeof(self) - 1);
	ddp_text_add(&config, "%s" SITE_STEP "=%d\n", survey->config, survey->ddp);
	argv[argc++] = self;
	argv[argc++] = "--check-node";
	argv[argc++] = (char *)string_of(&config);
	argv[argc] = NULL;
	site_run(argv, limit, &output);
	collect_results(survey, &output);
	ddp_command_said_free(&output);
	free(nodes);
	ddp_text_free(&list);
	ddp_text_free(&words);
	ddp_text_free(&config);
}

/*
 * Whether the state of [node] allows a check. A busy node is checked only if the user named nodes.
 */
static bool is_wanted(const struct survey *survey, const struct node *node)
{
	return !node->asked &&
	       (node->ask == SITE_ASK || (node->ask == SITE_BUSY && survey->options->nodes));
}

/*
 * Set [now] of all unchecked nodes in [partition] (NULL: any partition). Returns the number of
 * these nodes.
 */
static size_t select_nodes(struct survey *survey, const char *partition, bool now)
{
	struct nodes *nodes = &survey->nodes;
	char word[256];
	size_t count = 0;

	snprintf(word, sizeof(word), ",%s,", partition ? partition : "");
	for (size_t i = 0; i < nodes->count; i++)
		if (is_wanted(survey, &nodes->all[i]) &&
		    (!partition || strstr(string_of(&nodes->all[i].partitions), word))) {
			nodes->all[i].now = now;
			count++;
		}
	return count;
}

/*
 * Check all nodes, with one srun for each partition that is used. Among the partitions of an
 * unchecked node, the one with the most unchecked nodes is used.
 */
static void check_partitions(struct survey *survey)
{
	for (size_t i = 0; i < survey->nodes.count; i++) {
		struct node *node = &survey->nodes.all[i];
		char *names, *rest, *name, *best = NULL;
		size_t most = 0;

		if (!is_wanted(survey, node))
			continue;
		rest = names = check_memory(strdup(string_of(&node->partitions)));
		while ((name = strsep(&rest, ",")))
			if (*name && select_nodes(survey, name, false) > most) {
				most = select_nodes(survey, name, false);
				best = name;
			}
		if (best) {
			select_nodes(survey, best, true);
			run_srun(survey, best);
		} else {
			node->asked = true;
			report_node(survey, node, SITE_WARNING, "node", "",
				    "not checked: none of its partitions is up");
		}
		free(names);
	}
}

/* --- Facts about the nodes from slurmctld -------------------------------------------------- */

static void report_unchecked(struct survey *survey)
{
	char text[256];

	for (size_t i = 0; i < survey->nodes.count; i++) {
		const struct node *node = &survey->nodes.all[i];

		if (node->asked)
			continue;
		snprintf(text, sizeof(text), "not checked: it is %.100s", node->state);
		report_node(survey, node, SITE_WARNING, "node",
			    node->ask == SITE_BUSY ? "run ddp-info --check --here on it" : "",
			    text);
	}
}

/* Check that the release of the running slurmd is that for which the node's plugin was built. */
static void check_releases(struct survey *survey)
{
	char text[256];

	for (size_t i = 0; i < survey->nodes.count; i++) {
		const struct node *node = &survey->nodes.all[i];
		size_t n = strlen(node->series);

		if (n == 0)
			continue;
		snprintf(text, sizeof(text), "slurmd is of Slurm %.60s, ddp.so is for %s",
			 node->release, node->series);
		if (strncmp(node->release, node->series, n) == 0 && node->release[n] == '.')
			report_node(survey, node, SITE_OK, "slurmd", "", text);
		else
			report_node(survey, node, SITE_WRONG, "slurmd",
				    "restart slurmd, or install the slurm-ddp for its release",
				    text);
	}
}

/* Report the number of shards per GPU, which Slurm's data or shards_per_gpu= sets. */
static void check_shards(struct survey *survey, uint32_t site)
{
	bool any = false;
	char text[512];

	for (size_t i = 0; i < survey->nodes.count; i++) {
		const struct node *node = &survey->nodes.all[i];
		uint32_t even = ddp_gres_shards_per_gpu(node->gres);

		if (!ddp_gres_has_shards(node->gres))
			continue;
		any = true;
		snprintf(text, sizeof(text), "%.200s: %u shards per GPU", node->gres,
			 even ? even : site);
		if (even && site && even != site)
			report_node(survey, node, SITE_WARNING, "shards",
				    "shards_per_gpu= has another value, which is ignored here",
				    text);
		else if (even || site)
			report_node(survey, node, SITE_OK, "shards", "", text);
		else {
			snprintf(text, sizeof(text),
				 "%.200s do not divide evenly: DDP_SHARE stays unset", node->gres);
			report_node(survey, node, SITE_WARNING, "shards",
				    "add shards_per_gpu=N to the plugin's line", text);
		}
	}
	if (any || !site)
		return;
	ddp_text_clear(&survey->lines);
	site_add_verdict(&survey->lines, SITE_WARNING, "shards", "remove it",
			 "shards_per_gpu=%u, but no node has shards", site);
	site_add_lines(survey->report, NULL, string_of(&survey->lines));
}

static bool load_nodes(struct survey *survey)
{
	const struct site_options *options = survey->options;
	const char *job = getenv("SLURM_JOB_NODELIST");
	char *argv[] = {"sinfo", "-h", "-N", "-o", SINFO_FORMAT, NULL, NULL, NULL};
	struct ddp_text nodes = {.data = NULL}, partition = {.data = NULL};
	struct ddp_command_said output;
	char why[512];
	bool found;
	int argc = 5;

	if (options->nodes || job) {
		ddp_text_add(&nodes, "--nodes=%s", options->nodes ? options->nodes : job);
		argv[argc++] = (char *)string_of(&nodes);
	}
	if (options->partition) {
		ddp_text_add(&partition, "--partition=%s", options->partition);
		argv[argc++] = (char *)string_of(&partition);
	}
	site_run(argv, options->limit, &output);
	for (char *rest = output.out.data, *line; (line = strsep(&rest, "\n"));)
		if (*line)
			parse_node(&survey->nodes, line);
	found = survey->nodes.count > 0;
	if (!found) {
		*why = '\0';
		if (output.status != 0)
			describe_failure(&output, why, sizeof(why));
		ddp_text_clear(&survey->lines);
		site_add_verdict(&survey->lines, SITE_WARNING, "node", "check the output of sinfo",
				 "no node was checked: sinfo lists none%s%s", *why ? ": " : "",
				 why);
		site_add_lines(survey->report, NULL, string_of(&survey->lines));
	}
	ddp_command_said_free(&output);
	ddp_text_free(&nodes);
	ddp_text_free(&partition);
	return found;
}

static void check_nodes(struct survey *survey, const struct site_found *here)
{
	bool job = getenv("SLURM_JOB_ID") != NULL;

	if (!load_nodes(survey))
		return;
	check_shards(survey, here->values.shards_per_gpu);
	for (size_t i = 0; job && i < survey->nodes.count; i++)
		survey->nodes.all[i].ask = SITE_ASK;
	if (!job)
		check_partitions(survey);
	else if (select_nodes(survey, NULL, true))
		run_srun(survey, NULL);
	report_unchecked(survey);
	check_releases(survey);
	free_nodes(&survey->nodes);
}

/* --- The report ---------------------------------------------------------------------------- */

static const char *const levels[] = {"ok", "warning", "WRONG"};

static void add_table(const struct site_report *report, struct ddp_text *out)
{
	static const struct ddp_table_column columns[] = {{.head = "verdict", .words = true},
							  {.head = "on", .words = true},
							  {.head = "what", .words = true},
							  {.head = "finding", .words = true}};
	struct ddp_text cells = {.data = NULL};
	size_t counts[3] = {0};

	for (size_t i = 0; i < report->count; i++) {
		const struct site_row *row = &report->rows[i];
		char *nodes = row->nodes.size ? compress_nodes(string_of(&row->nodes)) : NULL;

		counts[row->level]++;
		ddp_text_add(&cells, "%s\t%s%s%s\t%s\t%s%s%s\t", levels[row->level],
			     row->here ? report->host : "", row->here && nodes ? ", " : "",
			     nodes ? nodes : "", row->what, row->finding, *row->remedy ? "; " : "",
			     row->remedy);
		free(nodes);
	}
	ddp_text_table(out, columns, sizeof(columns) / sizeof(columns[0]), &cells, SIZE_MAX);
	ddp_text_add(out, "\n%zu wrong, %zu warning%s\n", counts[SITE_WRONG], counts[SITE_WARNING],
		     counts[SITE_WARNING] == 1 ? "" : "s");
	ddp_text_free(&cells);
}

static void add_json(const struct site_report *report, struct ddp_text *out)
{
	static const char *const words[] = {"ok", "warning", "wrong"};

	ddp_put_begin(out, NULL, '{');
	ddp_put_string(out, "version", PACKAGE_VERSION);
	ddp_put_string(out, "host", report->host);
	ddp_put_begin(out, "check", '[');
	for (size_t i = 0; i < report->count; i++) {
		const struct site_row *row = &report->rows[i];
		char *nodes = row->nodes.size ? compress_nodes(string_of(&row->nodes)) : NULL;

		ddp_text_add(out, "%s\n  ", i ? "," : "");
		ddp_put_begin(out, NULL, '{');
		ddp_put_string(out, "verdict", words[row->level]);
		ddp_put_bool(out, "here", row->here);
		ddp_put_string(out, "nodes", nodes);
		ddp_put_string(out, "what", row->what);
		ddp_put_string(out, "finding", row->finding);
		ddp_put_string(out, "remedy", *row->remedy ? row->remedy : NULL);
		ddp_text_add(out, "}");
		free(nodes);
	}
	ddp_text_add(out, "]}\n");
}

/* Read slurmctld's settings. If slurmctld does not respond, [config] stays empty. */
static void load_config(double limit, struct ddp_text *config, struct ddp_text *lines)
{
	struct ddp_command_said output;
	char value[64], why[512];

	site_run((char *[]){"scontrol", "show", "config", NULL}, limit, &output);
	site_settings_keep(string_of(&output.out), config);
	if (output.status != 0 ||
	    !site_setting(string_of(config), "SLURM_VERSION", value, sizeof(value))) {
		describe_failure(&output, why, sizeof(why));
		ddp_text_clear(config);
		ddp_text_add(config, "%s", "");
		site_add_verdict(
			lines, SITE_WRONG, "slurmctld",
			"make scontrol show config work here; without it only files are checked",
			"it does not respond: %s", why);
	} else {
		site_add_verdict(lines, SITE_OK, "slurmctld", "", "it runs Slurm %s", value);
		if (!site_setting(config->data, "KillOnBadExit", value, sizeof(value)) ||
		    strcmp(value, "1") != 0)
			site_add_verdict(
				lines, SITE_WARNING, "KillOnBadExit",
				"set KillOnBadExit=1 in slurm.conf: Slurm then ends all ranks when one fails",
				"it is not set");
	}
	ddp_command_said_free(&output);
}

enum site_level site_check(const struct site_options *options)
{
	struct ddp_text config = {.data = NULL}, lines = {.data = NULL}, out = {.data = NULL};
	enum site_level worst = SITE_OK;
	struct site_report report = {.count = 0};
	struct site_found here;
	char host[256] = "";

	(void)gethostname(host, sizeof(host) - 1);
	host[strcspn(host, ".")] = '\0';
	report.host = host;
	load_config(options->limit, &config, &lines);
	site_check_host(string_of(&config), &here, &lines);
	site_add_lines(&report, NULL, string_of(&lines));
	if (!options->here && config.size > 0) {
		struct survey survey = {.options = options,
					.config = config.data,
					.ddp = here.works,
					.report = &report};

		check_nodes(&survey, &here);
		ddp_text_free(&survey.lines);
	}
	site_compare(&report);
	(options->json ? add_json : add_table)(&report, &out);
	fputs(string_of(&out), stdout);
	for (size_t i = 0; i < report.count; i++)
		if (report.rows[i].level > worst)
			worst = report.rows[i].level;
	site_report_free(&report);
	ddp_text_free(&config);
	ddp_text_free(&lines);
	ddp_text_free(&out);
	return worst;
}

void site_check_node(const char *config)
{
	const char *name = getenv("SLURMD_NODENAME");
	struct ddp_text lines = {.data = NULL};
	struct site_found found;

	site_check_host(config, &found, &lines);
	for (const char *at = string_of(&lines), *end; *at; at = end + 1) {
		end = at + strcspn(at, "\n");
		printf(MARK "%s\t%.*s\n", name ? name : "", (int)(end - at), at);
	}
	printf(MARK "%s\tend\t%s\n", name ? name : "", found.series);
	ddp_text_free(&lines);
}
