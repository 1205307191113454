/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slow-rank.c - find the slow rank for which the other ranks wait, and log its name
 *
 * In synchronous training, a step takes the same time on all ranks. A slow rank spends most of this
 * time between collectives. The other ranks spend part of it in collectives, waiting for the slow
 * rank. Every few seconds the ranks exchange the times that they spent between collectives. NCCL's
 * collectives are not included, since their calls return at once.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ddp-private.h"
#include "recorder.h"

enum {
	PERIOD = 5000,	/* milliseconds between two exchanges */
	MINIMUM = 1000, /* shortest interval that is evaluated, in milliseconds */
	/* largest ratio between the numbers of collectives in two successive intervals */
	GROWTH = 4,
	/* number of successive exchanges that must find a slow rank on a host before a warning */
	SUCCESSIVE = 2,
	LOG_PERIOD = 600000, /* milliseconds between warnings */
};

static int compare_times(const void *a, const void *b)
{
	const uint32_t *one = a, *other = b;

	return (*one > *other) - (*one < *other);
}

int ddp_slow_find(const struct ddp_pace *paces, int size, uint32_t *median)
{
	uint32_t *times = malloc((size_t)size * sizeof(*times)), most;
	int slowest = 0;

	*median = 0;
	if (!times)
		return -1;
	for (int rank = 0; rank < size; rank++) {
		times[rank] = paces[rank].between;
		if (times[rank] > times[slowest])
			slowest = rank;
	}
	most = times[slowest];
	times[slowest] = times[size - 1];
	qsort(times, (size_t)size - 1, sizeof(*times), compare_times);
	*median = times[(size - 1) / 2];
	free(times);
	return paces[slowest].all >= MINIMUM && most - *median > paces[slowest].all / 10 ? slowest
											 : -1;
}

static const char *host_of(const struct ddp *ddp, int rank)
{
	return ddp->topology->hosts[ddp->topology->places[rank].group];
}

/* On rank 0, log that [rank] is slow, and store the text in rank 0's failure record. */
static void log_slow_rank(struct ddp *ddp, int rank, const struct ddp_pace *pace, uint32_t median)
{
	struct ddp_slow *slow = &ddp->slow;
	uint64_t now = ddp_now() / 1000000;
	char text[384], since[32] = "";
	struct tm date;

	if (localtime_r(&slow->since, &date))
		strftime(since, sizeof(since), "%F %T", &date);
	snprintf(text, sizeof(text),
		 "%.*s is slow: it spent %.1f s of the last %.1f s between collectives, and the "
		 "median of the other ranks is %.1f s (since %s)",
		 128, ddp_rank_name(ddp, rank), pace->between / 1e3, pace->all / 1e3, median / 1e3,
		 since);
	ddp_recorder_set_slow(ddp->recorder, text);
	if (slow->logged_ms && now - slow->logged_ms < LOG_PERIOD)
		return;
	slow->logged_ms = now;
	ddp_log_print(&ddp->log, DDP_LEVEL_WARNING, "pace", "%s", text);
}

static void evaluate(struct ddp *ddp, const struct ddp_pace *paces)
{
	struct ddp_slow *slow = &ddp->slow;
	uint32_t median;
	int rank;

	/* The times are too short, or are 0 after a suspension. */
	for (rank = 0; rank < ddp->identity.size; rank++)
		if (paces[rank].all < MINIMUM)
			return;
	rank = ddp_slow_find(paces, ddp->identity.size, &median);
	if (rank < 0) {
		slow->times = 0;
		ddp_recorder_set_slow(ddp->recorder, "");
		return;
	}
	if (slow->times == 0 || strcmp(host_of(ddp, slow->rank), host_of(ddp, rank)) != 0) {
		slow->times = 0;
		slow->since = time(NULL) - paces[rank].all / 1000;
	}
	slow->rank = rank;
	if (++slow->times >= SUCCESSIVE)
		log_slow_rank(ddp, rank, &paces[rank], median);
}

/* All ranks compute slow.next from rank 0's time, so that they get the same number. */
int ddp_slow_exchange(struct ddp *ddp)
{
	struct ddp_pace *paces = ddp->slow.paces;
	struct ddp_pace own = ddp_recorder_pace(ddp->recorder);
	uint64_t calls = ddp->sequence - ddp->slow.last, next;
	unsigned int suspensions = ddp_watch_suspensions();
	int status;

	/* If all ranks were suspended, a rank that was between two collectives would look slow. */
	if (suspensions != ddp->slow.suspensions)
		own = (struct ddp_pace){0, 0};
	ddp->slow.suspensions = suspensions;
	ddp->slow.next = UINT64_MAX; /* the exchange itself is a collective */
	status = ddp_all_gather(ddp, &own, paces, sizeof(own));
	if (status == 0) {
		if (ddp->identity.rank == 0)
			evaluate(ddp, paces);
		next = paces[0].all > 0 ? calls * PERIOD / paces[0].all : calls;
		next = next > GROWTH * calls ? GROWTH * calls : next;
		ddp->slow.last = ddp->sequence;
		ddp->slow.next = ddp->sequence + (next > 0 ? next : 1);
	}
	return status;
}
