/* SPDX-License-Identifier: Apache-2.0 */
/* fake_step.c - fake slurmctld, and a fake step from srun to its last task */
#include "config.h"

#include "fake_slurm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/slurmdb.h>

extern char **environ;

struct fake_slurmctld fake_slurmctld;

unsigned fake_questions(void)
{
	return fake_slurmctld.asked.layout + fake_slurmctld.asked.steps +
	       fake_slurmctld.asked.node + fake_slurmctld.asked.nodes + fake_slurmctld.asked.job;
}

/*
 * Parses the next node of a layout at [*at]: the node's name and the ranks of its tasks. Returns
 * the number of tasks, or -1 at the end.
 */
static int layout_next(const char **at, char *name, uint32_t *tasks)
{
	const char *p = *at + strspn(*at, " ");
	size_t n = strcspn(p, ":");
	int count = 0;

	if (!*p)
		return -1;
	memcpy(name, p, n);
	name[n] = '\0';
	for (p += n; *p == ':' || *p == ',';) {
		char *end;

		tasks[count++] = (uint32_t)strtoul(p + 1, &end, 10);
		p = end;
	}
	*at = p;
	return count;
}

static bool refuses(void)
{
	errno = SLURM_COMMUNICATIONS_CONNECTION_ERROR;
	return fake_slurmctld.down;
}

static char *text_or_null(const char *text)
{
	return text ? strdup(text) : NULL;
}

slurm_step_layout_t *slurm_job_step_layout_get(slurm_step_id_t *id)
{
	/* A request without a component number means the first component. */
	uint32_t component = id->step_het_comp == NO_VAL ? 0 : id->step_het_comp;
	const char *at = component < FAKE_COMPONENTS ? fake_slurmctld.layouts[component] : NULL;
	slurm_step_layout_t *layout;
	char name[64], list[256] = "";
	uint32_t tasks[FAKE_LOCAL];
	int n;

	fake_slurmctld.asked.layout++;
	if (refuses() || !at || id->job_id != fake_slurmctld.job ||
	    id->step_id != fake_slurmctld.step)
		return NULL;
	layout = calloc(1, sizeof(*layout));
	layout->tasks = calloc(FAKE_NODES, sizeof(*layout->tasks));
	layout->tids = calloc(FAKE_NODES, sizeof(*layout->tids));
	while ((n = layout_next(&at, name, tasks)) >= 0) {
		uint32_t i = layout->node_cnt++;

		sprintf(list + strlen(list), "%s%s", i ? "," : "", name);
		layout->tasks[i] = (uint16_t)n;
		layout->task_cnt += (uint32_t)n;
		/*
		 * The array has no spare element, so that valgrind and sanitizers detect a read
		 * beyond its end.
		 */
		layout->tids[i] = malloc((size_t)n * sizeof(**layout->tids));
		memcpy(layout->tids[i], tasks, (size_t)n * sizeof(**layout->tids));
	}
	layout->node_list = strdup(list);
	fake_slurmctld.answers++;
	return layout;
}

void slurm_job_step_layout_free(slurm_step_layout_t *layout)
{
	for (uint32_t i = 0; i < layout->node_cnt; i++)
		free(layout->tids[i]);
	free(layout->tids);
	free(layout->tasks);
	free(layout->node_list);
	free(layout);
	fake_slurmctld.answers--;
}

static int load_step(uint32_t job, uint32_t step, job_step_info_response_msg_t **answer)
{
	fake_slurmctld.asked.steps++;
	if (refuses())
		return SLURM_ERROR;
	if (job != fake_slurmctld.job) {
		errno = ESLURM_INVALID_JOB_ID;
		return SLURM_ERROR;
	}
	*answer = calloc(1, sizeof(**answer));
	fake_slurmctld.answers++;
	if (step == fake_slurmctld.step) {
		(*answer)->job_step_count = 1;
		(*answer)->job_steps = calloc(1, sizeof(*(*answer)->job_steps));
	}
	return SLURM_SUCCESS;
}

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 11, 0)
int slurm_get_job_steps(slurm_step_id_t *id, job_step_info_response_msg_t **answer, uint16_t flags)
{
	(void)flags;
	return load_step(id->job_id, id->step_id, answer);
}
#else
int slurm_get_job_steps(time_t update, uint32_t job, uint32_t step,
			job_step_info_response_msg_t **answer, uint16_t flags)
{
	(void)update;
	(void)flags;
	return load_step(job, step, answer);
}
#endif

