/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/settings.h"
#include "record.h"
#include "store.h"

/* --- The method "single": a world of one rank, which meets itself ------------------------- */

struct single {
	struct ddp_store base;
	struct ddp_values next, last; /* before and after the fence */
	char abort[DDP_ERROR_SIZE];
	bool aborted;
};

static int single_probe(const struct ddp_identity *identity, struct ddp_error *error)
{
	if (identity->size == 1)
		return 1;
	ddp_error_set(error, DDP_ERR_UNSUPPORTED, "the world has %d ranks", identity->size);
	return 0;
}

static const struct ddp_store_method single_method;

static int single_open(struct ddp_store **store, const struct ddp_identity *identity,
		       const struct ddp_log *log, const struct ddp_watch *watch,
		       struct ddp_error *error)
{
	struct single *single = calloc(1, sizeof(*single));

	(void)watch;
	*store = NULL;
	if (!single)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for the rendezvous");
	single->base = (struct ddp_store){&single_method, identity, log};
	*store = &single->base;
	return 0;
}

static int single_put(struct ddp_store *store, const char *key, const void *value, size_t size,
		      struct ddp_error *error)
{
	return ddp_values_put(&((struct single *)store)->next, key, value, size, error);
}

static int single_fence(struct ddp_store *store, const struct ddp_watch *watch,
			struct ddp_error *error)
{
	struct single *single = (struct single *)store;

	(void)watch;
	if (single->aborted)
		return ddp_error_set(error, DDP_ERR_ABORTED, "%s", single->abort);
	ddp_values_clear(&single->last);
	single->last = single->next;
	single->next = (struct ddp_values){0};
	return 0;
}

static int single_get(struct ddp_store *store, int rank, const char *key, void *value, size_t *size,
		      struct ddp_error *error)
{
	const struct single *single = (const struct single *)store;

	if (rank != 0)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "rendezvous: there is no rank %d of 1", rank);
	return ddp_values_get(single->last.body, single->last.size, rank, key, value, size, error);
}

static void single_abort(struct ddp_store *store, const char *text)
{
	struct single *single = (struct single *)store;

	if (!single->aborted)
		snprintf(single->abort, sizeof(single->abort), "rank 0 on %s: %.700s",
			 single->base.identity->host, text);
	single->aborted = true;
}

static int single_aborted(struct ddp_store *store, char *text, size_t size)
{
	const struct single *single = (const struct single *)store;

	if (!single->aborted)
		return 0;
	if (size > 0)
		snprintf(text, size, "%s", single->abort);
	return 1;
}

static void single_close(struct ddp_store *store, bool clean)
{
	struct single *single = (struct single *)store;

	(void)clean;
	ddp_values_clear(&single->next);
	ddp_values_clear(&single->last);
	free(single);
}

static const struct ddp_store_method single_method = {
	.head = {DDP_MODULE_MAGIC, DDP_STORE_VERSION, sizeof(struct ddp_store_method), "store",
		 "single", PACKAGE_VERSION},
	.probe = single_probe,
	.open = single_open,
	.put = single_put,
	.fence = single_fence,
	.get = single_get,
	.abort = single_abort,
	.aborted = single_aborted,
	.close = single_close,
};

/* --- Which method ----------------------------------------------------------------------- */

/* In the order in which they are tried. */
static const struct row {
	const char *name;
	const struct ddp_store_method *method; /* NULL: in a module */
	const char *variable; /* that the environment has wherever a module is worth opening */
	const char *hint;
} rows[] = {
	{"file", &ddp_store_file, NULL, NULL},
	{"pmix", NULL, "PMIX_RANK", "srun --mpi=pmix sets it"},
	{"single", &single_method, NULL, NULL},
};

enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

/* Returns the method of [row], or NULL with why it cannot be had. */
static const struct ddp_store_method *load(const struct row *row, const struct ddp_log *log,
					   struct ddp_error *error)
{
	if (row->method)
		return row->method;
	if (!getenv(row->variable)) {
		ddp_error_set(error, DDP_ERR_UNSUPPORTED, "%s is not set; %s", row->variable,
			      row->hint);
		return NULL;
	}
	return ddp_module_open(row->name, "store", DDP_STORE_VERSION,
			       sizeof(struct ddp_store_method), log, error);
}

/* Returns the method of [row] if it works here, or NULL with why not. */
static const struct ddp_store_method *probe(const struct row *row,
					    const struct ddp_identity *identity,
					    const struct ddp_log *log, struct ddp_error *error)
{
	const struct ddp_store_method *method = load(row, log, error);

	return method && method->probe(identity, error) == 1 ? method : NULL;
}

static const struct ddp_store_method *forced(const char *name, bool by_caller,
					     const struct ddp_identity *identity,
					     const struct ddp_log *log, struct ddp_error *error)
{
	const struct ddp_store_method *method;
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

static const struct ddp_store_method *first(const struct ddp_identity *identity,
					    const struct ddp_log *log, struct ddp_error *error)
{
	const struct ddp_store_method *method;
	char text[DDP_ERROR_SIZE] = "";
	struct ddp_error why = {0};
	size_t used = 0;

	/* A rank alone has nobody to meet, whatever else would work. */
	if (identity->size == 1)
		return &single_method;
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

int ddp_store_open(struct ddp_store **store, const char *name, const struct ddp_identity *identity,
		   const struct ddp_log *log, const struct ddp_watch *watch,
		   struct ddp_error *error)
{
	const char *wish = name ? name : ddp_setting_get(DDP_SET_DDP_METHOD);
	const struct ddp_store_method *method;
	struct ddp_error local;

	if (!error)
		error = &local;
	*store = NULL;
	method = *wish ? forced(wish, name != NULL, identity, log, error)
		       : first(identity, log, error);
	if (!method)
		return error->status;
	if (log)
		ddp_log_print(log, DDP_LEVEL_DEBUG, "rendezvous", "method %s%s%s",
			      method->head.name, *identity->directory ? ", " : "",
			      identity->directory);
	return method->open(store, identity, log, watch, error);
}

void ddp_store_close(struct ddp_store *store, bool clean)
{
	if (store)
		store->method->close(store, clean);
}
