/* SPDX-License-Identifier: Apache-2.0 */
/*
 * next-nodes.c - choose the nodes of the next attempt: the nodes of the last attempt that are left,
 * and spare nodes
 */
#include "config.h"

#include "ddp-run.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/settings.h"
#include "base/text.h"
#include "base/watch.h"
#include "base/xalloc.h"
#include "failure-report.h"

enum {
	ASKS = 5,	  /* maximum number of queries until Slurm answers */
	ASK_AGAIN = 5,	  /* seconds between queries */
	STEPS_LIMIT = 10, /* seconds for Slurm to list steps */
	ANSWER_LIMIT = 8, /* seconds for a node that did not answer before */
	LATE_LIMIT = 20,  /* seconds for a node that did not answer, if too few nodes are left */
	CLAIMS = 20	  /* maximum number of claims until no other ddp-run claims the same node */
};

#define CLAIM_AGAIN 0.2 /* longest time between two claims, in seconds */

/* Call nodes_of_job(), up to ASKS times until Slurm answers. */
static struct node_list ask_nodes(char state[32], struct node_list *drained, struct node_list *gone)
{
	struct node_list all;

	for (int i = 1;; i++) {
		all = nodes_of_job(job.id, state, 32, drained, gone);
		if (*state || i == ASKS || attempt_end_requested())
			return all;
		nodes_free(&all);
		attempt_wait(ASK_AGAIN);
	}
}

/*
 * Returns the value of srun's numeric option [name], or of [variable], the environment variable
 * with the same meaning. Returns 0 if neither is given.
 */
static int number_of(const struct launch *launch, const char *name, const char *variable)
{
	const char *value = launch_option(launch, name, variable);

	return value ? atoi(value) : 0;
}

/* Whether srun places one task on each entry of its list of nodes (-m arbitrary). */
static bool is_arbitrary(const struct launch *launch)
{
	const char *distribution = launch_option(launch, "distribution", "SLURM_DISTRIBUTION");

	return distribution && strncmp(distribution, "arbitrary", strlen("arbitrary")) == 0;
}

/*
 * Returns [prefix] and [gpus], such as "8" or "a100:4,h100:4", with each number multiplied by
 * [count] and divided by [nodes]; NULL if the result is not a whole number.
 */
static char *scale_gpus(const char *prefix, const char *gpus, int count, int nodes)
{
	struct ddp_text text = {.data = NULL};
	bool good = true;
	char *option;

	ddp_text_add(&text, "%s", prefix);
	for (const char *at = gpus; *at && good;) {
		size_t length = strcspn(at, ","), name = length;
		long number;

		while (name > 0 && isdigit((unsigned char)at[name - 1]))
			name--;
		number = strtol(at + name, NULL, 10) * count;
		good = name < length && (name == 0 || at[name - 1] == ':') && number % nodes == 0;
		ddp_text_put(&text, at, name);
		ddp_text_add(&text, "%ld%.*s", number / nodes, at[length] != '\0', ",");
		at += length + (at[length] != '\0');
	}
	option = good ? ddp_xstrdup(text.data, "srun's --gpus") : NULL;
	ddp_text_free(&text);
	return option;
}

/* Whether the user gives a number of GPUs per node or per task, in addition to the total. */
static bool gives_part_of_gpus(const struct launch *launch)
{
	return launch_option(launch, "gpus-per-node", "SLURM_GPUS_PER_NODE") ||
	       launch_option(launch, "gpus-per-task", "SLURM_GPUS_PER_TASK") ||
	       launch_option(launch, "gres", "SLURM_GRES");
}

/*
 * If the user gives a total of GPUs, set srun's options for [count] nodes: the total, and the
 * number per node. The user's total is for the nodes of the first attempt (--gpus), or of the job.
 * From a total alone, Slurm 22.05 gives too few GPUs to a node on which an earlier step still runs.
 */
