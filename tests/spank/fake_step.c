/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fake_step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/slurm.h>

extern char **environ;

/* What is known of the whole step: the numbers of Slurm's variables. */
struct shape {
	uint32_t ranks, nodes;
	char list[256], tasks[128];
};

static void describe(const struct fake_step *step, struct shape *shape)
{
	char name[64];
	uint32_t tasks[FAKE_LOCAL];

	*shape = (struct shape){0};
	for (int c = 0; c < FAKE_COMPONENTS; c++) {
		const char *at = step->components[c].layout;
		int n;

		while (at && (n = fake_layout_next(&at, name, tasks)) >= 0) {
			sprintf(shape->list + strlen(shape->list), "%s%s", shape->nodes ? "," : "",
				name);
			sprintf(shape->tasks + strlen(shape->tasks), "%s%d",
				shape->nodes ? "," : "", n);
			shape->nodes++;
			shape->ranks += (uint32_t)n;
		}
	}
	if (step->components[0].list)
		strcpy(shape->list, step->components[0].list);
}

uint32_t fake_ranks(const struct fake_step *step)
{
	struct shape shape;

	describe(step, &shape);
	return shape.ranks;
}

static void set_number(char ***env, const char *name, uint32_t value)
{
	char digits[16];

	snprintf(digits, sizeof(digits), "%u", value);
	fake_env_set(env, name, digits);
}

/* --- srun ------------------------------------------------------------------------------- */

/* Call the callbacks for "--a --b=c", an option without argument getting [none]. */
static int give_options(struct spank_handle *process, const char *options, const char *none)
{
	char *copy = strdup(options ? options : ""), *rest = copy, *word;
	int rc = 0;

	while (rc == 0 && (word = strsep(&rest, " "))) {
		char *equals = strchr(word, '=');

		if (strncmp(word, "--", 2) != 0)
			continue;
		if (equals)
			*equals++ = '\0';
		rc = fake_option(process, word + 2, equals ? equals : none);
	}
	free(copy);
	return rc;
}

static char **program_of(const struct fake_step *step)
{
	static char *argv[] = {NULL, "train.py", NULL};

	argv[0] = (char *)(step->program ? step->program : "python3");
	return argv;
}

static void prepare(struct fake_step *step)
{
	struct fake_slurmctld *ctld = &fake_slurmctld;
	char **env = fake_env_copy(environ);

	if (step->job == 0)
		step->job = 4711;
	ctld->job = step->job;
	ctld->step = step->step;
	if (!ctld->layout)
		ctld->layout = step->components[0].layout;
	if (!ctld->layout_list)
		ctld->layout_list = step->components[0].list;
	fake_env_apply(&env, step->env);
	fake_env_become(env);
	fake_env_free(env);
}

/* What srun's environment has once the step exists. */
static void step_exists(struct fake_step *step, const struct shape *shape)
{
	char **env = fake_env_copy(environ);
	const char *at = step->components[0].layout;
	char name[64];
	uint32_t tasks[FAKE_LOCAL];

	set_number(&env, "SLURM_JOB_ID", step->job);
	set_number(&env, "SLURM_STEP_ID", step->step);
	if (!fake_env_get(env, "SLURM_CLUSTER_NAME"))
		fake_env_set(&env, "SLURM_CLUSTER_NAME", "alpha");
	fake_env_set(&env, "SLURM_NODELIST", shape->list);
	/* Only a layout by hand puts task 0 elsewhere than on the first node. */
	if (fake_layout_next(&at, name, tasks) > 0 && tasks[0] != 0)
		fake_env_set(&env, "SLURM_DISTRIBUTION", "arbitrary");
	at = step->components[0].layout;
	fake_env_become(env);
	fake_env_free(env);
	step->srun->has_job = true;
	step->srun->job = step->job;
	step->srun->step = step->step;
	step->srun->tasks = shape->ranks;
	step->srun->nodes = 0;
	while (at && fake_layout_next(&at, name, tasks) >= 0)
		step->srun->nodes++;
}

/* A hook of srun's, and whether it changed srun's environment. */
static int srun_hook(struct fake_step *step, const char *hook)
{
	char **was = fake_env_copy(environ);
	int rc = fake_hook(step->srun, hook);

	if (!fake_env_equal(was, environ))
		step->srun_changed = true;
	fake_env_free(was);
	return rc;
}

