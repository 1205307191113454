/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "contract.h"
#include "source.h"

const char *ddp_source_name(enum ddp_source source)
{
	static const char *const names[] = {
		[DDP_SOURCE_PLUGIN] = "srun --ddp",
		[DDP_SOURCE_SRUN] = "srun",
		[DDP_SOURCE_TORCHRUN] = "torchrun",
		[DDP_SOURCE_SINGLE] = "single",
	};

	return names[source];
}

int ddp_identity_check(const struct ddp_identity *id, const struct ddp_names *names,
		       struct ddp_error *error)
{
	const struct {
		const char *name;
		int value;
		const char *than;
		int limit;
	} below[] = {
		{names->rank, id->rank, names->size, id->size},
		{names->local_rank, id->local_rank, names->local_size, id->local_size},
		{names->node_rank, id->node_rank, names->node_count, id->node_count},
	};

	for (size_t i = 0; i < sizeof(below) / sizeof(below[0]); i++)
		if (below[i].value >= below[i].limit)
			return ddp_error_set(error, DDP_ERR_ENVIRONMENT,
					     "%s=%d is not below %s=%d; %s", below[i].name,
					     below[i].value, below[i].than, below[i].limit,
					     names->remedy);
	/* Every node has a rank, so those on other nodes are as many as these at least. */
	if (id->local_size <= id->size && id->node_count - 1 <= id->size - id->local_size &&
	    (id->node_count == 1) == (id->local_size == id->size))
		return 0;
	return ddp_error_set(error, DDP_ERR_ENVIRONMENT,
			     "%s=%d ranks on %s=%d nodes cannot be with %s=%d on this one; %s",
			     names->size, id->size, names->node_count, id->node_count,
			     names->local_size, id->local_size, names->remedy);
}

/* --- Ranks that an mpirun made ---------------------------------------------------------- */

/*
 * mpirun's ranks share the variables of the task, or of the shell, that it was started in, so
 * each of them would take itself for the same rank. An MPI of one process is no launcher: MPI
 * libraries set these variables themselves then.
 */
