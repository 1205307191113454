/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp.c - the engine between groups over TCP; part of libddp, needs libc only
 *
 * A connection (tcp-meet.c makes them) carries frames: a header of 24 bytes, then its payload.
 *
 *   DATA    a message; the receiver matches messages to its receives in order
 *   NOTE    an abort: the rank that it comes from, then the text; a rank forwards the first one
 *           that it receives to all its connections
 *   ASK     "do you call progress()?"; progress() answers with ANSWER
 *   ANSWER
 *   BYE     the sender has closed its side in good order and sends nothing after it
 *
 * All but DATA are control frames. They are sent between two DATA frames, before those that wait.
 * A message that arrives before its receive is kept, up to STASH_MOST bytes per connection; beyond
 * that the connection is not read until a receive takes one. A connection that ends without BYE is
 * lost.
 */
#include "config.h"

#include <errno.h>
#include <linux/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "tcp-private.h"
#include "tcp.h"

enum {
	STAGING = 16 << 10,	/* bytes read at once beside those that have a place */
	STASH_MOST = 256 << 20, /* bytes of messages without a receive, per connection */
	CONTROL_MOST = 8 << 10, /* bytes of control frames that wait, per connection */
	SEND_VECTOR = 16,
};

/* Nanoseconds after which progress() polls all connections, also those without a request. */
#define SERVE_NS UINT64_C(1000000)

/* Nanoseconds between two checks whether the peers' hosts answer. */
#define CHECK_NS UINT64_C(1000000000)

/* Nanoseconds that a clean end waits for the partners' BYE, and that notes may take at another end. */
#define GOODBYE_NS UINT64_C(800000000)
#define POSTING_NS UINT64_C(50000000)

enum frame_kind {
	FRAME_DATA = 1,
	FRAME_NOTE,
	FRAME_ASK,
	FRAME_ANSWER,
	FRAME_BYE,
};

struct frame {
	uint32_t kind;
	int32_t rank; /* NOTE: the rank that aborted */
	uint64_t tag; /* DATA */
	uint64_t bytes;
};

_Static_assert(sizeof(struct frame) == 24, "bytes of a header");

/* A message that is sent or received; one for each request. */
struct transfer {
	struct transfer *next;
	struct ddp_host_request *request; /* NULL: cancelled */
	struct frame frame;
	char *data; /* of the caller; a copy of ours if [owned] */
	bool owned;
	bool complete; /* of the stash: all of it has arrived */
};

struct queue {
	struct transfer *first, **end;
};

struct connection {
	int fd, peer;
	struct queue sends, receives;
	struct queue stash; /* messages without a receive */
	size_t stashed;	    /* bytes */

	size_t sent; /* of the first send: header and payload */
	char *control;
	size_t control_bytes, control_sent;

	/* The frame that arrives: its header, then where its payload goes. */
	struct frame frame;
	bool in_frame;
	struct transfer *target; /* NULL: the payload is discarded, or goes to [note] */
	size_t arrived;		 /* bytes of the payload */
	char note[DDP_HOST_NOTE];

	char *staging; /* bytes that were read and not handled, from [begin] to [end] */
	size_t begin, end;

	bool blocked; /* the stash is full */
	bool answered;
	bool bye;    /* the peer has closed in good order */
	bool closed; /* nothing more arrives, and nothing can be sent */
};

struct ddp_host {
	const struct ddp_log *log;
	int rank, size;
	struct ddp_tcp_meeting meeting; /* until meet() */
	struct connection *connections; /* [count] */
	int count;
	int *index; /* [size]: of a rank's connection, or -1 */
	struct pollfd *polled;
	struct transfer *spare;
	uint64_t served;  /* when all connections were last polled */
	uint64_t checked; /* when the hosts were last checked */
	double limit;	  /* seconds of a wait */

	int lost; /* connection that was lost first, or -1 */
	char why[128];
	int noted; /* rank of the first note, or -1 */
	char note[DDP_HOST_NOTE];
};

/* --- Transfers ---------------------------------------------------------------------------- */