static int parse_command_lines(struct fake_step *step)
{
	for (int c = 0; c < FAKE_COMPONENTS && step->components[c].layout; c++) {
		if (give_options(step->srun, step->inherited, "(null)") < 0 ||
		    give_options(step->srun, step->options, NULL) < 0)
			return -1;
		if (srun_hook(step, "init_post_opt") < 0)
			return -2;
	}
	return 0;
}

int fake_srun(struct fake_step *step)
{
	struct shape shape;
	int rc;

	describe(step, &shape);
	prepare(step);
	step->srun = fake_process(S_CTX_LOCAL, "submit", step->srun_conf);
	step->srun->program = program_of(step);
	step->srun->lines = step->lines ? step->lines : 1;
	if (srun_hook(step, "init") < 0)
		return -1;
	rc = parse_command_lines(step);
	if (rc == -1)
		return -1;
	/* With "optional" in plugstack.conf a failed hook does not end srun, so go on. */
	for (int c = 1; c < FAKE_COMPONENTS && step->components[c].layout; c++)
		step->launched[c] = fake_env_copy(environ);
	step_exists(step, &shape);
	if (srun_hook(step, "local_user_init") < 0)
		rc = -1;
	step->launched[0] = fake_env_copy(environ);
	return rc < 0 ? -1 : 0;
}

bool fake_option_refused(const struct fake_step *step)
{
	return !step->launched[0];
}

void fake_srun_exit(struct fake_step *step)
{
	if (step->srun)
		fake_hook(step->srun, "exit");
	fake_process_end(step->srun);
	step->srun = NULL;
}

/* --- Nodes ------------------------------------------------------------------------------ */

static bool survives_export_none(const char *assignment)
{
	return strncmp(assignment, "SLURM", 5) == 0 ||
	       strncmp(assignment, "_SLURM_SPANK_OPTION_", 20) == 0;
}

/* The step's environment on a node: what srun sent, and what slurmstepd adds. */
static char **step_env(const struct fake_step *step, int c, const struct shape *shape)
{
	char **env = fake_env_copy(step->launched[c]);
	size_t kept = 0;

	for (size_t i = 0; env[i]; i++) {
		char *assignment = env[i];

		env[i] = NULL;
		if (step->export_none && !survives_export_none(assignment))
			free(assignment);
		else
			env[kept++] = assignment;
	}
	set_number(&env, "SLURM_JOB_ID",
		   step->components[c].job ? step->components[c].job : step->job);
	set_number(&env, "SLURM_STEP_ID", step->step);
	fake_env_set(&env, "SLURM_STEP_NODELIST", shape->list);
	if (fake_slurmctld.reserved_ports)
		fake_env_set(&env, "SLURM_STEP_RESV_PORTS", fake_slurmctld.reserved_ports);
	set_number(&env, "SLURM_STEP_NUM_NODES", shape->nodes);
	set_number(&env, "SLURM_STEP_NUM_TASKS", shape->ranks);
	fake_env_set(&env, "SLURM_STEP_TASKS_PER_NODE", shape->tasks);
	fake_env_set(&env, "SLURM_PROCID", "0");
	fake_env_set(&env, "SLURM_LOCALID", "0");
	fake_env_apply(&env, step->components[c].step_env);
	return env;
}

struct spank_handle *fake_node_begin(struct fake_step *step, int c, const char *name)
{
	struct spank_handle *node = fake_process(S_CTX_REMOTE, name, step->stepd_conf);
	char *own[] = {NULL, NULL};
	struct shape shape;

	describe(step, &shape);
	if (asprintf(&own[0], "SLURMD_NODENAME=%s", name) < 0)
		fake_die("out of memory");
	fake_env_become(own);
	free(own[0]);
	node->has_job = true;
	node->lines = step->lines ? step->lines : 1;
	node->job = step->components[c].job ? step->components[c].job : step->job;
	node->step = step->step;
	node->nodes = shape.nodes;
	node->tasks = shape.ranks;
	node->program = program_of(step);
	node->env = step_env(step, c, &shape);
	fake_hook(node, "init");
	give_options(node, step->inherited, "(null)");
	give_options(node, step->options, NULL);
	/* Releases before 24.05 call twice, the second time with what the environment has. */
	give_options(node, step->inherited, "(null)");
	give_options(node, step->options, step->empty ? step->empty : "");
	fake_hook(node, "init_post_opt");
	fake_hook(node, "user_init");
	return node;
}

