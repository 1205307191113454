/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.h - deadlines, and conditions that end a wait early
 *
 * Every wait has a watch. A waiting loop polls its own condition, and calls ddp_watch_check() every
 * few tens of milliseconds. The owner's check() polls for events outside of the loop that must end
 * the wait: another rank has aborted, or a peer's process has ended.
 */
#ifndef DDP_BASE_WATCH_H
#define DDP_BASE_WATCH_H

#include <stdint.h>
#include <time.h>

#include "error.h"

/* Longest time between two calls of ddp_watch_check() in a waiting loop, in nanoseconds. */
#define DDP_WATCH_PERIOD 20000000u

struct ddp_watch {
	uint64_t begin;	   /* start of the wait, as in ddp_now() */
	uint64_t deadline; /* time of ddp_now(); UINT64_MAX: no deadline */
	double limit;	   /* time limit in seconds, for messages */

	/* Returns 0 to continue, or a DDP_ERR_x with its text in [error]. May be NULL. */
	int (*check)(void *owner, struct ddp_error *error);
	void *owner;
};

/* The monotonic clock: ddp_now() in nanoseconds, ddp_seconds() in seconds. */
uint64_t ddp_now(void);
double ddp_seconds(void);

/* Returns [time], such as a file's timestamp, in seconds since 1970; NULL: the current time. */
double ddp_date(const struct timespec *time);

/* Returns a watch with a deadline [seconds] from now. */
struct ddp_watch ddp_watch_start(double seconds, int (*check)(void *, struct ddp_error *),
				 void *owner);

/*
 * Returns a copy of [watch] with a deadline [seconds] later. For a rank that waits for other
 * waiting ranks: their timeout then comes first and names the missing rank.
 */
struct ddp_watch ddp_watch_later(const struct ddp_watch *watch, double seconds);

enum { DDP_STOPS = 8 };

/* When a thread was stopped, as the pauses between its checks show. Times of ddp_now(). */
struct ddp_stops {
	uint64_t checked; /* last check of any wait; 0: none */
	unsigned count;
	struct ddp_stop {
		uint64_t begin, end;
	} stop[DDP_STOPS]; /* the newest ones */
};

/*
 * Note a check at [now] of a wait that began at [begin]. Waits may be nested. A pause of more than 10
 * s since the last check, or since [begin] if that was later, is a stop.
 * Returns the nanoseconds of the stops since [begin].
 */
uint64_t ddp_stops_check(struct ddp_stops *stops, uint64_t begin, uint64_t now);

/*
 * Call the owner's check(), then compare the time with the deadline. Time in which the process was
 * stopped for more than 10 s does not count: Slurm suspends jobs for hours.
 * Returns 0 to continue; the result of check(); or DDP_ERR_TIMEOUT without a text, because only the
 * caller knows which rank is missing.
 */
int ddp_watch_check(const struct ddp_watch *watch, struct ddp_error *error);

/*
 * Sleep for [nanoseconds], but not longer than until the deadline or, after it, DDP_WATCH_PERIOD.
 */
void ddp_watch_sleep(const struct ddp_watch *watch, uint64_t nanoseconds);

/*
 * For a loop that polls a device: call ddp_watch_poll() after each poll that found nothing. The
 * first calls return at once; later calls sleep longer and longer, up to a millisecond. [poll] must
 * be all zero before the loop.
 * Returns the result of ddp_watch_check(), which is called twice per DDP_WATCH_PERIOD.
 */
struct ddp_poll {
	uint64_t checked;
	unsigned int count;
};
int ddp_watch_poll(const struct ddp_watch *watch, struct ddp_poll *poll, struct ddp_error *error);

#endif /* DDP_BASE_WATCH_H */