static void set_gpus(struct launch *launch, int count)
{
	const char *of_step = launch_option(launch, "gpus", NULL);
	const char *gpus = launch_option(launch, "gpus", "SLURM_GPUS");
	const char *of_job = launch_variable(launch, "SLURM_JOB_NUM_NODES");
	int nodes = of_step ? (int)launch->first.count : of_job ? atoi(of_job) : 0;

	free(launch->gpus_option);
	free(launch->node_gpus_option);
	launch->gpus_option = launch->node_gpus_option = NULL;
	if (!gpus || !*gpus || nodes < 1)
		return;
	launch->gpus_option = scale_gpus("--gpus=", gpus, count, nodes);
	if (!gives_part_of_gpus(launch))
		launch->node_gpus_option = scale_gpus("--gpus-per-node=", gpus, 1, nodes);
}

/* Whether the job's [given] nodes and those of -N allow --min-nodes; otherwise print a line. */
static bool check_least(const struct launch *launch, int given, int spares)
{
	int least = (int)launch->options.number[RUN_OPTION_MIN_NODES];
	const char *nodes = launch_option(launch, "nodes", NULL), *most = NULL;

	if (nodes && strspn(nodes, "0123456789-") == strlen(nodes))
		most = strchr(nodes, '-') ? strchr(nodes, '-') + 1 : nodes;
	if (most && least > atoi(most))
		fprintf(stderr,
			"ddp-run: --min-nodes %d is more than the nodes of -N %s. Give at most %d.\n",
			least, nodes, atoi(most));
	else if (least > given)
		fprintf(stderr,
			"ddp-run: --min-nodes %d is more than the %d nodes of job %s. Give at most %d.\n",
			least, given, job.id, given);
	else if (given > spares && least > given - spares)
		fprintf(stderr,
			"ddp-run: --spare-nodes %d leaves %d of the %d nodes of job %s, fewer than "
			"--min-nodes %d. Reduce one of the options.\n",
			spares, given - spares, given, job.id, least);
	else
		return true;
	return false;
}

bool nodes_reserve_spares(struct launch *launch)
{
	int spares = (int)launch->options.number[RUN_OPTION_SPARE_NODES], given, count, use;
	int least = (int)launch->options.number[RUN_OPTION_MIN_NODES];
	int each = number_of(launch, "ntasks-per-node", "SLURM_NTASKS_PER_NODE");
	const char *nodes = launch_option(launch, "nodes", NULL);
	const char *tasks = launch_option(launch, "ntasks", NULL)
				    ? NULL
				    : launch_variable(launch, "SLURM_NTASKS");
	bool preflight = launch->options.number[RUN_OPTION_PREFLIGHT] > 0;
	struct node_list all, gone = {.name = NULL};
	char state[32];

	/* With -m arbitrary the user names the nodes, so there are no spares. */
	if (is_arbitrary(launch))
		spares = 0;
	if (spares == 0 && least == 0)
		return true;
	all = ask_nodes(state, NULL, &gone);
	/*
	 * With a preflight, nodes that are down count as well, because the preflight replaces them.
	 */
	count = (int)(all.count - (preflight ? 0 : gone.count));
	use = count - spares;
	given = (int)all.count;
	nodes_free(&all);
	nodes_free(&gone);
	if (!check_least(launch, *state ? given : INT_MAX, spares))
		return false;
	if (spares == 0)
		return true;
	/* If too few nodes are left, some spare nodes already replace nodes that are down. */
	if (use < least)
		use = least < count ? least : count;
	if (nodes && atoi(nodes) <= use) {
		/*
		 * Set the number of tasks, since srun would start all SLURM_NTASKS tasks on fewer
		 * nodes.
		 */
		if (tasks && each > 0 && !strchr(nodes, '-')) {
			launch->nodes = atoi(nodes);
			launch->tasks = atoi(nodes) * each;
		}
		if (!strchr(nodes, '-'))
			set_gpus(launch, atoi(nodes));
		return true;
	}
	if (nodes) {
		fprintf(stderr,
			"ddp-run: job %s has %d nodes, of which -N uses %d, so --spare-nodes %d "
			"is too many. Reduce -N or --spare-nodes.\n",
			job.id, count, atoi(nodes), spares);
	} else if (use < 1) {
		fprintf(stderr,
			"ddp-run: --spare-nodes %d would leave none of the %d nodes of job %s. "
			"Give at most %d.\n",
			spares, count, job.id, count - 1);
	} else if (tasks && atoi(tasks) % count != 0) {
		fprintf(stderr,
			"ddp-run: --spare-nodes %d needs the same number of tasks on each node, "
			"but %s tasks are on %d nodes. Use srun's -N and -n.\n",
			spares, tasks, count);
	} else {
		launch->nodes = use;
		if (tasks)
			launch->tasks = atoi(tasks) / count * use;
		set_gpus(launch, use);
		return true;
	}
	return false;
}

