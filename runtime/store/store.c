/* SPDX-License-Identifier: Apache-2.0 */
/* store.c - choice of the rendezvous method, common functions, and the method "single" */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/settings.h"
#include "store.h"

/* --- The method "single": one rank, no communication -------------------------------------- */

struct single {
	struct ddp_store base;
	struct ddp_values last; /* values that were put before the last fence */
};

static int single_probe(const struct ddp_identity *identity, struct ddp_error *error)
{
	if (identity->size == 1)
		return 1;
	ddp_error_set(error, DDP_ERR_UNSUPPORTED, "the world has %d ranks", identity->size);
	return 0;
}

static int single_open(struct ddp_store **store, const struct ddp_identity *identity,
		       const struct ddp_watch *watch, struct ddp_error *error)
{
	struct single *single = calloc(1, sizeof(*single));

	(void)identity;
	(void)watch;
	if (!single)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for the rendezvous");
	*store = &single->base;
	return 0;
}

static int single_fence(struct ddp_store *store, const struct ddp_watch *watch,
			struct ddp_error *error)
{
	struct single *single = (struct single *)store;

	(void)watch;
	if (*store->abort)
		return ddp_error_set(error, DDP_ERR_ABORTED, "%s", store->abort);
	ddp_values_clear(&single->last);
	single->last = store->values;
	store->values = (struct ddp_values){0};
	return 0;
}

static int single_read(struct ddp_store *store, int rank, const uint8_t **body, size_t *length,
		       struct ddp_error *error)
{
	const struct single *single = (const struct single *)store;

	(void)rank;
	(void)error;
	*body = single->last.body;
	*length = single->last.size;
	return 0;
}

static void single_abort(struct ddp_store *store, const char *text)
{
	if (!*store->abort)
		snprintf(store->abort, sizeof(store->abort), "rank 0 on %s: %.700s",
			 store->identity->host, text);
}

static void single_poll_abort(struct ddp_store *store)
{
	(void)store;
}

static void single_close(struct ddp_store *store, bool clean)
{
	(void)clean;
	ddp_values_clear(&((struct single *)store)->last);
	free(store);
}

static const struct ddp_store_method single_method = {
	.head = {DDP_MODULE_MAGIC, DDP_STORE_VERSION, sizeof(struct ddp_store_method), "store",
		 "single", PACKAGE_VERSION},
	.probe = single_probe,
	.open = single_open,
	.fence = single_fence,
	.read = single_read,
	.abort = single_abort,
	.poll_abort = single_poll_abort,
	.close = single_close,
};

/* --- Choice of the method --------------------------------------------------------------- */

/* The methods, in the order of preference. */
static const struct row {
	const char *name;
	const struct ddp_store_method *method; /* NULL if the method is a module */
	/* environment variable that must be set for the method's module to be opened, or NULL */
	const char *variable;
	const char *hint;
} rows[] = {
	{"file", &ddp_store_file, NULL, NULL},
	{"pmix", NULL, "PMIX_RANK", "Start the program with srun --mpi=pmix"},
	{"single", &single_method, NULL, NULL},
};

enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

/*
 * Returns the method of [row] if it works in this job. Otherwise returns NULL, with the reason in
 * [error].
 */
static const struct ddp_store_method *probe(const struct row *row,
					    const struct ddp_identity *identity,
					    const struct ddp_log *log, struct ddp_error *error)
{
	const struct ddp_store_method *method = row->method;

	if (!method && !getenv(row->variable)) {
		ddp_error_set(error, DDP_ERR_UNSUPPORTED, "%s is not set. %s", row->variable,
			      row->hint);
		return NULL;
	}
	if (!method)
		method = ddp_module_open(row->name, "store", DDP_STORE_VERSION, sizeof(*method),
					 log, error);
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
				      "the ranks cannot meet by %s%s: %.900s",
				      by_caller ? "method " : "DDP_METHOD=", name, why.text);
		return method;
	}
	ddp_error_set(error, by_caller ? DDP_ERR_ARGUMENT : DDP_ERR_ENVIRONMENT,
		      "%s%.100s is not a rendezvous method. Use file, pmix or single.",
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

	/* For a single rank, use the method "single", even if another method would work. */
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
		      "no rendezvous method works for these %d ranks: %.900s", identity->size,
		      text);
	return NULL;
}

