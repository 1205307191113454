/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exchange.h - the messages of one collective call of a column
 *
 * A function that returns an int returns a negative DDP_ERR_x if the call has failed. Before the
 * function returns an error, it sends a note with the error's text to the other members, and
 * cancels all messages. After that, the engine no longer uses the messages and their data.
 * ddp_exchange_end() returns the text of the error.
 */
#ifndef DDP_WIDE_EXCHANGE_H
#define DDP_WIDE_EXCHANGE_H

#include "ring.h"

struct ddp_message {
	struct ddp_host_request request;
	size_t bytes; /* for a receive, the number of bytes that must arrive */
	int member;
	bool receive;
};

struct ddp_exchange {
	const struct ddp_column *column;
	const struct ddp_column_call *call;
	const struct ddp_watch *watch;
	uint64_t tag;  /* tag that all messages of the call have */
	uint64_t now;  /* awake time at the end of the last step */
	uint64_t busy; /* awake time at which a message last made progress */
	/* awake time of the last check of the watch and of the engine's events */
	uint64_t checked;
	bool noted; /* another rank has already reported this failure to all ranks */
	struct ddp_error error;
};

void ddp_exchange_start(struct ddp_exchange *exchange, const struct ddp_column *column,
			const struct ddp_column_call *call, const struct ddp_watch *watch);

/*
 * Start to send a message to [member], or to receive a message of exactly [bytes] from [member].
 * Messages between two members arrive in order. [message] must remain valid until
 * ddp_exchange_test() or ddp_exchange_wait() has returned that it is complete.
 */
int ddp_exchange_send(struct ddp_exchange *exchange, struct ddp_message *message, int member,
		      const void *data, size_t bytes);
int ddp_exchange_recv(struct ddp_exchange *exchange, struct ddp_message *message, int member,
		      void *data, size_t bytes);

/*
 * Send a note to all peers that contains [text], the error of this rank. The wait of each peer then
 * fails with this text. Its status is DDP_ERR_MISMATCH if [status] is, else DDP_ERR_ABORTED.
 */
void ddp_column_note(const struct ddp_host_engine *engine, struct ddp_host *host, int status,
		     const char *text);

/*
 * Check for a note. Also check whether a peer refuses a collective on device memory that this rank
 * has started, and which therefore cannot end: the peer has sent a refusal (ddp_call_is_refusal())
 * after fewer such collectives than this rank, which has made [made]. Call this only between calls
 * of this column.
 * Returns 0, or a status with a text that names the peer.
 */
int ddp_column_check_refusals(const struct ddp_column *column, uint64_t made,
			      struct ddp_error *error);

/* Returns 1 if [message] is complete, else 0. */
int ddp_exchange_test(struct ddp_exchange *exchange, struct ddp_message *message);

/*
 * Make progress. If no message can make progress, wait for events. Then check the conditions that
 * end the wait: the watch, and failed peers. [message] is the message for which the caller waits;
 * the text of an error names its member.
 */
int ddp_exchange_step(struct ddp_exchange *exchange, const struct ddp_message *message);

int ddp_exchange_wait(struct ddp_exchange *exchange, struct ddp_message *message);

/* End the call. Returns [status]. If [status] is negative, sets [error] to its text. */
int ddp_exchange_end(const struct ddp_exchange *exchange, int status, struct ddp_error *error);

#endif /* DDP_WIDE_EXCHANGE_H */