static void queue_init(struct queue *queue)
{
	queue->first = NULL;
	queue->end = &queue->first;
}

static void append(struct queue *queue, struct transfer *transfer)
{
	transfer->next = NULL;
	*queue->end = transfer;
	queue->end = &transfer->next;
}

static struct transfer *take_first(struct queue *queue)
{
	struct transfer *transfer = queue->first;

	queue->first = transfer->next;
	if (!queue->first)
		queue->end = &queue->first;
	return transfer;
}

static struct transfer *new_transfer(struct ddp_host *host, struct ddp_host_request *request)
{
	struct transfer *transfer = host->spare;

	if (transfer)
		host->spare = transfer->next;
	else if (!(transfer = malloc(sizeof(*transfer))))
		return NULL;
	*transfer = (struct transfer){.request = request};
	return transfer;
}

static void release(struct ddp_host *host, struct transfer *transfer)
{
	if (transfer->owned)
		free(transfer->data);
	transfer->next = host->spare;
	host->spare = transfer;
}

static void finish(struct ddp_host *host, struct transfer *transfer, int status)
{
	if (transfer->request) {
		transfer->request->engine = NULL;
		transfer->request->status = status;
	}
	release(host, transfer);
}

static void finish_all(struct ddp_host *host, struct queue *queue, int status)
{
	while (queue->first)
		finish(host, take_first(queue), status);
}

/* --- The end of a connection -------------------------------------------------------------- */

static void lose(struct ddp_host *host, struct connection *connection, const char *why)
{
	if (connection->closed)
		return;
	connection->closed = true;
	connection->target = NULL;
	if (!connection->bye && host->lost < 0) {
		host->lost = (int)(connection - host->connections);
		snprintf(host->why, sizeof(host->why), "%s", why);
	}
	finish_all(host, &connection->sends, DDP_ERR_PEER);
	/* A complete message that waits for its receive was sent before the end. */
	finish_all(host, &connection->receives, DDP_ERR_PEER);
}

/* --- Sending ------------------------------------------------------------------------------ */

static void send_control(struct connection *connection, enum frame_kind kind, int rank,
			 const char *text)
{
	size_t bytes = text ? strnlen(text, DDP_HOST_NOTE - 1) : 0;
	struct frame frame = {.kind = kind, .rank = rank, .bytes = bytes};
	char *at;

	if (connection->closed || connection->bye ||
	    connection->control_bytes + sizeof(frame) + bytes > CONTROL_MOST)
		return;
	if (!connection->control && !(connection->control = malloc(CONTROL_MOST)))
		return;
	at = connection->control + connection->control_bytes;
	memcpy(at, &frame, sizeof(frame));
	if (bytes)
		memcpy(at + sizeof(frame), text, bytes);
	connection->control_bytes += sizeof(frame) + bytes;
}

static bool has_output(const struct connection *connection)
{
	return !connection->closed && (connection->sends.first || connection->control_bytes);
}

/* Add [size] bytes of [data], but the first [skip] of them, to [vector]. Returns what is left of [skip]. */
static size_t add_vector(struct iovec *vector, int *count, void *data, size_t size, size_t skip)
{
	if (skip >= size)
		return skip - size;
	vector[(*count)++] = (struct iovec){(char *)data + skip, size - skip};
	return 0;
}

/* Whether control frames are sent next: they go between two messages, and once begun they are completed. */
static bool sends_control(const struct connection *connection)
{
	return connection->control_sent || (connection->control_bytes && connection->sent == 0);
}

/* Fill [vector] with the bytes to send next. Returns its number of entries. */
static int fill_vector(struct connection *connection, struct iovec *vector)
{
	size_t skip = connection->sent;
	int count = 0;

	if (sends_control(connection)) {
		vector[0] = (struct iovec){connection->control + connection->control_sent,
					   connection->control_bytes - connection->control_sent};
		return 1;
	}
	for (struct transfer *transfer = connection->sends.first;
	     transfer && count + 2 <= SEND_VECTOR; transfer = transfer->next) {
		skip = add_vector(vector, &count, &transfer->frame, sizeof(transfer->frame), skip);
		skip = add_vector(vector, &count, transfer->data, transfer->frame.bytes, skip);
		if (connection->control_bytes)
			break;
	}
	return count;
}

