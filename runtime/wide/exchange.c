/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <sched.h>
#include <stdio.h>

#include "exchange.h"

/* Nanoseconds of a wait: poll so long, then let others run, then rest until an event. */
#define SPIN 20000u
#define YIELD 1000000u
#define LOOK 1000000u

/* Seconds that a rank has to answer that it is alive, and at most half of the limit. */
#define ANSWER 1.0

/* Nanoseconds in which the story behind a lost connection is listened for: once the rendezvous is looked at. */
#define STORY 300000000u

/*
 * A tag is what the caller of a message says it is: 16 bits of the call's number, 16 bits of
 * what the call is, 12 bits of the step. Receives leave the middle open and compare it
 * afterwards, so that a message of another call is told from one that never came.
 */
enum { STEP_BITS = 12, CHECK_BITS = 16, SEQUENCE_BITS = 16 };
_Static_assert(STEP_BITS + CHECK_BITS + SEQUENCE_BITS == DDP_HOST_TAG, "bits of a tag");

#define FIELD(value, bits) ((uint64_t)(value) & ((UINT64_C(1) << (bits)) - 1))
#define CHECK_MASK (FIELD(-1, CHECK_BITS) << STEP_BITS)
#define TAG_MASK (FIELD(-1, DDP_HOST_TAG) & ~CHECK_MASK)

static uint64_t tag_of(const struct ddp_exchange *exchange, uint32_t step)
{
	const struct ddp_column_call *call = exchange->call;

	return FIELD(call->sequence, SEQUENCE_BITS) << (CHECK_BITS + STEP_BITS) |
	       FIELD(call->check ^ call->check >> 16, CHECK_BITS) << STEP_BITS |
	       FIELD(step, STEP_BITS);
}

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
	exchange->open = NULL;
	exchange->busy = exchange->looked = ddp_now();
	exchange->told = false;
	ddp_error_clear(&exchange->error);
}

static void open_message(struct ddp_exchange *exchange, struct ddp_message *message, int member,
			 bool receive, uint32_t step, size_t bytes)
{
	*message = (struct ddp_message){.next = exchange->open,
					.tag = tag_of(exchange, step),
					.bytes = bytes,
					.member = member,
					.receive = receive,
					.request = {.peer = exchange->column->ranks[member]}};
	exchange->open = message;
}

static void close_message(struct ddp_exchange *exchange, struct ddp_message *message)
{
	struct ddp_message **link = &exchange->open;

	while (*link && *link != message)
		link = &(*link)->next;
	if (*link)
		*link = message->next;
}

/* The call has failed. Notes go first: to cancel a message can cost the connection. */
static int fail(struct ddp_exchange *exchange, int status)
{
	const struct ddp_column *column = exchange->column;

	for (int i = 0; i < column->size && !exchange->told; i++)
		if (i != column->index)
			column->engine->note(column->host, column->ranks[i], exchange->error.text);
	for (; exchange->open; exchange->open = exchange->open->next)
		if (exchange->open->request.status == 0)
			column->engine->cancel(column->host, &exchange->open->request);
	return status;
}

/* --- What can end a wait ---------------------------------------------------------------- */

/* A note of somebody who gave up, and why. */
static int look_at_notes(struct ddp_exchange *exchange)
{
	const struct ddp_column *column = exchange->column;
	char text[DDP_HOST_NOTE];
	int peer;

	if (!column->engine->noted(column->host, &peer, text, sizeof(text)))
		return 0;
	exchange->told = true;
	return ddp_error_set(&exchange->error, DDP_ERR_ABORTED, "from %s: %s",
			     name_of(exchange, peer), text);
}

/* Listen until [until] for what others have to tell: by note, in the group, in the rendezvous. */
static int hear(struct ddp_exchange *exchange, uint64_t until,
		int (*check)(struct ddp_exchange *exchange))
{
	const struct ddp_column *column = exchange->column;
	int status;

	do {
		if (column->engine->progress(column->host) <= 0)
			column->engine->idle(column->host, DDP_WATCH_PERIOD);
		status = check(exchange);
		if (status == 0)
			status = ddp_watch_check(exchange->watch, &exchange->error);
		if (status < 0 && *exchange->error.text)
			return status;
	} while (ddp_now() < until);
	return 0;
}

