/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.h - how long to wait, and what ends a wait early
 *
 * Nothing waits without one of these. A waiting loop polls its own condition and calls
 * ddp_watch_check() every few tens of milliseconds; the owner's check looks at what can end the
 * wait from outside: another rank gave up, a peer's process is gone.
 */
#ifndef DDP_BASE_WATCH_H
#define DDP_BASE_WATCH_H

#include <stdint.h>
#include <time.h>

#include "error.h"

/* How often at most a waiting loop calls ddp_watch_check(), in nanoseconds. */
#define DDP_WATCH_PERIOD 20000000u

struct ddp_watch {
	uint64_t deadline; /* on ddp_now()'s clock; UINT64_MAX: none */
	double limit;	   /* seconds, for messages */

	/* Returns 0 to go on, or a DDP_ERR_x with its text in [error]. NULL: nothing to look at. */
	int (*check)(void *owner, struct ddp_error *error);
	void *owner;
};

/* Nanoseconds on the monotonic clock; and seconds. */
uint64_t ddp_now(void);
double ddp_seconds(void);

/* [time], of a file for example, in seconds since 1970; of now where it is NULL. */
double ddp_date(const struct timespec *time);

/* [watch] with a deadline of [seconds] from now. */
struct ddp_watch ddp_watch_start(double seconds, int (*check)(void *, struct ddp_error *),
				 void *owner);

/*
 * [watch] with [seconds] more: for a wait that others' waits must end before, so that the rank
 * that is told of is the one that did not come and not one that waits for it.
 */
struct ddp_watch ddp_watch_later(const struct ddp_watch *watch, double seconds);

/*
 * Ask the owner, then the clock.
 * Returns 0 to go on; what the owner said; or DDP_ERR_TIMEOUT, without a text: the caller knows
 * whom it waits for.
 */
int ddp_watch_check(const struct ddp_watch *watch, struct ddp_error *error);

/* Sleep for [nanoseconds], but not beyond the deadline. */
void ddp_watch_sleep(const struct ddp_watch *watch, uint64_t nanoseconds);

/*
 * For a loop that polls what a device does: after each look without success, go on at once at first, then sleep ever
 * longer, up to a millisecond. [poll] is all zero before the first look.
 * Returns as ddp_watch_check(), which it asks twice in a period.
 */
struct ddp_poll {
	uint64_t checked;
	unsigned int looks;
};
int ddp_watch_poll(const struct ddp_watch *watch, struct ddp_poll *poll, struct ddp_error *error);

#endif /* DDP_BASE_WATCH_H */