static int check_mpi(char *const *env, const struct ddp_identity *id, struct ddp_error *error)
{
	static const struct {
		const char *rank, *size, *mark; /* mark: what Slurm's own PMI does not set */
	} launchers[] = {
		{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"},
		{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
	};

	bool alone = id->source == DDP_SOURCE_SINGLE;

	for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++) {
		const char *rank = launchers[i].rank, *size = launchers[i].size;

		if (!ddp_variable_get(env, launchers[i].mark) ||
		    !ddp_variables_differ(env, rank, size, id->rank, id->size) ||
		    strcmp(ddp_variable_get(env, size), "1") == 0)
			continue;
		return ddp_error_set(
			error, DDP_ERR_ENVIRONMENT,
			"%s=%.32s and %s=%.32s are of an mpirun, which libddp does not "
			"follow (%s%s it is rank %d of %d); start the program with srun, "
			"or, if it is none of MPI's ranks, unset these variables",
			rank, ddp_variable_get(env, rank), size, ddp_variable_get(env, size),
			alone ? "alone" : "by ", alone ? "" : ddp_source_name(id->source), id->rank,
			id->size);
	}
	return 0;
}

/* --- Device and host ---------------------------------------------------------------------- */

/* Devices in a list of indices, UUIDs or MIG names; CUDA stops at the first invalid one. */
static int count_devices(const char *list)
{
	int count = 0;

	if (strcmp(list, "NoDevFiles") == 0)
		return 0;
	while (*list && *list != '-') {
		list += strcspn(list, ",");
		list += *list == ',';
		count++;
	}
	return count;
}

/*
 * By the list of visible devices. Without one, a process of Slurm's was given none; any other
 * may use all of the machine. Empty is not missing here: it hides them all.
 */
static int find_device(const struct ddp_view *view, const struct ddp_identity *id)
{
	static const char name[] = "CUDA_VISIBLE_DEVICES=";
	int visible = view->in_job ? 0 : view->around->devices;

	for (char *const *env = view->env; env && *env; env++)
		if (strncmp(*env, name, sizeof(name) - 1) == 0) {
			visible = count_devices(*env + sizeof(name) - 1);
			break;
		}
	return visible > 0 ? id->local_rank % visible : -1;
}

/* What part of it the user, or who launched the ranks, says; a task's of --ddp is not its processes'. */
static int choose_device(const struct ddp_view *view, struct ddp_identity *id,
			 struct ddp_error *error)
{
	id->device = find_device(view, id);
	if (view->contract != DDP_CONTRACT_NONE)
		return 0;
	return ddp_variable_share(view->env, DDP_NAME(DDP_SHARE), &id->share, error);
}

static void name_host(const struct ddp_view *view, struct ddp_identity *id)
{
	const char *node = view->in_job ? ddp_variable_get(view->env, "SLURMD_NODENAME") : NULL;

	snprintf(id->host, sizeof(id->host), "%s", node ? node : view->around->hostname);
}

/* --- Deciding ----------------------------------------------------------------------------- */

static int identify_single(const struct ddp_view *view, struct ddp_identity *id,
			   struct ddp_error *error)
{
	const char *job = ddp_variable_get(view->env, "SLURM_JOB_ID");
	char first[DDP_WORD_SIZE], name[128];

	/* Many a program may run in one batch script, each a world of its own. */
	ddp_place_word(job ? job : view->around->hostname, first);
	snprintf(name, sizeof(name), "%s.%s%ld", first, job ? "single-" : "",
		 view->around->process);
	if (job) {
		char cluster[DDP_WORD_SIZE];

		ddp_place_word(ddp_slurm_cluster(view), cluster);
		snprintf(id->job, sizeof(id->job), "%s.%s", cluster, name);
	} else {
		snprintf(id->job, sizeof(id->job), "%s", name);
	}
	return ddp_place_records(view, name, id, error);
}

static enum ddp_source choose_source(const struct ddp_view *view)
{
	bool torchrun = ddp_torchrun_started(view);
	bool rank = ddp_variable_get(view->env, "RANK") != NULL;
	const char *size = ddp_variable_get(view->env, "WORLD_SIZE");

	if (view->contract == DDP_CONTRACT_OURS && !torchrun)
		return DDP_SOURCE_PLUGIN;
	if (view->in_step && !torchrun)
		return DDP_SOURCE_SRUN;
	if (torchrun)
		return DDP_SOURCE_TORCHRUN;
	/* Somebody who speaks as torchrun does; one of the two alone is refused there. */
	if (ddp_contract_left(view) || (!rank && (!size || strcmp(size, "1") == 0)))
		return DDP_SOURCE_SINGLE;
	return DDP_SOURCE_TORCHRUN;
}

static int decide(struct ddp_view *view, struct ddp_identity *id, struct ddp_error *error)
{
	static int (*const identify[])(const struct ddp_view *, struct ddp_identity *,
				       struct ddp_error *) = {
		[DDP_SOURCE_PLUGIN] = ddp_plugin_identify,
		[DDP_SOURCE_SRUN] = ddp_srun_identify,
		[DDP_SOURCE_TORCHRUN] = ddp_torchrun_identify,
		[DDP_SOURCE_SINGLE] = identify_single,
	};
	int status;

	if ((status = ddp_slurm_look(view, error)) < 0 ||
	    (status = ddp_slurm_check_leftover(view, error)) < 0)
		return status;
	id->source = choose_source(view);
	name_host(view, id);
	if ((status = identify[id->source](view, id, error)) < 0)
		return status;
	if (id->source != DDP_SOURCE_TORCHRUN && (status = check_mpi(view->env, id, error)) < 0)
		return status;
	if (id->source != DDP_SOURCE_PLUGIN && (status = choose_device(view, id, error)) < 0)
		return status;
	return ddp_slurm_end_time(view, id, error);
}

int ddp_identity_read(char *const *environment, const struct ddp_surroundings *surroundings,
		      struct ddp_identity *identity, struct ddp_error *error)
{
	const char *failure = ddp_variable_get(environment, DDP_NAME(DDP_ERROR));
	struct ddp_surroundings around = *surroundings;
	struct ddp_view view = {.env = environment, .around = &around};

	if (!around.hostname)
		around.hostname = "localhost";
	*identity = (struct ddp_identity){
		.source = DDP_SOURCE_SINGLE,
		.size = 1,
		.local_size = 1,
		.node_count = 1,
		.device = -1,
	};
	if (failure)
		return ddp_error_set(error, DDP_ERR_ABORTED, "%s", failure);
	return decide(&view, identity, error);
}
