/* SPDX-License-Identifier: Apache-2.0 */
/* exchange.c - messages of one collective, and the conditions that end a wait for them */
#include "config.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/type.h"
#include "exchange.h"

/*
 * A wait polls for SPIN_NS. Until YIELD_NS are over, it also calls sched_yield(). Then it waits for
 * events. Every CHECK_NS it checks the conditions that end it.
 */
#define SPIN_NS 20000u
#define YIELD_NS 1000000u
#define CHECK_NS 1000000u

/*
 * Seconds within which a rank must answer a liveness query; at most half of the time limit. On a
 * busy node, a waiting process may get no CPU for more than a second, and must not be reported.
 */
#define ANSWER_S 5.0

/*
 * Nanoseconds after a lost connection to wait for another rank's report of the cause. The time is
 * long enough for one check of the store.
 */
#define REPORT_NS 300000000u

static const char *name_of(const struct ddp_column *column, int rank)
{
	return column->name(column->owner, rank);
}

static const char *member_name(const struct ddp_exchange *exchange, int member)
{
	return name_of(exchange->column, exchange->column->ranks[member]);
}

void ddp_exchange_start(struct ddp_exchange *exchange, const struct ddp_column *column,
			const struct ddp_column_call *call, const struct ddp_watch *watch)
{
	exchange->column = column;
	exchange->call = call;
	exchange->watch = watch;
	/*
	 * The tag has the number of the call and a hash of its arguments. All messages of the call
	 * must have this tag.
	 */
	exchange->tag = (uint64_t)call->sequence << 32 | call->check;
	exchange->now = exchange->busy = exchange->checked = ddp_watch_now(watch);
	exchange->noted = false;
	ddp_error_clear(&exchange->error);
}

/* Start of the text of each note whose error is DDP_ERR_MISMATCH. */
#define MISMATCH_NOTE "mismatch: "

void ddp_column_note(const struct ddp_host_engine *engine, struct ddp_host *host, int status,
		     const char *text)
{
	char note[DDP_HOST_NOTE];

	snprintf(note, sizeof(note), "%s%s", status == DDP_ERR_MISMATCH ? MISMATCH_NOTE : "", text);
	engine->note(host, note);
}

/*
 * End the call with [status]. Report the failure to the other ranks, and cancel the messages of the
 * call.
 */
static int fail(struct ddp_exchange *exchange, int status)
{
	const struct ddp_column *column = exchange->column;

	if (!exchange->noted)
		ddp_column_note(column->engine, column->host, status, exchange->error.text);
	column->engine->cancel(column->host);
	return status;
}

/* --- Conditions that end a wait ------------------------------------------------------------ */

static int find_note(const struct ddp_column *column, struct ddp_error *error)
{
	char text[DDP_HOST_NOTE];
	bool mismatch;
	int peer;

	if (column->engine->event(column->host, &peer, text, sizeof(text)) != DDP_HOST_NOTED)
		return 0;
	mismatch = strncmp(text, MISMATCH_NOTE, strlen(MISMATCH_NOTE)) == 0;
	return ddp_error_set(error, mismatch ? DDP_ERR_MISMATCH : DDP_ERR_ABORTED, "from %s: %s",
			     name_of(column, peer), text + (mismatch ? strlen(MISMATCH_NOTE) : 0));
}

static int check_notes(struct ddp_exchange *exchange)
{
	int status = find_note(exchange->column, &exchange->error);

	exchange->noted = exchange->noted || status < 0;
	return status;
}

/*
 * Make progress for [nanoseconds], or until [message] (if not NULL) has ended. Meanwhile check for
 * reports of other ranks: notes, the abort word of the group, and the rendezvous store.
 */
static int await_reports(struct ddp_exchange *exchange, uint64_t nanoseconds,
			 int (*check)(struct ddp_exchange *exchange),
			 const struct ddp_message *message)
{
	const struct ddp_column *column = exchange->column;
	uint64_t until = ddp_watch_now(exchange->watch) + nanoseconds;
	int status;

	do {
		column->engine->progress(column->host, DDP_WATCH_PERIOD);
		status = check(exchange);
		if (status == 0)
			status = ddp_watch_check(exchange->watch, &exchange->error);
		if (status < 0 && *exchange->error.text)
			return status;
	} while (ddp_watch_now(exchange->watch) < until &&
		 !(message && message->request.status != 0));
	return 0;
}

