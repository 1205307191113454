/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failure.c - how one rank's trouble becomes everybody's knowledge
 *
 * Three ways, each at best effort: the abort word of the group's memory, a note to the ranks of
 * the column, a file or event of the store. The first text stands.
 */
#include "config.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ddp-private.h"
#include "recorder.h"

/* How long the rank that writes the summary waits for the others' records: other groups may
 * learn of it by their own deadline alone, which is later. */
#define SUMMARY_SECONDS(ddp) ((ddp)->engine ? 2.5 : 0.5)

/* Nanoseconds between two questions to the store, whose file system others use too. */
#define ABORT_PERIOD 250000000u

/* --- Hearing of it ----------------------------------------------------------------------- */

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

/* One that is gone because of another has told of that one before it went. */
static int look_for_lost(struct ddp *ddp, struct ddp_error *error)
{
	int status = ddp_group_look(ddp->group, error), told;

	if (status == 0)
		return 0;
	told = ddp_group_aborted(ddp->group, error);
	return told < 0 ? told : status;
}

int ddp_look_around(void *owner, struct ddp_error *error)
{
	struct ddp *ddp = owner;
	uint64_t now = ddp_now();
	const char *heard;
	int status = 0;

	/* Another group that asks who is still there gets its answer, wherever this rank waits. */
	if (ddp->host)
		ddp->engine->progress(ddp->host);
	if (ddp->group) {
		status = ddp_group_aborted(ddp->group, error);
		if (status == 0)
			status = look_for_lost(ddp, error);
	}
	if (status < 0 || !ddp->store || now - ddp->looked < ABORT_PERIOD)
		return status;
	ddp->looked = now;
	heard = ddp_store_aborted(ddp->store);
	return heard ? ddp_error_set(error, DDP_ERR_ABORTED, "%s", heard) : 0;
}

/* --- Telling of it ----------------------------------------------------------------------- */

static void tell_column(struct ddp *ddp, const char *text)
{
	if (!ddp->host)
		return;
	for (int i = 0; i < ddp->column.size; i++)
		if (i != ddp->column.index)
			ddp->engine->note(ddp->host, ddp->column.ranks[i], text);
}

static void tell_all(struct ddp *ddp, int status, const char *text)
{
	if (ddp->group)
		ddp_group_abort(ddp->group, status, text);
	tell_column(ddp, text);
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
		tell_all(ddp, status, ddp->error.text);
	}
	return status;
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
	ddp_error_set(&ddp->error, DDP_ERR_ABORTED, "%.128s gave up: %s",
		      ddp_rank_name(ddp, ddp->identity.rank), reason);
	ddp_fail_call(ddp, DDP_ERR_ABORTED);
}

void ddp_tell_failure(struct ddp *ddp)
{
	char text[DDP_ERROR_SIZE];

	if (ddp->lost || ddp->identity.size <= 1 || !ddp->store)
		return;
	ddp->lost = true;
	snprintf(text, sizeof(text), "%s gave up: %.900s", ddp_rank_name(ddp, ddp->identity.rank),
		 ddp->error.text);
	keep_record(ddp);
	tell_all(ddp, DDP_ERR_ABORTED, text);
}

void ddp_tell_summary(struct ddp *ddp)
{
	char text[DDP_ERROR_SIZE];

	if (ddp->sequence > 0 && ddp->identity.size > 1 &&
	    ddp_recorder_summary(ddp->recorder, SUMMARY_SECONDS(ddp), text, sizeof(text)))
		ddp_log_print(&ddp->log, DDP_LEVEL_ERROR, "failure", "%s", text);
}

/* Leave without what a broken engine might hang in: no atexit handlers, no destructors. */
static _Noreturn void leave(int status)
{
	fflush(NULL);
	_exit(ddp_exit_status(status));
}

static _Noreturn void leave_lost(struct ddp *ddp)
{
	ddp_log_print(&ddp->log, DDP_LEVEL_ERROR, "failure", "%s", ddp->error.text);
	ddp_tell_failure(ddp);
	if (ddp->lost)
		ddp_tell_summary(ddp);
	if (ddp->lost && ddp->host)
		usleep(ddp->engine->linger);
	leave(ddp->error.status);
}

_Noreturn void ddp_end(void *owner, int status, const char *text)
{
	struct ddp *ddp = owner;

	ddp_error_set(&ddp->error, status, "%s", text);
	ddp_fail_call(ddp, status);
	leave_lost(ddp);
}

void ddp_exit(struct ddp *ddp)
{
	if (!ddp) {
		fputs("ddp: out of memory\n", stderr);
		leave(DDP_ERR_MEMORY);
	}
	if (ddp_status(ddp) < 0)
		leave_lost(ddp);
	ddp_destroy(ddp);
	exit(0);
}
