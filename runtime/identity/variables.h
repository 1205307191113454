/* SPDX-License-Identifier: Apache-2.0 */
/*
 * variables.h - functions shared by all sources of an identity: read variables, check numbers,
 * build paths
 *
 * A source is srun --ddp, plain srun, torchrun or none. The source determines rank, sizes, attempt,
 * job, directory and records of the identity. identity.c sets device and host, by the same rules
 * for all sources. An empty variable counts as unset, as in PyTorch. A number consists of decimal
 * digits only, without sign or blank, in every locale.
 */
#ifndef DDP_WORLD_VARIABLES_H
#define DDP_WORLD_VARIABLES_H

#include <stdbool.h>
#include <stdint.h>

#include "identity.h"

/* Returns the value of [name] in [env], or NULL if it is unset or empty. */
const char *ddp_variable_get(char *const *env, const char *name);

/*
 * Parse [length] bytes of [text] as a number of at most [most]. If the text is valid, returns true
 * and sets [value]. Otherwise returns false and does not change [value].
 */
bool ddp_digits_read(const char *text, size_t length, int64_t most, int64_t *value);

/*
 * Parse variable [name] as a number of at most [most].
 * Returns 1 and sets [value]. If the variable is unset, returns 0 and does not change [value]. If
 * the value is invalid, returns DDP_ERR_ENVIRONMENT, with the name and the value in [error].
 */
int ddp_variable_number(char *const *env, const char *name, int64_t most, int64_t *value,
			struct ddp_error *error);

/* Like ddp_variable_number(), but for an int. */
int ddp_variable_int(char *const *env, const char *name, int *value, struct ddp_error *error);

/* Like ddp_variable_number(), but for a decimal fraction above 0 and at most 1. */
int ddp_variable_share(char *const *env, const char *name, double *value, struct ddp_error *error);

/*
 * Returns whether the variables [rank] and [size] are both set, and at least one of them differs
 * from [want_rank] or [want_size]. A value that is not a number also differs.
 */
bool ddp_variables_differ(char *const *env, const char *rank, const char *size, int want_rank,
			  int want_size);

/*
 * Step whose --ddp variables are in the environment, according to DDP_JOB: NONE if the variables
 * are not set, OURS for this step, or FOREIGN for another step. A program inherits the variables of
 * another step if a task of that step starts it, for example as another step or job.
 */
enum ddp_contract { DDP_CONTRACT_NONE, DDP_CONTRACT_OURS, DDP_CONTRACT_FOREIGN };

struct ddp_view {
	char *const *env;
	const struct ddp_surroundings *around;
	bool in_job;
	/*
	 * this process is in a task of an ordinary step, and not in a batch script or an
	 * interactive shell
	 */
	bool in_step;
	enum ddp_contract contract;
};

/* --- The six numbers ----------------------------------------------------------------------- */

/* The six numbers of an identity. Each source reads them from variables with other names. */
enum {
	DDP_NUMBER_RANK,
	DDP_NUMBER_SIZE,
	DDP_NUMBER_LOCAL_RANK,
	DDP_NUMBER_LOCAL_SIZE,
	DDP_NUMBER_NODE_RANK,
	DDP_NUMBER_NODE_COUNT,
	DDP_NUMBERS
};

/*
 * Read the numbers [first] to [end] - 1 into [identity], from the variables [names]. Numbers whose
 * name is NULL are skipped. All other variables must be set. Returns 0 or DDP_ERR_ENVIRONMENT.
 */
int ddp_numbers_read(const struct ddp_view *view, const char *const *names, int first, int end,
		     struct ddp_identity *identity, struct ddp_error *error);

/*
 * Check that the six numbers of [identity] do not contradict each other. Returns 0, or
 * DDP_ERR_ENVIRONMENT with the names and the values.
 */
int ddp_numbers_check(const char *const *names, const struct ddp_identity *identity,
		      struct ddp_error *error);

/* --- Paths --------------------------------------------------------------------------------- */

enum { DDP_WORD_SIZE = 64 };

/*
 * Convert [text] to [word], a part of a file name. Characters other than letters, digits, '.', '-'
 * and '_' are replaced, and a long text is cut. If the text was changed, a hash of the original
 * text is appended, so that different texts give different words.
 */
void ddp_place_word(const char *text, char word[static DDP_WORD_SIZE]);

/*
 * Set the directory of [identity] to "<base>/.ddp/<name>". <base> is DDP_RENDEZVOUS if the user or
 * this step set it, else the working directory. If neither is known, the directory is "".
 */
int ddp_place_directory(const struct ddp_view *view, const char *name,
			struct ddp_identity *identity, struct ddp_error *error);

/*
 * Set the directory of failure records of [identity] to "<base>/.ddp/failed-<name>". [name] must be
 * shorter than 3 * DDP_WORD_SIZE. For a --ddp step, the directory of records is beside the step's
 * directory, not in it, because srun removes the step's directory.
 */
int ddp_place_records(const struct ddp_view *view, const char *name, struct ddp_identity *identity,
		      struct ddp_error *error);

#endif /* DDP_WORLD_VARIABLES_H */