/* [bytes] were sent. */
static void account(struct ddp_host *host, struct connection *connection, size_t bytes)
{
	if (sends_control(connection)) {
		connection->control_sent += bytes;
		if (connection->control_sent == connection->control_bytes)
			connection->control_sent = connection->control_bytes = 0;
		return;
	}
	connection->sent += bytes;
	while (connection->sends.first &&
	       connection->sent >= sizeof(struct frame) + connection->sends.first->frame.bytes) {
		connection->sent -= sizeof(struct frame) + connection->sends.first->frame.bytes;
		finish(host, take_first(&connection->sends), 1);
	}
}

/* Send what the kernel accepts. Returns whether anything was sent. */
static bool push(struct ddp_host *host, struct connection *connection)
{
	bool happened = false;

	while (has_output(connection)) {
		struct iovec vector[SEND_VECTOR];
		struct msghdr message = {.msg_iov = vector};
		ssize_t sent;

		message.msg_iovlen = (size_t)fill_vector(connection, vector);
		sent = sendmsg(connection->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0 && (errno == EAGAIN || errno == ENOBUFS))
			break;
		if (sent < 0) {
			/* What the peer sent before it left says why. */
			if (errno != EPIPE && errno != ECONNRESET)
				lose(host, connection, strerror(errno));
			else
				finish_all(host, &connection->sends, DDP_ERR_PEER);
			connection->control_bytes = connection->control_sent = 0;
			connection->sent = 0;
			return true;
		}
		account(host, connection, (size_t)sent);
		happened = true;
	}
	return happened;
}

/* --- Receiving ---------------------------------------------------------------------------- */

/* A message is complete: give it to the receive that it belongs to. */
static void deliver(struct ddp_host *host, struct transfer *receive, const struct frame *frame)
{
	struct ddp_host_request *request = receive->request;

	if (request) {
		request->tag = frame->tag;
		request->bytes = frame->bytes;
	}
	finish(host, receive,
	       request && frame->bytes > receive->frame.bytes ? DDP_ERR_MISMATCH : 1);
}

/* Give complete messages of the stash to receives. */
static void empty_stash(struct ddp_host *host, struct connection *connection)
{
	while (connection->stash.first && connection->receives.first &&
	       connection->stash.first->complete) {
		struct transfer *message = take_first(&connection->stash);
		struct transfer *receive = take_first(&connection->receives);

		if (receive->request && message->frame.bytes <= receive->frame.bytes &&
		    message->frame.bytes)
			memcpy(receive->data, message->data, message->frame.bytes);
		connection->stashed -= message->frame.bytes;
		deliver(host, receive, &message->frame);
		release(host, message);
	}
}

/* Keep a message that has no receive yet. Returns false if the connection must wait for one. */
static bool stash(struct ddp_host *host, struct connection *connection)
{
	size_t bytes = connection->frame.bytes;
	struct transfer *message;

	if (connection->stashed && connection->stashed + bytes > STASH_MOST)
		return false;
	message = new_transfer(host, NULL);
	if (!message)
		return false;
	message->data = bytes ? malloc(bytes) : NULL;
	if (bytes && !message->data) {
		release(host, message);
		return false;
	}
	message->owned = true;
	message->frame = connection->frame;
	connection->stashed += bytes;
	append(&connection->stash, message);
	connection->target = message;
	return true;
}

/* The header of a frame is there: decide where its payload goes. Returns false to wait. */
static bool start_frame(struct ddp_host *host, struct connection *connection)
{
	struct transfer *receive = connection->receives.first;

	connection->arrived = 0;
	connection->target = NULL;
	if (connection->frame.kind != FRAME_DATA) {
		if (connection->frame.kind < FRAME_DATA || connection->frame.kind > FRAME_BYE ||
		    connection->frame.bytes >= DDP_HOST_NOTE) {
			lose(host, connection, "it sent a frame that is none");
			return false;
		}
	} else if (!receive || connection->stash.first) {
		if (!stash(host, connection)) {
			connection->blocked = true;
			return false;
		}
	} else if (connection->frame.bytes <= receive->frame.bytes) {
		connection->target = receive;
	}
	connection->in_frame = true;
	return true;
}