/* --- Spares -------------------------------------------------------------------------------- */

/*
 * Parse [line], an answer of scontrol about a step. If ddp-run did not start the step and the step
 * is running, copies its name to [name], adds its nodes to [nodes], and returns true.
 */
static bool read_other_step(const struct launch *launch, const char *line, char name[FACTS_NAME],
			    struct node_list *nodes)
{
	size_t id_size, state_size, name_size, size;
	const char *id = nodes_field(line, "StepId", &id_size);
	const char *state = nodes_field(line, "State", &state_size);
	const char *field = nodes_field(line, "Name", &name_size);
	const char *dot = memchr(id, '.', id_size);
	char step[32];

	if (!dot || strncmp(state, "RUNNING", state_size) != 0)
		return false;
	snprintf(name, FACTS_NAME, "%.*s", (int)name_size, field);
	snprintf(step, sizeof(step), "%.*s", (int)(id + id_size - dot - 1), dot + 1);
	if (strspn(step, "0123456789") != strlen(step) || nodes_have(&launch->steps, step) ||
	    strcmp(name, NODES_STEP) == 0)
		return false;
	field = nodes_field(line, "NodeList", &size);
	nodes_expand(nodes, field, size);
	return true;
}

/*
 * Add to [reserved] the nodes of other steps of the job, except monitoring steps. A monitoring step
 * runs on all nodes, or there is one on each node. It is recognized because it shares a node with
 * the [last] attempt; then all steps with its name are monitoring steps. If [last] is NULL, no
 * attempt has run, and only a step on [all] nodes of the job is a monitoring step.
 */
static void add_step_nodes(const struct launch *launch, const struct node_list *last,
			   const struct node_list *all, struct node_list *reserved)
{
	char *const show[] = {"scontrol", "-o", "show", "step", (char *)job.id, NULL};
	struct node_list monitors = {.name = NULL}; /* names of monitoring steps */
	struct ddp_text out = {.data = NULL};

	(void)nodes_run(show, STEPS_LIMIT, &out);
	for (int pass = 0; pass < 2; pass++) {
		char *lines = ddp_xstrdup(out.data ? out.data : "", "steps of the job");

		for (char *rest = lines, *line; (line = strsep(&rest, "\n"));) {
			struct node_list nodes = {.name = NULL};
			char name[FACTS_NAME];
			bool other = read_other_step(launch, line, name, &nodes);

			for (size_t i = 0; i < nodes.count && other; i++)
				if (pass == 0 && (last ? nodes_have(last, nodes.name[i])
						       : nodes.count >= all->count))
					nodes_add(&monitors, name);
				else if (pass == 1 && !nodes_have(&monitors, name))
					nodes_add(reserved, nodes.name[i]);
			nodes_free(&nodes);
		}
		free(lines);
	}
	nodes_free(&monitors);
	ddp_text_free(&out);
}

/*
 * Add the nodes of the list [hosts]. If [hosts] contains a slash, it is the path of a file with
 * names, and nothing is added.
 */
static void add_hosts(struct node_list *list, const char *hosts)
{
	if (hosts && !strchr(hosts, '/'))
		nodes_expand(list, hosts, strlen(hosts));
}

/* Returns the number of tasks that srun would start, or 0 if no option determines it. */
static int count_tasks(const struct launch *launch)
{
	return launch->tasks ?: number_of(launch, "ntasks", "SLURM_NTASKS");
}

/*
 * Returns the number of nodes that srun would choose from [all] for the first attempt. It is the
 * number of all nodes, unless srun's options set a smaller one.
 */
static int count_planned(const struct launch *launch, const struct node_list *all)
{
	int nodes = launch->nodes ?: number_of(launch, "nodes", NULL), ranks = count_tasks(launch);

	if (nodes == 0 || nodes > (int)all->count)
		nodes = (int)all->count;
	return ranks > 0 && ranks < nodes ? ranks : nodes;
}

