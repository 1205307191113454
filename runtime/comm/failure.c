/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failure.c - how a failed rank's error reaches all other ranks
 *
 * The failed rank tries to publish its error in three places: the abort word in the group's shared
 * memory, a note (wide/host.h) to the ranks of its column, and a file or event of the store. Each
 * of the other ranks uses the first text that it finds.
 */
#include "config.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bounded.h"
#include "base/fork.h"
#include "ddp-private.h"
#include "recorder.h"
#include "wide/exchange.h"

/*
 * STOP_TIME is how long to wait for the end of another thread's collective, in seconds. STOP_PERIOD
 * is the time between two checks, in nanoseconds.
 */
#define STOP_TIME 2
#define STOP_PERIOD 500000

/* Nanoseconds between checks of the store, to limit the load on its file system. */
#define ABORT_PERIOD 250000000u

/* --- Detection --------------------------------------------------------------------------- */

static void format_rank(const struct ddp *ddp, int rank, char *name, size_t size)
{
	const struct ddp_topology *topology = ddp->topology;

	if (topology && rank >= 0 && rank < topology->size)
		snprintf(name, size, "rank %d on %.*s", rank, DDP_HOST_NAME - 1,
			 topology->hosts[topology->places[rank].group]);
	else
		snprintf(name, size, "rank %d", rank);
}

const char *ddp_rank_name(void *owner, int rank)
{
	struct ddp *ddp = owner;

	format_rank(ddp, rank, ddp->rank_name, sizeof(ddp->rank_name));
	return ddp->rank_name;
}

/*
 * If a rank has ended, return the error that it published, which names the cause. If it published
 * none, return the error that it has ended.
 */
static int check_lost(struct ddp *ddp, struct ddp_error *error)
{
	int status = ddp_group_check_members(ddp->group, error), published;

	if (status == 0)
		return 0;
	published = ddp_group_aborted(ddp->group, error);
	return published < 0 ? published : status;
}

/* Prefix of the texts of DDP_ERR_MISMATCH in the store. The store puts the rank before it. */
#define MISMATCH "mismatch: "

static int reported_status(const char *reason)
{
	const char *text = strstr(reason, ": ");

	return text && strncmp(text + 2, MISMATCH, strlen(MISMATCH)) == 0 ? DDP_ERR_MISMATCH
									  : DDP_ERR_ABORTED;
}

/* Check whether another rank has refused a collective on device memory: NCCL would wait for it. */
static int check_refusals(struct ddp *ddp, struct ddp_error *error)
{
	int status = ddp_group_check_refusals(ddp->group, ddp->device_calls, error);

	if (status == 0 && ddp->column.size > 1)
		status = ddp_column_check_refusals(&ddp->column, ddp->device_calls, error);
	return status;
}

int ddp_check_peers(void *owner, struct ddp_error *error)
{
	struct ddp *ddp = owner;
	uint64_t now = ddp_now();
	const char *reason;
	int status = 0;

	/* During every wait, answer the probes of other groups. */
	if (ddp->host)
		ddp->engine->progress(ddp->host, 0);
	if (ddp->group) {
		/*
		 * If this rank has created the group's memory, serve other ranks of the node, which
		 * may still be mapping it.
		 */
		ddp_group_serve(ddp->group, 0);
		status = ddp_group_aborted(ddp->group, error);
		if (status == 0 && ddp->device_calls > 0)
			status = check_refusals(ddp, error);
		if (status == 0)
			status = check_lost(ddp, error);
	}
	if (status < 0 || !ddp->store || now - ddp->store_checked < ABORT_PERIOD)
		return status;
	ddp->store_checked = now;
	reason = ddp_store_aborted(ddp->store);
	return reason ? ddp_error_set(error, reported_status(reason), "%s", reason) : 0;
}

/* --- Forked children --------------------------------------------------------------------- */

bool ddp_is_inherited(const struct ddp *ddp)
{
	return ddp->generation != ddp_fork_number;
}

int ddp_check_process(struct ddp *ddp)
{
	if (!ddp_is_inherited(ddp))
		return 0;
	return ddp_error_set(&ddp->error, DDP_ERR_STATE,
			     "a forked child cannot use the handle of its parent");
}

/* --- Publication ------------------------------------------------------------------------- */

static void publish_error(struct ddp *ddp, int status, const char *text)
{
	char prefixed[DDP_ERROR_SIZE + sizeof(MISMATCH)];

	if (ddp->group)
		ddp_group_abort(ddp->group, status, text);
	if (ddp->host)
		ddp_column_note(ddp->engine, ddp->host, status, text);
	snprintf(prefixed, sizeof(prefixed), "%s%s", status == DDP_ERR_MISMATCH ? MISMATCH : "",
		 text);
	if (ddp->store)
		ddp_store_abort(ddp->store, prefixed);
}

/* Before the first collective there is nothing to record. */
static void keep_record(struct ddp *ddp)
{
	if (ddp->sequence > 0)
		ddp_recorder_dump(ddp->recorder, ddp->error.text);
}

/* Write to [text] what this rank publishes if it aborts for [reason]. Any thread may call this. */
static void format_abort(const struct ddp *ddp, const char *reason, char text[DDP_ERROR_SIZE])
{
	char name[sizeof(ddp->rank_name)];

	format_rank(ddp, ddp->identity.rank, name, sizeof(name));
	snprintf(text, DDP_ERROR_SIZE, "%.128s aborted: %.880s", name, reason);
}

