/* SPDX-License-Identifier: Apache-2.0 */
/*
 * variables.h - what the sources of an identity share: variables, numbers, places
 *
 * A source fills in rank, sizes, attempt, job, directory and records; device and host are the
 * same for all of them and are left to identity.c. Variables are a list of NAME=VALUE, in which
 * an empty value counts as a missing one, as frameworks have it. Numbers are decimal digits
 * alone: no sign, no blank, whatever the locale.
 */
#ifndef DDP_WORLD_VARIABLES_H
#define DDP_WORLD_VARIABLES_H

#include <stdbool.h>
#include <stdint.h>

#include "identity.h"

/* The value of [name] in [env], or NULL where it is missing or empty. */
const char *ddp_variable_get(char *const *env, const char *name);

/*
 * Read [length] bytes of [text] as a number of at most [most].
 * Returns true with [value] set, else false with [value] untouched.
 */
bool ddp_digits_read(const char *text, size_t length, int64_t most, int64_t *value);

/*
 * Read variable [name] as a number of at most [most].
 * Returns 1 with [value] set; 0 where it is missing, [value] untouched; DDP_ERR_ENVIRONMENT with
 * a text that says name and value.
 */
int ddp_variable_number(char *const *env, const char *name, int64_t most, int64_t *value,
			struct ddp_error *error);

/* As ddp_variable_number, for an int. */
int ddp_variable_int(char *const *env, const char *name, int *value, struct ddp_error *error);

/* As ddp_variable_number, for a decimal fraction of more than 0 and at most 1. */
int ddp_variable_share(char *const *env, const char *name, double *value, struct ddp_error *error);

/*
 * Whether [rank] and [size] are there and say anything but [want_rank] of [want_size]; one that
 * is not a number does.
 */
bool ddp_variables_differ(char *const *env, const char *rank, const char *size, int want_rank,
			  int want_size);

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

/* --- The six numbers ------------------------------------------------------------------------ */

/* Rank and size, local rank and local size, node rank and node count, as a source calls them. */
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
	const char *names[DDP_NUMBERS]; /* NULL: no variable has it */
	const char *remedy;		/* what to do about contradictory or missing ones */
};

/*
 * Read the variables from [first] to before [end] into [identity]; all must be there.
 * Returns 0 or DDP_ERR_ENVIRONMENT.
 */
int ddp_numbers_read(const struct ddp_view *view, const struct ddp_numbers *numbers, int first,
		     int end, struct ddp_identity *identity, struct ddp_error *error);

/*
 * Look whether the six numbers of [identity] can be true together.
 * Returns 0, or DDP_ERR_ENVIRONMENT with names, values and remedy.
 */
int ddp_numbers_check(const struct ddp_numbers *numbers, const struct ddp_identity *identity,
		      struct ddp_error *error);

/* --- Where things are ------------------------------------------------------------------------ */

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
 * 3 * DDP_WORD_SIZE. Those of a --ddp step are beside its directory, which srun removes, not in it.
 */
int ddp_place_records(const struct ddp_view *view, const char *name, struct ddp_identity *identity,
		      struct ddp_error *error);

#endif /* DDP_WORLD_VARIABLES_H */
