/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pmix-store.c - the rendezvous method "pmix": ranks meet through the PMIx server that started them
 *
 * Each rank puts one record per fence (record.h) under a key that contains the fence's number.
 * PMIx's collecting fence copies all records to every node. The fence is started without blocking
 * and then polled, so that time limits and aborts work. PMIx cannot cancel a fence. Therefore,
 * after a failure, the store does not finalize PMIx, and the process should end. PMIx does not
 * report which ranks are missing. An abort is a PMIx event to all ranks of the step, and contains
 * the ended world's number. PMIx delivers old events to new handlers, too. Some servers deliver an
 * event to a part of the ranks: Slurm 22.05 delivers it only to ranks on the same node.
 */
#include "config.h"

/* PMIx's inline functions cause these warnings. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#include <pmix.h>
#pragma GCC diagnostic pop
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store.h"

#define ABORT_CODE (PMIX_EXTERNAL_ERR_BASE - 364)
#define ABORT_TEXT "ddp.abort"
#define ABORT_WORLD "ddp.world"

enum { GET_SECONDS = 30 };

/*
 * A PMIx operation. A thread of PMIx completes it, possibly after the caller has stopped waiting
 * for it.
 */
struct pending {
	/* number of users: the caller and PMIx; the last user frees the structure */
	_Atomic int users;
	_Atomic bool done;
	pmix_status_t status;
	size_t handler; /* for a registration, the number of the registered event handler */
};

struct pmix_store {
	struct ddp_store base;
	pmix_proc_t me;
	struct ddp_record mine; /* this process's record for the next fence */
	pmix_value_t *found;	/* result of the last PMIx_Get() */
	bool initialised, is_listening;
	size_t handler;
	uint32_t world; /* number of this store among those that the process has opened */
	struct pmix_store *next;
	char event[DDP_ERROR_SIZE]; /* text of the first abort event of [world]; "": none */
};

/*
 * Number of the next fence. No number is used twice, so that the keys of two worlds of this process
 * differ.
 */
static uint32_t next_fence;

/* Protects the next two variables, and the member [event] of all stores. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pmix_store *stores; /* the open stores */
static uint32_t next_world;

/* --- Waiting ---------------------------------------------------------------------------- */

static struct pending *pending_start(void)
{
	struct pending *pending = calloc(1, sizeof(*pending));

	if (pending)
		pending->users = 2;
	return pending;
}

static void pending_drop(struct pending *pending)
{
	if (--pending->users == 0)
		free(pending);
}

/* PMIx calls this in its thread when an operation has completed. */
static void pending_end(pmix_status_t status, void *data)
{
	struct pending *pending = data;

	pending->status = status;
	pending->done = true;
	pending_drop(pending);
}

static void pmix_poll_abort(struct ddp_store *base)
{
	pthread_mutex_lock(&lock);
	snprintf(base->abort, sizeof(base->abort), "%s", ((struct pmix_store *)base)->event);
	pthread_mutex_unlock(&lock);
}

/*
 * Wait until [pending] is complete. Returns 0, or DDP_ERR_x. The text of DDP_ERR_TIMEOUT may be
 * empty.
 */
static int pending_wait(struct pmix_store *store, const struct pending *pending,
			const struct ddp_watch *watch, struct ddp_error *error)
{
	const char *abort = store->base.abort;
	uint64_t pause = 20000;
	int status = 0;

	while (!pending->done && status == 0) {
		pmix_poll_abort(&store->base);
		status = *abort ? ddp_error_set(error, DDP_ERR_ABORTED, "%s", abort)
				: ddp_watch_check(watch, error);
		if (status == 0)
			ddp_watch_sleep(watch, pause);
		if (pause < DDP_WATCH_PERIOD / 4)
			pause += pause / 2;
	}
	return pending->done ? 0 : status;
}

/* --- Opening ---------------------------------------------------------------------------- */

static int pmix_probe(const struct ddp_identity *identity, struct ddp_error *error)
{
	static const char *const names[] = {"PMIX_RANK", "PMIX_NAMESPACE"};

	(void)identity;
	for (int i = 0; i < 2; i++)
		if (!getenv(names[i])) {
			ddp_error_set(error, DDP_ERR_UNSUPPORTED,
				      "%s is not set. Start the program with srun --mpi=pmix",
				      names[i]);
			return 0;
		}
	return 1;
}