/*
 * Returns the nodes in [all] that are neither spare nodes nor used by the [last] attempt: nodes of
 * other steps, nodes that -w omits or -x lists, and nodes before --relative. If [last] is NULL, no
 * attempt has run.
 */
static struct node_list find_reserved(const struct launch *launch, const struct node_list *last,
				      const struct node_list *all)
{
	struct node_list reserved = {.name = NULL}, wanted = {.name = NULL},
			 of_job = {.name = NULL};
	const char *named = launch_option(launch, "nodelist", NULL);
	const char *relative = launch_option(launch, "relative", NULL);
	int needed = last ? (int)launch->first.count : count_planned(launch, all);

	add_step_nodes(launch, last, all, &reserved);
	claims_of_others(last, &reserved);
	/*
	 * If the first attempt needs nodes of other steps, it waits for them, so none is reserved.
	 */
	if (!last && (int)(all->count - reserved.count) < needed)
		nodes_free(&reserved);
	if (reserved.count > 0) {
		char *names = nodes_joined(&reserved);

		fprintf(stderr,
			"ddp-run: other steps and ddp-runs of job %s use nodes %s, so these nodes "
			"are not %s\n",
			job.id, names, last ? "used as spares" : "tested");
		free(names);
	}
	if (relative)
		add_hosts(&of_job, launch_variable(launch, "SLURM_JOB_NODELIST"));
	for (size_t i = 0; i < of_job.count && (int)i < atoi(relative); i++)
		nodes_add(&reserved, of_job.name[i]);
	add_hosts(&reserved, launch_option(launch, "exclude", NULL));
	add_hosts(&wanted, named);
	/*
	 * If -w lists enough nodes, all nodes that it omits are reserved. If it lists fewer nodes
	 * than needed, none are reserved, since srun adds nodes that -w omits.
	 */
	if (named && (strchr(named, '/') || (int)wanted.count >= needed))
		for (size_t i = 0; i < all->count; i++)
			if (!nodes_have(&wanted, all->name[i]))
				nodes_add(&reserved, all->name[i]);
	nodes_free(&of_job);
	nodes_free(&wanted);
	return reserved;
}

/*
 * Set launch->usable to the nodes of [all] that are not in [gone] and that no other ddp-run has
 * claimed, and claim them. Returns false if another ddp-run claimed one of them at the same time.
 */
static bool claim_usable(struct launch *launch, const struct node_list *all,
			 const struct node_list *last, const struct node_list *gone)
{
	struct node_list before = {.name = NULL}, after = {.name = NULL};
	bool conflict;

	nodes_free(&launch->usable);
	claims_set(last);
	claims_of_others(last, &before);
	for (int order = 0; order < 4; order++)
		for (size_t i = 0; i < all->count; i++) {
			const char *name = all->name[i];
			bool is_new = !nodes_have(last, name);

			/* Spare nodes beyond those needed stay free for other ddp-runs of the job. */
			if (!nodes_have(gone, name) && !nodes_have(&before, name) &&
			    order == 2 * nodes_have(&launch->avoid, name) + is_new &&
			    !(is_new && launch->usable.count >= launch->first.count))
				nodes_add(&launch->usable, name);
		}
	claims_set(&launch->usable);
	claims_of_others(last, &after);
	conflict = nodes_have_any(&after, &launch->usable);
	nodes_free(&before);
	nodes_free(&after);
	return !conflict;
}

/* Returns the number of nodes of [all] that are neither in [gone] nor in [silent]. */
static size_t count_left(const struct node_list *all, const struct node_list *gone,
			 const struct node_list *silent)
{
	size_t count = 0;

	for (size_t i = 0; i < all->count; i++)
		count += !nodes_have(gone, all->name[i]) && !nodes_have(silent, all->name[i]);
	return count;
}

/*
 * Add to [gone] the nodes that did not answer in the attempt. If the remaining nodes are too few,
 * probe the nodes again with a longer limit first, since overloaded nodes and nodes with a slow
 * file system answer late. This probe also kills processes of the attempt's step on them.
 */
