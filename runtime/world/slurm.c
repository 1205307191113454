/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slurm.c - identity by what srun --ddp, or a plain srun, tells its tasks
 *
 * A batch script has a job and SLURM_PROCID=0, but no SLURM_STEP_ID. What a task starts, be it
 * a step or another job, inherits all of the task's variables, those of --ddp too.
 */
#include "config.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "contract.h"
#include "variables.h"

#define LEFTOVER "SLURM_DDP_STEP" /* what the plugin in srun tells the plugin on the nodes */

/* Steps above are batch scripts, interactive shells and the like. */
#define LAST_ORDINARY_STEP INT64_C(0xfffffff0)

static const char group_prefix[] = "SLURM_JOB_ID_HET_GROUP_";

static bool is_text(const char *value, const char *text, size_t length)
{
	return value && strlen(value) == length && strncmp(value, text, length) == 0;
}

/* Whether [text] is the job's number, or that of a component of it. */
static bool is_job(char *const *env, const char *text, size_t length)
{
	if (is_text(ddp_variable_get(env, "SLURM_JOB_ID"), text, length))
		return true;
	for (; env && *env; env++) {
		const char *equals = strchr(*env, '=');

		if (strncmp(*env, group_prefix, sizeof(group_prefix) - 1) == 0 && equals &&
		    is_text(equals + 1, text, length))
			return true;
	}
	return false;
}

/* The "job.step" in DDP_JOB's "cluster.job.step", NULL if that has another form. */
static const char *contract_step(const char *job)
{
	const char *dot = strrchr(job, '.');

	if (!dot || dot == job || !dot[1])
		return NULL;
	while (dot > job && dot[-1] != '.')
		dot--;
	return dot > job ? dot : NULL;
}

static enum ddp_contract whose_contract(char *const *env)
{
	const char *job = ddp_variable_get(env, DDP_NAME(DDP_JOB));
	const char *step = ddp_variable_get(env, "SLURM_STEP_ID");
	const char *named = job ? contract_step(job) : NULL;
	bool there = ddp_variable_get(env, DDP_NAME(DDP_RANK)) ||
		     ddp_variable_get(env, DDP_NAME(DDP_SIZE));

	if (named && ddp_variable_get(env, "SLURM_JOB_ID")) {
		size_t length = strcspn(named, ".");

		if (!is_job(env, named, length) || (step && strcmp(step, named + length + 1) != 0))
			return DDP_CONTRACT_FOREIGN;
	}
	return there ? DDP_CONTRACT_OURS : DDP_CONTRACT_NONE;
}

int ddp_slurm_look(struct ddp_view *view, struct ddp_error *error)
{
	char *const *env = view->env;
	int64_t step;
	int found;

	view->contract = whose_contract(env);
	view->in_job = ddp_variable_get(env, "SLURM_JOB_ID") != NULL;
	view->in_step = false;
	if (!view->in_job || (!ddp_variable_get(env, "SLURM_PROCID") &&
			      !ddp_variable_get(env, "SLURM_STEP_NUM_TASKS")))
		return 0;
	found = ddp_variable_number(env, "SLURM_STEP_ID", UINT32_MAX, &step, error);
	view->in_step = found > 0 && step <= LAST_ORDINARY_STEP;
	return found < 0 ? found : 0;
}

/* The value of [key] in "v1;key=value;...", its length in [length]; NULL if there is none. */
static const char *find_key(const char *list, const char *key, size_t *length)
{
	size_t n = strlen(key);

	for (const char *p = list; *p; p += *p == ';') {
		*length = strcspn(p, ";");
		if (strncmp(p, key, n) == 0 && p[n] == '=') {
			*length -= n + 1;
			return p + n + 1;
		}
		p += *length;
	}
	return NULL;
}