/* Event handler that PMIx calls in its thread. Stores the text of the first abort of each world. */
static void on_abort_event(size_t handler, pmix_status_t code, const pmix_proc_t *source,
			   pmix_info_t info[], size_t count, pmix_info_t *results,
			   size_t result_count, pmix_event_notification_cbfunc_fn_t next,
			   void *data)
{
	const char *text = NULL;
	int64_t world = -1;

	(void)handler;
	(void)code;
	(void)source;
	(void)results;
	(void)result_count;
	for (size_t i = 0; i < count; i++) {
		if (strcmp(info[i].key, ABORT_TEXT) == 0 && info[i].value.type == PMIX_STRING)
			text = info[i].value.data.string;
		if (strcmp(info[i].key, ABORT_WORLD) == 0 && info[i].value.type == PMIX_UINT32)
			world = info[i].value.data.uint32;
	}
	pthread_mutex_lock(&lock);
	for (struct pmix_store *store = stores; store && text; store = store->next)
		if (store->world == world && !*store->event)
			snprintf(store->event, sizeof(store->event), "%s", text);
	pthread_mutex_unlock(&lock);
	if (next)
		next(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, data);
}

static void listen_done(pmix_status_t status, size_t handler, void *data)
{
	struct pending *pending = data;

	pending->handler = handler;
	pending_end(status, pending);
}

/*
 * Register the handler for abort events. A failure is ignored, since the store also works without
 * these events.
 */
static void listen_for_aborts(struct pmix_store *store, const struct ddp_watch *watch)
{
	struct pending *pending = pending_start();
	pmix_status_t code = ABORT_CODE;

	if (!pending)
		return;
	PMIx_Register_event_handler(&code, 1, NULL, 0, on_abort_event, listen_done, pending);
	if (pending_wait(store, pending, watch, NULL) == 0 && pending->status == PMIX_SUCCESS) {
		store->is_listening = true;
		store->handler = pending->handler;
	}
	pending_drop(pending);
}

/* Check that PMIx and the environment agree on this process's rank and on the number of ranks. */
static int check_job(const struct pmix_store *store, struct ddp_error *error)
{
	const struct ddp_record *mine = &store->mine;
	pmix_proc_t job;
	pmix_value_t *value = NULL;
	uint32_t size;
	pmix_status_t rc;

	PMIX_LOAD_PROCID(&job, store->me.nspace, PMIX_RANK_WILDCARD);
	rc = PMIx_Get(&job, PMIX_JOB_SIZE, NULL, 0, &value);
	if (rc != PMIX_SUCCESS || !value)
		return ddp_error_set(error, DDP_ERR_ENGINE,
				     "PMIx does not report the number of ranks: %s",
				     PMIx_Error_string(rc));
	size = value->type == PMIX_UINT32 ? value->data.uint32 : 0;
	PMIX_VALUE_RELEASE(value);
	if (store->me.rank != mine->rank || size != mine->size)
		return ddp_error_set(error, DDP_ERR_MISMATCH,
				     "PMIx says that this is rank %u of %u in %s, but the "
				     "environment says rank %u of %u",
				     store->me.rank, size, store->me.nspace, mine->rank,
				     mine->size);
	return 0;
}

static void release_found(struct pmix_store *store)
{
	if (store->found)
		PMIX_VALUE_RELEASE(store->found);
	store->found = NULL;
}

static void pmix_close(struct ddp_store *base, bool clean)
{
	struct pmix_store *store = (struct pmix_store *)base, **link = &stores;

	pthread_mutex_lock(&lock);
	while (*link != store)
		link = &(*link)->next;
	*link = store->next;
	pthread_mutex_unlock(&lock);
	release_found(store);
	if (store->is_listening)
		PMIx_Deregister_event_handler(store->handler, NULL, NULL);
	/* After a failure, PMIx_Finalize() might wait for ranks that have ended. */
	if (store->initialised && clean && !base->broken)
		PMIx_Finalize(NULL, 0);
	free(store);
}