/*
 * The connection to [rank] is gone. Who leaves because another rank failed has said so before, at least in
 * the rendezvous: that story counts, and not the end of the connection. It is listened for [story] nanoseconds.
 */
static int lost(struct ddp_exchange *exchange, int rank, const char *why, uint64_t story)
{
	int status = hear(exchange, ddp_now() + story, look_at_notes);

	if (status < 0)
		return status;
	return ddp_error_set(&exchange->error, DDP_ERR_PEER,
			     "lost the connection to %s in %s #%u: %s", name_of(exchange, rank),
			     exchange->call->name, exchange->call->sequence, why);
}

/* Whether somebody gave up or was lost. A note comes first: who is lost may have said why. */
static int look_at_peers(struct ddp_exchange *exchange)
{
	const struct ddp_column *column = exchange->column;
	int status = look_at_notes(exchange), peer, broken;
	char text[DDP_HOST_NOTE];

	if (status < 0)
		return status;
	broken = column->engine->broken(column->host, &peer, text, sizeof(text));
	return broken ? lost(exchange, peer, text, broken == 2 ? 0 : STORY) : 0;
}

/* Nanoseconds that a rank gets to answer, at the most. */
static uint64_t answer_time(const struct ddp_exchange *exchange)
{
	double half = exchange->watch->limit / 2;

	return (uint64_t)((half < ANSWER ? half : ANSWER) * 1e9);
}

/* Who of the column does not answer: how many, and the first of them. */
static int find_silent(struct ddp_exchange *exchange, int *first)
{
	const struct ddp_column *column = exchange->column;
	uint64_t until = ddp_now() + answer_time(exchange);
	int silent;

	for (int i = 0; i < column->size; i++)
		if (i != column->index)
			column->engine->ask(column->host, column->ranks[i]);
	do {
		if (column->engine->progress(column->host) <= 0)
			column->engine->idle(column->host, DDP_WATCH_PERIOD);
		silent = 0;
		for (int i = column->size - 1; i >= 0; i--)
			if (i != column->index &&
			    !column->engine->answered(column->host, column->ranks[i])) {
				*first = i;
				silent++;
			}
	} while (silent && ddp_now() < until);
	return silent;
}

/*
 * All of this column are there, so they wait for somebody of another one, in which a rank finds
 * that out just now: let that one tell, twice as long as finding it takes.
 */
static int hear_others(struct ddp_exchange *exchange)
{
	return hear(exchange, ddp_now() + 2 * answer_time(exchange), look_at_peers);
}

/*
 * The time is up. Who is waited for may itself wait for another: those who wait answer, so the
 * one that is named is the one that did not come.
 */
static int time_is_up(struct ddp_exchange *exchange, const struct ddp_message *message)
{
	int first = message->member;
	int silent = find_silent(exchange, &first);
	int status = silent ? look_at_peers(exchange) : hear_others(exchange);
	char more[32] = "";

	if (status < 0)
		return status;
	if (silent > 1)
		snprintf(more, sizeof(more), " and %d more", silent - 1);
	return ddp_error_set(&exchange->error, DDP_ERR_TIMEOUT, "%s%s %s in %s #%u in %g s",
			     member_name(exchange, first), more,
			     silent ? "did not answer" : "is there but has not come far enough",
			     exchange->call->name, exchange->call->sequence,
			     exchange->watch->limit);
}

static int check_wait(struct ddp_exchange *exchange, const struct ddp_message *message)
{
	int status = look_at_peers(exchange);

	if (status < 0)
		return status;
	status = ddp_watch_check(exchange->watch, &exchange->error);
	if (status == DDP_ERR_TIMEOUT && !*exchange->error.text)
		return time_is_up(exchange, message);
	return status;
}

/* --- Messages --------------------------------------------------------------------------- */

