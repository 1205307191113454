/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bounded.h - calls into libraries that may never return
 *
 * The call runs in its own thread on a copy of its arguments, so that the caller can stop waiting
 * and abandon it.
 */
#ifndef DDP_BASE_BOUNDED_H
#define DDP_BASE_BOUNDED_H

#include <pthread.h>

#include "watch.h"

struct ddp_bounded;

/* As pthread_create(), with all signals blocked: they belong to the program. */
int ddp_thread_start(pthread_t *thread, void *(*body)(void *argument), void *argument);

/*
 * Start [call] with a copy of the [size] bytes at [arguments].
 * Returns 0 with the call in [bounded], or DDP_ERR_MEMORY or DDP_ERR_SYSTEM.
 */
int ddp_bounded_start(struct ddp_bounded **bounded, void (*call)(void *arguments),
		      const void *arguments, size_t size, struct ddp_error *error);

/*
 * Wait for the call to return, and free [bounded]. NULL is legal: returned already.
 * Returns 0 with NULL in [bounded]; or the error of ddp_watch_check(), while the call continues.
 */
int ddp_bounded_wait(struct ddp_bounded **bounded, const struct ddp_watch *watch,
		     struct ddp_error *error);

/* Abandon a call: its thread ends when it returns. NULL is legal. */
void ddp_bounded_leave(struct ddp_bounded *bounded);

/*
 * Start [call], wait for it, and copy the arguments it modified back to [arguments].
 * Returns 0 or an error. If the call continues, it is in [left]; else that is NULL.
 */
int ddp_bounded_call(struct ddp_bounded **left, void (*call)(void *arguments), void *arguments,
		     size_t size, const struct ddp_watch *watch, struct ddp_error *error);

/*
 * Run a call without results for at most [seconds], then abandon it.
 * Returns whether it returned in time.
 */
bool ddp_bounded_try(void (*call)(void *arguments), const void *arguments, size_t size,
		     double seconds);

#endif /* DDP_BASE_BOUNDED_H */
