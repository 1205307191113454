/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bounded.h - call functions that may never return
 *
 * The library function is called in a separate thread, on a copy of its arguments. So the caller
 * can stop waiting and abandon the call.
 */
#ifndef DDP_BASE_BOUNDED_H
#define DDP_BASE_BOUNDED_H

#include <pthread.h>

#include "watch.h"

struct ddp_bounded;

/*
 * As pthread_create(), but the thread blocks all signals, so that the program's threads get them.
 */
int ddp_thread_start(pthread_t *thread, void *(*body)(void *argument), void *argument);

/*
 * Start [call] with a copy of the [size] bytes at [arguments].
 * Returns 0 with the call in [bounded], or DDP_ERR_MEMORY or DDP_ERR_SYSTEM.
 */
int ddp_bounded_start(struct ddp_bounded **bounded, void (*call)(void *arguments),
		      const void *arguments, size_t size, struct ddp_error *error);

/*
 * Wait for the call to return, and free [bounded]. A NULL pointer in [bounded] is legal and means
 * that the call has returned.
 * Returns 0, with NULL in [bounded]; or the error of ddp_watch_check(), and the call continues.
 */
int ddp_bounded_wait(struct ddp_bounded **bounded, const struct ddp_watch *watch,
		     struct ddp_error *error);

/* Abandon a call. Its thread ends when the call returns. NULL is legal. */
void ddp_bounded_leave(struct ddp_bounded *bounded);

/*
 * Start [call], wait for it, and copy the arguments that it modified back to [arguments].
 * Returns 0 or an error. If the call continues, [left] gets it; else [left] gets NULL.
 */
int ddp_bounded_call(struct ddp_bounded **left, void (*call)(void *arguments), void *arguments,
		     size_t size, const struct ddp_watch *watch, struct ddp_error *error);

/*
 * Run a call without results. Abandon it after [seconds].
 * Returns whether the call has returned in time.
 */
bool ddp_bounded_try(void (*call)(void *arguments), const void *arguments, size_t size,
		     double seconds);

/*
 * Write the buffers of all FILEs, then end the process with _exit(). fflush(NULL) waits for each
 * FILE that another thread uses, for example in getchar(); after two seconds the process ends
 * without the remaining buffers. stdout is written first, in a thread that the caller waits for.
 */
_Noreturn void ddp_flush_and_exit(int exit_status);

#endif /* DDP_BASE_BOUNDED_H */