/*
 * The connection to [rank] is lost. If that rank ended because of another failure, it has reported
 * this before, at least in the rendezvous store. Then its report is the error, not the lost
 * connection. If that rank closed its connections in ddp_destroy(), the engine reports no event.
 */
static int handle_loss(struct ddp_exchange *exchange, int rank)
{
	const struct ddp_column *column = exchange->column;
	int status = await_reports(exchange, REPORT_NS, check_notes, NULL);
	char why[DDP_HOST_NOTE];

	if (status < 0)
		return status;
	if (column->engine->event(column->host, &rank, why, sizeof(why)) != DDP_HOST_LOST)
		snprintf(why, sizeof(why), "it has left");
	return ddp_error_set(&exchange->error, DDP_ERR_PEER,
			     "lost the connection to %s in %s #%u: %s", name_of(column, rank),
			     exchange->call->name, exchange->call->sequence, why);
}

/*
 * Check for a note before checking for a lost rank, because a rank that aborts sends a note before
 * its connection is lost.
 */
static int check_peers(struct ddp_exchange *exchange)
{
	const struct ddp_column *column = exchange->column;
	int status = check_notes(exchange), peer;
	char text[DDP_HOST_NOTE];

	if (status < 0 ||
	    column->engine->event(column->host, &peer, text, sizeof(text)) != DDP_HOST_LOST)
		return status;
	return handle_loss(exchange, peer);
}

/*
 * Returns the kind of the call to which a message with [tag] belongs, if it is known and not the
 * kind of this call; else DDP_CALL_OTHER. MPI does not report the tag of a message of another call.
 */
static uint32_t other_kind(const struct ddp_exchange *exchange, uint64_t tag)
{
	uint32_t kind = (uint32_t)tag >> DDP_COLUMN_HASH_BITS;

	return kind < DDP_CALL_KINDS && kind != exchange->call->check >> DDP_COLUMN_HASH_BITS
		       ? kind
		       : DDP_CALL_OTHER;
}

/* [rank] has sent a message with [tag], which is not the tag of this call. */
static int set_call_error(struct ddp_exchange *exchange, int rank, uint64_t tag)
{
	const struct ddp_column_call *call = exchange->call;
	uint32_t kind = other_kind(exchange, tag);
	const char *peer = name_of(exchange->column, rank);

	if (kind == DDP_CALL_OTHER)
		return ddp_error_set(&exchange->error, DDP_ERR_MISMATCH,
				     "the call of %s does not match %s #%u of this rank: the "
				     "collective, type, operation or count differs",
				     peer, call->name, call->sequence);
	return ddp_error_set(&exchange->error, DDP_ERR_MISMATCH,
			     "%s %s %s%s #%u, but this rank %s %s #%u", peer, ddp_call_verb(kind),
			     ddp_call_name(kind), ddp_call_is_refusal(kind) ? " (refused)" : "",
			     (uint32_t)(tag >> 32),
			     ddp_call_verb(call->check >> DDP_COLUMN_HASH_BITS), call->name,
			     call->sequence);
}

/* Calls early() of the engine, if it has that function. Returns -1 otherwise. */
static int next_early(const struct ddp_column *column, int *position, uint64_t *tag)
{
	return column->engine->early ? column->engine->early(column->host, position, tag) : -1;
}

/*
 * Check the messages that have arrived before this rank receives them. A message with the number of
 * this call must have the tag of this call. Its sender may otherwise wait for this rank in another
 * call, and this rank for a third rank that waits for the sender.
 */
static int check_early(struct ddp_exchange *exchange)
{
	const struct ddp_column *column = exchange->column;
	int position = 0, peer;
	uint64_t tag;

	while ((peer = next_early(column, &position, &tag)) >= 0)
		if (tag >> 32 == exchange->call->sequence && tag != exchange->tag)
			return set_call_error(exchange, peer, tag);
	return 0;
}

/* Returns the time within which a rank must answer a query, in nanoseconds. */
static uint64_t answer_time(const struct ddp_exchange *exchange)
{
	double half = exchange->watch->limit / 2;

	return (uint64_t)((half < ANSWER_S ? half : ANSWER_S) * 1e9);
}

/*
 * Query whether the peers wait as well. Returns when all have answered, [message] has ended, or
 * another rank has reported a failure. Sets [silent] to the number of peers that have not answered,
 * and [first] to the lowest of them. Returns 0, or the status of the failure.
 */