int ddp_store_open(struct ddp_store **store, const char *name, const struct ddp_identity *identity,
		   const struct ddp_log *log, const struct ddp_watch *watch,
		   struct ddp_error *error)
{
	const char *requested = name ? name : ddp_setting_get(DDP_SET_DDP_METHOD);
	const struct ddp_store_method *method;
	struct ddp_error local;
	int status;

	if (!error)
		error = &local;
	*store = NULL;
	method = *requested ? forced(requested, name != NULL, identity, log, error)
			    : first(identity, log, error);
	if (!method)
		return error->status;
	if (log)
		ddp_log_print(log, DDP_LEVEL_DEBUG, "rendezvous", "method %s%s%s",
			      method->head.name, *identity->directory ? ", " : "",
			      identity->directory);
	/*
	 * Start the watch in libddp, so that it uses libddp's clock and not the clock in the
	 * method's module.
	 */
	(void)ddp_watch_now(watch);
	ddp_watch_block();
	status = method->open(store, identity, watch, error);
	ddp_watch_unblock();
	if (status == 0) {
		(*store)->method = method;
		(*store)->identity = identity;
	}
	return status;
}

/* --- Functions common to all methods ------------------------------------------------------ */

/*
 * A method can block in a file system or in a server, so it is called between ddp_watch_block() and
 * ddp_watch_unblock(). Its sleeps do not count as blocked (ddp_watch_sleep()).
 */

int ddp_store_put(struct ddp_store *store, const char *key, const void *value, size_t size,
		  struct ddp_error *error)
{
	return ddp_values_put(&store->values, key, value, size, error);
}

int ddp_store_fence(struct ddp_store *store, const struct ddp_watch *watch, struct ddp_error *error)
{
	struct ddp_error local;
	int status;

	if (!error)
		error = &local;
	if (store->broken)
		return ddp_error_set(error, DDP_ERR_STATE,
				     "rendezvous: no fence is possible after one that failed");
	ddp_error_clear(error);
	ddp_watch_block();
	status = store->method->fence(store, watch, error);
	ddp_watch_unblock();
	if (status < 0) {
		store->broken = true;
		if (status != DDP_ERR_ABORTED)
			store->method->abort(store, error->text);
		return status;
	}
	store->fenced = true;
	ddp_values_clear(&store->values);
	return 0;
}

int ddp_store_get(struct ddp_store *store, int rank, const char *key, void *value, size_t *size,
		  struct ddp_error *error)
{
	const uint8_t *body;
	size_t length;
	int status;

	if (!store->fenced)
		return ddp_error_set(error, DDP_ERR_STATE,
				     "rendezvous: no value can be read before the first fence");
	if (rank < 0 || rank >= store->identity->size)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "rendezvous: there is no rank %d of %d", rank,
				     store->identity->size);
	ddp_watch_block();
	status = store->method->read(store, rank, &body, &length, error);
	ddp_watch_unblock();
	if (status < 0)
		return status;
	return ddp_values_get(body, length, rank, key, value, size, error);
}

void ddp_store_abort(struct ddp_store *store, const char *text)
{
	store->method->abort(store, text);
}

const char *ddp_store_aborted(struct ddp_store *store)
{
	if (!*store->abort) {
		ddp_watch_block();
		store->method->poll_abort(store);
		ddp_watch_unblock();
	}
	return *store->abort ? store->abort : NULL;
}

void ddp_store_close(struct ddp_store *store, bool clean)
{
	if (!store)
		return;
	ddp_values_clear(&store->values);
	store->method->close(store, clean);
}