int ddp_slurm_check_leftover(const struct ddp_view *view, struct ddp_error *error)
{
	const char *plan = ddp_variable_get(view->env, LEFTOVER);
	const char *node = ddp_variable_get(view->env, "SLURMD_NODENAME");
	const char *job, *step;
	size_t n_job = 0, n_step = 0;

	if (!plan || !view->in_step)
		return 0;
	/* A later component of a heterogeneous step has a plan that names no step yet. */
	job = find_key(plan, "job", &n_job);
	step = find_key(plan, "step", &n_step);
	if (job && step &&
	    (!is_job(view->env, job, n_job) ||
	     !is_text(ddp_variable_get(view->env, "SLURM_STEP_ID"), step, n_step)))
		return 0;
	return ddp_error_set(error, DDP_ERR_ENVIRONMENT,
			     "srun --ddp planned this step, but nothing on node %.64s carried it "
			     "out (" LEFTOVER " is still there): the plugin of slurm-ddp is not "
			     "installed on that node, or its plugstack.conf does not have it; "
			     "install it there, or start the step with srun --no-ddp",
			     node ? node : view->around->hostname);
}

bool ddp_contract_left(const struct ddp_view *view)
{
	int rank = 0, size = 0;

	return view->contract == DDP_CONTRACT_FOREIGN &&
	       ddp_variable_int(view->env, DDP_NAME(DDP_RANK), &rank, NULL) > 0 &&
	       ddp_variable_int(view->env, DDP_NAME(DDP_SIZE), &size, NULL) > 0 &&
	       !ddp_variables_differ(view->env, "RANK", "WORLD_SIZE", rank, size);
}

void ddp_slurm_step(const struct ddp_view *view, char word[static DDP_WORD_SIZE])
{
	const char *job = ddp_variable_get(view->env, "SLURM_JOB_ID");
	const char *step = ddp_variable_get(view->env, "SLURM_STEP_ID");
	char name[256];

	snprintf(name, sizeof(name), "%.100s.%.100s", job ? job : "", step ? step : "");
	ddp_place_word(name, word);
}

const char *ddp_slurm_cluster(const struct ddp_view *view)
{
	const char *cluster = ddp_variable_get(view->env, "SLURM_CLUSTER_NAME");

	return cluster ? cluster : "cluster";
}

int ddp_slurm_end_time(const struct ddp_view *view, struct ddp_identity *identity,
		       struct ddp_error *error)
{
	const char *name =
		view->contract == DDP_CONTRACT_OURS ? DDP_NAME(DDP_END_TIME) : "SLURM_JOB_END_TIME";
	int found = ddp_variable_number(view->env, name, INT64_MAX, &identity->end_time, error);

	return found < 0 ? found : 0;
}

/* --- Under srun --ddp -------------------------------------------------------------------- */

static const char remedy[] = "srun --ddp sets all of these alike, so something between srun and "
			     "here changed them; start the program with srun --ddp alone";

/* What Slurm and --ddp say of the same task must agree; the second of two that write differs. */
static int check_launchers(const struct ddp_view *view, const struct ddp_identity *identity,
		   struct ddp_error *error)
{
	char *const *env = view->env;

	if (view->in_step && ddp_variables_differ(env, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS",
						  identity->rank, identity->size))
		return ddp_error_set(
			error, DDP_ERR_ENVIRONMENT,
			"DDP_RANK=%d and DDP_SIZE=%d, but SLURM_PROCID=%.32s and "
			"SLURM_STEP_NUM_TASKS=%.32s, for the same step: something between srun and "
			"here gave this task another one's variables; if that is pyxis, the plugin "
			"of slurm-ddp must come after it in plugstack.conf",
			identity->rank, identity->size, ddp_variable_get(env, "SLURM_PROCID"),
			ddp_variable_get(env, "SLURM_STEP_NUM_TASKS"));
	if (ddp_variables_differ(env, "RANK", "WORLD_SIZE", identity->rank, identity->size))
		return ddp_error_set(
			error, DDP_ERR_ENVIRONMENT,
			"RANK=%.32s and WORLD_SIZE=%.32s, but DDP_RANK=%d and DDP_SIZE=%d: another "
			"launcher started this process inside a task of srun --ddp; let srun start "
			"all ranks (--ntasks-per-node), or use torchrun there",
			ddp_variable_get(env, "RANK"), ddp_variable_get(env, "WORLD_SIZE"),
			identity->rank, identity->size);
	return 0;
}