static int find_silent(struct ddp_exchange *exchange, const struct ddp_message *message,
		       int *silent, int *first)
{
	const struct ddp_column *column = exchange->column;
	uint64_t until = ddp_watch_now(exchange->watch) + answer_time(exchange);
	int status = 0;

	*silent = column->engine->silent(column->host, true, first);
	while (status == 0 && *silent && message->request.status == 0 &&
	       ddp_watch_now(exchange->watch) < until) {
		status = await_reports(exchange, DDP_WATCH_PERIOD, check_peers, message);
		*silent = column->engine->silent(column->host, false, first);
	}
	return status;
}

/*
 * The time limit has passed. The member that this rank waits for may itself wait for another rank.
 * A waiting rank answers a query, so the error names a rank that does not answer. If all partners
 * answer, the missing rank is in another column or is not a partner of this rank. Then one of the
 * missing rank's own partners detects it when its wait ends, at most one time limit later, and
 * reports it to all ranks. If [message] arrives before an error is found, the call continues,
 * because perhaps only this process was stopped.
 */
static int handle_timeout(struct ddp_exchange *exchange, const struct ddp_message *message)
{
	uint64_t patience = (uint64_t)(exchange->watch->limit * 1e9) + 2 * answer_time(exchange);
	int first = exchange->column->ranks[message->member];
	int silent, status = find_silent(exchange, message, &silent, &first);
	char more[32] = "";

	if (status == 0 && !silent)
		status = await_reports(exchange, patience, check_peers, message);
	if (status < 0 || message->request.status != 0)
		return status;
	if (silent > 1)
		snprintf(more, sizeof(more), " and %d more", silent - 1);
	return ddp_error_set(&exchange->error, DDP_ERR_TIMEOUT, "%s%s %s %s #%u in %g s",
			     name_of(exchange->column, first), more,
			     silent ? "did not answer in" : "runs, but has not reached",
			     exchange->call->name, exchange->call->sequence,
			     exchange->watch->limit);
}

static int check_wait(struct ddp_exchange *exchange, const struct ddp_message *message)
{
	int status = check_peers(exchange);

	if (status == 0)
		status = check_early(exchange);
	if (status < 0)
		return status;
	status = ddp_watch_check(exchange->watch, &exchange->error);
	if (status == DDP_ERR_TIMEOUT && !*exchange->error.text)
		return handle_timeout(exchange, message);
	return status;
}

/* --- Messages ------------------------------------------------------------------------------ */

/* [message] failed. If the engine reports that a peer failed, return that error instead. */
static int handle_failure(struct ddp_exchange *exchange, const struct ddp_message *message)
{
	const char *peer = member_name(exchange, message->member);
	int status = check_peers(exchange);

	if (status < 0)
		return status;
	if (message->request.status == DDP_ERR_MISMATCH &&
	    other_kind(exchange, message->request.tag))
		return set_call_error(exchange, exchange->column->ranks[message->member],
				      message->request.tag);
	if (message->request.status == DDP_ERR_MISMATCH)
		return ddp_error_set(&exchange->error, DDP_ERR_MISMATCH,
				     "%s sent more than %zu bytes in %s #%u", peer, message->bytes,
				     exchange->call->name, exchange->call->sequence);
	if (message->request.status == DDP_ERR_PEER)
		return handle_loss(exchange, exchange->column->ranks[message->member]);
	return ddp_error_set(&exchange->error, message->request.status,
			     "a message %s %s failed in %s #%u", message->receive ? "from" : "to",
			     peer, exchange->call->name, exchange->call->sequence);
}

/* Check that [message], which has arrived, is the one that this call expects. */
static int check_message(struct ddp_exchange *exchange, const struct ddp_message *message)
{
	if (message->request.tag != exchange->tag)
		return set_call_error(exchange, exchange->column->ranks[message->member],
				      message->request.tag);
	if (message->request.bytes == message->bytes)
		return 1;
	return ddp_error_set(&exchange->error, DDP_ERR_MISMATCH,
			     "%s sent %zu bytes in %s #%u, not %zu",
			     member_name(exchange, message->member), message->request.bytes,
			     exchange->call->name, exchange->call->sequence, message->bytes);
}