/* Where [rank] runs: its component, node index, local id and the number of tasks there. */
static void locate(const struct fake_step *step, uint32_t rank, int *component, uint32_t *node,
		   uint32_t *local, uint32_t *locals)
{
	char name[64];
	uint32_t tasks[FAKE_LOCAL], index = 0;

	for (int c = 0; c < FAKE_COMPONENTS; c++) {
		const char *at = step->components[c].layout;
		int n;

		for (; at && (n = fake_layout_next(&at, name, tasks)) >= 0; index++)
			for (int i = 0; i < n; i++)
				if (tasks[i] == rank) {
					*component = c;
					*node = index;
					*local = (uint32_t)i;
					*locals = (uint32_t)n;
					return;
				}
	}
	fake_die("no rank %u in this step", rank);
}

void fake_node_task(struct fake_step *step, struct spank_handle *node, uint32_t rank)
{
	char **before = node->env, **given;
	uint32_t index, local, locals;
	int c;

	locate(step, rank, &c, &index, &local, &locals);
	node->env = fake_env_copy(before);
	node->task = (int)local;
	node->local_tasks = locals;
	/* In a heterogeneous step SPANK counts within the component. */
	node->global_task = c > 0 ? local : rank;
	set_number(&node->env, "SLURM_PROCID", rank);
	set_number(&node->env, "SLURM_LOCALID", local);
	set_number(&node->env, "SLURM_NODEID", index);
	fake_env_set(&node->env, "SLURMD_NODENAME", node->host);
	fake_env_apply(&node->env, step->components[c].task_env[local]);
	given = fake_env_copy(node->env);
	fake_hook(node, "task_init_privileged");
	step->result[rank] = fake_hook(node, "task_init");
	step->task_changed[rank] = !fake_env_equal(given, node->env);
	fake_env_free(given);
	fake_env_free(step->task[rank]);
	step->task[rank] = node->env;
	node->env = before;
	node->task = -1;
}

void fake_node_end(struct spank_handle *node)
{
	fake_hook(node, "exit");
	fake_process_end(node);
}

static void run_node(struct fake_step *step, int c, const char *name, const uint32_t *tasks, int n)
{
	struct spank_handle *node = fake_node_begin(step, c, name);

	for (int i = 0; i < n; i++)
		fake_node_task(step, node, tasks[i]);
	for (int i = 0; i < n; i++) {
		fake_hook(node, "task_post_fork");
		fake_hook(node, "task_exit");
	}
	fake_node_end(node);
}

void fake_nodes(struct fake_step *step)
{
	char **srun_env = fake_env_copy(environ), name[64];
	uint32_t tasks[FAKE_LOCAL];

	for (int c = 0; c < FAKE_COMPONENTS; c++) {
		const char *at = step->components[c].layout;
		int n;

		while (at && (n = fake_layout_next(&at, name, tasks)) >= 0)
			run_node(step, c, name, tasks, n);
	}
	fake_env_become(srun_env);
	fake_env_free(srun_env);
}

/* --- The whole -------------------------------------------------------------------------- */

int fake_run(struct fake_step *step)
{
	int rc = fake_srun(step);

	if (!fake_option_refused(step))
		fake_nodes(step);
	fake_srun_exit(step);
	return rc;
}

void fake_step_clear(struct fake_step *step)
{
	for (int c = 0; c < FAKE_COMPONENTS; c++) {
		fake_env_free(step->launched[c]);
		step->launched[c] = NULL;
	}
	for (int r = 0; r < FAKE_RANKS; r++) {
		fake_env_free(step->task[r]);
		step->task[r] = NULL;
	}
	fake_process_end(step->srun);
	step->srun = NULL;
	step->srun_changed = false;
}

const char *fake_var(const struct fake_step *step, uint32_t rank, const char *name)
{
	return fake_env_get(step->task[rank], name);
}
