/* SPDX-License-Identifier: Apache-2.0 */
/* variables.c - read and check variables, and build paths, for all sources of an identity */
#include "config.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/checksum.h"
#include "contract.h"
#include "variables.h"

const char *ddp_variable_get(char *const *env, const char *name)
{
	size_t length = strlen(name);

	for (; env && *env; env++)
		if (strncmp(*env, name, length) == 0 && (*env)[length] == '=')
			return (*env)[length + 1] ? *env + length + 1 : NULL;
	return NULL;
}

bool ddp_digits_read(const char *text, size_t length, int64_t most, int64_t *value)
{
	int64_t number = 0;

	for (size_t i = 0; i < length; i++) {
		int digit = text[i] - '0';

		if (digit < 0 || digit > 9 || number > (most - digit) / 10)
			return false;
		number = number * 10 + digit;
	}
	if (length == 0)
		return false;
	*value = number;
	return true;
}

int ddp_variable_number(char *const *env, const char *name, int64_t most, int64_t *value,
			struct ddp_error *error)
{
	const char *text = ddp_variable_get(env, name);

	if (!text)
		return 0;
	if (ddp_digits_read(text, strlen(text), most, value))
		return 1;
	return ddp_error_set(error, DDP_ERR_ENVIRONMENT,
			     "%s=%.100s is not a number from 0 to %lld. Correct or unset it.", name,
			     text, (long long)most);
}

int ddp_variable_int(char *const *env, const char *name, int *value, struct ddp_error *error)
{
	int64_t number;
	int found = ddp_variable_number(env, name, INT_MAX, &number, error);

	if (found > 0)
		*value = (int)number;
	return found;
}

/* Parse a number of digits with at most one decimal point. Ignores digits after the 15th. */
static bool read_fraction(const char *text, double *value)
{
	const char *point = strchr(text, '.');
	size_t before = point ? (size_t)(point - text) : strlen(text);
	size_t after = point ? strlen(point + 1) : 0;
	int64_t whole = 0, digits = 0;
	double scale = 1;

	if (before + after == 0 || (before && !ddp_digits_read(text, before, 1, &whole)) ||
	    (after && strspn(point + 1, "0123456789") != after))
		return false;
	for (size_t i = 0; i < after && i < 15; i++) {
		digits = digits * 10 + (point[1 + i] - '0');
		scale *= 10;
	}
	*value = (double)whole + (double)digits / scale;
	return *value > 0 && *value <= 1;
}

int ddp_variable_share(char *const *env, const char *name, double *value, struct ddp_error *error)
{
	const char *text = ddp_variable_get(env, name);
	double share;

	if (!text)
		return 0;
	if (!read_fraction(text, &share))
		return ddp_error_set(error, DDP_ERR_ENVIRONMENT,
				     "%s=%.100s is not a share of a device, above 0 and at most "
				     "1. Correct or unset it.",
				     name, text);
	*value = share;
	return 1;
}

bool ddp_variables_differ(char *const *env, const char *rank, const char *size, int want_rank,
			  int want_size)
{
	const char *texts[2] = {ddp_variable_get(env, rank), ddp_variable_get(env, size)};
	int64_t numbers[2];

	if (!texts[0] || !texts[1])
		return false;
	for (int i = 0; i < 2; i++)
		if (!ddp_digits_read(texts[i], strlen(texts[i]), INT_MAX, &numbers[i]))
			return true;
	return numbers[0] != want_rank || numbers[1] != want_size;
}

/* --- The six numbers ----------------------------------------------------------------------- */

static int *number_of(struct ddp_identity *id, int number)
{
	int *const all[DDP_NUMBERS] = {&id->rank,	&id->size,	&id->local_rank,
				       &id->local_size, &id->node_rank, &id->node_count};

	return all[number];
}

int ddp_numbers_read(const struct ddp_view *view, const char *const *names, int first, int end,
		     struct ddp_identity *id, struct ddp_error *error)
{
	for (int i = first; i < end; i++) {
		int found = names[i]
				    ? ddp_variable_int(view->env, names[i], number_of(id, i), error)
				    : 1;

		if (found < 0)
			return found;
		if (found == 0) {
			const char *other = names[i == 0 ? 1 : 0];
			const char *value = ddp_variable_get(view->env, other);

			return ddp_error_set(error, DDP_ERR_ENVIRONMENT,
					     "%s is missing, but %s=%.100s is set. Start the "
					     "program with srun, or unset %s.",
					     names[i], other, value ? value : "", other);
		}
	}
	return 0;
}

int ddp_numbers_check(const char *const *names, const struct ddp_identity *id,
		      struct ddp_error *error)
{
	const int values[DDP_NUMBERS] = {id->rank,	 id->size,	id->local_rank,
					 id->local_size, id->node_rank, id->node_count};
	/* for srun this name is NULL, because no variable has the local size */
	const char *local =
		names[DDP_NUMBER_LOCAL_SIZE] ? names[DDP_NUMBER_LOCAL_SIZE] : "local size";