static int pmix_open(struct ddp_store **base, const struct ddp_identity *identity,
		     const struct ddp_watch *watch, struct ddp_error *error)
{
	struct pmix_store *store = calloc(1, sizeof(*store));
	pmix_status_t rc;
	int status;

	if (!store)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for the rendezvous");
	pthread_mutex_lock(&lock);
	store->world = next_world++;
	store->next = stores;
	stores = store;
	pthread_mutex_unlock(&lock);
	status = ddp_record_init(&store->mine, identity, error);
	if (status < 0)
		goto error;
	rc = PMIx_Init(&store->me, NULL, 0);
	if (rc != PMIX_SUCCESS) {
		status = ddp_error_set(error, DDP_ERR_ENGINE,
				       "PMIx_Init failed: %s. Start the program with srun "
				       "--mpi=pmix.",
				       PMIx_Error_string(rc));
		goto error;
	}
	store->initialised = true;
	status = check_job(store, error);
	if (status < 0)
		goto error;
	listen_for_aborts(store, watch);
	*base = &store->base;
	return 0;
error:
	pmix_close(&store->base, true);
	return status;
}

/* --- Fences ----------------------------------------------------------------------------- */

static void fence_key(char key[PMIX_MAX_KEYLEN + 1], uint32_t fence)
{
	snprintf(key, PMIX_MAX_KEYLEN, "ddp.fence.%u", fence);
}

static int deliver(const struct pmix_store *store, struct ddp_error *error)
{
	char key[PMIX_MAX_KEYLEN + 1];
	pmix_value_t value;
	pmix_status_t rc;
	size_t size;
	uint8_t *data = ddp_values_encode(&store->base.values, &store->mine, &size);

	if (!data)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for the record of rank %u",
				     store->mine.rank);
	memset(&value, 0, sizeof(value));
	value.type = PMIX_BYTE_OBJECT;
	value.data.bo.bytes = (char *)data;
	value.data.bo.size = size;
	fence_key(key, store->mine.fence);
	rc = PMIx_Put(PMIX_GLOBAL, key, &value);
	if (rc == PMIX_SUCCESS)
		rc = PMIx_Commit();
	free(data);
	if (rc != PMIX_SUCCESS)
		return ddp_error_set(error, DDP_ERR_ENGINE, "PMIx_Put of %zu bytes failed: %s",
				     size, PMIx_Error_string(rc));
	return 0;
}

static int wait_for_all(struct pmix_store *store, const struct ddp_watch *watch,
			struct ddp_error *error)
{
	struct pending *pending = pending_start();
	pmix_status_t rc;
	pmix_info_t info;
	pmix_proc_t all;
	bool yes = true;
	int status;

	if (!pending)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for a PMIx fence");
	PMIX_LOAD_PROCID(&all, store->me.nspace, PMIX_RANK_WILDCARD);
	PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
	rc = PMIx_Fence_nb(&all, 1, &info, 1, pending_end, pending);
	/* The fence was completed at once, so PMIx will not call pending_end(). */
	if (rc == PMIX_OPERATION_SUCCEEDED) {
		pending_end(PMIX_SUCCESS, pending);
	} else if (rc != PMIX_SUCCESS) {
		free(pending);
		return ddp_error_set(error, DDP_ERR_ENGINE, "PMIx_Fence_nb failed: %s",
				     PMIx_Error_string(rc));
	}
	status = pending_wait(store, pending, watch, error);
	rc = status == 0 ? pending->status : PMIX_SUCCESS;
	pending_drop(pending);
	if (rc != PMIX_SUCCESS)
		return ddp_error_set(error, DDP_ERR_PEER, "PMIx_Fence failed: %s",
				     PMIx_Error_string(rc));
	return status;
}

static int pmix_read(struct ddp_store *base, int rank, const uint8_t **body, size_t *length,
		     struct ddp_error *error)
{
	struct pmix_store *store = (struct pmix_store *)base;
	char key[PMIX_MAX_KEYLEN + 1], name[64];
	int seconds = GET_SECONDS, status;
	struct ddp_record record;
	const pmix_byte_object_t *bytes;
	pmix_status_t rc;
	pmix_info_t info;
	pmix_proc_t proc;

