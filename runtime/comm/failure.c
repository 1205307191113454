/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failure.c - how a failed rank's error reaches all other ranks
 *
 * The failed rank tries to publish its error in three places: the abort word in the group's shared
 * memory, a note to the ranks of its column, and a file or event of the store. Each of the other
 * ranks uses the first text that it finds.
 */
#include "config.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ddp-private.h"
#include "recorder.h"

/*
 * Seconds that the rank which writes the summary waits for the other ranks' records. The ranks of
 * other groups have later deadlines, so they may notice the failure later.
 */
#define SUMMARY_SECONDS(ddp) ((ddp)->engine ? 2.5 : 0.5)

/* Nanoseconds between checks of the store, to limit the load on its file system. */
#define ABORT_PERIOD 250000000u

/* --- Detection --------------------------------------------------------------------------- */

const char *ddp_rank_name(void *owner, int rank)
{
	struct ddp *ddp = owner;
	const struct ddp_topology *topology = ddp->topology;

	if (topology && rank >= 0 && rank < topology->size)
		snprintf(ddp->rank_name, sizeof(ddp->rank_name), "rank %d on %.*s", rank,
			 DDP_HOST_NAME - 1, topology->hosts[topology->places[rank].group]);
	else
		snprintf(ddp->rank_name, sizeof(ddp->rank_name), "rank %d", rank);
	return ddp->rank_name;
}

/*
 * If a rank has ended, return the error that it published, which names the cause. If there is none,
 * return that it ended.
 */
static int check_lost(struct ddp *ddp, struct ddp_error *error)
{
	int status = ddp_group_check_members(ddp->group, error), published;

	if (status == 0)
		return 0;
	published = ddp_group_aborted(ddp->group, error);
	return published < 0 ? published : status;
}

int ddp_check_peers(void *owner, struct ddp_error *error)
{
	struct ddp *ddp = owner;
	uint64_t now = ddp_now();
	const char *reason;
	int status = 0;

	/* Answer probes of other groups during every wait. */
	if (ddp->host)
		ddp->engine->progress(ddp->host, 0);
	if (ddp->group) {
		/*
		 * This rank may have created the group's memory, which other ranks of the node may
		 * still be mapping.
		 */
		ddp_group_serve(ddp->group, 0);
		status = ddp_group_aborted(ddp->group, error);
		if (status == 0)
			status = check_lost(ddp, error);
	}
	if (status < 0 || !ddp->store || now - ddp->store_checked < ABORT_PERIOD)
		return status;
	ddp->store_checked = now;
	reason = ddp_store_aborted(ddp->store);
	return reason ? ddp_error_set(error, DDP_ERR_ABORTED, "%s", reason) : 0;
}

/* --- Publication ------------------------------------------------------------------------- */

static void publish_error(struct ddp *ddp, int status, const char *text)
{
	if (ddp->group)
		ddp_group_abort(ddp->group, status, text);
	if (ddp->host)
		ddp->engine->note(ddp->host, text);
	if (ddp->store)
		ddp_store_abort(ddp->store, text);
}

/* Before the first collective there is nothing to record. */
static void keep_record(struct ddp *ddp)
{
	if (ddp->sequence > 0)
		ddp_recorder_dump(ddp->recorder, ddp->error.text);
}

int ddp_fail_call(struct ddp *ddp, int status)
{
	if (status >= 0)
		return status;
	if (ddp->error.status != status)
		ddp_error_set(&ddp->error, status, "%s", ddp_strerror(status));
	if (ddp->lost || !ddp_is_peer_error(status))
		return status;
	ddp->lost = true;
	if (ddp->identity.size > 1) {
		keep_record(ddp);
		publish_error(ddp, status, ddp->error.text);
	}
	return status;
}

int ddp_fail_with(struct ddp *ddp, int status, const char *format, ...)
{
	char text[DDP_ERROR_SIZE];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	ddp_error_set(&ddp->error, status, "%s", text);
	return ddp_fail_call(ddp, status);
}

void ddp_abort(struct ddp *ddp, const char *format, ...)
{
	char reason[DDP_ERROR_SIZE];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(reason, sizeof(reason), format, arguments);
	va_end(arguments);
	if (ddp->lost)
		return;
	ddp_fail_with(ddp, DDP_ERR_ABORTED, "%.128s aborted: %s",
		      ddp_rank_name(ddp, ddp->identity.rank), reason);
}

void ddp_publish_failure(struct ddp *ddp)
{
	char text[DDP_ERROR_SIZE];

	if (ddp->lost || ddp->identity.size <= 1 || !ddp->store)
		return;
	ddp->lost = true;
	snprintf(text, sizeof(text), "%s aborted: %.900s", ddp_rank_name(ddp, ddp->identity.rank),
		 ddp->error.text);
	keep_record(ddp);
	publish_error(ddp, DDP_ERR_ABORTED, text);
}

void ddp_log_summary(struct ddp *ddp)
{
	char text[DDP_ERROR_SIZE];

	if (ddp->sequence > 0 && ddp->identity.size > 1 &&
	    ddp_recorder_summary(ddp->recorder, SUMMARY_SECONDS(ddp), text, sizeof(text)))
		ddp_log_print(&ddp->log, DDP_LEVEL_ERROR, "failure", "%s", text);
}

_Noreturn void ddp_leave(int status)
{
	fflush(NULL);
	_exit(ddp_exit_status(status));
}

/*
 * Close the connections in such a way that queued notes are sent, and wait as long as the engine
 * requires.
 */
static void flush_notes(struct ddp *ddp)
{
	ddp->engine->close(ddp->host, false);
	usleep(ddp->engine->linger);
}

_Noreturn void ddp_leave_failed(struct ddp *ddp)
{
	ddp_log_print(&ddp->log, DDP_LEVEL_ERROR, "failure", "%s", ddp->error.text);
	ddp_publish_failure(ddp);
	if (ddp->lost)
		ddp_log_summary(ddp);
	if (ddp->lost && ddp->host)
		flush_notes(ddp);
	ddp_leave(ddp->error.status);
}

_Noreturn void ddp_end(void *owner, int status, const char *text)
{
	struct ddp *ddp = owner;

	ddp_fail_with(ddp, status, "%s", text);
	ddp_leave_failed(ddp);
}