static void add_silent(const struct launch *launch, const struct attempt *attempt,
		       const struct node_list *all, struct node_list *gone)
{
	const struct node_list *silent = &attempt->silent;
	struct nodes_answers said = {.with_ranks = 0};
	size_t least = (size_t)launch->options.number[RUN_OPTION_MIN_NODES];

	if (least == 0)
		least = launch->first.count;
	if (silent->count == 0 || count_left(all, gone, silent) >= least) {
		nodes_add_all(gone, silent);
		return;
	}
	nodes_probe(silent, attempt->job, attempt->step, true, LATE_LIMIT, &said);
	for (size_t i = 0; i < silent->count; i++)
		if (!nodes_have(&said.silent, silent->name[i]))
			fprintf(stderr, "ddp-run: node %s answers now\n", silent->name[i]);
	nodes_add_all(gone, &said.silent);
	nodes_answers_free(&said);
}

/*
 * Set launch->usable to the nodes for the next attempt, best first: nodes of the last attempt that
 * are left, then spare nodes, then nodes in launch->avoid.
 */
static void find_usable(struct launch *launch, const struct attempt *attempt)
{
	const struct node_list *last = attempt->nodes.count ? &attempt->nodes : &launch->list;
	const struct node_list *lost = &attempt->said.lost;
	struct node_list all, reserved, gone = {.name = NULL}, doubtful = {.name = NULL};
	struct nodes_answers said = {.with_ranks = 0};
	char state[32];

	all = ask_nodes(state, &launch->avoid, NULL);
	if (!*state) {
		fprintf(stderr,
			"ddp-run: Slurm does not report the nodes of job %s, so those of the last "
			"attempt are used\n",
			job.id);
		nodes_add_all(&all, last);
	}
	reserved = find_reserved(launch, last, &all);
	for (size_t i = 0; i < all.count; i++) {
		const char *name = all.name[i];

		if (nodes_have(last, name))
			continue;
		if (nodes_have(&reserved, name))
			nodes_add(&gone, name);
		else if (nodes_have(&launch->bad, name))
			nodes_add(&doubtful, name);
	}
	if (doubtful.count > 0)
		nodes_probe(&doubtful, job.id, "0", false, ANSWER_LIMIT, &said);
	nodes_add_all(&gone, &said.silent);
	for (size_t i = 0; i < lost->count; i++)
		fprintf(stderr, "ddp-run: node %s is lost\n", lost->name[i]);
	nodes_add_all(&launch->bad, lost);
	nodes_add_all(&launch->bad, &attempt->silent);
	nodes_add_all(&gone, lost);
	nodes_add_all(&gone, &attempt->unable);
	nodes_add_all(&gone, &launch->failed);
	add_silent(launch, attempt, &all, &gone);
	for (int i = 0; i < CLAIMS && !claim_usable(launch, &all, last, &gone); i++)
		attempt_wait(fmod(ddp_seconds() * 1e3, 1) * CLAIM_AGAIN);
	nodes_answers_free(&said);
	nodes_free(&doubtful);
	nodes_free(&reserved);
	nodes_free(&all);
	nodes_free(&gone);
}

/* --- After an attempt ---------------------------------------------------------------------- */

/*
 * If only some nodes could not start the program, the program is missing on these nodes, and they
 * are replaced if the job has enough other nodes. They are found by the exit status of their tasks,
 * which is the error number of execve(), because only some releases of Slurm print the node's name.
 */
static void check_unable(struct launch *launch, struct attempt *attempt)
{
	int least = (int)launch->options.number[RUN_OPTION_MIN_NODES];
	const struct srun_said *said = &attempt->said;
	char *names;

	for (size_t i = 0; i < said->count; i++)
		if (said->task[i].how == FACTS_EXIT && said->task[i].code == said->task[0].code)
			nodes_add(&attempt->unable, said->task[i].node);
	if (attempt->unable.count == 0 || attempt->unable.count >= attempt->nodes.count)
		return;
	find_usable(launch, attempt);
	if ((int)launch->usable.count < (least ? least : (int)launch->first.count))
		return;
	names = nodes_joined(&attempt->unable);
	fprintf(stderr, "ddp-run: the program cannot be started on %s\n", names);
	free(names);
	nodes_add_all(&launch->avoid, &attempt->unable);
	attempt->end = RUN_END_NODE;
}

