/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/param.h>
#include <time.h>

#include "fabric.h"
#include "unit.h"

enum { EAGER = 256 }; /* bytes up to which a send ends at once */

struct parcel {
	struct parcel *next;
	int from;
	uint64_t tag, mask;
	size_t bytes;
	int result;
	const char *data;		  /* the sender's, or [copy] */
	void *place;			  /* of a receive */
	struct ddp_host_request *request; /* NULL: ended */
	char copy[EAGER];
};

struct ddp_host {
	struct fabric *fabric;
	int rank;
	struct parcel *came, *wanted, *ended;	  /* [ended] sends, to be told by progress */
	bool broken, *asked, *answered, *dropped; /* [size], dropped: to that rank */
	int noted;
	char note[DDP_HOST_NOTE];
};

struct fabric {
	pthread_mutex_t lock;
	pthread_cond_t news;
	int size;
	uint64_t random;
	int overlaps; /* receives into memory that is still being sent */
	struct ddp_host *hosts;
};

struct fabric *fabric_create(int size, uint64_t seed)
{
	struct fabric *fabric = calloc(1, sizeof(*fabric));

	pthread_mutex_init(&fabric->lock, NULL);
	pthread_cond_init(&fabric->news, NULL);
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

static int free_list(struct parcel *parcel)
{
	int count = 0;

	while (parcel) {
		struct parcel *next = parcel->next;

		count += parcel->request != NULL;
		free(parcel);
		parcel = next;
	}
	return count;
}

void fabric_destroy(struct fabric *fabric)
{
	for (int i = 0; i < fabric->size; i++) {
		struct ddp_host *host = &fabric->hosts[i];

		free_list(host->came);
		free_list(host->wanted);
		free_list(host->ended);
		free(host->asked);
		free(host->answered);
		free(host->dropped);
	}
	pthread_cond_destroy(&fabric->news);
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
	pthread_cond_broadcast(&fabric->news);
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
		count += count_open(fabric->hosts[i].came) + count_open(fabric->hosts[i].wanted) +
			 count_open(fabric->hosts[i].ended);
	return count;
}

/* --- Messages; the lock is held ----------------------------------------------------------- */

/* The first of [list] that goes with [parcel], taken out of it. */
static struct parcel *match(struct parcel **list, const struct parcel *parcel, bool wanted)
{
	for (; *list; list = &(*list)->next) {
		struct parcel *other = *list;
		uint64_t mask = wanted ? other->mask : parcel->mask;

		if (other->from == parcel->from && ((other->tag ^ parcel->tag) & mask) == 0) {
			*list = other->next;
			return other;
		}
	}
	return NULL;
}

static void end(struct ddp_host *host, struct parcel *parcel, int result)
{
	parcel->result = result;
	parcel->next = host->ended;
	host->ended = parcel;
}

/* [message] and what [to] wanted have met. */
static void deliver(struct ddp_host *to, struct parcel *message, struct parcel *wanted)
{
	bool fits = message->bytes <= wanted->bytes;

	if (fits && message->bytes)
		memcpy(wanted->place, message->data, message->bytes);
	wanted->tag = message->tag;
	wanted->bytes = message->bytes;
	end(&to->fabric->hosts[message->from], message, 1);
	end(to, wanted, fits ? 1 : DDP_ERR_MISMATCH);
}

/* Behind all that have the same sender and tag, else anywhere. */
static void put(struct fabric *fabric, struct parcel **list, struct parcel *parcel)
{
	struct parcel **link = list;
	uint32_t jump = unit_random(&fabric->random, 4);

	for (struct parcel **at = list; *at; at = &(*at)->next)
		if ((*at)->from == parcel->from && (*at)->tag == parcel->tag)
			link = &(*at)->next;
	for (; jump && *link; jump--)
		link = &(*link)->next;
	parcel->next = *link;
	*link = parcel;
}

static struct parcel *parcel_of(int from, uint64_t tag, size_t bytes,
				struct ddp_host_request *request)
{
	struct parcel *parcel = calloc(1, sizeof(*parcel));

