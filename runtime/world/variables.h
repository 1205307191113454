/* SPDX-License-Identifier: Apache-2.0 */
/*
 * variables.h - numbers out of a list of NAME=VALUE
 *
 * An empty value counts as a missing one, as frameworks have it. Numbers are decimal digits
 * alone: no sign, no blank, whatever the locale.
 */
#ifndef DDP_WORLD_VARIABLES_H
#define DDP_WORLD_VARIABLES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

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

/* One of several variables that must all be there. */
struct ddp_wanted {
	const char *name;
	int *value;
};

/*
 * Read all [count] of [wanted]. [remedy] ends the text about one that is missing.
 * Returns 0 or DDP_ERR_ENVIRONMENT.
 */
int ddp_variables_require(char *const *env, const struct ddp_wanted *wanted, size_t count,
			  const char *remedy, struct ddp_error *error);

/*
 * Whether [rank] and [size] are there and say anything but [want_rank] of [want_size]; one that
 * is not a number does.
 */
bool ddp_variables_differ(char *const *env, const char *rank, const char *size, int want_rank,
			  int want_size);

#endif /* DDP_WORLD_VARIABLES_H */
