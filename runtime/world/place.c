/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "base/checksum.h"
#include "contract.h"
#include "source.h"

static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";

enum { WORD_KEPT = 40 }; /* characters of a long word */

void ddp_place_word(const char *text, char word[static DDP_WORD_SIZE])
{
	size_t length = strlen(text), kept = length < WORD_KEPT ? length : WORD_KEPT;

	for (size_t i = 0; i < kept; i++)
		word[i] = strchr(letters, text[i]) ? text[i] : '_';
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
		"the path %.100s.../%.100s is too long; set DDP_RENDEZVOUS to a shorter "
		"one that all nodes share",
		base, name);
}

/* DDP_RENDEZVOUS, made absolute, else the working directory; "" where neither is known. */
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
	char base[PATH_MAX], house[PATH_MAX];
	int status = find_base(view, base, error);

	identity->directory[0] = '\0';
	if (status < 0 || !*base)
		return status;
	status = join(house, base, DDP_DIR_PARENT, error);
	return status < 0 ? status : join(identity->directory, house, name, error);
}

/*
 * The .ddp that the step's own directory is in, which outlives it. Returns false where it is in
 * none, such as one that somebody made by hand.
 */
static bool find_house(const struct ddp_view *view, char house[static PATH_MAX])
{
	const char *given = ddp_variable_get(view->env, DDP_NAME(DDP_RENDEZVOUS));
	const char *end = given ? strrchr(given, '/') : NULL;
	size_t parent = strlen("/" DDP_DIR_PARENT);

	if (view->contract != DDP_CONTRACT_OURS || !end || (size_t)(end - given) < parent ||
	    strncmp(end - parent, "/" DDP_DIR_PARENT, parent) != 0)
		return false;
	return snprintf(house, PATH_MAX, "%.*s", (int)(end - given), given) < PATH_MAX;
}

int ddp_place_records(const struct ddp_view *view, const char *name, struct ddp_identity *identity,
		      struct ddp_error *error)
{
	const char *working = view->around->directory;
	char house[PATH_MAX], base[PATH_MAX], failed[128];
	int status = 0;

	identity->records[0] = '\0';
	snprintf(failed, sizeof(failed), DDP_DIR_FAILED "%s", name);
	if (!find_house(view, house)) {
		if (view->contract != DDP_CONTRACT_OURS)
			status = find_base(view, base, error);
		else
			snprintf(base, sizeof(base), "%s", working ? working : "");
		if (status < 0 || !*base)
			return status;
		status = join(house, base, DDP_DIR_PARENT, error);
	}
	return status < 0 ? status : join(identity->records, house, failed, error);
}
