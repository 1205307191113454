/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.h - time limits, and conditions that end a wait early
 *
 * Every wait has a watch. A waiting loop polls its own condition, and calls ddp_watch_check() every
 * few tens of milliseconds. The owner's check() polls for events outside of the loop that must end
 * the wait: another rank has aborted, or a peer's process has ended.
 *
 * All limits are in awake time, because Slurm suspends jobs for hours, and often. A thread's clock
 * advances at each check of a watch, by the time since the thread's last check, but at most by a
 * second. So a suspension costs at most a second. A call that may block elsewhere (files, name
 * resolution, a driver) counts in full, up to 30 s: see ddp_watch_block(). All watches of a thread
 * share its clock, so they may be nested. Only one thread may use a watch.
 */
#ifndef DDP_BASE_WATCH_H
#define DDP_BASE_WATCH_H

#include <stdint.h>
#include <time.h>

#include "error.h"

/*
 * Longest time between two calls of ddp_watch_check() in a waiting loop, and longest sleep, in
 * nanoseconds.
 */
#define DDP_WATCH_PERIOD 20000000u

struct ddp_clock;

struct ddp_watch {
	struct ddp_clock *clock; /* clock of the using thread; NULL before the first use */
	/*
	 * end of the wait, in nanoseconds of awake time; UINT64_MAX: never. Until the first use,
	 * the limit in nanoseconds.
	 */
	uint64_t deadline;
	double limit; /* time limit in seconds, for messages */

	/* Returns 0 to continue, or a DDP_ERR_x with its text in [error]. May be NULL. */
	int (*check)(void *owner, struct ddp_error *error);
	void *owner;
};

/*
 * The monotonic clock, for measurements and not for limits: ddp_now() in nanoseconds, ddp_seconds()
 * in seconds.
 */
uint64_t ddp_now(void);
double ddp_seconds(void);

/* Returns [time], such as a file's timestamp, in seconds since 1970; NULL: the current time. */
double ddp_date(const struct timespec *time);

/*
 * Returns a watch with a deadline [seconds] after its first check or other use. Reads no clock, since
 * most calls end without a wait.
 */
struct ddp_watch ddp_watch_start(double seconds, int (*check)(void *, struct ddp_error *),
				 void *owner);

/*
 * Returns a copy of [watch] with a deadline [seconds] later. For a rank that waits for other
 * waiting ranks: their timeout then comes first and names the missing rank.
 */
struct ddp_watch ddp_watch_later(const struct ddp_watch *watch, double seconds);

/*
 * Advance the clock of [watch]. Returns its awake time in nanoseconds, for comparison with the
 * deadline and with other times of the same thread.
 */
uint64_t ddp_watch_now(const struct ddp_watch *watch);

/*
 * Call the owner's check(), then compare the awake time with the deadline.
 * Returns 0 to continue; the result of check(); or DDP_ERR_TIMEOUT without a text, because only the
 * caller knows which rank is missing.
 */
int ddp_watch_check(const struct ddp_watch *watch, struct ddp_error *error);

/*
 * Sleep for [nanoseconds], but at most for DDP_WATCH_PERIOD, and at most until the deadline if it
 * has not passed.
 */
void ddp_watch_sleep(const struct ddp_watch *watch, uint64_t nanoseconds);

/*
 * Call ddp_watch_poll() in a loop that polls a device, after each poll that found nothing. The
 * first calls return at once; later calls sleep longer and longer, up to a millisecond. [poll] must
 * be all zero before the loop. The poll itself is allowed to block in a driver.
 * Returns the result of ddp_watch_check(), which is called twice per DDP_WATCH_PERIOD.
 */
struct ddp_poll {
	uint64_t checked;
	unsigned int count;
};
int ddp_watch_poll(const struct ddp_watch *watch, struct ddp_poll *poll, struct ddp_error *error);

/*
 * Surround calls in this thread that may block elsewhere. Their time counts in full, up to 30 s
 * between two checks. Both functions are checks themselves. Pairs of them can be nested.
 */
void ddp_watch_block(void);
void ddp_watch_unblock(void);

/*
 * Returns how often waits of this process were suspended. A suspension is detected if the time
 * between two checks of a thread was too long to count in full.
 */
unsigned int ddp_watch_suspensions(void);

#endif /* DDP_BASE_WATCH_H */
