/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slurm.c - in which job and step of Slurm's a process is, and whose the contract is
 *
 * A batch script has a job and SLURM_PROCID=0, but no SLURM_STEP_ID. What a task starts, be it
 * a step or another job, inherits all of the task's variables, those of --ddp too.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "contract.h"
#include "source.h"

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

const char *ddp_contract_step(const char *job)
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
	const char *named = job ? ddp_contract_step(job) : NULL;
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