bool nodes_check_refusal(struct launch *launch, struct attempt *attempt)
{
	const struct node_list *last = launch->list.count ? &launch->list : &launch->first;
	struct node_list all;
	bool gone = false;
	char state[32];

	if (attempt->end != RUN_END_REFUSED)
		return false;
	if (attempt->said.not_found)
		check_unable(launch, attempt);
	/* If no step has run yet, a refusal concerns the user's request, not the nodes. */
	if (attempt->said.not_found || attempt->said.usage_error || attempt->number == 0)
		return false;
	all = ask_nodes(state, NULL, NULL);
	for (size_t i = 0; i < last->count; i++)
		gone = gone || !nodes_have(&all, last->name[i]);
	nodes_free(&all);
	if (*state && gone)
		attempt->end = RUN_END_NODE;
	return attempt->end == RUN_END_REFUSED && (!*state || strcmp(state, "RUNNING") == 0);
}

/* Returns why the number of nodes cannot change; NULL: it can. */
static const char *why_fixed(const struct launch *launch)
{
	if (launch->ranks == 0 || launch->first.count == 0)
		return "Slurm did not report the number of ranks";
	if (launch->ranks % (int)launch->first.count != 0)
		return "the nodes had different numbers of ranks";
	if (launch_option(launch, "multi-prog", NULL))
		return "--multi-prog fixes the number of ranks";
	return NULL;
}

struct run_nodes nodes_count(struct launch *launch, const struct attempt *attempt)
{
	int wanted = (int)launch->first.count;
	struct run_nodes nodes = {.wanted = wanted, .usable = wanted};

	if (attempt->end == RUN_END_NODE) {
		find_usable(launch, attempt);
		nodes.usable = (int)launch->usable.count;
		nodes.why = why_fixed(launch);
		nodes.fixed = nodes.why != NULL;
	}
	return nodes;
}

/*
 * Set srun's option --nodelist to launch->list. With -m arbitrary, each node is repeated for each
 * of its tasks, because the list must have one entry for each of the [ranks] tasks.
 */
static void set_list(struct launch *launch, int ranks)
{
	const struct node_list *list = &launch->list;
	int count = (int)list->count;
	struct ddp_text text = {.data = NULL};

	if (!is_arbitrary(launch) || ranks < count)
		ranks = count;
	for (int i = 0; i < count; i++)
		for (int k = 0; k < ranks / count + (i < ranks % count); k++)
			ddp_text_add(&text, "%s%s", text.data ? "," : "--nodelist=", list->name[i]);
	free(launch->list_option);
	launch->list_option = ddp_xstrdup(text.data ? text.data : "", "srun's --nodelist");
	ddp_text_free(&text);
}

static void use_nodes(struct launch *launch, const struct node_list *nodes, size_t count)
{
	int ranks = launch->ranks, first = (int)launch->first.count;

	nodes_free(&launch->list);
	nodes_add_all(&launch->list, &(struct node_list){.name = nodes->name, .count = count});
	/* Slurm 24.11 refuses --nodes with -m arbitrary. */
	if (!is_arbitrary(launch) || launch_option(launch, "nodes", NULL))
		launch->nodes = (int)count;
	if (ranks > 0 && ranks % first == 0)
		ranks = ranks / first * (int)count;
	if (ranks > 0)
		launch->tasks = ranks;
	set_gpus(launch, (int)count);
	set_list(launch, ranks);
}

/*
 * Called if the attempt lost no node. If a spare node can replace a node that is drained, or the
 * node [bad], sets launch->usable and returns true.
 */
