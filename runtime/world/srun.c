/* SPDX-License-Identifier: Apache-2.0 */
/*
 * srun.c - identity by what Slurm tells the tasks of a plain srun
 *
 * SLURM_NTASKS is the job's where --preserve-env was given; SLURM_STEP_NUM_TASKS is the step's.
 */
#include "config.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "contract.h"
#include "source.h"

static const char remedy[] = "srun sets all of these alike, so they are not of one step; start "
			     "the program with srun, and unset what was set by hand";

/* --- Heterogeneous steps ---------------------------------------------------------------- */

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

/* --- Tasks on this node ------------------------------------------------------------------ */

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
			   struct ddp_names *names, struct ddp_error *error)
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
	names->local_size = count ? "the number of ranks in SLURM_GTIDS"
				  : "the node's entry in SLURM_STEP_TASKS_PER_NODE";
	id->local_size = count ? count : (int)(list ? tasks_of(list, id->node_rank, -1) : 0);
	if (id->local_size == 0 && id->node_count == 1)
		id->local_size = id->size;
	if (id->local_size > 0)
		return 0;
	return ddp_error_set(error, DDP_ERR_ENVIRONMENT,
			     "SLURM_STEP_TASKS_PER_NODE%s%.100s does not say how many tasks node "
			     "SLURM_NODEID=%d has; %s",
			     list ? "=" : "", list ? list : "", id->node_rank, remedy);
}

static int read_numbers(const struct ddp_view *view, struct ddp_identity *id,
			struct ddp_error *error)
{
	const struct ddp_wanted wanted[] = {
		{"SLURM_PROCID", &id->rank},
		{"SLURM_STEP_NUM_TASKS", &id->size},
		{"SLURM_LOCALID", &id->local_rank},
		{"SLURM_NODEID", &id->node_rank},
		{"SLURM_STEP_NUM_NODES", &id->node_count},
	};
	struct ddp_names names = {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL,
				  "SLURM_NODEID", "SLURM_STEP_NUM_NODES", remedy};
	int status;

	if ((status = ddp_variables_require(view->env, wanted, sizeof(wanted) / sizeof(wanted[0]),
					    remedy, error)) < 0 ||
	    (status = check_components(view, id->size, error)) < 0 ||
	    (status = read_local_size(view, id, &names, error)) < 0)
		return status;
	return ddp_identity_check(id, &names, error);
}

/*
 * RANK and WORLD_SIZE that somebody set from Slurm's are fine, those that an outer --ddp step
 * left too. Others are of a launcher that made several processes out of one task.
 */
static int compare(const struct ddp_view *view, const struct ddp_identity *id,
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

	if ((status = read_numbers(view, id, error)) < 0 ||
	    (status = compare(view, id, error)) < 0 ||
	    (status = ddp_variable_int(view->env, "SLURM_RESTART_COUNT", &id->attempt, error)) < 0)
		return status;
	return place(view, id, error);
}