/*
 * Returns 0 if [status] is 0, that is, if the engine has started a message. Otherwise ends the
 * call. Its error is the failure of a peer if the engine reports one, else the engine's error
 * [status], whose text is in exchange->error.
 */
static int started(struct ddp_exchange *exchange, int status)
{
	int known;

	if (status == 0)
		return 0;
	known = check_peers(exchange);
	return fail(exchange, known < 0 ? known : status);
}

int ddp_exchange_send(struct ddp_exchange *exchange, struct ddp_message *message, int member,
		      const void *data, size_t bytes)
{
	const struct ddp_column *column = exchange->column;

	*message = (struct ddp_message){.member = member, .bytes = bytes};
	return started(exchange,
		       column->engine->send(column->host, column->ranks[member], exchange->tag,
					    data, bytes, &message->request, &exchange->error));
}

int ddp_exchange_recv(struct ddp_exchange *exchange, struct ddp_message *message, int member,
		      void *data, size_t bytes)
{
	const struct ddp_column *column = exchange->column;

	*message = (struct ddp_message){.member = member, .bytes = bytes, .receive = true};
	return started(exchange,
		       column->engine->recv(column->host, column->ranks[member], exchange->tag,
					    data, bytes, &message->request, &exchange->error));
}

int ddp_exchange_test(struct ddp_exchange *exchange, struct ddp_message *message)
{
	int status;

	if (message->request.status == 0)
		return 0;
	if (message->request.status < 0)
		return fail(exchange, handle_failure(exchange, message));
	status = message->receive ? check_message(exchange, message) : 1;
	return status < 0 ? fail(exchange, status) : status;
}

/* Returns the nanoseconds to wait for events. They depend on the time since the last event. */
static uint64_t time_to_rest(const struct ddp_exchange *exchange, uint64_t now)
{
	uint64_t idle = now - exchange->busy, most = DDP_WATCH_PERIOD;

	if (idle < YIELD_NS) {
		if (idle >= SPIN_NS)
			sched_yield();
		return 0;
	}
	if (exchange->watch->deadline > now && exchange->watch->deadline - now < most)
		most = exchange->watch->deadline - now;
	return most;
}

int ddp_exchange_step(struct ddp_exchange *exchange, const struct ddp_message *message)
{
	const struct ddp_column *column = exchange->column;
	uint64_t most = time_to_rest(exchange, exchange->now);
	int happened = column->engine->progress(column->host, most);

	exchange->now = ddp_watch_now(exchange->watch);
	if (exchange->now - exchange->checked >= CHECK_NS) {
		int status = check_wait(exchange, message);

		if (status < 0)
			return fail(exchange, status);
		exchange->checked = exchange->now;
	}
	if (happened > 0)
		exchange->busy = exchange->now;
	return 0;
}

int ddp_exchange_wait(struct ddp_exchange *exchange, struct ddp_message *message)
{
	int status;

	while ((status = ddp_exchange_test(exchange, message)) == 0) {
		status = ddp_exchange_step(exchange, message);
		if (status < 0)
			return status;
	}
	return status < 0 ? status : 0;
}

int ddp_exchange_end(const struct ddp_exchange *exchange, int status, struct ddp_error *error)
{
	return status < 0 ? ddp_error_set(error, status, "%s", exchange->error.text) : 0;
}

/* --- Refusals ------------------------------------------------------------------------------ */

int ddp_column_check_refusals(const struct ddp_column *column, uint64_t made,
			      struct ddp_error *error)
{
	int status = find_note(column, error), position = 0, peer;
	uint64_t tag;

	while (status == 0 && (peer = next_early(column, &position, &tag)) >= 0) {
		uint32_t check = (uint32_t)tag, kind = check >> DDP_COLUMN_HASH_BITS;
		/*
		 * [made] minus the peer's number of device collectives; the tag has its lower bits
		 */
		uint32_t more = ((uint32_t)made - check) << (32 - DDP_COLUMN_HASH_BITS);

		if (ddp_call_is_refusal(kind) && (int32_t)more > 0)
			status = ddp_error_set(error, DDP_ERR_MISMATCH,
					       "%s calls %s (refused) #%u after fewer collectives "
					       "on device memory than this rank, which made %llu",
					       name_of(column, peer), ddp_call_name(kind),
					       (uint32_t)(tag >> 32), (unsigned long long)made);
	}
	return status;
}