static bool can_replace(struct launch *launch, const struct attempt *attempt, const char *bad)
{
	char state[32];
	struct node_list drained = {.name = NULL};
	struct node_list all = nodes_of_job(job.id, state, sizeof(state), &drained, NULL);
	bool avoided = false, replaced = false;

	nodes_free(&all);
	nodes_add_all(&launch->avoid, &drained);
	if (bad)
		nodes_add(&launch->avoid, bad);
	for (size_t i = 0; i < attempt->nodes.count; i++)
		avoided = avoided || nodes_have(&launch->avoid, attempt->nodes.name[i]);
	if (*state && avoided) {
		find_usable(launch, attempt);
		for (size_t i = attempt->nodes.count; i < launch->usable.count; i++) {
			const char *name = launch->usable.name[i];

			if (!nodes_have(&attempt->nodes, name))
				continue;
			replaced = true;
			fprintf(stderr, "ddp-run: node %s is replaced: %s\n", name,
				nodes_have(&drained, name) ? "Slurm has drained it"
				: bad && strcmp(bad, name) == 0
					? "its ranks failed first in two attempts in a row"
					: "it was slow in the preflight, or its ranks failed first before");
		}
	}
	nodes_free(&drained);
	return replaced;
}

/* --- Preflight ----------------------------------------------------------------------------- */

/*
 * Set launch->first and launch->ranks to the nodes and the number of ranks that the first attempt
 * would have if srun chose from [all]. The number is 0 if it cannot be predicted.
 */
static void plan_first(struct launch *launch, const struct node_list *all)
{
	int nodes = count_planned(launch, all), ranks = count_tasks(launch);
	int each = number_of(launch, "ntasks-per-node", "SLURM_NTASKS_PER_NODE");
	bool by_gpu = launch_option(launch, "ntasks-per-gpu", "SLURM_NTASKS_PER_GPU");

	launch->ranks = ranks ? ranks : by_gpu ? 0 : nodes * (each ? each : 1);
	nodes_add_all(&launch->first,
		      &(struct node_list){.name = all->name, .count = (size_t)nodes});
}

/*
 * Returns the nodes of the job that the first attempt may use. Also adds to [gone] those of them
 * that are down or do not respond.
 */
static struct node_list find_eligible(struct launch *launch, struct node_list *gone)
{
	struct node_list all, reserved, all_gone = {.name = NULL}, eligible = {.name = NULL};
	char state[32];

	all = ask_nodes(state, &launch->avoid, &all_gone);
	reserved = find_reserved(launch, NULL, &all);
	for (size_t i = 0; i < all.count; i++)
		if (!nodes_have(&reserved, all.name[i]))
			nodes_add(&eligible, all.name[i]);
	for (size_t i = 0; i < all_gone.count; i++)
		if (nodes_have(&eligible, all_gone.name[i]))
			nodes_add(gone, all_gone.name[i]);
	nodes_free(&all_gone);
	nodes_free(&all);
	nodes_free(&reserved);
	return eligible;
}

static struct run_decision decide_first(struct launch *launch, const struct run_rules *rules,
					const struct node_list *eligible)
{
	const struct run_past past = {.end = RUN_END_NODE, .left = INFINITY};
	struct run_rules first = *rules;
	struct run_nodes nodes;

	plan_first(launch, eligible);
	for (int avoided = 0; avoided < 2; avoided++)
		for (size_t i = 0; i < eligible->count; i++)
			if (!nodes_have(&launch->failed, eligible->name[i]) &&
			    nodes_have(&launch->avoid, eligible->name[i]) == avoided)
				nodes_add(&launch->usable, eligible->name[i]);
	first.restarts = 1;
	nodes = (struct run_nodes){.wanted = (int)launch->first.count,
				   .usable = (int)launch->usable.count,
				   .why = why_fixed(launch)};
	nodes.fixed = nodes.why != NULL;
	return run_decide(&first, &past, 1, &nodes);
}

/*
 * Whether ddp-run must choose the [count] nodes itself. Otherwise srun might choose a node that has
 * failed, or a slow node that can be replaced.
 */
static bool must_choose(const struct launch *launch, size_t count)
{
	struct node_list best = {.name = launch->usable.name, .count = count};

	for (size_t i = 0; i < launch->first.count; i++)
		if (!nodes_have(&best, launch->first.name[i]))
			return true;
	return launch->failed.count > 0;
}

