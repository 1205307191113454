/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bounded.h"

struct ddp_bounded {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t change;
	bool done, left; /* whoever comes second frees */
	void (*call)(void *arguments);
	max_align_t arguments[];
};

static void release(struct ddp_bounded *bounded)
{
	pthread_cond_destroy(&bounded->change);
	pthread_mutex_destroy(&bounded->lock);
	free(bounded);
}

static void *run(void *argument)
{
	struct ddp_bounded *bounded = argument;
	bool left;

	bounded->call(bounded->arguments);
	pthread_mutex_lock(&bounded->lock);
	bounded->done = true;
	left = bounded->left;
	pthread_cond_broadcast(&bounded->change);
	pthread_mutex_unlock(&bounded->lock);
	if (left)
		release(bounded);
	return NULL;
}

/* Signals are the program's: none is delivered to a thread of ours. */
static int start_thread(struct ddp_bounded *bounded)
{
	sigset_t all, old;
	int number;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	number = pthread_create(&bounded->thread, NULL, run, bounded);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return number;
}

int ddp_bounded_start(struct ddp_bounded **bounded, void (*call)(void *arguments),
		      const void *arguments, size_t size, struct ddp_error *error)
{
	pthread_condattr_t attributes;
	struct ddp_bounded *new;
	int number;

	*bounded = NULL;
	new = calloc(1, sizeof(*new) + size);
	if (!new)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for a thread");
	new->call = call;
	memcpy(new->arguments, arguments, size);
	pthread_mutex_init(&new->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&new->change, &attributes);
	pthread_condattr_destroy(&attributes);
	number = start_thread(new);
	if (number) {
		release(new);
		errno = number;
		return ddp_error_errno(error, DDP_ERR_SYSTEM, "cannot start a thread");
	}
	*bounded = new;
	return 0;
}

/* Sleep for one period, or until the call is back. Returns whether it is. */
static bool wait_period(struct ddp_bounded *bounded, uint64_t deadline)
{
	uint64_t until = ddp_now() + DDP_WATCH_PERIOD;
	struct timespec time;
	bool done;

	if (until > deadline)
		until = deadline;
	time.tv_sec = (time_t)(until / 1000000000u);
	time.tv_nsec = (long)(until % 1000000000u);
	pthread_mutex_lock(&bounded->lock);
	if (!bounded->done)
		pthread_cond_timedwait(&bounded->change, &bounded->lock, &time);
	done = bounded->done;
	pthread_mutex_unlock(&bounded->lock);
	return done;
}

int ddp_bounded_wait(struct ddp_bounded *bounded, const struct ddp_watch *watch,
		     struct ddp_error *error)
{
	int status;

	while (!wait_period(bounded, watch->deadline)) {
		status = ddp_watch_check(watch, error);
		if (status < 0)
			return status;
	}
	return 0;
}

bool ddp_bounded_leave(struct ddp_bounded *bounded)
{
	bool done;

	if (!bounded)
		return true;
	pthread_mutex_lock(&bounded->lock);
	done = bounded->done;
	bounded->left = true;
	/* Before the unlock: the thread may free [bounded] right after it. */
	if (!done)
		pthread_detach(bounded->thread);
	pthread_mutex_unlock(&bounded->lock);
	if (!done)
		return false;
	pthread_join(bounded->thread, NULL);
	release(bounded);
	return true;
}

int ddp_bounded_call(struct ddp_bounded **left, void (*call)(void *arguments), void *arguments,
		     size_t size, const struct ddp_watch *watch, struct ddp_error *error)
{
	int status = ddp_bounded_start(left, call, arguments, size, error);

	if (status == 0)
		status = ddp_bounded_wait(*left, watch, error);
	if (status < 0)
		return status;
	memcpy(arguments, (*left)->arguments, size);
	ddp_bounded_leave(*left);
	*left = NULL;
	return 0;
}

bool ddp_bounded_try(void (*call)(void *arguments), const void *arguments, size_t size,
		     double seconds)
{
	struct ddp_watch watch = ddp_watch_start(seconds, NULL, NULL);
	struct ddp_bounded *bounded;

	if (ddp_bounded_start(&bounded, call, arguments, size, NULL) < 0)
		return false;
	(void)ddp_bounded_wait(bounded, &watch, NULL);
	return ddp_bounded_leave(bounded);
}