static void receive_note(struct ddp_host *host, struct connection *connection)
{
	int rank = connection->frame.rank;

	if (host->noted >= 0)
		return;
	connection->note[connection->frame.bytes] = '\0';
	host->noted = rank >= 0 && rank < host->size ? rank : connection->peer;
	memcpy(host->note, connection->note, sizeof(host->note));
	for (int i = 0; i < host->count; i++)
		if (&host->connections[i] != connection) {
			send_control(&host->connections[i], FRAME_NOTE, host->noted, host->note);
			push(host, &host->connections[i]);
		}
}

/* The payload of a frame is complete. */
static void end_frame(struct ddp_host *host, struct connection *connection)
{
	struct transfer *target = connection->target;

	connection->in_frame = false;
	connection->target = NULL;
	switch ((enum frame_kind)connection->frame.kind) {
	case FRAME_DATA:
		if (target && target->owned) {
			target->complete = true;
			empty_stash(host, connection);
		} else if (connection->receives.first) {
			deliver(host, take_first(&connection->receives), &connection->frame);
		}
		break;
	case FRAME_NOTE:
		receive_note(host, connection);
		break;
	case FRAME_ASK:
		send_control(connection, FRAME_ANSWER, host->rank, NULL);
		push(host, connection);
		break;
	case FRAME_ANSWER:
		connection->answered = true;
		break;
	case FRAME_BYE:
		connection->bye = true;
		break;
	}
}

/* Where the rest of the payload goes; NULL: nowhere. */
static char *place_of(struct connection *connection)
{
	if (connection->target && (connection->target->owned || connection->target->request))
		return connection->target->data + connection->arrived;
	if (connection->frame.kind == FRAME_NOTE)
		return connection->note + connection->arrived;
	return NULL;
}

/* Handle the bytes that were read. */
static void parse(struct ddp_host *host, struct connection *connection)
{
	while (!connection->closed) {
		size_t have = connection->end - connection->begin;
		const char *at = connection->staging + connection->begin;

		if (!connection->in_frame) {
			if (have < sizeof(struct frame))
				break;
			memcpy(&connection->frame, at, sizeof(struct frame));
			if (!start_frame(host, connection))
				break;
			connection->begin += sizeof(struct frame);
		} else {
			size_t left = connection->frame.bytes - connection->arrived;
			size_t some = left < have ? left : have;
			char *place = place_of(connection);

			if (place && some)
				memcpy(place, at, some);
			connection->begin += some;
			connection->arrived += some;
			if (some < left)
				break;
			end_frame(host, connection);
		}
	}
	if (connection->begin == connection->end) {
		connection->begin = connection->end = 0;
	} else if (connection->begin) {
		memmove(connection->staging, connection->staging + connection->begin,
			connection->end - connection->begin);
		connection->end -= connection->begin;
		connection->begin = 0;
	}
}

/* Read once, payload directly to its place. Returns bytes, 0 if there are none, -1 at the end. */
static ssize_t read_some(struct ddp_host *host, struct connection *connection, size_t *asked)
{
	struct iovec vector[2];
	char *place = connection->in_frame ? place_of(connection) : NULL;
	size_t direct = place ? connection->frame.bytes - connection->arrived : 0;
	int count = 0;
	ssize_t got;

	/* Bytes in the staging buffer are the beginning of a header: none of a payload is there. */
	if (direct)
		vector[count++] = (struct iovec){place, direct};
	vector[count++] =
		(struct iovec){connection->staging + connection->end, STAGING - connection->end};
	*asked = direct + STAGING - connection->end;
	do
		got = readv(connection->fd, vector, count);
	while (got < 0 && errno == EINTR);
	if (got < 0 && errno == EAGAIN)
		return 0;
	if (got <= 0) {
		lose(host, connection, got < 0 ? strerror(errno) : "it has left");
		return -1;
	}
	if ((size_t)got <= direct) {
		connection->arrived += (size_t)got;
	} else {
		connection->arrived += direct;
		connection->end += (size_t)got - direct;
	}
	return got;
}