void slurm_free_job_step_info_response_msg(job_step_info_response_msg_t *answer)
{
	free(answer->job_steps);
	free(answer);
	fake_slurmctld.answers--;
}

static int load_nodes(const char *name, node_info_msg_t **answer)
{
	if (refuses())
		return SLURM_ERROR;
	*answer = calloc(1, sizeof(**answer));
	(*answer)->node_array = calloc(FAKE_NODES, sizeof(*(*answer)->node_array));
	for (int i = 0; i < FAKE_NODES; i++) {
		const struct fake_node_record *record = &fake_slurmctld.nodes[i];
		node_info_t *node = &(*answer)->node_array[(*answer)->record_count];

		if (!record->name || (name && strcmp(name, record->name) != 0))
			continue;
		node->name = strdup(record->name);
		node->node_addr = text_or_null(record->address);
		node->gres = text_or_null(record->gres);
		(*answer)->record_count++;
	}
	fake_slurmctld.answers++;
	return SLURM_SUCCESS;
}

/* Functions of srun that no Slurm header declares. */
char *slurm_conf_get_address(const char *node);
int slurm_conf_check_addr(const char *node, bool *dynamic);
void slurm_xfree(void **memory);

slurmdb_cluster_rec_t *working_cluster_rec;

char *slurm_conf_get_address(const char *node)
{
	for (int i = 0; i < FAKE_NODES; i++) {
		const struct fake_node_record *record = &fake_slurmctld.nodes[i];

		if (record->name && strcmp(record->name, node) == 0)
			return text_or_null(record->configured);
	}
	return NULL;
}

int slurm_conf_check_addr(const char *node, bool *dynamic)
{
	char *address = slurm_conf_get_address(node);

	*dynamic = false;
	free(address);
	return address ? SLURM_SUCCESS : SLURM_ERROR;
}

void slurm_xfree(void **memory)
{
	free(*memory);
	*memory = NULL;
}

int slurm_load_node_single(node_info_msg_t **answer, char *name, uint16_t flags)
{
	(void)flags;
	fake_slurmctld.asked.node++;
	return load_nodes(name, answer);
}

int slurm_load_node(time_t update, node_info_msg_t **answer, uint16_t flags)
{
	(void)update;
	(void)flags;
	fake_slurmctld.asked.nodes++;
	return load_nodes(NULL, answer);
}

void slurm_free_node_info_msg(node_info_msg_t *answer)
{
	for (uint32_t i = 0; i < answer->record_count; i++) {
		free(answer->node_array[i].name);
		free(answer->node_array[i].node_addr);
		free(answer->node_array[i].gres);
	}
	free(answer->node_array);
	free(answer);
	fake_slurmctld.answers--;
}

static int load_job(uint32_t job, job_info_msg_t **answer)
{
	slurm_job_info_t *info;

	fake_slurmctld.asked.job++;
	if (refuses() || job != fake_slurmctld.job)
		return SLURM_ERROR;
	info = calloc(1, sizeof(*info));
	info->tres_per_node = text_or_null(fake_slurmctld.tres_per_node);
	*answer = calloc(1, sizeof(**answer));
	(*answer)->record_count = 1;
	(*answer)->job_array = info;
	info->job_id = job;
	info->bitflags = fake_slurmctld.job_flags;
	info->job_state = fake_slurmctld.job_state;
	fake_slurmctld.answers++;
	return SLURM_SUCCESS;
}

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
int slurm_load_job(job_info_msg_t **answer, slurm_step_id_t id, uint16_t flags)
{
	(void)flags;
	return load_job(id.job_id, answer);
}
#else
int slurm_load_job(job_info_msg_t **answer, uint32_t job, uint16_t flags)
{
	(void)flags;
	return load_job(job, answer);
}
#endif

void slurm_free_job_info_msg(job_info_msg_t *answer)
{
	free(answer->job_array->tres_per_node);
	free(answer->job_array);
	free(answer);
	fake_slurmctld.answers--;
}

/* --- The step --------------------------------------------------------------------------- */

/* Totals of the step, in the form of Slurm's variables. */
struct shape {
	uint32_t ranks, nodes;
	char list[256], tasks[128];
};

