/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bounded.h - a call into a library that may never come back
 *
 * It is made in a thread of its own, on a copy of its arguments, so that whoever waits for it
 * can stop waiting and leave it behind.
 */
#ifndef DDP_BASE_BOUNDED_H
#define DDP_BASE_BOUNDED_H

#include <pthread.h>

#include "watch.h"

struct ddp_bounded;

/* As pthread_create(), of a thread to which no signal is delivered: these are the program's. */
int ddp_thread_start(pthread_t *thread, void *(*body)(void *argument), void *argument);

/*
 * Begin [call] with a copy of the [size] bytes at [arguments].
 * Returns 0 with the call in [bounded], or DDP_ERR_MEMORY or DDP_ERR_SYSTEM.
 */
int ddp_bounded_start(struct ddp_bounded **bounded, void (*call)(void *arguments),
		      const void *arguments, size_t size, struct ddp_error *error);

/*
 * Wait for the call to come back, which ends it; NULL is legal, and has come back.
 * Returns 0 with NULL in [bounded]; or what ddp_watch_check() returned, and the call goes on.
 */
int ddp_bounded_wait(struct ddp_bounded **bounded, const struct ddp_watch *watch,
		     struct ddp_error *error);

/* Leave a call behind, whose thread ends when it comes back. NULL is legal. */
void ddp_bounded_leave(struct ddp_bounded *bounded);

/*
 * All of it: begin, wait, and put what the call made of its copy into [arguments].
 * Returns 0; or what kept it from that. Where the call goes on then it is in [left], else that is NULL.
 */
int ddp_bounded_call(struct ddp_bounded **left, void (*call)(void *arguments), void *arguments,
		     size_t size, const struct ddp_watch *watch, struct ddp_error *error);

/*
 * The same for at most [seconds], of a call without results that is left behind after these.
 * Returns whether it came back.
 */
bool ddp_bounded_try(void (*call)(void *arguments), const void *arguments, size_t size,
		     double seconds);

#endif /* DDP_BASE_BOUNDED_H */
