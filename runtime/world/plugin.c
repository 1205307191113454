/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin.c - identity by the contract of srun --ddp
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "contract.h"
#include "source.h"

static const char remedy[] = "srun --ddp sets all of these alike, so something between srun and "
			     "here changed them; start the program with srun --ddp alone";

/* What Slurm and --ddp say of the same task must agree; the second of two that write differs. */
static int compare(const struct ddp_view *view, const struct ddp_identity *identity,
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
	const struct ddp_wanted wanted[] = {
		{DDP_NAME(DDP_RANK), &id->rank},
		{DDP_NAME(DDP_SIZE), &id->size},
		{DDP_NAME(DDP_LOCAL_RANK), &id->local_rank},
		{DDP_NAME(DDP_LOCAL_SIZE), &id->local_size},
		{DDP_NAME(DDP_NODE_RANK), &id->node_rank},
	};
	struct ddp_names names = {
		DDP_NAME(DDP_RANK),
		DDP_NAME(DDP_SIZE),
		DDP_NAME(DDP_LOCAL_RANK),
		DDP_NAME(DDP_LOCAL_SIZE),
		DDP_NAME(DDP_NODE_RANK),
		DDP_NAME(GROUP_WORLD_SIZE),
		remedy,
	};
	const struct ddp_wanted nodes = {names.node_count, &id->node_count};
	int status = ddp_variables_require(view->env, wanted, sizeof(wanted) / sizeof(wanted[0]),
					   remedy, error);

	if (status == 0)
		status = ddp_variables_require(view->env, &nodes, 1, remedy, error);
	return status < 0 ? status : ddp_identity_check(id, &names, error);
}

/* "cluster.job.step", and by its last two parts where failures are recorded. */
static int read_job(const struct ddp_view *view, struct ddp_identity *id, struct ddp_error *error)
{
	const char *job = ddp_variable_get(view->env, DDP_NAME(DDP_JOB));
	const char *step = job ? ddp_contract_step(job) : NULL;
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
	    (status = compare(view, id, error)) < 0 ||
	    (status = ddp_variable_int(view->env, DDP_NAME(DDP_ATTEMPT), &id->attempt, error)) <
		    0 ||
	    (status = ddp_variable_int(view->env, DDP_NAME(DDP_DEVICE), &id->device, error)) < 0 ||
	    (status = ddp_variable_share(view->env, DDP_NAME(DDP_SHARE), &id->share, error)) < 0 ||
	    (status = read_directory(view, id, error)) < 0)
		return status;
	return read_job(view, id, error);
}
