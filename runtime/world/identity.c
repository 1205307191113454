/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "base/checksum.h"
#include "contract.h"
#include "variables.h"

/* --- torchrun, or whoever speaks as it does ------------------------------------------------ */

static bool torchrun_started(const struct ddp_view *view)
{
	char *const *env = view->env;
	int rank = 0, size = 0;

	if (!ddp_variable_get(env, "RANK") || !ddp_variable_get(env, "WORLD_SIZE") ||
	    !ddp_variable_get(env, "TORCHELASTIC_RUN_ID") ||
	    !ddp_variable_get(env, "TORCHELASTIC_RESTART_COUNT"))
		return false;
	if (view->contract != DDP_CONTRACT_OURS)
		return true;
	/*
	 * Who came last, torchrun or --ddp? The plugin removes the first variable from its
	 * tasks and sets RANK to DDP_RANK; old torchruns do not set the first.
	 */
	if (ddp_variable_get(env, "TORCHELASTIC_USE_AGENT_STORE"))
		return true;
	return ddp_variable_int(env, DDP_NAME(DDP_RANK), &rank, NULL) > 0 &&
	       ddp_variable_int(env, DDP_NAME(DDP_SIZE), &size, NULL) > 0 &&
	       ddp_variables_differ(env, "RANK", "WORLD_SIZE", rank, size);
}

/*
 * In its virtual_local_rank mode torchrun shows each worker one device and the local rank 0. It
 * deals ranks to nodes in blocks, so the true one follows from the others.
 */
static void undo_virtual(struct ddp_identity *id)
{
	if (id->local_rank == 0 && id->local_size > 0 &&
	    id->size / id->local_size == id->node_count &&
	    id->rank / id->local_size == id->node_rank)
		id->local_rank = id->rank % id->local_size;
}

/* A world of one rank, or of one node, says enough with less than torchrun does. */
static int read_numbers(const struct ddp_view *view, struct ddp_identity *id,
			struct ddp_error *error)
{
	static const struct ddp_numbers numbers = {
		{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK",
		 "GROUP_WORLD_SIZE"},
		"torchrun sets all of these; start all ranks with it, or unset RANK and WORLD_SIZE "
		"to run alone"};
	int status = ddp_numbers_read(view, &numbers, 0, 2, id, error);

	if (status == 0 && id->rank >= id->size)
		return ddp_numbers_check(&numbers, id, error);
	if (status == 0 && id->size > 1)
		status = ddp_numbers_read(view, &numbers, 2, 4, id, error);
	if (status == 0 && id->size != id->local_size)
		status = ddp_numbers_read(view, &numbers, 4, 6, id, error);
	undo_virtual(id);
	return status < 0 ? status : ddp_numbers_check(&numbers, id, error);
}

/*
 * What tells this world from another one on this host, whose run id and port may be the same
 * ("none" and 29500 by default): the directory that torchrun made for its workers' errors, at
 * random, else its process.
 */
static uint64_t host_tag(const struct ddp_view *view)
{
	const char *file = ddp_variable_get(view->env, "TORCHELASTIC_ERROR_FILE");
	const char *end = file ? strstr(file, "/attempt_") : NULL;
	uint64_t tag =
		ddp_hash(DDP_HASH_INIT, view->around->hostname, strlen(view->around->hostname));

	if (end)
		return ddp_hash(tag, file, (size_t)(end - file));
	return ddp_hash(tag, &view->around->parent, sizeof(view->around->parent));
}

static int place(const struct ddp_view *view, struct ddp_identity *id, struct ddp_error *error)
{
	const char *run = ddp_variable_get(view->env, "TORCHELASTIC_RUN_ID");
	const char *port = ddp_variable_get(view->env, "MASTER_PORT");
	char run_word[DDP_WORD_SIZE], port_word[DDP_WORD_SIZE], step[DDP_WORD_SIZE];
	char tag[32] = "", name[256];
	int status;

	ddp_place_word(run ? run : "none", run_word);
	ddp_place_word(port ? port : "0", port_word);
	if (id->local_size == id->size)
		snprintf(tag, sizeof(tag), "-%016llx", (unsigned long long)host_tag(view));
	snprintf(id->job, sizeof(id->job), "%s-%s%s", run_word, port_word, tag);
	snprintf(name, sizeof(name), "%s%s", run_word, tag);
	if (view->in_step)
		ddp_slurm_step(view, step);
	status = ddp_place_records(view, view->in_step ? step : name, id, error);
	if (status < 0)
		return status;
	snprintf(name, sizeof(name), "torchrun-%s-%s.%d%s", run_word, port_word, id->attempt, tag);
	return ddp_place_directory(view, name, id, error);
}

static int identify_torchrun(const struct ddp_view *view, struct ddp_identity *id,
			     struct ddp_error *error)
{
	int status;

	if ((status = read_numbers(view, id, error)) < 0 ||
	    (status = ddp_variable_int(view->env, "TORCHELASTIC_RESTART_COUNT", &id->attempt,
				       error)) < 0)
		return status;
	return place(view, id, error);
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

static const struct {
	const char *name;
	int (*identify)(const struct ddp_view *, struct ddp_identity *, struct ddp_error *);
} sources[] = {
	[DDP_SOURCE_PLUGIN] = {"srun --ddp", ddp_plugin_identify},
	[DDP_SOURCE_SRUN] = {"srun", ddp_srun_identify},
	[DDP_SOURCE_TORCHRUN] = {"torchrun", identify_torchrun},
	[DDP_SOURCE_SINGLE] = {"single", identify_single},
};

const char *ddp_source_name(enum ddp_source source)
{
	return sources[source].name;
}

static enum ddp_source choose_source(const struct ddp_view *view)
{
	bool torchrun = torchrun_started(view);
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
	int status;

	if ((status = ddp_slurm_look(view, error)) < 0 ||
	    (status = ddp_slurm_check_leftover(view, error)) < 0)
		return status;
	id->source = choose_source(view);
	name_host(view, id);
	if ((status = sources[id->source].identify(view, id, error)) < 0)
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