	parcel->from = from;
	parcel->tag = tag;
	parcel->bytes = bytes;
	parcel->request = request;
	return parcel;
}

static int fabric_send(struct ddp_host *host, int peer, uint64_t tag, const void *data,
		       size_t bytes, struct ddp_host_request *request, struct ddp_error *error)
{
	struct fabric *fabric = host->fabric;
	struct parcel *message = parcel_of(host->rank, tag, bytes, request), *wanted = NULL;

	(void)error;
	request->peer = peer;
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
		wanted = match(&fabric->hosts[peer].wanted, message, true);
	if (host->dropped[peer])
		put(fabric, &host->came, message); /* nobody looks for it there */
	else if (wanted)
		deliver(&fabric->hosts[peer], message, wanted);
	else
		put(fabric, &fabric->hosts[peer].came, message);
	pthread_cond_broadcast(&fabric->news);
	pthread_mutex_unlock(&fabric->lock);
	return 0;
}

/* The sends of [rank] in [list], whose end it has not seen, that read from where [wanted] goes. */
static int overlaps(const struct parcel *list, int rank, const struct parcel *wanted)
{
	const char *place = wanted->place;
	int count = 0;

	for (; list; list = list->next)
		count += list->request && !list->place && list->from == rank &&
			 list->data < place + wanted->bytes && place < list->data + list->bytes;
	return count;
}

static int fabric_recv(struct ddp_host *host, int peer, uint64_t tag, uint64_t mask, void *data,
		       size_t bytes, struct ddp_host_request *request, struct ddp_error *error)
{
	struct parcel *wanted = parcel_of(peer, tag, bytes, request), *message;

	(void)error;
	request->peer = peer;
	request->status = 0;
	wanted->mask = mask;
	wanted->place = data;
	pthread_mutex_lock(&host->fabric->lock);
	for (int i = 0; i < host->fabric->size; i++)
		host->fabric->overlaps += overlaps(host->fabric->hosts[i].came, host->rank, wanted);
	host->fabric->overlaps += overlaps(host->ended, host->rank, wanted);
	message = match(&host->came, wanted, false);
	if (message)
		deliver(host, message, wanted);
	else
		put(host->fabric, &host->wanted, wanted);
	pthread_cond_broadcast(&host->fabric->news);
	pthread_mutex_unlock(&host->fabric->lock);
	return 0;
}

static bool take_out(struct parcel **list, const struct ddp_host_request *request)
{
	for (; *list; list = &(*list)->next) {
		struct parcel *parcel = *list;

		if (parcel->request != request)
			continue;
		*list = parcel->next;
		free(parcel);
		return true;
	}
	return false;
}

static void fabric_cancel(struct ddp_host *host, struct ddp_host_request *request)
{
	pthread_mutex_lock(&host->fabric->lock);
	for (int i = 0; i < host->fabric->size; i++) {
		take_out(&host->fabric->hosts[i].came, request);
		take_out(&host->fabric->hosts[i].wanted, request);
		take_out(&host->fabric->hosts[i].ended, request);
	}
	request->status = DDP_ERR_ABORTED;
	pthread_mutex_unlock(&host->fabric->lock);
}

/* --- Time and faults ----------------------------------------------------------------------- */

static int fabric_progress(struct ddp_host *host)
{
	struct fabric *fabric = host->fabric;
	struct parcel *parcel;
	int happened = 0;

	pthread_mutex_lock(&fabric->lock);
	while ((parcel = host->ended)) {
		host->ended = parcel->next;
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

static void fabric_idle(struct ddp_host *host, uint64_t nanoseconds)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += (long)MIN(nanoseconds, 1000000);
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&host->fabric->lock);
	if (!host->ended)
		pthread_cond_timedwait(&host->fabric->news, &host->fabric->lock, &until);
	pthread_mutex_unlock(&host->fabric->lock);
}

static int fabric_broken(struct ddp_host *host, int *peer, char *why, size_t size)
{
	int broken = 0;

	pthread_mutex_lock(&host->fabric->lock);
	for (int i = 0; i < host->fabric->size && !broken; i++)
		if (i != host->rank && host->fabric->hosts[i].broken) {
			*peer = i;
			snprintf(why, size, "cut on purpose");
			broken = 1;
		}
	pthread_mutex_unlock(&host->fabric->lock);
	return broken;
}

static void fabric_note(struct ddp_host *host, int peer, const char *text)
{
	struct ddp_host *to = &host->fabric->hosts[peer];

	pthread_mutex_lock(&host->fabric->lock);
	if (to->noted < 0) {
		to->noted = host->rank;
		snprintf(to->note, sizeof(to->note), "%s", text);
	}
	pthread_cond_broadcast(&host->fabric->news);
	pthread_mutex_unlock(&host->fabric->lock);
}

static int fabric_noted(struct ddp_host *host, int *peer, char *text, size_t size)
{
	int noted;

	pthread_mutex_lock(&host->fabric->lock);
	noted = host->noted >= 0;
	*peer = host->noted;
	snprintf(text, size, "%s", host->note);
	pthread_mutex_unlock(&host->fabric->lock);
	return noted;
}

static void fabric_ask(struct ddp_host *host, int peer)
{
	pthread_mutex_lock(&host->fabric->lock);
	host->answered[peer] = false;
	host->fabric->hosts[peer].asked[host->rank] = true;
	pthread_cond_broadcast(&host->fabric->news);
	pthread_mutex_unlock(&host->fabric->lock);
}

static bool fabric_answered(struct ddp_host *host, int peer)
{
	bool answered;

	pthread_mutex_lock(&host->fabric->lock);
	answered = host->answered[peer];
	pthread_mutex_unlock(&host->fabric->lock);
	return answered;
}

const struct ddp_host_engine fabric_engine = {
	.send = fabric_send,
	.recv = fabric_recv,
	.progress = fabric_progress,
	.idle = fabric_idle,
	.cancel = fabric_cancel,
	.broken = fabric_broken,
	.note = fabric_note,
	.noted = fabric_noted,
	.ask = fabric_ask,
	.answered = fabric_answered,
};
