/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/param.h>
#include <time.h>

#include "fabric.h"
#include "unit.h"
#include "wide/ring.h"

enum { EAGER = 256 }; /* a send of at most this many bytes completes at once */

struct parcel {
	struct parcel *next;
	int from, owner; /* sender; member that posted the send or receive */
	uint64_t tag;
	size_t bytes;
	int result;
	const char *data;		  /* the sender's memory, or [copy] */
	void *destination;		  /* memory of a receive */
	struct ddp_host_request *request; /* NULL: the request is completed */
	char copy[EAGER];
};

struct ddp_host {
	struct fabric *fabric;
	int rank;
	struct parcel *arrived, *wanted,
		*completed; /* completed requests that the next progress() reports */
	bool broken, *asked, *answered,
		*dropped; /* array of [size]; dropped[r]: messages to rank r are dropped */
	int noted;
	char note[DDP_HOST_NOTE];
};

struct fabric {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int size;
	uint64_t random;
	int overlaps; /* result of fabric_overlaps() */
	struct ddp_host *hosts;
};

struct fabric *fabric_create(int size, uint64_t seed)
{
	struct fabric *fabric = calloc(1, sizeof(*fabric));

	pthread_mutex_init(&fabric->lock, NULL);
	pthread_cond_init(&fabric->changed, NULL);
	fabric->size = size;
	fabric->random = seed;
	fabric->hosts = calloc((size_t)size, sizeof(*fabric->hosts));
	for (int i = 0; i < size; i++) {
		struct ddp_host *host = &fabric->hosts[i];

		host->fabric = fabric;
		host->rank = i;
		host->noted = -1;
		host->asked = calloc((size_t)size, sizeof(bool));
		host->answered = calloc((size_t)size, sizeof(bool));
		host->dropped = calloc((size_t)size, sizeof(bool));
	}
	return fabric;
}

static void free_list(struct parcel *parcel)
{
	while (parcel) {
		struct parcel *next = parcel->next;

		free(parcel);
		parcel = next;
	}
}

void fabric_destroy(struct fabric *fabric)
{
	for (int i = 0; i < fabric->size; i++) {
		struct ddp_host *host = &fabric->hosts[i];

		free_list(host->arrived);
		free_list(host->wanted);
		free_list(host->completed);
		free(host->asked);
		free(host->answered);
		free(host->dropped);
	}
	pthread_cond_destroy(&fabric->changed);
	pthread_mutex_destroy(&fabric->lock);
	free(fabric->hosts);
	free(fabric);
}

struct ddp_host *fabric_host(struct fabric *fabric, int rank)
{
	return &fabric->hosts[rank];
}

void fabric_break(struct fabric *fabric, int rank)
{
	pthread_mutex_lock(&fabric->lock);
	fabric->hosts[rank].broken = true;
	pthread_cond_broadcast(&fabric->changed);
	pthread_mutex_unlock(&fabric->lock);
}

void fabric_drop(struct fabric *fabric, int from, int to)
{
	fabric->hosts[from].dropped[to] = true;
}

static int count_open(const struct parcel *parcel)
{
	int count = 0;

	for (; parcel; parcel = parcel->next)
		count += parcel->request != NULL;
	return count;
}

int fabric_overlaps(struct fabric *fabric)
{
	return fabric->overlaps;
}

int fabric_open(struct fabric *fabric)
{
	int count = 0;

	for (int i = 0; i < fabric->size; i++)
		count += count_open(fabric->hosts[i].arrived) +
			 count_open(fabric->hosts[i].wanted) +
			 count_open(fabric->hosts[i].completed);
	return count;
}

/* --- Messages; callers hold the lock ------------------------------------------------------ */

/* Removes and returns the first parcel of [list] that matches [parcel]. */
static struct parcel *match(struct parcel **list, const struct parcel *parcel)
{
	for (; *list; list = &(*list)->next) {
		struct parcel *other = *list;

		if (other->from == parcel->from) {
			*list = other->next;
			return other;
		}
	}
	return NULL;
}

static void complete(struct ddp_host *host, struct parcel *parcel, int result)
{
	parcel->result = result;
	parcel->next = host->completed;
	host->completed = parcel;
}

