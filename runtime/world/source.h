/* SPDX-License-Identifier: Apache-2.0 */
/*
 * source.h - what the sources of an identity share
 *
 * A source fills in rank, sizes, attempt, job, directory and records; device and host are the
 * same for all of them and are left to identity.c.
 */
#ifndef DDP_WORLD_SOURCE_H
#define DDP_WORLD_SOURCE_H

#include "identity.h"
#include "variables.h"

/*
 * A --ddp step's variables are inherited by whatever its tasks start: another step, another
 * job. Only DDP_JOB tells whose they are.
 */
enum ddp_contract { DDP_CONTRACT_NONE, DDP_CONTRACT_OURS, DDP_CONTRACT_FOREIGN };

struct ddp_view {
	char *const *env;
	const struct ddp_surroundings *around;
	bool in_job;  /* of Slurm */
	bool in_step; /* a task of an ordinary step: neither batch script nor interactive shell */
	enum ddp_contract contract;
};

/* What the variables of a source are called, and what to do about contradictory ones. */
struct ddp_names {
	const char *rank, *size, *local_rank, *local_size, *node_rank, *node_count;
	const char *remedy;
};

/*
 * Look whether the six numbers of [identity] can be true together.
 * Returns 0, or DDP_ERR_ENVIRONMENT with [names], values and remedy.
 */
int ddp_identity_check(const struct ddp_identity *identity, const struct ddp_names *names,
		       struct ddp_error *error);

/* --- Where things are (variables.c) --------------------------------------------------------- */

enum { DDP_WORD_SIZE = 64 };

/*
 * [text] as a part of a file name: other characters than letters, digits, '.', '-' and '_'
 * are replaced, long ones are cut, and a hash keeps two that differ apart.
 */
void ddp_place_word(const char *text, char word[static DDP_WORD_SIZE]);

/*
 * Put "<base>/.ddp/<name>" into [identity]'s directory, where <base> is DDP_RENDEZVOUS, if it
 * is the user's or this step's, else the working directory. "" where there is none.
 */
int ddp_place_directory(const struct ddp_view *view, const char *name,
			struct ddp_identity *identity, struct ddp_error *error);

/*
 * Put "<base>/.ddp/failed-<name>" into [identity]'s records likewise, [name] being shorter than
 * 100 bytes. Those of a --ddp step are beside its directory, which srun removes, not in it.
 */
int ddp_place_records(const struct ddp_view *view, const char *name, struct ddp_identity *identity,
		      struct ddp_error *error);

/* --- Slurm (slurm.c) -------------------------------------------------------------------- */

/*
 * Find out in which job and step of Slurm's this is, if any, and whose the contract is.
 * Returns 0 or DDP_ERR_ENVIRONMENT.
 */
int ddp_slurm_look(struct ddp_view *view, struct ddp_error *error);

/*
 * Refuse a task for which srun planned --ddp and which the plugin never saw.
 * Returns 0 or DDP_ERR_ENVIRONMENT.
 */
int ddp_slurm_check_leftover(const struct ddp_view *view, struct ddp_error *error);

/* Whether RANK and WORLD_SIZE are what an outer --ddp step left, and nobody's word since. */
bool ddp_contract_left(const struct ddp_view *view);

/* "job.step" of a task of Slurm's, fit for a file name. */
void ddp_slurm_step(const struct ddp_view *view, char word[static DDP_WORD_SIZE]);

/* SLURM_CLUSTER_NAME, or what the plugin says where there is none. */
const char *ddp_slurm_cluster(const struct ddp_view *view);

/* Put in when the job ends, where the environment says so. */
int ddp_slurm_end_time(const struct ddp_view *view, struct ddp_identity *identity,
		       struct ddp_error *error);

/* --- The sources. Each returns 0 or DDP_ERR_ENVIRONMENT --------------------------------- */

int ddp_plugin_identify(const struct ddp_view *view, struct ddp_identity *identity,
			struct ddp_error *error);
int ddp_srun_identify(const struct ddp_view *view, struct ddp_identity *identity,
		      struct ddp_error *error);
int ddp_torchrun_identify(const struct ddp_view *view, struct ddp_identity *identity,
			  struct ddp_error *error);

/* Whether torchrun itself made this process, and not only somebody who sets RANK. */
bool ddp_torchrun_started(const struct ddp_view *view);

#endif /* DDP_WORLD_SOURCE_H */