/* Read what has arrived. Returns whether anything had. */
static bool pull(struct ddp_host *host, struct connection *connection)
{
	bool happened = false;

	while (!connection->closed && !connection->blocked) {
		size_t asked;
		ssize_t got = read_some(host, connection, &asked);

		if (got == 0)
			break;
		happened = true;
		if (got > 0)
			parse(host, connection);
		if (got < (ssize_t)asked)
			break;
	}
	return happened;
}

/* --- The engine's functions --------------------------------------------------------------- */

static struct connection *connection_to(struct ddp_host *host, int peer)
{
	return host->index[peer] >= 0 ? &host->connections[host->index[peer]] : NULL;
}

static int no_connection(int peer, struct ddp_error *error)
{
	return ddp_error_set(error, DDP_ERR_STATE, "there is no connection to rank %d", peer);
}

static int tcp_send(struct ddp_host *host, int peer, uint64_t tag, const void *data, size_t bytes,
		    struct ddp_host_request *request, struct ddp_error *error)
{
	struct connection *connection = connection_to(host, peer);
	struct transfer *transfer;

	if (!connection)
		return no_connection(peer, error);
	request->peer = peer;
	request->status = 0;
	if (connection->closed || connection->bye) {
		request->status = DDP_ERR_PEER;
		return 0;
	}
	transfer = new_transfer(host, request);
	if (!transfer)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for a message");
	transfer->frame = (struct frame){.kind = FRAME_DATA, .tag = tag, .bytes = bytes};
	transfer->data = (char *)(uintptr_t)data;
	request->engine = transfer;
	append(&connection->sends, transfer);
	if (connection->sends.first == transfer)
		push(host, connection);
	return 0;
}

static int tcp_recv(struct ddp_host *host, int peer, uint64_t tag, uint64_t mask, void *data,
		    size_t bytes, struct ddp_host_request *request, struct ddp_error *error)
{
	struct connection *connection = connection_to(host, peer);
	struct transfer *transfer;

	(void)tag; /* messages arrive in the order of their receives; the caller compares tags */
	(void)mask;
	if (!connection)
		return no_connection(peer, error);
	request->peer = peer;
	request->status = 0;
	transfer = new_transfer(host, request);
	if (!transfer)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for a message");
	transfer->frame.bytes = bytes;
	transfer->data = data;
	request->engine = transfer;
	append(&connection->receives, transfer);
	empty_stash(host, connection);
	if (connection->closed) {
		finish_all(host, &connection->receives, DDP_ERR_PEER);
	} else if (connection->blocked) {
		connection->blocked = false;
		parse(host, connection);
	}
	return 0;
}

/*
 * Whether the peer's host has acknowledged nothing for half of the limit, neither data nor the probes of
 * an idle connection. A peer that does not read closes its window; then data waits here, and
 * nothing is on its way.
 */
