/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exchange.h - the messages of one collective call of a column
 *
 * A function that returns an int returns a negative DDP_ERR_x if the call has failed. Before it
 * returns, it sends a note to the other members and cancels all messages, so that neither messages
 * nor data are in use any longer. ddp_exchange_end() returns the text of the error.
 */
#ifndef DDP_WIDE_EXCHANGE_H
#define DDP_WIDE_EXCHANGE_H

#include "ring.h"

struct ddp_message {
	struct ddp_host_request request;
	size_t bytes; /* for a receive: bytes that must arrive */
	int member;
	bool receive;
};

struct ddp_exchange {
	const struct ddp_column *column;
	const struct ddp_column_call *call;
	const struct ddp_watch *watch;
	uint64_t tag;  /* tag of all messages of the call */
	uint64_t now;  /* time at the end of the last step */
	uint64_t busy; /* time at which a message last made progress */
	/* time at which the watch and the engine's event() were last called */
	uint64_t checked;
	bool noted; /* another rank has already reported the failure to all */
	struct ddp_error error;
};

void ddp_exchange_start(struct ddp_exchange *exchange, const struct ddp_column *column,
			const struct ddp_column_call *call, const struct ddp_watch *watch);

/*
 * Start to send to [member], or to receive exactly [bytes] from it. Messages between two members
 * arrive in order. [message] must remain valid until ddp_exchange_test() or ddp_exchange_wait() has
 * returned that it is complete.
 */
int ddp_exchange_send(struct ddp_exchange *exchange, struct ddp_message *message, int member,
		      const void *data, size_t bytes);
int ddp_exchange_recv(struct ddp_exchange *exchange, struct ddp_message *message, int member,
		      void *data, size_t bytes);

/* Returns 1 if [message] is complete, else 0. */
int ddp_exchange_test(struct ddp_exchange *exchange, struct ddp_message *message);

/*
 * Make progress. If no message can make progress, wait for events. Then check the conditions that
 * end the wait: the watch, and failed peers. The caller waits for [message]; an error names its
 * member.
 */
int ddp_exchange_step(struct ddp_exchange *exchange, const struct ddp_message *message);

int ddp_exchange_wait(struct ddp_exchange *exchange, struct ddp_message *message);

/* End the call. Returns [status]; if it is negative, its text is in [error]. */
int ddp_exchange_end(const struct ddp_exchange *exchange, int status, struct ddp_error *error);

#endif /* DDP_WIDE_EXCHANGE_H */