static int read_numbers(const struct ddp_view *view, struct ddp_identity *id,
			struct ddp_error *error)
{
	const struct ddp_numbers numbers = {{DDP_NAME(DDP_RANK), DDP_NAME(DDP_SIZE),
					     DDP_NAME(DDP_LOCAL_RANK), DDP_NAME(DDP_LOCAL_SIZE),
					     DDP_NAME(DDP_NODE_RANK), DDP_NAME(GROUP_WORLD_SIZE)},
					    remedy};
	int status = ddp_numbers_read(view, &numbers, 0, DDP_NUMBER_NODE_COUNT, id, error);

	if (status == 0)
		status = ddp_numbers_read(view, &numbers, DDP_NUMBER_NODE_COUNT, DDP_NUMBERS, id,
					  error);
	return status < 0 ? status : ddp_numbers_check(&numbers, id, error);
}

/* "cluster.job.step", and by its last two parts where failures are recorded. */
static int read_job(const struct ddp_view *view, struct ddp_identity *id, struct ddp_error *error)
{
	const char *job = ddp_variable_get(view->env, DDP_NAME(DDP_JOB));
	const char *step = job ? contract_step(job) : NULL;
	char word[DDP_WORD_SIZE];

	if (!job || strlen(job) >= sizeof(id->job))
		return ddp_error_set(error, DDP_ERR_ENVIRONMENT, "DDP_JOB%s%.100s %s; %s",
				     job ? "=" : "", job ? job : "",
				     job ? "is too long" : "is missing", remedy);
	strcpy(id->job, job);
	ddp_place_word(step ? step : job, word);
	return ddp_place_records(view, word, id, error);
}

static int read_directory(const struct ddp_view *view, struct ddp_identity *id,
			  struct ddp_error *error)
{
	const char *directory = ddp_variable_get(view->env, DDP_NAME(DDP_RENDEZVOUS));

	if (!directory)
		return 0;
	if (snprintf(id->directory, sizeof(id->directory), "%s", directory) >=
	    (int)sizeof(id->directory))
		return ddp_error_set(error, DDP_ERR_ENVIRONMENT,
				     "DDP_RENDEZVOUS=%.100s... is too long", directory);
	id->own = true;
	return 0;
}

int ddp_plugin_identify(const struct ddp_view *view, struct ddp_identity *id,
			struct ddp_error *error)
{
	int status;

	if ((status = read_numbers(view, id, error)) < 0 ||
	    (status = check_launchers(view, id, error)) < 0 ||
	    (status = ddp_variable_int(view->env, DDP_NAME(DDP_ATTEMPT), &id->attempt, error)) <
		    0 ||
	    (status = ddp_variable_int(view->env, DDP_NAME(DDP_DEVICE), &id->device, error)) < 0 ||
	    (status = ddp_variable_share(view->env, DDP_NAME(DDP_SHARE), &id->share, error)) < 0 ||
	    (status = read_directory(view, id, error)) < 0)
		return status;
	return read_job(view, id, error);
}

/* --- Under a plain srun ------------------------------------------------------------------ */

/*
 * SLURM_NTASKS is the job's where --preserve-env was given; SLURM_STEP_NUM_TASKS is the step's.
 */

static const char srun_remedy[] =
	"srun sets all of these alike, so they are not of one step; start "
	"the program with srun, and unset what was set by hand";

