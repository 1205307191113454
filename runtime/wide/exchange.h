/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exchange.h - the messages of one call of a column
 *
 * All functions that return int return a negative DDP_ERR_x when the call has failed. By then
 * the other members were told, and all that was begun is cancelled: neither messages nor data
 * are used any longer. The text is kept and reaches the caller in ddp_exchange_end().
 */
#ifndef DDP_WIDE_EXCHANGE_H
#define DDP_WIDE_EXCHANGE_H

#include "ring.h"

struct ddp_message {
	struct ddp_host_request request;
	struct ddp_message *next;
	uint64_t tag;
	size_t bytes; /* that must come, of a receive */
	int member;
	bool receive;
};

struct ddp_exchange {
	const struct ddp_column *column;
	const struct ddp_column_call *call;
	const struct ddp_watch *watch;
	struct ddp_message *open; /* begun, end not seen */
	uint64_t busy;		  /* when something happened last */
	uint64_t looked;	  /* when the watch and the engine were last asked */
	bool told;		  /* the others know why */
	struct ddp_error error;
};

void ddp_exchange_start(struct ddp_exchange *exchange, const struct ddp_column *column,
			const struct ddp_column_call *call, const struct ddp_watch *watch);

/*
 * Begin to send to [member], or to receive exactly [bytes] from it. [step] counts the messages
 * from this sender to this receiver in the call. [message] stays until its end was seen.
 */
int ddp_exchange_send(struct ddp_exchange *exchange, struct ddp_message *message, int member,
		      uint32_t step, const void *data, size_t bytes);
int ddp_exchange_recv(struct ddp_exchange *exchange, struct ddp_message *message, int member,
		      uint32_t step, void *data, size_t bytes);

/* Whether [message] has ended well: 1, 0 if not yet. */
int ddp_exchange_test(struct ddp_exchange *exchange, struct ddp_message *message);

/*
 * Let time pass: move things on, rest if there is nothing to do, look at what ends a wait.
 * [message] is what is waited for, and whom to blame.
 */
int ddp_exchange_step(struct ddp_exchange *exchange, const struct ddp_message *message);

/* Wait for the end of [message]. */
int ddp_exchange_wait(struct ddp_exchange *exchange, struct ddp_message *message);

/* The end of the call. Returns [status], if that is negative with the text in [error]. */
int ddp_exchange_end(const struct ddp_exchange *exchange, int status, struct ddp_error *error);

#endif /* DDP_WIDE_EXCHANGE_H */
