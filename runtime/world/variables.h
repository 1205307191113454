/* SPDX-License-Identifier: Apache-2.0 */
/*
 * variables.h - functions that all sources of an identity share: read variables, check numbers,
 * build paths
 *
 * A source fills in rank, sizes, attempt, job, directory and records; identity.c fills in device
 * and host, by the same rules for all sources. An empty variable counts as unset, as in PyTorch.
 * Numbers consist of decimal digits only: no sign, no blank, in every locale.
 */
#ifndef DDP_WORLD_VARIABLES_H
#define DDP_WORLD_VARIABLES_H

#include <stdbool.h>
#include <stdint.h>

#include "identity.h"

/* Returns the value of [name] in [env], or NULL if it is unset or empty. */
const char *ddp_variable_get(char *const *env, const char *name);

/*
 * Parse [length] bytes of [text] as a number of at most [most]. Returns true and sets [value], or
 * returns false and leaves [value] unchanged.
 */
bool ddp_digits_read(const char *text, size_t length, int64_t most, int64_t *value);

/*
 * Parse variable [name] as a number of at most [most]. Returns 1 and sets [value]; 0 if the
 * variable is unset, [value] unchanged; DDP_ERR_ENVIRONMENT with the name and the value in [error].
 */
int ddp_variable_number(char *const *env, const char *name, int64_t most, int64_t *value,
			struct ddp_error *error);

/* Like ddp_variable_number(), for an int. */
int ddp_variable_int(char *const *env, const char *name, int *value, struct ddp_error *error);

/* Like ddp_variable_number(), for a decimal fraction above 0 and at most 1. */
int ddp_variable_share(char *const *env, const char *name, double *value, struct ddp_error *error);

/*
 * Returns true if the variables [rank] and [size] are both set, and either has another value than
 * [want_rank] or [want_size], or is not a number.
 */
bool ddp_variables_differ(char *const *env, const char *rank, const char *size, int want_rank,
			  int want_size);

/*
 * Programs that a task of a --ddp step starts, such as another step or job, inherit the variables
 * of that task. Only DDP_JOB shows for which step they were set: this one (OURS) or another
 * (FOREIGN).
 */
enum ddp_contract { DDP_CONTRACT_NONE, DDP_CONTRACT_OURS, DDP_CONTRACT_FOREIGN };

struct ddp_view {
	char *const *env;
	const struct ddp_surroundings *around;
	bool in_job;  /* in a Slurm job */
	bool in_step; /* a task of an ordinary step: neither batch script nor interactive shell */
	enum ddp_contract contract;
};

/* --- The six numbers ----------------------------------------------------------------------- */

/*
 * Variable names of a source for rank and size, local rank and local size, node rank and node
 * count.
 */
enum {
	DDP_NUMBER_RANK,
	DDP_NUMBER_SIZE,
	DDP_NUMBER_LOCAL_RANK,
	DDP_NUMBER_LOCAL_SIZE,
	DDP_NUMBER_NODE_RANK,
	DDP_NUMBER_NODE_COUNT,
	DDP_NUMBERS
};

struct ddp_numbers {
	const char *names[DDP_NUMBERS]; /* NULL: this source does not set it */
	const char
		*remedy; /* advice that ends the message about contradictory or missing variables */
};

/*
 * Read the variables [first] to [end] - 1 into [identity]; all must be set. Returns 0 or
 * DDP_ERR_ENVIRONMENT.
 */
int ddp_numbers_read(const struct ddp_view *view, const struct ddp_numbers *numbers, int first,
		     int end, struct ddp_identity *identity, struct ddp_error *error);

/*
 * Check that the six numbers of [identity] do not contradict each other. Returns 0, or
 * DDP_ERR_ENVIRONMENT with names, values and advice.
 */
int ddp_numbers_check(const struct ddp_numbers *numbers, const struct ddp_identity *identity,
		      struct ddp_error *error);

/* --- Paths --------------------------------------------------------------------------------- */

enum { DDP_WORD_SIZE = 64 };

/*
 * Convert [text] to a part of a file name. Characters other than letters, digits, '.', '-' and '_'
 * are replaced and long texts are cut; a changed text gets a hash of the original, so that names
 * stay distinct.
 */
void ddp_place_word(const char *text, char word[static DDP_WORD_SIZE]);

/*
 * Set the directory of [identity] to "<base>/.ddp/<name>". <base> is DDP_RENDEZVOUS if the user or
 * this step set it, else the working directory. Sets "" if neither is known.
 */
int ddp_place_directory(const struct ddp_view *view, const char *name,
			struct ddp_identity *identity, struct ddp_error *error);

/*
 * Set the records of [identity] to "<base>/.ddp/failed-<name>"; [name] is shorter than 3 *
 * DDP_WORD_SIZE. For a --ddp step this is beside the step's directory, not in it, because srun
 * removes that directory.
 */
int ddp_place_records(const struct ddp_view *view, const char *name, struct ddp_identity *identity,
		      struct ddp_error *error);

#endif /* DDP_WORLD_VARIABLES_H */