static bool is_host_silent(const struct ddp_host *host, const struct connection *connection)
{
	double patience_ms = host->limit < 8 ? 4000 : host->limit * 500;
	struct tcp_info info;
	socklen_t size = sizeof(info);

	return getsockopt(connection->fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
	       info.tcpi_last_ack_recv > patience_ms &&
	       (info.tcpi_unacked > 0 || info.tcpi_notsent_bytes == 0);
}

static void check_hosts(struct ddp_host *host, uint64_t now)
{
	if (now - host->checked < CHECK_NS)
		return;
	host->checked = now;
	for (int i = 0; i < host->count; i++)
		if (!host->connections[i].closed && is_host_silent(host, &host->connections[i]))
			lose(host, &host->connections[i], "its host does not answer");
}

/* Look at all connections, for at most [nanoseconds]. Returns whether anything happened. */
static bool serve(struct ddp_host *host, uint64_t nanoseconds)
{
	const struct timespec time = {.tv_sec = (time_t)(nanoseconds / 1000000000),
				      .tv_nsec = (long)(nanoseconds % 1000000000)};
	bool happened = false;

	for (int i = 0; i < host->count; i++) {
		const struct connection *connection = &host->connections[i];
		int events =
			(connection->blocked ? 0 : POLLIN) | (has_output(connection) ? POLLOUT : 0);

		host->polled[i] =
			(struct pollfd){.fd = connection->closed || !events ? -1 : connection->fd,
					.events = (short)events};
	}
	happened = ppoll(host->polled, (nfds_t)host->count, &time, NULL) > 0;
	host->served = ddp_now();
	check_hosts(host, host->served);
	if (!happened)
		return false;
	for (int i = 0; i < host->count; i++) {
		struct connection *connection = &host->connections[i];

		if (host->polled[i].revents & POLLOUT)
			push(host, connection);
		if (host->polled[i].revents & ~POLLOUT)
			pull(host, connection);
	}
	return happened;
}

static int tcp_progress(struct ddp_host *host)
{
	bool happened = false;

	if (ddp_now() - host->served >= SERVE_NS)
		return serve(host, 0);
	for (int i = 0; i < host->count; i++) {
		struct connection *connection = &host->connections[i];

		if (has_output(connection))
			happened |= push(host, connection);
		if (connection->receives.first)
			happened |= pull(host, connection);
	}
	return happened;
}

static void tcp_idle(struct ddp_host *host, uint64_t nanoseconds)
{
	serve(host, nanoseconds);
}

/*
 * A receive of which nothing has arrived leaves the queue; the payload of one that has begun is
 * discarded. A message that is half sent is copied, so that the frames after it stay whole.
 */
static void tcp_cancel(struct ddp_host *host, struct ddp_host_request *request)
{
	struct transfer *transfer = request->engine;
	struct connection *connection = connection_to(host, request->peer);
	struct queue *queues[] = {&connection->sends, &connection->receives};

	if (request->status != 0 || !transfer)
		return;
	transfer->request = NULL;
	request->engine = NULL;
	request->status = DDP_ERR_ABORTED;
	if (transfer == connection->target)
		return;
	if (transfer == connection->sends.first && connection->sent) {
		char *copy = malloc(transfer->frame.bytes);

		if (copy)
			memcpy(copy, transfer->data, transfer->frame.bytes);
		else
			lose(host, connection, "out of memory");
		if (copy) {
			transfer->data = copy;
			transfer->owned = true;
		}
		return;
	}
	for (int i = 0; i < 2; i++)
		for (struct transfer **link = &queues[i]->first; *link; link = &(*link)->next)
			if (*link == transfer) {
				*link = transfer->next;
				if (!transfer->next)
					queues[i]->end = link;
				release(host, transfer);
				return;
			}
}

static int tcp_broken(struct ddp_host *host, int *peer, char *why, size_t size)
{
	if (host->lost < 0)
		return 0;
	*peer = host->connections[host->lost].peer;
	snprintf(why, size, "%s", host->why);
	return 1;
}

static void tcp_note(struct ddp_host *host, int peer, const char *text)
{
	struct connection *connection = connection_to(host, peer);

	if (!connection)
		return;
	send_control(connection, FRAME_NOTE, host->rank, text);
	push(host, connection);
}

static int tcp_noted(struct ddp_host *host, int *peer, char *text, size_t size)
{
	if (host->noted < 0)
		return 0;
	*peer = host->noted;
	snprintf(text, size, "%s", host->note);
	return 1;
}

static void tcp_ask(struct ddp_host *host, int peer)
{
	struct connection *connection = connection_to(host, peer);

	if (!connection)
		return;
	connection->answered = false;
	send_control(connection, FRAME_ASK, host->rank, NULL);
	push(host, connection);
}

static bool tcp_answered(struct ddp_host *host, int peer)
{
	const struct connection *connection = connection_to(host, peer);

	return !connection || connection->answered || connection->bye;
}

static void tcp_describe(struct ddp_host *host, char *text, size_t size)
{
	const struct ddp_tcp_address *address = &host->meeting.own.address;
	char where[DDP_TCP_TEXT];

	snprintf(text, size, "TCP (%s, %s, %d connections)", address->interface,
		 ddp_tcp_address_text(address, where), host->count);
}

/* --- The beginning and the end ------------------------------------------------------------ */

static void tcp_close(struct ddp_host *host, bool clean);

static int tcp_open(struct ddp_host **made, int rank, int size, const struct ddp_watch *watch,
		    ddp_host_end *end, const struct ddp_log *log, struct ddp_error *error)
{
	struct ddp_host *host = calloc(1, sizeof(*host));
	struct ddp_tcp_card *own;
	int status = 0;

	(void)end;
	*made = NULL;
	if (!host || !(host->index = malloc((size_t)size * sizeof(int)))) {
		free(host);
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for %d ranks", size);
	}
	for (int i = 0; i < size; i++)
		host->index[i] = -1;
	host->log = log;
	host->rank = rank;
	host->size = size;
	host->lost = host->noted = -1;
	host->meeting =
		(struct ddp_tcp_meeting){.rank = rank, .listener = -1, .watch = watch, .log = log};
	own = &host->meeting.own;
	own->magic = DDP_TCP_MAGIC;
	gethostname(own->node, sizeof(own->node) - 1);
	if (getrandom(own->secret, sizeof(own->secret), 0) != (ssize_t)sizeof(own->secret))
		status = ddp_error_errno(error, DDP_ERR_ENGINE, "getrandom");
	if (status == 0)
		status = ddp_tcp_address_choose(&own->address, error);
	if (status == 0)
		status = host->meeting.listener = ddp_tcp_listen(&own->address, error);
	if (status < 0) {
		tcp_close(host, false);
		return status;
	}
	*made = host;
	return 0;
}

static int tcp_address(struct ddp_host *host, const void **data, size_t *size,
		       struct ddp_error *error)
{
	(void)error;
	*data = &host->meeting.own;
	*size = sizeof(host->meeting.own);
	return 0;
}

static int tcp_connect(struct ddp_host *host, int peer, const void *data, size_t size,
		       struct ddp_error *error)
{
	size_t count = (size_t)host->meeting.count + 1;
	struct ddp_tcp_partner *partners =
		realloc(host->meeting.partners, count * sizeof(*partners));
	struct ddp_tcp_partner *partner;

	if (!partners)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for %zu connections", count);
	host->meeting.partners = partners;
	partner = &partners[count - 1];
	*partner = (struct ddp_tcp_partner){.rank = peer, .fd = -1};
	if (size == sizeof(partner->card))
		memcpy(&partner->card, data, size);
	if (partner->card.magic != DDP_TCP_MAGIC ||
	    (partner->card.address.any.sa_family != AF_INET &&
	     partner->card.address.any.sa_family != AF_INET6))
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "rank %d published a damaged address, or runs another "
				     "release of libddp",
				     peer);
	partner->card.node[sizeof(partner->card.node) - 1] = '\0';
	partner->card.address.interface[sizeof(partner->card.address.interface) - 1] = '\0';
	host->meeting.count = (int)count;
	return 0;
}