static void describe(const struct fake_step *step, struct shape *shape)
{
	char name[64], numbers[128] = "";
	uint32_t tasks[FAKE_LOCAL];

	*shape = (struct shape){0};
	for (int c = 0; c < FAKE_COMPONENTS; c++) {
		const char *at = step->components[c].layout;
		int n;

		while (at && (n = layout_next(&at, name, tasks)) >= 0) {
			if (name[0] != 'n')
				fake_die("node %s: names are n1, n2, ...", name);
			sprintf(numbers + strlen(numbers), "%s%s", shape->nodes ? "," : "",
				name + 1);
			sprintf(shape->tasks + strlen(shape->tasks), "%s%d",
				shape->nodes ? "," : "", n);
			shape->nodes++;
			shape->ranks += (uint32_t)n;
		}
	}
	sprintf(shape->list, shape->nodes > 1 ? "n[%s]" : "n%s", numbers);
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

/*
 * Calls the callbacks for options such as "--a --b=c". For an option without an argument, passes
 * [none].
 */
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

/* the default program, which is not an MPI launcher */
static char *program[] = {"python3", "train.py", NULL};

static void prepare(struct fake_step *step)
{
	struct fake_slurmctld *ctld = &fake_slurmctld;
	char **env = fake_env_copy(environ);

	if (step->job == 0)
		step->job = 4711;
	ctld->job = step->job;
	ctld->step = step->step;
	for (int c = 0; c < FAKE_COMPONENTS; c++)
		ctld->layouts[c] = step->components[c].layout;
	fake_env_apply(&env, step->env);
	fake_env_become(env);
	fake_env_free(env);
}

/* Sets the variables that srun's environment has once the step exists. */
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
	/* Only with --distribution=arbitrary can task 0 be on another node than the first one. */
	if (layout_next(&at, name, tasks) > 0 && tasks[0] != 0)
		fake_env_set(&env, "SLURM_DISTRIBUTION", "arbitrary");
	at = step->components[0].layout;
	fake_env_become(env);
	fake_env_free(env);
	step->srun->has_job = true;
	step->srun->job = step->job;
	step->srun->step = step->step;
	step->srun->tasks = shape->ranks;
	step->srun->nodes = 0;
	while (at && layout_next(&at, name, tasks) >= 0)
		step->srun->nodes++;
}

/* Calls a hook of srun. Records whether the hook changed srun's environment. */
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
	step->srun->program = step->program ? step->program : program;
	if (srun_hook(step, "init") < 0)
		return -1;
	rc = parse_command_lines(step);
	if (rc == -1)
		return -1;
	/* In plugstack.conf the plugin is "optional", so a failed hook does not end srun. */
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

/*
 * Returns the step's environment on a node: srun's environment, and the variables that slurmstepd
 * adds.
 */
static char **step_env(const struct fake_step *step, int c, const struct shape *shape)
{
	char **env = fake_env_copy(step->launched[c]);

	set_number(&env, "SLURM_JOB_ID", step->job);
	set_number(&env, "SLURM_STEP_ID", step->step);
	fake_env_set(&env, "SLURM_STEP_NODELIST", shape->list);
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
	node->job = step->job;
	node->step = step->step;
	node->nodes = shape.nodes;
	node->tasks = shape.ranks;
	node->program = program;
	node->env = step_env(step, c, &shape);
	fake_hook(node, "init");
	give_options(node, step->inherited, "(null)");
	give_options(node, step->options, NULL);
	/*
	 * Releases before 24.05 call each callback twice. The second call has the value from the
	 * environment.
	 */
	give_options(node, step->inherited, "(null)");
	give_options(node, step->options, "");
	fake_hook(node, "init_post_opt");
	fake_hook(node, "user_init");
	return node;
}

/* Finds the component, node index and local id of [rank], and the number of tasks on its node. */
static void locate(const struct fake_step *step, uint32_t rank, int *component, uint32_t *node,
		   uint32_t *local, uint32_t *locals)
{
	char name[64];
	uint32_t tasks[FAKE_LOCAL], index = 0;

	for (int c = 0; c < FAKE_COMPONENTS; c++) {
		const char *at = step->components[c].layout;
		int n;

		for (; at && (n = layout_next(&at, name, tasks)) >= 0; index++)
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
	/* In a heterogeneous step, SPANK numbers the tasks of each component separately. */
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

		while (at && (n = layout_next(&at, name, tasks)) >= 0)
			run_node(step, c, name, tasks, n);
	}
	fake_env_become(srun_env);
	fake_env_free(srun_env);
}

/* --- Whole steps -------------------------------------------------------------------------- */

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