/* Completes [message] and the receive [wanted] of member [to]. */
static void deliver(struct ddp_host *to, struct parcel *message, struct parcel *wanted)
{
	bool fits = message->bytes <= wanted->bytes;

	if (fits && message->bytes)
		memcpy(wanted->destination, message->data, message->bytes);
	wanted->tag = message->tag;
	wanted->bytes = message->bytes;
	complete(&to->fabric->hosts[message->from], message, 1);
	complete(to, wanted, fits ? 1 : DDP_ERR_MISMATCH);
}

/* Inserts [parcel] at a random position after all parcels of the same sender. */
static void put(struct fabric *fabric, struct parcel **list, struct parcel *parcel)
{
	struct parcel **link = list;
	uint32_t jump = unit_random(&fabric->random, 4);

	for (struct parcel **at = list; *at; at = &(*at)->next)
		if ((*at)->from == parcel->from)
			link = &(*at)->next;
	for (; jump && *link; jump--)
		link = &(*link)->next;
	parcel->next = *link;
	*link = parcel;
}

static struct parcel *parcel_of(const struct ddp_host *owner, int from, uint64_t tag, size_t bytes,
				struct ddp_host_request *request)
{
	struct parcel *parcel = calloc(1, sizeof(*parcel));

	parcel->from = from;
	parcel->owner = owner->rank;
	parcel->tag = tag;
	parcel->bytes = bytes;
	parcel->request = request;
	return parcel;
}

/* Fails unless the column has a connection to [peer]. */
static void check_partner(const struct ddp_host *host, int peer)
{
	int partners[DDP_COLUMN_PARTNERS];
	int count = ddp_column_partners(host->fabric->size, host->rank, partners);

	while (count > 0 && partners[count - 1] != peer)
		count--;
	if (count == 0) {
		fprintf(stderr, "member %d sends to %d, which is no partner\n", host->rank, peer);
		abort();
	}
}

static int fabric_send(struct ddp_host *host, int peer, uint64_t tag, const void *data,
		       size_t bytes, struct ddp_host_request *request, struct ddp_error *error)
{
	struct fabric *fabric = host->fabric;
	struct parcel *message = parcel_of(host, host->rank, tag, bytes, request), *wanted = NULL;

	(void)error;
	check_partner(host, peer);
	request->status = 0;
	message->data = data;
	if (bytes <= EAGER) {
		if (bytes)
			memcpy(message->copy, data, bytes);
		message->data = message->copy;
		message->request = NULL;
		request->status = 1;
	}
	pthread_mutex_lock(&fabric->lock);
	if (!host->dropped[peer])
		wanted = match(&fabric->hosts[peer].wanted, message);
	if (host->dropped[peer])
		put(fabric, &host->arrived,
		    message); /* never received, because match() does not find it in this list */
	else if (wanted)
		deliver(&fabric->hosts[peer], message, wanted);
	else
		put(fabric, &fabric->hosts[peer].arrived, message);
	pthread_cond_broadcast(&fabric->changed);
	pthread_mutex_unlock(&fabric->lock);
	return 0;
}

/*
 * Counts the sends of [rank] in [list] that have not completed and read memory that [wanted] will
 * write.
 */
static int overlaps(const struct parcel *list, int rank, const struct parcel *wanted)
{
	const char *destination = wanted->destination;
	int count = 0;

	for (; list; list = list->next)
		count += list->request && !list->destination && list->from == rank &&
			 list->data < destination + wanted->bytes &&
			 destination < list->data + list->bytes;
	return count;
}

static int fabric_recv(struct ddp_host *host, int peer, uint64_t tag, void *data, size_t bytes,
		       struct ddp_host_request *request, struct ddp_error *error)
{
	struct parcel *wanted = parcel_of(host, peer, tag, bytes, request), *message;

	(void)error;
	request->status = 0;
	wanted->destination = data;
	pthread_mutex_lock(&host->fabric->lock);
	for (int i = 0; i < host->fabric->size; i++)
		host->fabric->overlaps +=
			overlaps(host->fabric->hosts[i].arrived, host->rank, wanted);
	host->fabric->overlaps += overlaps(host->completed, host->rank, wanted);
	message = match(&host->arrived, wanted);
	if (message)
		deliver(host, message, wanted);
	else
		put(host->fabric, &host->wanted, wanted);
	pthread_cond_broadcast(&host->fabric->changed);
	pthread_mutex_unlock(&host->fabric->lock);
	return 0;
}