int nodes_preflight(struct launch *launch, const struct run_rules *rules)
{
	struct node_list gone = {.name = NULL}, eligible = find_eligible(launch, &gone);
	struct run_past past = {.status = RUN_STATUS_BAD};
	struct run_decision decision;
	char *names;

	if (eligible.count > 0)
		preflight_run(launch, &eligible, &gone, NULL);
	else
		fprintf(stderr,
			"ddp-run: the nodes of the first attempt are unknown, so --preflight "
			"tests none\n");
	decision = decide_first(launch, rules, &eligible);
	past.end = attempt_end_requested();
	if (past.end != RUN_END_GOOD)
		decision = run_decide(rules, &past, 1, &(struct run_nodes){.wanted = 1});
	if (decision.act != RUN_RESTART) {
		fprintf(stderr, "ddp-run: the program is not started: %s\n", decision.why);
	} else if (must_choose(launch, (size_t)decision.nodes)) {
		use_nodes(launch, &launch->usable, (size_t)decision.nodes);
		names = nodes_joined(&launch->list);
		fprintf(stderr, "ddp-run: the first attempt runs on %s\n", names);
		free(names);
	} else {
		/* srun chooses the nodes, which are later read from its step. */
		nodes_free(&launch->first);
		launch->ranks = 0;
	}
	nodes_free(&eligible);
	nodes_free(&gone);
	if (decision.act == RUN_REQUEUE)
		job_requeue();
	return decision.act == RUN_RESTART ? -1 : decision.status;
}

/* Whether the first error of [attempt] shows that a GPU is faulty. */
static bool is_gpu_fault(const struct attempt *attempt)
{
	static const char *const faults[] = {
		"ECC",	  "Xid",      "fallen off the bus",	"GPU is lost",
		"NVLink", "hardware", "no CUDA-capable device", "CUDA_ERROR_SYSTEM_NOT_READY"};
	char point[512], node[128];

	failure_point(attempt, point, sizeof(point), node, sizeof(node));
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		if (strstr(point, faults[i]))
			return true;
	return false;
}

void nodes_preflight_again(struct launch *launch, struct attempt *attempt)
{
	bool failed = attempt->end == RUN_END_EXIT || attempt->end == RUN_END_SIGNAL ||
		      attempt->end == RUN_END_HANG;
	struct node_list nodes = {.name = NULL};
	size_t before = launch->failed.count;

	if (attempt_end_requested() ||
	    !(attempt->end == RUN_END_NODE || (failed && is_gpu_fault(attempt))))
		return;
	for (size_t i = 0; i < attempt->nodes.count; i++)
		if (!nodes_have(&attempt->silent, attempt->nodes.name[i]) &&
		    !nodes_have(&attempt->said.lost, attempt->nodes.name[i]))
			nodes_add(&nodes, attempt->nodes.name[i]);
	if (nodes.count > 0)
		preflight_run(launch, &nodes, &(struct node_list){.name = NULL}, attempt->dir);
	if (launch->failed.count > before)
		attempt->end = RUN_END_NODE;
	nodes_free(&nodes);
}

void nodes_choose(struct launch *launch, struct attempt *attempt, const char *bad)
{
	int count = attempt->decision.nodes;
	bool listed = attempt->nodes.count > 0 && !launch_option(launch, "relative", NULL);
	bool has_spares = launch->options.number[RUN_OPTION_SPARE_NODES] > 0;
	struct node_list others = {.name = NULL};

	claims_of_others(&attempt->nodes, &others);
	if (attempt->end == RUN_END_NODE && count > 0) {
		use_nodes(launch, &launch->usable, (size_t)count);
		launch->overlap = true;
	} else if (listed && attempt->end != RUN_END_REFUSED && can_replace(launch, attempt, bad)) {
		use_nodes(launch, &launch->usable, attempt->nodes.count);
	} else if (listed && (launch->overlap || has_spares || others.count > 0) &&
		   !is_arbitrary(launch)) {
		/*
		 * Name the same nodes again, because srun might choose others: with --overlap,
		 * nodes of another step; since Slurm 24.11, a spare node; and nodes that another
		 * ddp-run keeps between two attempts. With -m arbitrary the user names the nodes.
		 */
		use_nodes(launch, &attempt->nodes, attempt->nodes.count);
	}
	attempt->next_nodes = launch->list.count > 0 ? &launch->list : &attempt->nodes;
	nodes_free(&others);
}
