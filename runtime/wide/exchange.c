/* SPDX-License-Identifier: Apache-2.0 */
/* exchange.c - messages of one collective, and the conditions that end a wait for them */
#include "config.h"

#include <sched.h>
#include <stdio.h>

#include "exchange.h"

/*
 * A wait polls for SPIN_NS. Until YIELD_NS are over, it also calls sched_yield(). Then it waits for
 * events.
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

static const char *name_of(const struct ddp_exchange *exchange, int rank)
{
	return exchange->column->name(exchange->column->owner, rank);
}

static const char *member_name(const struct ddp_exchange *exchange, int member)
{
	return name_of(exchange, exchange->column->ranks[member]);
}

void ddp_exchange_start(struct ddp_exchange *exchange, const struct ddp_column *column,
			const struct ddp_column_call *call, const struct ddp_watch *watch)
{
	exchange->column = column;
	exchange->call = call;
	exchange->watch = watch;
	/*
	 * Number of the call and hash of its arguments. Each message that arrives must have the
	 * same tag.
	 */
	exchange->tag = (uint64_t)call->sequence << 32 | call->check;
	exchange->now = exchange->busy = exchange->checked = ddp_now();
	exchange->noted = false;
	ddp_error_clear(&exchange->error);
}

/*
 * End the call with [status]: report the failure to the other ranks, and cancel the call's
 * messages.
 */
static int fail(struct ddp_exchange *exchange, int status)
{
	const struct ddp_column *column = exchange->column;

	if (!exchange->noted)
		column->engine->note(column->host, exchange->error.text);
	column->engine->cancel(column->host);
	return status;
}

/* --- Conditions that end a wait ------------------------------------------------------------ */

static int check_notes(struct ddp_exchange *exchange)
{
	const struct ddp_column *column = exchange->column;
	char text[DDP_HOST_NOTE];
	int peer;

	if (column->engine->event(column->host, &peer, text, sizeof(text)) != DDP_HOST_NOTED)
		return 0;
	exchange->noted = true;
	return ddp_error_set(&exchange->error, DDP_ERR_ABORTED, "from %s: %s",
			     name_of(exchange, peer), text);
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
	uint64_t until = ddp_now() + nanoseconds;
	int status;

	do {
		column->engine->progress(column->host, DDP_WATCH_PERIOD);
		status = check(exchange);
		if (status == 0)
			status = ddp_watch_check(exchange->watch, &exchange->error);
		if (status < 0 && *exchange->error.text)
			return status;
	} while (ddp_now() < until && !(message && message->request.status != 0));
	return 0;
}

/*
 * The connection to [rank] is lost. If that rank ended because of another failure, it has reported
 * this before, at least in the rendezvous store. Then its report is the error, not the lost
 * connection.
 */
static int handle_loss(struct ddp_exchange *exchange, int rank, const char *why)
{
	int status = await_reports(exchange, REPORT_NS, check_notes, NULL);

	if (status < 0)
		return status;
	return ddp_error_set(&exchange->error, DDP_ERR_PEER,
			     "lost the connection to %s in %s #%u: %s", name_of(exchange, rank),
			     exchange->call->name, exchange->call->sequence, why);
}

/*
 * Check first for a note, then for a lost rank: a rank that aborts sends a note before its
 * connection is lost.
 */
static int check_peers(struct ddp_exchange *exchange)
{
	const struct ddp_column *column = exchange->column;
	int status = check_notes(exchange), peer;
	char text[DDP_HOST_NOTE];

	if (status < 0 ||
	    column->engine->event(column->host, &peer, text, sizeof(text)) != DDP_HOST_LOST)
		return status;
	return handle_loss(exchange, peer, text);
}

/* Returns the nanoseconds within which a rank must answer a query. */
static uint64_t answer_time(const struct ddp_exchange *exchange)
{
	double half = exchange->watch->limit / 2;

	return (uint64_t)((half < ANSWER_S ? half : ANSWER_S) * 1e9);
}

/*
 * Query whether the peers wait as well, until all have answered, [message] has ended, or another
 * rank reports a failure. Sets [silent] to the number of peers that have not answered, and [first]
 * to the lowest of them. Returns 0, or the status of the failure.
 */
static int find_silent(struct ddp_exchange *exchange, const struct ddp_message *message,
		       int *silent, int *first)
{
	const struct ddp_column *column = exchange->column;
	uint64_t until = ddp_now() + answer_time(exchange);
	int status = 0;

	*silent = column->engine->silent(column->host, true, first);
	while (status == 0 && *silent && message->request.status == 0 && ddp_now() < until) {
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
 * reports it to all ranks. If [message] arrives in the meantime, continue: perhaps only this
 * process was stopped.
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
	return ddp_error_set(&exchange->error, DDP_ERR_TIMEOUT, "%s%s %s in %s #%u in %g s",
			     name_of(exchange, first), more,
			     silent ? "did not answer" : "is running but has not reached this call",
			     exchange->call->name, exchange->call->sequence,
			     exchange->watch->limit);
}

static int check_wait(struct ddp_exchange *exchange, const struct ddp_message *message)
{
	int status = check_peers(exchange);

	if (status < 0)
		return status;
	status = ddp_watch_check(exchange->watch, &exchange->error);
	if (status == DDP_ERR_TIMEOUT && !*exchange->error.text)
		return handle_timeout(exchange, message);
	return status;
}

/* --- Messages ------------------------------------------------------------------------------ */

/* [message] failed. The engine may know more about the failure of its peer. */
static int handle_failure(struct ddp_exchange *exchange, const struct ddp_message *message)
{
	const char *peer = member_name(exchange, message->member);
	int status = check_peers(exchange);

	if (status < 0)
		return status;
	if (message->request.status == DDP_ERR_MISMATCH)
		return ddp_error_set(&exchange->error, DDP_ERR_MISMATCH,
				     "%s sent more than %zu bytes in %s #%u", peer, message->bytes,
				     exchange->call->name, exchange->call->sequence);
	if (message->request.status == DDP_ERR_PEER)
		return handle_loss(exchange, exchange->column->ranks[message->member],
				   "it has left");
	return ddp_error_set(&exchange->error, message->request.status, "a message %s %s in %s #%u",
			     message->receive ? "from" : "to", peer, exchange->call->name,
			     exchange->call->sequence);
}

/* Check that [message], which has arrived, is the one that this call expects. */
static int check_message(struct ddp_exchange *exchange, const struct ddp_message *message)
{
	const char *peer;

	if (message->request.tag == exchange->tag && message->request.bytes == message->bytes)
		return 1;
	peer = member_name(exchange, message->member);
	if (message->request.tag != exchange->tag)
		return ddp_error_set(&exchange->error, DDP_ERR_MISMATCH,
				     "%s made another call than %s #%u here, or with another "
				     "type, operation or count",
				     peer, exchange->call->name, exchange->call->sequence);
	return ddp_error_set(&exchange->error, DDP_ERR_MISMATCH,
			     "%s sent %zu bytes in %s #%u, not %zu", peer, message->request.bytes,
			     exchange->call->name, exchange->call->sequence, message->bytes);
}

/*
 * Returns 0 if the engine has started a message. Otherwise the engine's error is in
 * [exchange]->error, but a peer's failure may be the cause.
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

	exchange->now = ddp_now();
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
