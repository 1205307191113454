/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torchrun.c - identity by what torchrun, or whoever speaks as it does, tells its workers
 */
#include "config.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/checksum.h"
#include "contract.h"
#include "source.h"

static const char remedy[] = "torchrun sets all of these; start all ranks with it, or unset RANK "
			     "and WORLD_SIZE to run alone";

bool ddp_torchrun_started(const struct ddp_view *view)
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
	const struct ddp_wanted wanted[] = {
		{"RANK", &id->rank},
		{"WORLD_SIZE", &id->size},
		{"LOCAL_RANK", &id->local_rank},
		{"LOCAL_WORLD_SIZE", &id->local_size},
		{"GROUP_RANK", &id->node_rank},
		{"GROUP_WORLD_SIZE", &id->node_count},
	};
	const struct ddp_names names = {
		"RANK",	      "WORLD_SIZE",	  "LOCAL_RANK", "LOCAL_WORLD_SIZE",
		"GROUP_RANK", "GROUP_WORLD_SIZE", remedy,
	};
	int status = ddp_variables_require(view->env, wanted, 2, remedy, error);

	if (status == 0 && id->rank >= id->size)
		return ddp_identity_check(id, &names, error);
	if (status == 0 && id->size > 1)
		status = ddp_variables_require(view->env, wanted + 2, 2, remedy, error);
	if (status == 0 && id->size != id->local_size)
		status = ddp_variables_require(view->env, wanted + 4, 2, remedy, error);
	undo_virtual(id);
	return status < 0 ? status : ddp_identity_check(id, &names, error);
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

int ddp_torchrun_identify(const struct ddp_view *view, struct ddp_identity *id,
			  struct ddp_error *error)
{
	int status;

	if ((status = read_numbers(view, id, error)) < 0 ||
	    (status = ddp_variable_int(view->env, "TORCHELASTIC_RESTART_COUNT", &id->attempt,
				       error)) < 0)
		return status;
	return place(view, id, error);
}