	for (int i = 0; i < DDP_NUMBERS; i += 2)
		if (values[i] >= values[i + 1])
			return ddp_error_set(error, DDP_ERR_ENVIRONMENT,
					     "%s=%d is not below %s=%d. Correct both.", names[i],
					     values[i],
					     i == DDP_NUMBER_LOCAL_RANK ? local : names[i + 1],
					     values[i + 1]);
	/*
	 * Every node has at least one rank. So the other nodes have at least node_count - 1 ranks.
	 */
	if (id->local_size <= id->size && id->node_count - 1 <= id->size - id->local_size &&
	    (id->node_count == 1) == (id->local_size == id->size))
		return 0;
	return ddp_error_set(error, DDP_ERR_ENVIRONMENT,
			     "%s=%d ranks on %s=%d nodes contradict %s=%d on this node. Correct "
			     "these variables.",
			     names[DDP_NUMBER_SIZE], id->size, names[DDP_NUMBER_NODE_COUNT],
			     id->node_count, local, id->local_size);
}

/* --- Names and paths ----------------------------------------------------------------------- */

static const char safe_characters[] =
	"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";

enum { WORD_KEPT = 40 }; /* number of characters of a long text that its name keeps */

void ddp_place_word(const char *text, char word[static DDP_WORD_SIZE])
{
	size_t length = strlen(text), kept = length < WORD_KEPT ? length : WORD_KEPT;

	for (size_t i = 0; i < kept; i++)
		word[i] = strchr(safe_characters, text[i]) ? text[i] : '_';
	word[kept] = '\0';
	if (kept < length || strcmp(word, text) != 0)
		snprintf(word + kept, DDP_WORD_SIZE - kept, "-%016llx",
			 (unsigned long long)ddp_hash(DDP_HASH_INIT, text, length));
}

static int join(char path[static PATH_MAX], const char *base, const char *name,
		struct ddp_error *error)
{
	const char *slash = base[strlen(base) - 1] == '/' ? "" : "/";

	if (snprintf(path, PATH_MAX, "%s%s%s", base, slash, name) < PATH_MAX)
		return 0;
	path[0] = '\0';
	return ddp_error_set(
		error, DDP_ERR_ENVIRONMENT,
		"the path %.100s.../%.100s is too long. Set DDP_RENDEZVOUS to a shorter path that "
		"all nodes share.",
		base, name);
}

/* Set [base] to the absolute path of DDP_RENDEZVOUS, else to the working directory, else to "". */
static int find_base(const struct ddp_view *view, char base[static PATH_MAX],
		     struct ddp_error *error)
{
	const char *working = view->around->directory ? view->around->directory : "";
	const char *given = ddp_variable_get(view->env, DDP_NAME(DDP_RENDEZVOUS));

	if (!given || view->contract == DDP_CONTRACT_FOREIGN)
		given = working;
	else if (*given != '/' && *working)
		return join(base, working, given, error);
	if (snprintf(base, PATH_MAX, "%s", given) < PATH_MAX)
		return 0;
	return ddp_error_set(error, DDP_ERR_ENVIRONMENT, "the path %.100s... is too long", given);
}

int ddp_place_directory(const struct ddp_view *view, const char *name,
			struct ddp_identity *identity, struct ddp_error *error)
{
	char base[PATH_MAX], parent[PATH_MAX];
	int status = find_base(view, base, error);

	identity->directory[0] = '\0';
	if (status < 0 || !*base)
		return status;
	status = join(parent, base, DDP_DIR_PARENT, error);
	return status < 0 ? status : join(identity->directory, parent, name, error);
}

/*
 * Find the .ddp directory above the step's own directory. srun does not remove the .ddp directory.
 * Returns false if DDP_RENDEZVOUS is not in a .ddp directory, for example because a user chose it.
 */
static bool find_parent(const struct ddp_view *view, char parent[static PATH_MAX])
{
	const char *given = ddp_variable_get(view->env, DDP_NAME(DDP_RENDEZVOUS));
	const char *end = given ? strrchr(given, '/') : NULL;
	size_t length = strlen("/" DDP_DIR_PARENT);

	if (view->contract != DDP_CONTRACT_OURS || !end || (size_t)(end - given) < length ||
	    strncmp(end - length, "/" DDP_DIR_PARENT, length) != 0)
		return false;
	return snprintf(parent, PATH_MAX, "%.*s", (int)(end - given), given) < PATH_MAX;
}

int ddp_place_records(const struct ddp_view *view, const char *name, struct ddp_identity *identity,
		      struct ddp_error *error)
{
	const char *working = view->around->directory;
	char parent[PATH_MAX], base[PATH_MAX], failed[4 * DDP_WORD_SIZE];
	int status = 0;

	identity->records[0] = '\0';
	snprintf(failed, sizeof(failed), DDP_DIR_FAILED "%s", name);
	if (!find_parent(view, parent)) {
		if (view->contract != DDP_CONTRACT_OURS)
			status = find_base(view, base, error);
		else
			snprintf(base, sizeof(base), "%s", working ? working : "");
		if (status < 0 || !*base)
			return status;
		status = join(parent, base, DDP_DIR_PARENT, error);
	}
	return status < 0 ? status : join(identity->records, parent, failed, error);
}