	release_found(store);
	fence_key(key, store->mine.fence - 1);
	PMIX_LOAD_PROCID(&proc, store->me.nspace, (pmix_rank_t)rank);
	PMIX_INFO_LOAD(&info, PMIX_TIMEOUT, &seconds, PMIX_INT);
	rc = PMIx_Get(&proc, key, &info, 1, &store->found);
	if (rc != PMIX_SUCCESS || !store->found)
		return ddp_error_set(error, DDP_ERR_ENGINE, "PMIx_Get of %s of rank %d failed: %s",
				     key, rank, PMIx_Error_string(rc));
	if (store->found->type != PMIX_BYTE_OBJECT)
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "PMIx's %s of rank %d is not a record of libddp", key, rank);
	bytes = &store->found->data.bo;
	snprintf(name, sizeof(name), "PMIx's record of rank %d", rank);
	status = ddp_record_read(&record, &store->mine, bytes->bytes, bytes->size, name, error);
	if (status < 0)
		return status;
	if (record.rank != (uint32_t)rank || record.fence != store->mine.fence - 1)
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s was written by another rank or for another fence", name);
	*body = (const uint8_t *)bytes->bytes + DDP_RECORD_HEAD;
	*length = record.length;
	return 0;
}

static int pmix_fence(struct ddp_store *base, const struct ddp_watch *watch,
		      struct ddp_error *error)
{
	struct pmix_store *store = (struct pmix_store *)base;
	const uint8_t *body;
	size_t length;
	int status;

	store->mine.fence = next_fence++;
	status = deliver(store, error);
	if (status == 0)
		status = wait_for_all(store, watch, error);
	store->mine.fence++;
	/* Read rank 0's record, to check that rank 0 has the same release and job. */
	if (status == 0)
		status = pmix_read(base, 0, &body, &length, error);
	if (status == DDP_ERR_TIMEOUT && !*error->text)
		ddp_error_set(error, status,
			      "not all of %u ranks arrived in %g s (PMIx does not report which)",
			      store->mine.size, watch->limit);
	return status;
}

/* --- Aborting --------------------------------------------------------------------------- */

static void pmix_abort(struct ddp_store *base, const char *text)
{
	const struct pmix_store *store = (struct pmix_store *)base;
	struct ddp_watch watch = ddp_watch_start(2, NULL, NULL);
	struct pending *pending = pending_start();
	char line[DDP_ERROR_SIZE];
	pmix_info_t *info;
	bool yes = true;

	PMIX_INFO_CREATE(info, 3);
	if (!pending || !info)
		goto out;
	snprintf(line, sizeof(line), "rank %u on %s: %.900s", store->mine.rank, store->mine.host,
		 text);
	PMIX_INFO_LOAD(&info[0], ABORT_TEXT, line, PMIX_STRING);
	PMIX_INFO_LOAD(&info[1], ABORT_WORLD, &store->world, PMIX_UINT32);
	PMIX_INFO_LOAD(&info[2], PMIX_EVENT_NON_DEFAULT, &yes, PMIX_BOOL);
	if (PMIx_Notify_event(ABORT_CODE, &store->me, PMIX_RANGE_NAMESPACE, info, 3, pending_end,
			      pending) != PMIX_SUCCESS)
		pending_end(PMIX_ERROR, pending);
	else
		while (!pending->done && ddp_watch_check(&watch, NULL) == 0)
			ddp_watch_sleep(&watch, 1000000);
out:
	/*
	 * PMIx reads [info] until the operation is complete. If this takes longer than two seconds,
	 * [info] is never freed.
	 */
	if (info && (!pending || pending->done))
		PMIX_INFO_FREE(info, 3);
	if (pending)
		pending_drop(pending);
}

extern const struct ddp_store_method ddp_module;

DDP_API const struct ddp_store_method ddp_module = {
	.head = {DDP_MODULE_MAGIC, DDP_STORE_VERSION, sizeof(struct ddp_store_method), "store",
		 "pmix", PACKAGE_VERSION},
	.probe = pmix_probe,
	.open = pmix_open,
	.fence = pmix_fence,
	.read = pmix_read,
	.abort = pmix_abort,
	.poll_abort = pmix_poll_abort,
	.close = pmix_close,
};