/* Whether the step has just the nodes of the job's component [index]. */
static bool is_component(char *const *env, int64_t index)
{
	const char *nodes = ddp_variable_get(env, "SLURM_STEP_NODELIST");
	const char *count = ddp_variable_get(env, "SLURM_STEP_NUM_NODES");
	const char *part, *part_count;
	char name[64];

	snprintf(name, sizeof(name), "SLURM_JOB_NODELIST_HET_GROUP_%lld", (long long)index);
	part = ddp_variable_get(env, name);
	snprintf(name, sizeof(name), "SLURM_JOB_NUM_NODES_HET_GROUP_%lld", (long long)index);
	part_count = ddp_variable_get(env, name);
	return nodes && part && count && part_count && strcmp(nodes, part) == 0 &&
	       strcmp(count, part_count) == 0;
}

/*
 * The components of a heterogeneous step have launchers, and node numbers, of their own, and
 * only the plugin brings them together. A step on one component of such a job is like any.
 */
static int check_components(const struct ddp_view *view, int size, struct ddp_error *error)
{
	int64_t components = 0;
	int found = ddp_variable_number(view->env, "SLURM_HET_SIZE", INT_MAX, &components, error);

	if (found <= 0 || components < 2 || size < 2)
		return found < 0 ? found : 0;
	for (int64_t i = 0; i < components && i < 128; i++)
		if (is_component(view->env, i))
			return 0;
	return ddp_error_set(
		error, DDP_ERR_ENVIRONMENT,
		"SLURM_HET_SIZE=%lld: the ranks of a heterogeneous step cannot meet "
		"under a plain srun; start it with srun --ddp (the plugin of slurm-ddp), "
		"or on all nodes of one component with --het-group=N",
		(long long)components);
}

/*
 * Go through "2(x3),1". Returns the tasks of node [index], 0 if there is no such entry; with
 * [wanted] not negative, 1 if any node has as many.
 */
static int64_t tasks_of(const char *list, int64_t index, int64_t wanted)
{
	while (*list) {
		size_t digits = strspn(list, "0123456789");
		int64_t tasks, times = 1;

		if (!ddp_digits_read(list, digits, INT_MAX, &tasks))
			return 0;
		list += digits;
		if (strncmp(list, "(x", 2) == 0) {
			digits = strspn(list + 2, "0123456789");
			if (!ddp_digits_read(list + 2, digits, INT_MAX, &times) ||
			    list[2 + digits] != ')')
				return 0;
			list += digits + 3;
		}
		if (wanted < 0 ? index < times : tasks == wanted)
			return wanted < 0 ? tasks : 1;
		index -= times;
		if (*list && *list++ != ',')
			return 0;
	}
	return 0;
}

/* The ranks in "0,1,4": how many; 0 if it is no such list, or [rank] is not in it. */
static int count_ranks(const char *list, int rank)
{
	bool found = false;
	int count = 0;

	for (;; list++) {
		size_t digits = strspn(list, "0123456789");
		int64_t number;

		if (!ddp_digits_read(list, digits, INT_MAX, &number))
			return 0;
		found = found || number == rank;
		count++;
		list += digits;
		if (*list != ',')
			break;
	}
	return found && !*list ? count : 0;
}

/*
 * SLURM_GTIDS is this node's own list, but programs are advised to unset it. The other list is
 * in the order of the nodes' names, which is not that of SLURM_NODEID in every step.
 */
static int read_local_size(const struct ddp_view *view, struct ddp_identity *id,
			   struct ddp_numbers *numbers, struct ddp_error *error)
{
	const char *list = ddp_variable_get(view->env, "SLURM_STEP_TASKS_PER_NODE");
	const char *ranks = ddp_variable_get(view->env, "SLURM_GTIDS");
	int count = ranks ? count_ranks(ranks, id->rank) : 0;

