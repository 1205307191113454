/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

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

struct ddp_watch ddp_watch_start(double seconds, int (*check)(void *, struct ddp_error *),
				 void *owner)
{
	struct ddp_watch watch = {.begin = ddp_now(),
				  .deadline = UINT64_MAX,
				  .limit = seconds,
				  .check = check,
				  .owner = owner};

	if (seconds >= 0 && seconds < 1e9)
		watch.deadline = watch.begin + (uint64_t)(seconds * NANOSECONDS);
	return watch;
}

struct ddp_watch ddp_watch_later(const struct ddp_watch *watch, double seconds)
{
	struct ddp_watch later = *watch;

	if (later.deadline != UINT64_MAX)
		later.deadline += (uint64_t)(seconds * NANOSECONDS);
	return later;
}

/* A longer pause between two checks means that the process was stopped, and not just slow. */
#define LONGEST_PAUSE (10 * (uint64_t)NANOSECONDS)

uint64_t ddp_stops_check(struct ddp_stops *stops, uint64_t begin, uint64_t now)
{
	uint64_t from = stops->checked > begin ? stops->checked : begin, sum = 0;

	stops->checked = now;
	if (now > from && now - from > LONGEST_PAUSE)
		stops->stop[stops->count++ % DDP_STOPS] = (struct ddp_stop){from, now};
	for (int i = 0; i < DDP_STOPS; i++) {
		const struct ddp_stop *stop = &stops->stop[i];

		if (stop->end > begin)
			sum += stop->end - (stop->begin > begin ? stop->begin : begin);
	}
	return sum;
}

int ddp_watch_check(const struct ddp_watch *watch, struct ddp_error *error)
{
	static _Thread_local struct ddp_stops stops;
	int status = watch->check ? watch->check(watch->owner, error) : 0;
	uint64_t now = ddp_now(), stopped = ddp_stops_check(&stops, watch->begin, now);

	if (status < 0)
		return status;
	return now - stopped < watch->deadline ? 0 : DDP_ERR_TIMEOUT;
}

void ddp_watch_sleep(const struct ddp_watch *watch, uint64_t nanoseconds)
{
	uint64_t now = ddp_now(), most = DDP_WATCH_PERIOD;
	struct timespec time;

	if (now < watch->deadline)
		most = watch->deadline - now;
	nanoseconds = nanoseconds < most ? nanoseconds : most;
	time.tv_sec = (time_t)(nanoseconds / NANOSECONDS);
	time.tv_nsec = (long)(nanoseconds % NANOSECONDS);
	nanosleep(&time, NULL);
}

int ddp_watch_poll(const struct ddp_watch *watch, struct ddp_poll *poll, struct ddp_error *error)
{
	enum { AT_ONCE = 200, DOUBLINGS = 10 };
	unsigned int sleeps = poll->count < AT_ONCE ? 0 : poll->count - AT_ONCE;
	uint64_t now;

	if (poll->count++ >= AT_ONCE)
		ddp_watch_sleep(watch, UINT64_C(1000) << (sleeps < DOUBLINGS ? sleeps : DOUBLINGS));
	now = ddp_now();
	if (!poll->checked)
		poll->checked = now;
	if (now - poll->checked < DDP_WATCH_PERIOD / 2 && now < watch->deadline)
		return 0;
	poll->checked = now;
	return ddp_watch_check(watch, error);
}
