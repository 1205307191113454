/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/settings.h"
#include "rendezvous.h"

/* In the order in which they are tried. */
static const struct row {
	const char *name;
	const struct ddp_rendezvous_method *method; /* NULL: in a module */
	const char *variable; /* that the environment has wherever a module is worth opening */
	const char *hint;
} rows[] = {
	{"file", &ddp_rendezvous_file, NULL, NULL},
	{"pmix", NULL, "PMIX_RANK", "srun --mpi=pmix sets it"},
	{"single", &ddp_rendezvous_single, NULL, NULL},
};

enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

/* Returns the method of [row], or NULL with why it cannot be had. */
static const struct ddp_rendezvous_method *load(const struct row *row, const struct ddp_log *log,
						struct ddp_error *error)
{
	if (row->method)
		return row->method;
	if (!getenv(row->variable)) {
		ddp_error_set(error, DDP_ERR_UNSUPPORTED, "%s is not set; %s", row->variable,
			      row->hint);
		return NULL;
	}
	return ddp_module_open(row->name, "rendezvous", DDP_RENDEZVOUS_VERSION,
			       sizeof(struct ddp_rendezvous_method), log, error);
}

/* Returns the method of [row] if it works here, or NULL with why not. */
static const struct ddp_rendezvous_method *probe(const struct row *row,
						 const struct ddp_identity *identity,
						 const struct ddp_log *log, struct ddp_error *error)
{
	const struct ddp_rendezvous_method *method = load(row, log, error);

	return method && method->probe(identity, error) == 1 ? method : NULL;
}

static const struct ddp_rendezvous_method *forced(const char *name, bool by_caller,
						  const struct ddp_identity *identity,
						  const struct ddp_log *log,
						  struct ddp_error *error)
{
	const struct ddp_rendezvous_method *method;
	struct ddp_error why = {0};

	for (int i = 0; i < ROWS; i++) {
		if (strcmp(rows[i].name, name) != 0)
			continue;
		method = probe(&rows[i], identity, log, &why);
		if (!method)
			ddp_error_set(error, DDP_ERR_UNSUPPORTED,
				      "%s%s: the ranks cannot meet that way: %.900s",
				      by_caller ? "method " : "DDP_METHOD=", name, why.text);
		return method;
	}
	ddp_error_set(error, by_caller ? DDP_ERR_ARGUMENT : DDP_ERR_ENVIRONMENT,
		      "%s%.100s: give one of file, pmix, single",
		      by_caller ? "method " : "DDP_METHOD=", name);
	return NULL;
}

static const struct ddp_rendezvous_method *first(const struct ddp_identity *identity,
						 const struct ddp_log *log, struct ddp_error *error)
{
	const struct ddp_rendezvous_method *method;
	char text[DDP_ERROR_SIZE] = "";
	struct ddp_error why = {0};
	size_t used = 0;

	/* A rank alone has nobody to meet, whatever else would work. */
	if (identity->size == 1)
		return &ddp_rendezvous_single;
	for (int i = 0; i < ROWS; i++) {
		method = probe(&rows[i], identity, log, &why);
		if (method)
			return method;
		if (used < sizeof(text))
			used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s: %.280s",
						 i ? "; " : "", rows[i].name, why.text);
	}
	ddp_error_set(error, DDP_ERR_UNSUPPORTED,
		      "there is no way for the %d ranks to meet: %.900s", identity->size, text);
	return NULL;
}

int ddp_rendezvous_open(struct ddp_rendezvous **rendezvous, const char *name,
			const struct ddp_identity *identity, const struct ddp_log *log,
			const struct ddp_watch *watch, struct ddp_error *error)
{
	const char *wish = name ? name : ddp_setting_get(DDP_SET_DDP_METHOD);
	const struct ddp_rendezvous_method *method;
	struct ddp_error local;

	if (!error)
		error = &local;
	*rendezvous = NULL;
	method = *wish ? forced(wish, name != NULL, identity, log, error)
		       : first(identity, log, error);
	if (!method)
		return error->status;
	if (log)
		ddp_log_print(log, DDP_LEVEL_DEBUG, "rendezvous", "method %s%s%s",
			      method->head.name, *identity->directory ? ", " : "",
			      identity->directory);
	return method->open(rendezvous, identity, log, watch, error);
}

void ddp_rendezvous_close(struct ddp_rendezvous *rendezvous, bool clean)
{
	if (rendezvous)
		rendezvous->method->close(rendezvous, clean);
}