static void cancel_parcels(struct parcel **list, int rank)
{
	while (*list) {
		struct parcel *parcel = *list;

		if (!parcel->request || parcel->owner != rank) {
			list = &parcel->next;
			continue;
		}
		parcel->request->status = DDP_ERR_ABORTED;
		*list = parcel->next;
		free(parcel);
	}
}

static void fabric_cancel(struct ddp_host *host)
{
	pthread_mutex_lock(&host->fabric->lock);
	for (int i = 0; i < host->fabric->size; i++) {
		cancel_parcels(&host->fabric->hosts[i].arrived, host->rank);
		cancel_parcels(&host->fabric->hosts[i].wanted, host->rank);
		cancel_parcels(&host->fabric->hosts[i].completed, host->rank);
	}
	pthread_mutex_unlock(&host->fabric->lock);
}

/* --- Time and faults ----------------------------------------------------------------------- */

static int handle_completed(struct ddp_host *host)
{
	struct fabric *fabric = host->fabric;
	struct parcel *parcel;
	int happened = 0;

	pthread_mutex_lock(&fabric->lock);
	while ((parcel = host->completed)) {
		host->completed = parcel->next;
		if (parcel->request) {
			parcel->request->tag = parcel->tag;
			parcel->request->bytes = parcel->bytes;
			parcel->request->status = parcel->result;
		}
		free(parcel);
		happened++;
	}
	for (int i = 0; i < fabric->size; i++) {
		if (!host->asked[i])
			continue;
		host->asked[i] = false;
		fabric->hosts[i].answered[host->rank] = true;
		happened++;
	}
	pthread_mutex_unlock(&fabric->lock);
	return happened;
}

static int fabric_progress(struct ddp_host *host, uint64_t nanoseconds)
{
	int happened = handle_completed(host);
	struct timespec until;

	if (happened || !nanoseconds)
		return happened;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += (long)MIN(nanoseconds, 1000000);
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&host->fabric->lock);
	if (!host->completed)
		pthread_cond_timedwait(&host->fabric->changed, &host->fabric->lock, &until);
	pthread_mutex_unlock(&host->fabric->lock);
	return 0;
}

static enum ddp_host_event fabric_event(struct ddp_host *host, int *peer, char *text, size_t size)
{
	enum ddp_host_event event = DDP_HOST_QUIET;

	pthread_mutex_lock(&host->fabric->lock);
	for (int i = 0; i < host->fabric->size && event == DDP_HOST_QUIET; i++)
		if (i != host->rank && host->fabric->hosts[i].broken) {
			*peer = i;
			snprintf(text, size, "cut on purpose");
			event = DDP_HOST_LOST;
		}
	if (host->noted >= 0) {
		*peer = host->noted;
		snprintf(text, size, "%s", host->note);
		event = DDP_HOST_NOTED;
	}
	pthread_mutex_unlock(&host->fabric->lock);
	return event;
}

static void fabric_note(struct ddp_host *host, const char *text)
{
	pthread_mutex_lock(&host->fabric->lock);
	for (int i = 0; i < host->fabric->size; i++) {
		struct ddp_host *to = &host->fabric->hosts[i];

		if (to == host || to->noted >= 0)
			continue;
		to->noted = host->rank;
		snprintf(to->note, sizeof(to->note), "%s", text);
	}
	pthread_cond_broadcast(&host->fabric->changed);
	pthread_mutex_unlock(&host->fabric->lock);
}

static int fabric_silent(struct ddp_host *host, bool ask, int *first)
{
	int silent = 0;

	pthread_mutex_lock(&host->fabric->lock);
	for (int i = host->fabric->size - 1; i >= 0; i--) {
		if (i == host->rank)
			continue;
		if (ask) {
			host->answered[i] = false;
			host->fabric->hosts[i].asked[host->rank] = true;
		}
		if (!host->answered[i]) {
			*first = i;
			silent++;
		}
	}
	pthread_cond_broadcast(&host->fabric->changed);
	pthread_mutex_unlock(&host->fabric->lock);
	return silent;
}

const struct ddp_host_engine fabric_engine = {
	.send = fabric_send,
	.recv = fabric_recv,
	.progress = fabric_progress,
	.cancel = fabric_cancel,
	.event = fabric_event,
	.note = fabric_note,
	.silent = fabric_silent,
};
