/* SPDX-License-Identifier: Apache-2.0 */
/* watch.c - clocks, time limits, and pauses of loops that wait */
#include "config.h"

#include <stdatomic.h>
#include <stdbool.h>

#include "watch.h"

#define NANOSECONDS 1000000000u

uint64_t ddp_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NANOSECONDS + (uint64_t)now.tv_nsec;
}

double ddp_seconds(void)
{
	return (double)ddp_now() / NANOSECONDS;
}

double ddp_date(const struct timespec *time)
{
	struct timespec now;

	if (!time) {
		clock_gettime(CLOCK_REALTIME, &now);
		time = &now;
	}
	return (double)time->tv_sec + (double)time->tv_nsec / NANOSECONDS;
}

/* --- Awake time --------------------------------------------------------------------------- */

/*
 * Longest time between two checks that is added to a clock. Time beyond it is a suspension. The
 * second limit is for threads that may have been blocked elsewhere (ddp_watch_block()).
 */
#define LONGEST_AWAKE UINT64_C(1000000000)
#define LONGEST_BLOCKED UINT64_C(30000000000)

_Static_assert(DDP_WATCH_PERIOD <= LONGEST_AWAKE / 2, "sleeps count in full, also on a busy host");

struct ddp_clock {
	uint64_t checked;     /* time of the last check, a value of ddp_now() */
	uint64_t awake;	      /* awake time at the last check */
	unsigned int blocked; /* depth of nested calls of ddp_watch_block() */
	atomic_uint *suspensions;
};

/*
 * Each module has its own copy of this file and of these variables. A watch points to the clock of
 * the copy that used it first, and the clock to that copy's sum over all threads.
 */
static atomic_uint all_suspensions;
static _Thread_local struct ddp_clock thread_clock = {.suspensions = &all_suspensions};

/* Add the time since the last check, up to the limit. Returns whether it exceeded the limit. */
static bool advance(struct ddp_clock *clock, uint64_t now)
{
	uint64_t most = clock->blocked ? LONGEST_BLOCKED : LONGEST_AWAKE;
	uint64_t passed = now - clock->checked;

	clock->checked = now;
	clock->awake += passed < most ? passed : most;
	return passed > most;
}

static void check_clock(struct ddp_clock *clock)
{
	if (advance(clock, ddp_now()))
		atomic_fetch_add(clock->suspensions, 1);
}

/* The time until now may be outside of a wait, so it is not counted as a suspension. */
void ddp_watch_block(void)
{
	(void)advance(&thread_clock, ddp_now());
	thread_clock.blocked++;
}

void ddp_watch_unblock(void)
{
	check_clock(&thread_clock);
	thread_clock.blocked--;
}

unsigned int ddp_watch_suspensions(void)
{
	return atomic_load(&all_suspensions);
}

/* --- Watches ------------------------------------------------------------------------------ */

struct ddp_watch ddp_watch_start(double seconds, int (*check)(void *, struct ddp_error *),
				 void *owner)
{
	return (struct ddp_watch){
		.deadline = seconds >= 0 && seconds < 1e9 ? (uint64_t)(seconds * NANOSECONDS)
							  : UINT64_MAX,
		.limit = seconds,
		.check = check,
		.owner = owner,
	};
}

struct ddp_watch ddp_watch_later(const struct ddp_watch *watch, double seconds)
{
	struct ddp_watch later = *watch;

	if (later.deadline != UINT64_MAX)
		later.deadline += (uint64_t)(seconds * NANOSECONDS);
	return later;
}

/*
 * Returns the clock of [watch]. The first call starts the watch, and for this it casts const away.
 * Before that call the thread was not waiting. So a long time since its last check is not counted
 * as a suspension.
 */
static struct ddp_clock *clock_of(const struct ddp_watch *watch)
{
	struct ddp_watch *started = (struct ddp_watch *)(uintptr_t)watch;

	if (watch->clock)
		return watch->clock;
	started->clock = &thread_clock;
	(void)advance(started->clock, ddp_now());
	if (started->deadline != UINT64_MAX)
		started->deadline += started->clock->awake;
	return started->clock;
}

uint64_t ddp_watch_now(const struct ddp_watch *watch)
{
	struct ddp_clock *clock = clock_of(watch);

	check_clock(clock);
	return clock->awake;
}

int ddp_watch_check(const struct ddp_watch *watch, struct ddp_error *error)
{
	int status = watch->check ? watch->check(watch->owner, error) : 0;
	uint64_t now = ddp_watch_now(watch);

	if (status < 0)
		return status;
	return now < watch->deadline ? 0 : DDP_ERR_TIMEOUT;
}

void ddp_watch_sleep(const struct ddp_watch *watch, uint64_t nanoseconds)
{
	struct ddp_clock *clock = clock_of(watch);
	uint64_t now = ddp_watch_now(watch), most = DDP_WATCH_PERIOD;
	unsigned int blocked = clock->blocked;
	struct timespec time = {0};

	if (now < watch->deadline && watch->deadline - now < most)
		most = watch->deadline - now;
	time.tv_nsec = (long)(nanoseconds < most ? nanoseconds : most);
	clock->blocked = 0;
	nanosleep(&time, NULL);
	check_clock(clock);
	clock->blocked = blocked;
}

int ddp_watch_poll(const struct ddp_watch *watch, struct ddp_poll *poll, struct ddp_error *error)
{
	enum { AT_ONCE = 200, DOUBLINGS = 10 };
	unsigned int sleeps = poll->count < AT_ONCE ? 0 : poll->count - AT_ONCE;
	struct ddp_clock *clock = clock_of(watch);
	uint64_t now;

	clock->blocked++;
	now = ddp_watch_now(watch);
	clock->blocked--;
	if (poll->count++ >= AT_ONCE)
		ddp_watch_sleep(watch, UINT64_C(1000) << (sleeps < DOUBLINGS ? sleeps : DOUBLINGS));
	if (!poll->checked)
		poll->checked = now;
	if (now - poll->checked < DDP_WATCH_PERIOD / 2 && now < watch->deadline)
		return 0;
	poll->checked = now;
	return ddp_watch_check(watch, error);
}