/* Partners prove who they are with the secrets of their addresses. */
static int tcp_pass(struct ddp_host *host, const void **data, size_t *size, struct ddp_error *error)
{
	(void)host;
	(void)error;
	*data = "";
	*size = 0;
	return 0;
}

static int tcp_admit(struct ddp_host *host, int peer, const void *data, size_t size,
		     struct ddp_error *error)
{
	(void)host;
	(void)peer;
	(void)data;
	(void)size;
	(void)error;
	return 0;
}

static int make_connections(struct ddp_host *host, struct ddp_error *error)
{
	size_t count = (size_t)host->meeting.count;

	host->connections = calloc(count + 1, sizeof(*host->connections));
	host->polled = calloc(count + 1, sizeof(*host->polled));
	if (!host->connections || !host->polled)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for %zu connections", count);
	for (size_t i = 0; i < count; i++) {
		struct connection *connection = &host->connections[i];

		connection->staging = malloc(STAGING);
		if (!connection->staging)
			return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for %zu connections",
					     count);
		connection->fd = host->meeting.partners[i].fd;
		connection->peer = host->meeting.partners[i].rank;
		host->meeting.partners[i].fd = -1;
		queue_init(&connection->sends);
		queue_init(&connection->receives);
		queue_init(&connection->stash);
		host->index[connection->peer] = (int)i;
		host->count++;
	}
	return 0;
}