static void end_world(struct ddp *ddp)
{
	char text[DDP_ERROR_SIZE];
	const char *reason = NULL;

	/*
	 * If a rank has reported an error before, that is the cause of the lost peer, so return it.
	 */
	if (ddp_is_peer_error(ddp->error.status) && ddp->group)
		(void)ddp_group_aborted(ddp->group, &ddp->error);
	/*
	 * NCCL can detect the end of a rank before this rank checks the store, so check the store
	 * now.
	 */
	if (ddp->error.status == DDP_ERR_PEER && ddp->store)
		reason = ddp_store_aborted(ddp->store);
	if (reason)
		(void)ddp_error_set(&ddp->error, reported_status(reason), "%s", reason);
	ddp->lost = true;
	ddp->end = ddp->error;
	if (ddp->identity.size <= 1)
		return;
	keep_record(ddp);
	if (ddp_is_peer_error(ddp->error.status)) {
		publish_error(ddp, ddp->error.status, ddp->error.text);
		return;
	}
	format_abort(ddp, ddp->error.text, text);
	publish_error(ddp, DDP_ERR_ABORTED, text);
}

/* End a public call with [status]. If [ends] is true, an error ends the world. */
static int end_call(struct ddp *ddp, int status, bool ends)
{
	if (status >= 0)
		return status;
	if (ddp_check_process(ddp) < 0)
		return DDP_ERR_STATE;
	if (ddp->error.status != status)
		ddp_error_set(&ddp->error, status, "%s", ddp_strerror(status));
	if (ddp->lost)
		ddp->error = ddp->end;
	else if (ends)
		end_world(ddp);
	return ddp->error.status;
}

int ddp_fail_call(struct ddp *ddp, int status)
{
	/* A world of one rank continues, since no other rank can have another result. */
	return end_call(ddp, status, ddp->identity.size > 1 || ddp_is_peer_error(status));
}

int ddp_report_call(struct ddp *ddp, int status)
{
	return end_call(ddp, status, ddp_is_peer_error(status));
}

/* Format the text in a separate buffer first, since [arguments] can point into ddp->error. */
DDP_FORMAT(3, 0)
static void set_error(struct ddp *ddp, int status, const char *format, va_list arguments)
{
	char text[DDP_ERROR_SIZE];

	vsnprintf(text, sizeof(text), format, arguments);
	ddp_error_set(&ddp->error, status, "%s", text);
}

int ddp_fail_with(struct ddp *ddp, int status, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	set_error(ddp, status, format, arguments);
	va_end(arguments);
	return ddp_fail_call(ddp, status);
}

int ddp_report(struct ddp *ddp, int status, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	set_error(ddp, status, format, arguments);
	va_end(arguments);
	return ddp_report_call(ddp, status);
}

void ddp_lock(struct ddp *ddp)
{
	pthread_mutex_lock(&ddp->use);
}

void ddp_unlock(struct ddp *ddp)
{
	pthread_mutex_unlock(&ddp->use);
}

/*
 * Lock [ddp]. If another thread is in a collective, first end that collective with [text], on all
 * ranks of the group. That thread then reports the text to the other groups.
 * Returns false if the collective does not end, for example because MPI does not return.
 */
static bool stop_collective(struct ddp *ddp, const char *text)
{
	struct ddp_watch watch = ddp_watch_start(STOP_TIME, NULL, NULL);

	if (pthread_mutex_trylock(&ddp->use) == 0)
		return true;
	if (ddp->group)
		ddp_group_abort(ddp->group, DDP_ERR_ABORTED, text);
	while (pthread_mutex_trylock(&ddp->use) != 0) {
		if (ddp_watch_check(&watch, NULL) < 0)
			return false;
		ddp_watch_sleep(&watch, STOP_PERIOD);
	}
	return true;
}

void ddp_abort(struct ddp *ddp, const char *format, ...)
{
	char reason[DDP_ERROR_SIZE], text[DDP_ERROR_SIZE];
	va_list arguments;
	bool locked;

	if (ddp_check_process(ddp) < 0)
		return;
	va_start(arguments, format);
	vsnprintf(reason, sizeof(reason), format, arguments);
	va_end(arguments);
	format_abort(ddp, reason, text);
	locked = stop_collective(ddp, text);
	if (!ddp->lost)
		ddp_fail_with(ddp, DDP_ERR_ABORTED, "%s", text);
	if (locked)
		ddp_unlock(ddp);
}

_Noreturn void ddp_leave(int status)
{
	ddp_flush_and_exit(ddp_exit_status(status));
}

/*
 * Close the connections to other groups. Queued notes are still sent, and this function waits as
 * long as the engine needs for that.
 */
static void flush_notes(struct ddp *ddp)
{
	ddp->engine->close(ddp->host, false);
	usleep(ddp->engine->linger);
}

_Noreturn void ddp_leave_failed(struct ddp *ddp)
{
	const struct ddp_error own = ddp->error;
	char text[DDP_ERROR_SIZE];

	/* A forked child must not report its errors to the world of its parent. */
	if (ddp_check_process(ddp) < 0) {
		if (own.status < 0)
			ddp_log_print(&ddp->log, DDP_LEVEL_ERROR, "failure", "%s", own.text);
		ddp_leave(own.status);
	}
	/* No other thread may use the handle from here on, so the lock is not released. */
	format_abort(ddp, own.text, text);
	(void)stop_collective(ddp, text);
	ddp->error = own;
	ddp_log_print(&ddp->log, DDP_LEVEL_ERROR, "failure", "%s", ddp->error.text);
	(void)ddp_fail_call(ddp, ddp->error.status);
	if (ddp->lost && ddp->host)
		flush_notes(ddp);
	ddp_leave(own.status);
}

_Noreturn void ddp_end(void *owner, int status, const char *text)
{
	struct ddp *ddp = owner;

	ddp_fail_with(ddp, status, "%s", text);
	ddp_leave_failed(ddp);
}
