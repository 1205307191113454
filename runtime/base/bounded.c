/* SPDX-License-Identifier: Apache-2.0 */
/* bounded.c - call functions that may never return, and exit even if flushing a FILE blocks */
#include "config.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bounded.h"

struct ddp_bounded {
	pthread_t thread;
	atomic_bool done;
	/* number of users: the thread and the caller; the last user frees the structure */
	atomic_int holders;
	void (*call)(void *arguments);
	/* buffer that gets a copy of the arguments after the call, or NULL if no copy is needed */
	void *results;
	size_t size;
	max_align_t arguments[];
};

static void release(struct ddp_bounded *bounded)
{
	if (atomic_fetch_sub(&bounded->holders, 1) == 1)
		free(bounded);
}

static void *run(void *argument)
{
	struct ddp_bounded *bounded = argument;

	bounded->call(bounded->arguments);
	atomic_store(&bounded->done, true);
	release(bounded);
	return NULL;
}

int ddp_thread_start(pthread_t *thread, void *(*body)(void *argument), void *argument)
{
	sigset_t all, before;
	int number;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	number = pthread_create(thread, NULL, body, argument);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return number;
}

int ddp_bounded_start(struct ddp_bounded **bounded, void (*call)(void *arguments),
		      const void *arguments, size_t size, struct ddp_error *error)
{
	struct ddp_bounded *new;
	int number;

	*bounded = NULL;
	new = calloc(1, sizeof(*new) + size);
	if (!new)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for a thread");
	new->call = call;
	new->size = size;
	memcpy(new->arguments, arguments, size);
	atomic_init(&new->holders, 2);
	number = ddp_thread_start(&new->thread, run, new);
	if (number) {
		free(new);
		errno = number;
		return ddp_error_errno(error, DDP_ERR_SYSTEM, "cannot start a thread");
	}
	*bounded = new;
	return 0;
}

int ddp_bounded_wait(struct ddp_bounded **bounded, const struct ddp_watch *watch,
		     struct ddp_error *error)
{
	struct ddp_bounded *waited = *bounded;
	struct ddp_poll poll = {0};
	int status;

	if (!waited)
		return 0;
	while (!atomic_load(&waited->done)) {
		status = ddp_watch_poll(watch, &poll, error);
		if (status < 0)
			return status;
	}
	pthread_join(waited->thread, NULL);
	if (waited->results)
		memcpy(waited->results, waited->arguments, waited->size);
	release(waited);
	*bounded = NULL;
	return 0;
}

void ddp_bounded_leave(struct ddp_bounded *bounded)
{
	if (!bounded)
		return;
	pthread_detach(bounded->thread);
	release(bounded);
}

int ddp_bounded_call(struct ddp_bounded **left, void (*call)(void *arguments), void *arguments,
		     size_t size, const struct ddp_watch *watch, struct ddp_error *error)
{
	int status = ddp_bounded_start(left, call, arguments, size, error);

	if (status < 0)
		return status;
	(*left)->results = arguments;
	status = ddp_bounded_wait(left, watch, error);
	if (status < 0)
		(*left)->results = NULL;
	return status;
}

bool ddp_bounded_try(void (*call)(void *arguments), const void *arguments, size_t size,
		     double seconds)
{
	struct ddp_watch watch = ddp_watch_start(seconds, NULL, NULL);
	struct ddp_bounded *bounded;

	if (ddp_bounded_start(&bounded, call, arguments, size, NULL) < 0)
		return false;
	(void)ddp_bounded_wait(&bounded, &watch, NULL);
	ddp_bounded_leave(bounded);
	return !bounded;
}

/* Time limit for writing the buffers of all FILEs, in seconds. */
#define FLUSH_SECONDS 2

static void *flush_all(void *flushed)
{
	fflush(stdout);
	fflush(NULL);
	atomic_store((atomic_bool *)flushed, true);
	return NULL;
}

_Noreturn void ddp_flush_and_exit(int exit_status)
{
	static atomic_bool flushed;
	struct ddp_watch watch = ddp_watch_start(FLUSH_SECONDS, NULL, NULL);
	struct ddp_poll poll = {0};
	pthread_t thread;

	/* If no thread can be started, flush in this thread, although that could block. */
	if (ddp_thread_start(&thread, flush_all, &flushed) != 0)
		(void)flush_all(&flushed);
	while (!atomic_load(&flushed) && ddp_watch_poll(&watch, &poll, NULL) == 0)
		;
	_exit(exit_status);
}