/* [message] failed; the engine may know more about its peer. */
static int failed(struct ddp_exchange *exchange, const struct ddp_message *message)
{
	int status = look_at_peers(exchange);

	if (status < 0)
		return status;
	if (message->request.status == DDP_ERR_MISMATCH)
		return ddp_error_set(&exchange->error, DDP_ERR_MISMATCH,
				     "%s sent more than %zu bytes in %s #%u",
				     member_name(exchange, message->member), message->bytes,
				     exchange->call->name, exchange->call->sequence);
	if (message->request.status == DDP_ERR_PEER)
		return lost(exchange, message->request.peer, "it has left", STORY);
	return ddp_error_set(&exchange->error, message->request.status, "a message %s %s in %s #%u",
			     message->receive ? "from" : "to",
			     member_name(exchange, message->member), exchange->call->name,
			     exchange->call->sequence);
}

/* A message came; it must be the one of this call. */
static int check_message(struct ddp_exchange *exchange, const struct ddp_message *message)
{
	if (message->request.tag != message->tag)
		return ddp_error_set(&exchange->error, DDP_ERR_MISMATCH,
				     "%s made another call than %s #%u here, or with another "
				     "type, operation or count",
				     member_name(exchange, message->member), exchange->call->name,
				     exchange->call->sequence);
	if (message->request.bytes != message->bytes)
		return ddp_error_set(&exchange->error, DDP_ERR_MISMATCH,
				     "%s sent %zu bytes in %s #%u, not %zu",
				     member_name(exchange, message->member), message->request.bytes,
				     exchange->call->name, exchange->call->sequence,
				     message->bytes);
	return 1;
}

/* The engine refused to begin [message] and said why in [exchange]->error. */
static int refused(struct ddp_exchange *exchange, struct ddp_message *message, int status)
{
	int known = look_at_peers(exchange);

	close_message(exchange, message);
	return fail(exchange, known < 0 ? known : status);
}

int ddp_exchange_send(struct ddp_exchange *exchange, struct ddp_message *message, int member,
		      uint32_t step, const void *data, size_t bytes)
{
	const struct ddp_column *column = exchange->column;
	int status;

	open_message(exchange, message, member, false, step, bytes);
	status = column->engine->send(column->host, column->ranks[member], message->tag, data,
				      bytes, &message->request, &exchange->error);
	return status < 0 ? refused(exchange, message, status) : 0;
}

int ddp_exchange_recv(struct ddp_exchange *exchange, struct ddp_message *message, int member,
		      uint32_t step, void *data, size_t bytes)
{
	const struct ddp_column *column = exchange->column;
	int status;

	open_message(exchange, message, member, true, step, bytes);
	status = column->engine->recv(column->host, column->ranks[member], message->tag, TAG_MASK,
				      data, bytes, &message->request, &exchange->error);
	return status < 0 ? refused(exchange, message, status) : 0;
}

int ddp_exchange_test(struct ddp_exchange *exchange, struct ddp_message *message)
{
	int status;

	if (message->request.status == 0)
		return 0;
	close_message(exchange, message);
	if (message->request.status < 0)
		return fail(exchange, failed(exchange, message));
	status = message->receive ? check_message(exchange, message) : 1;
	return status < 0 ? fail(exchange, status) : status;
}

/* Nothing happened since [idle] nanoseconds. */
static void rest(struct ddp_exchange *exchange, uint64_t now, uint64_t idle)
{
	const struct ddp_column *column = exchange->column;
	uint64_t most = DDP_WATCH_PERIOD;

	if (idle < SPIN)
		return;
	if (idle < YIELD) {
		sched_yield();
		return;
	}
	if (exchange->watch->deadline > now && exchange->watch->deadline - now < most)
		most = exchange->watch->deadline - now;
	column->engine->idle(column->host, most);
}

int ddp_exchange_step(struct ddp_exchange *exchange, const struct ddp_message *message)
{
	const struct ddp_column *column = exchange->column;
	int happened = column->engine->progress(column->host);
	uint64_t now = ddp_now();

	if (now - exchange->looked >= LOOK) {
		int status = check_wait(exchange, message);

		if (status < 0)
			return fail(exchange, status);
		exchange->looked = now;
	}
	if (happened > 0)
		exchange->busy = now;
	else
		rest(exchange, now, now - exchange->busy);
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