	if (ranks && list && (count == 0 || tasks_of(list, 0, count) == 0))
		return ddp_error_set(
			error, DDP_ERR_ENVIRONMENT,
			"SLURM_GTIDS=%.100s does not go with SLURM_PROCID=%d and "
			"SLURM_STEP_TASKS_PER_NODE=%.100s: they are of two steps, such "
			"as in a batch script that was submitted from inside a step; "
			"start the program with srun, or unset SLURM_STEP_ID to run it "
			"alone",
			ranks, id->rank, list);
	numbers->names[DDP_NUMBER_LOCAL_SIZE] =
		count ? "the number of ranks in SLURM_GTIDS"
		      : "the node's entry in SLURM_STEP_TASKS_PER_NODE";
	id->local_size = count ? count : (int)(list ? tasks_of(list, id->node_rank, -1) : 0);
	if (id->local_size == 0 && id->node_count == 1)
		id->local_size = id->size;
	if (id->local_size > 0)
		return 0;
	return ddp_error_set(error, DDP_ERR_ENVIRONMENT,
			     "SLURM_STEP_TASKS_PER_NODE%s%.100s does not say how many tasks node "
			     "SLURM_NODEID=%d has; %s",
			     list ? "=" : "", list ? list : "", id->node_rank, srun_remedy);
}

static int read_srun_numbers(const struct ddp_view *view, struct ddp_identity *id,
			     struct ddp_error *error)
{
	struct ddp_numbers numbers = {{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
				       NULL, "SLURM_NODEID", "SLURM_STEP_NUM_NODES"},
				      srun_remedy};
	int status;

	if ((status = ddp_numbers_read(view, &numbers, 0, DDP_NUMBERS, id, error)) < 0 ||
	    (status = check_components(view, id->size, error)) < 0 ||
	    (status = read_local_size(view, id, &numbers, error)) < 0)
		return status;
	return ddp_numbers_check(&numbers, id, error);
}

/*
 * RANK and WORLD_SIZE that somebody set from Slurm's are fine, those that an outer --ddp step
 * left too. Others are of a launcher that made several processes out of one task.
 */
static int compare_srun(const struct ddp_view *view, const struct ddp_identity *id,
			struct ddp_error *error)
{
	char *const *env = view->env;

	if (!ddp_variables_differ(env, "RANK", "WORLD_SIZE", id->rank, id->size) ||
	    ddp_contract_left(view))
		return 0;
	return ddp_error_set(error, DDP_ERR_ENVIRONMENT,
			     "RANK=%.32s and WORLD_SIZE=%.32s, but SLURM_PROCID=%d and "
			     "SLURM_STEP_NUM_TASKS=%d: if another launcher started this process "
			     "inside a task of srun, let srun start all ranks, or use torchrun; if "
			     "they were set by hand, unset RANK and WORLD_SIZE",
			     ddp_variable_get(env, "RANK"), ddp_variable_get(env, "WORLD_SIZE"),
			     id->rank, id->size);
}

/* The launcher's port tells this step from one of the same number after slurmctld forgot all. */
static int place(const struct ddp_view *view, struct ddp_identity *id, struct ddp_error *error)
{
	const char *port = ddp_variable_get(view->env, "SLURM_SRUN_COMM_PORT");
	char cluster[DDP_WORD_SIZE], launcher[DDP_WORD_SIZE], step[DDP_WORD_SIZE], name[256];
	int status;

	ddp_slurm_step(view, step);
	ddp_place_word(ddp_slurm_cluster(view), cluster);
	ddp_place_word(port ? port : "0", launcher);
	snprintf(id->job, sizeof(id->job), "%s.%s", cluster, step);
	status = ddp_place_records(view, step, id, error);
	if (status < 0)
		return status;
	snprintf(name, sizeof(name), "srun-%s-%s.%d-%s", cluster, step, id->attempt, launcher);
	return ddp_place_directory(view, name, id, error);
}

int ddp_srun_identify(const struct ddp_view *view, struct ddp_identity *id, struct ddp_error *error)
{
	int status;

	if ((status = read_srun_numbers(view, id, error)) < 0 ||
	    (status = compare_srun(view, id, error)) < 0 ||
	    (status = ddp_variable_int(view->env, "SLURM_RESTART_COUNT", &id->attempt, error)) < 0)
		return status;
	return place(view, id, error);
}