static int tcp_meet(struct ddp_host *host, const struct ddp_watch *watch, struct ddp_error *error)
{
	int status;

	host->meeting.watch = watch;
	host->limit = watch->limit;
	status = ddp_tcp_meet(&host->meeting, error);
	if (status == 0)
		status = make_connections(host, error);
	for (int i = 0; i < host->meeting.count; i++)
		if (host->meeting.partners[i].fd >= 0)
			close(host->meeting.partners[i].fd);
	free(host->meeting.partners);
	host->meeting.partners = NULL;
	host->meeting.count = 0;
	return status;
}

/* Whether a partner has neither said BYE nor ended its connection. */
static bool is_somebody_there(const struct ddp_host *host)
{
	for (int i = 0; i < host->count; i++)
		if (!host->connections[i].bye && !host->connections[i].closed)
			return true;
	return false;
}

static bool has_any_output(const struct ddp_host *host)
{
	for (int i = 0; i < host->count; i++)
		if (has_output(&host->connections[i]))
			return true;
	return false;
}

/*
 * A socket that is closed with unread bytes resets its connection, and what the peer has not read
 * is lost: so the last frames are read before.
 */
static void part(struct ddp_host *host, bool clean)
{
	uint64_t until = ddp_now() + (clean ? GOODBYE_NS : POSTING_NS);

	for (int i = 0; i < host->count && clean; i++)
		send_control(&host->connections[i], FRAME_BYE, host->rank, NULL);
	while (has_any_output(host) && ddp_now() < until)
		serve(host, DDP_WATCH_PERIOD);
	for (int i = 0; i < host->count; i++)
		shutdown(host->connections[i].fd, SHUT_WR);
	while (clean && is_somebody_there(host) && ddp_now() < until)
		serve(host, DDP_WATCH_PERIOD);
	if (!clean)
		serve(host, 0);
}

static void tcp_close(struct ddp_host *host, bool clean)
{
	struct transfer *next;

	if (!host)
		return;
	part(host, clean);
	if (host->meeting.listener >= 0)
		close(host->meeting.listener);
	for (int i = 0; i < host->count; i++) {
		struct connection *connection = &host->connections[i];

		finish_all(host, &connection->sends, DDP_ERR_ABORTED);
		finish_all(host, &connection->receives, DDP_ERR_ABORTED);
		finish_all(host, &connection->stash, DDP_ERR_ABORTED);
		close(connection->fd);
		free(connection->control);
		free(connection->staging);
	}
	for (; host->spare; host->spare = next) {
		next = host->spare->next;
		free(host->spare);
	}
	free(host->meeting.partners);
	free(host->connections);
	free(host->polled);
	free(host->index);
	free(host);
}

const struct ddp_host_engine ddp_tcp_engine = {
	.head = {.magic = DDP_MODULE_MAGIC,
		 .version = DDP_HOST_VERSION,
		 .size = sizeof(struct ddp_host_engine),
		 .kind = "wide",
		 .name = "tcp",
		 .release = PACKAGE_VERSION},
	.open = tcp_open,
	.address = tcp_address,
	.connect = tcp_connect,
	.pass = tcp_pass,
	.admit = tcp_admit,
	.meet = tcp_meet,
	.send = tcp_send,
	.recv = tcp_recv,
	.progress = tcp_progress,
	.idle = tcp_idle,
	.cancel = tcp_cancel,
	.broken = tcp_broken,
	.note = tcp_note,
	.noted = tcp_noted,
	.ask = tcp_ask,
	.answered = tcp_answered,
	.describe = tcp_describe,
	.close = tcp_close,
};
