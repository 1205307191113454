/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp.c - the engine that moves host memory over TCP; part of libddp, needs libc only
 *
 * A connection (made by tcp-meet.c) carries frames. A frame is a header of 24 bytes, then a
 * payload.
 *
 *   DATA    a message; the receiver matches messages to its receives in order
 *   NOTE    an abort: the rank that aborted, then the text; a rank forwards the first note that it
 *           receives over all its connections
 *   ASK     "do you call progress()?"; progress() answers with ANSWER
 *   ANSWER
 *   BYE     the sender has closed its side cleanly, and sends nothing more
 *
 * All frames except DATA are control frames. A control frame is sent between two DATA frames, ahead
 * of queued DATA frames. If a message arrives before its receive, it is stored in the stash, up to
 * STASH_MOST bytes per connection. If the stash is full, or memory is short, the connection is not
 * read until a receive uses a message. This is necessary because in a sequence of broadcasts, a rank
 * can be any number of bytes ahead of the next rank. A connection that ends without BYE is lost.
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

enum {
	/* number of bytes per read, in addition to payload that is read to its destination */
	STAGING = 16 << 10,
	SEND_VECTOR = 16,
};

/*
 * Interval at which progress() polls all connections, in nanoseconds. In between, a call that does
 * not wait handles only connections with a queued send or receive.
 */
#define SERVE_NS UINT64_C(1000000)

/* Time between two checks whether the peers' hosts respond, in nanoseconds. */
#define CHECK_NS UINT64_C(1000000000)

/*
 * GOODBYE_S is how long a clean close waits for the partners' BYE, and FLUSH_S how long any other
 * close tries to send notes. Both are in seconds.
 */
#define GOODBYE_S 0.8
#define FLUSH_S 0.05

enum frame_kind {
	FRAME_DATA = 1,
	FRAME_NOTE,
	FRAME_ASK,
	FRAME_ANSWER,
	FRAME_BYE,
};

struct frame {
	uint32_t kind;
	int32_t rank; /* for NOTE, the rank that aborted */
	uint64_t tag; /* for DATA, the tag of the message */
	uint64_t bytes;
};

_Static_assert(sizeof(struct frame) == 24, "bytes of a header");

/* A message to send or receive, or a control frame to send. */
struct transfer {
	struct transfer *next;
	/* NULL for a control frame, a message in the stash, or a cancelled message */
	struct ddp_host_request *request;
	struct frame frame;
	/* the caller's buffer or, without a request, the memory that follows this struct */
	char *data;
	bool complete; /* for a message in the stash: all of it has arrived */
};

struct queue {
	struct transfer *first, **end;
};

struct connection {
	int fd, peer;
	struct queue sends, receives;
	struct queue stash; /* messages that arrived before their receives */
	size_t stashed;	    /* memory of the messages in [stash], in bytes */

	/* bytes of the first queued send, header included, that were already sent */
	size_t sent;

	/* The frame that is being received. */
	struct frame frame;
	bool in_frame;
	/* destination of the payload; NULL: the payload is discarded, or stored in [note] */
	struct transfer *target;
	size_t arrived; /* bytes of the payload that have arrived */
	char note[DDP_HOST_NOTE];

	char staging[STAGING]; /* the first [staged] bytes were read but not yet handled */
	size_t staged;

	bool blocked; /* the stash is full, so the connection is not read */
	bool answered;
	bool bye;    /* the peer has sent BYE */
	bool closed; /* nothing can be received or sent any more */
};

struct ddp_host {
	int rank, size;
	struct ddp_tcp_meeting meeting; /* state of meet(); unused afterwards */
	struct connection *connections; /* [count] connections */
	int count;
	int *index; /* index, in [connections], of the connection to each rank */
	struct pollfd *polled;
	uint64_t served;  /* time at which all connections were last polled */
	uint64_t checked; /* time at which the peers' hosts were last checked */
	double limit;	  /* time limit of a wait, in seconds */

	int lost; /* index of the connection that was lost first, or -1 if none was lost */
	char why[128];
	int noted; /* rank that sent the first note, or -1 if there was none */
	char note[DDP_HOST_NOTE];
};

/* --- Transfers ----------------------------------------------------------------------------- */

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

/*
 * Maximum memory of the stash of a connection, in bytes. The largest message fits into it. If the
 * stash is full, the connection is not read.
 */
#define STASH_MOST (sizeof(struct transfer) + DDP_HOST_MESSAGE)

/* Returns the bytes of memory that a message in the stash needs. */
static size_t memory_of(const struct frame *frame)
{
	return sizeof(struct transfer) + frame->bytes;
}

/* Allocate a transfer, with [bytes] for its data after the struct. */
static struct transfer *new_transfer(size_t bytes)
{
	struct transfer *transfer = malloc(sizeof(*transfer) + bytes);

	if (transfer)
		*transfer = (struct transfer){.data = (char *)(transfer + 1)};
	return transfer;
}

static void finish(struct transfer *transfer, int status)
{
	if (transfer->request)
		transfer->request->status = status;
	free(transfer);
}

static void finish_all(struct queue *queue, int status)
{
	while (queue->first)
		finish(take_first(queue), status);
}

/* --- The end of a connection --------------------------------------------------------------- */

static void lose(struct ddp_host *host, struct connection *connection, const char *why)
{
	if (connection->closed)
		return;
	connection->closed = true;
	connection->target = NULL;
	connection->sent = 0;
	if (!connection->bye && host->lost < 0) {
		host->lost = (int)(connection - host->connections);
		snprintf(host->why, sizeof(host->why), "%s", why);
	}
	finish_all(&connection->sends, DDP_ERR_PEER);
	/* Complete messages in the stash arrived before the connection ended, and remain valid. */
	finish_all(&connection->receives, DDP_ERR_PEER);
}

/* --- Sending ------------------------------------------------------------------------------- */

/* Queue a control frame ahead of queued messages, but after a message that is partly sent. */
static void send_control(struct connection *connection, enum frame_kind kind, int rank,
			 const char *text)
{
	size_t bytes = strnlen(text, DDP_HOST_NOTE - 1);
	struct transfer **link = &connection->sends.first, *transfer;

	if (connection->closed || connection->bye || !(transfer = new_transfer(bytes)))
		return;
	transfer->frame = (struct frame){.kind = kind, .rank = rank, .bytes = bytes};
	memcpy(transfer->data, text, bytes);
	if (connection->sent)
		link = &(*link)->next;
	while (*link && (*link)->frame.kind != FRAME_DATA)
		link = &(*link)->next;
	transfer->next = *link;
	*link = transfer;
	if (!transfer->next)
		connection->sends.end = &transfer->next;
}

static bool has_output(const struct connection *connection)
{
	return !connection->closed && connection->sends.first;
}

/*
 * Append [data], which has [size] bytes, to [vector], but omit its first [skip] bytes. Returns how
 * many of the [skip] bytes remain to be omitted from the next data.
 */
static size_t add_vector(struct iovec *vector, int *count, void *data, size_t size, size_t skip)
{
	if (skip >= size)
		return skip - size;
	vector[(*count)++] = (struct iovec){(char *)data + skip, size - skip};
	return 0;
}

/* Fill [vector] with the bytes that are sent next. Returns the number of its entries. */
static int fill_vector(struct connection *connection, struct iovec *vector)
{
	size_t skip = connection->sent;
	int count = 0;

	for (struct transfer *transfer = connection->sends.first;
	     transfer && count + 2 <= SEND_VECTOR; transfer = transfer->next) {
		skip = add_vector(vector, &count, &transfer->frame, sizeof(transfer->frame), skip);
		skip = add_vector(vector, &count, transfer->data, transfer->frame.bytes, skip);
	}
	return count;
}

static size_t size_of(const struct transfer *transfer)
{
	return sizeof(transfer->frame) + transfer->frame.bytes;
}

/* Send as much as the kernel accepts. Returns whether anything was sent. */
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
			/*
			 * After EPIPE or ECONNRESET, continue to receive: the peer may have sent
			 * the reason before it closed the connection.
			 */
			if (errno != EPIPE && errno != ECONNRESET)
				lose(host, connection, strerror(errno));
			else
				finish_all(&connection->sends, DDP_ERR_PEER);
			connection->sent = 0;
			return true;
		}
		connection->sent += (size_t)sent;
		while (connection->sends.first &&
		       connection->sent >= size_of(connection->sends.first)) {
			connection->sent -= size_of(connection->sends.first);
			finish(take_first(&connection->sends), 1);
		}
		happened = true;
	}
	return happened;
}

static void send_to_all(struct ddp_host *host, const struct connection *except,
			enum frame_kind kind, int rank, const char *text)
{
	for (int i = 0; i < host->count; i++)
		if (&host->connections[i] != except) {
			send_control(&host->connections[i], kind, rank, text);
			push(host, &host->connections[i]);
		}
}

/* --- Receiving ----------------------------------------------------------------------------- */

/* Finish [receive], because its message is complete. */
static void deliver(struct transfer *receive, const struct frame *frame)
{
	receive->request->tag = frame->tag;
	receive->request->bytes = frame->bytes;
	finish(receive, frame->bytes > receive->frame.bytes ? DDP_ERR_MISMATCH : 1);
}

static void empty_stash(struct connection *connection)
{
	while (connection->stash.first && connection->receives.first &&
	       connection->stash.first->complete) {
		struct transfer *message = take_first(&connection->stash);
		struct transfer *receive = take_first(&connection->receives);

		if (message->frame.bytes && message->frame.bytes <= receive->frame.bytes)
			memcpy(receive->data, message->data, message->frame.bytes);
		connection->stashed -= memory_of(&message->frame);
		deliver(receive, &message->frame);
		free(message);
	}
}

static bool is_frame(const struct frame *frame)
{
	if (frame->kind == FRAME_DATA)
		return frame->bytes <= DDP_HOST_MESSAGE;
	return frame->kind > FRAME_DATA && frame->kind <= FRAME_BYE && frame->bytes < DDP_HOST_NOTE;
}

/*
 * Choose the destination of a frame's payload, after its header has arrived. Returns false if the
 * frame cannot be received now, or if it ends the connection.
 */
static bool start_frame(struct ddp_host *host, struct connection *connection)
{
	const struct frame *frame = &connection->frame;
	struct transfer *target = connection->receives.first;

	if (!is_frame(frame)) {
		lose(host, connection, "it sent a malformed frame");
		return false;
	}
	if (frame->kind != FRAME_DATA || (target && frame->bytes > target->frame.bytes)) {
		target = NULL;
	} else if (!target) {
		if (connection->stashed + memory_of(frame) <= STASH_MOST)
			target = new_transfer(frame->bytes);
		connection->blocked = !target;
		if (connection->blocked)
			return false;
		target->frame = *frame;
		connection->stashed += memory_of(frame);
		append(&connection->stash, target);
	}
	connection->arrived = 0;
	connection->target = target;
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
	send_to_all(host, connection, FRAME_NOTE, host->noted, host->note);
}

static void end_frame(struct ddp_host *host, struct connection *connection)
{
	struct transfer *target = connection->target;

	connection->in_frame = false;
	connection->target = NULL;
	switch ((enum frame_kind)connection->frame.kind) {
	case FRAME_DATA:
		if (target && !target->request) {
			target->complete = true;
			empty_stash(connection);
		} else if (connection->receives.first) {
			deliver(take_first(&connection->receives), &connection->frame);
		}
		break;
	case FRAME_NOTE:
		receive_note(host, connection);
		break;
	case FRAME_ASK:
		send_control(connection, FRAME_ANSWER, host->rank, "");
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

/* Returns the destination of the rest of the payload, or NULL if it is not stored. */
static char *place_of(struct connection *connection)
{
	if (connection->arrived == connection->frame.bytes)
		return NULL;
	if (connection->target)
		return connection->target->data + connection->arrived;
	if (connection->frame.kind == FRAME_NOTE)
		return connection->note + connection->arrived;
	return NULL;
}

static void parse(struct ddp_host *host, struct connection *connection)
{
	const char *at = connection->staging, *end = at + connection->staged;

	while (!connection->closed) {
		size_t have = (size_t)(end - at);

		if (!connection->in_frame) {
			if (have < sizeof(struct frame))
				break;
			memcpy(&connection->frame, at, sizeof(struct frame));
			if (!start_frame(host, connection))
				break;
			at += sizeof(struct frame);
		} else {
			size_t left = connection->frame.bytes - connection->arrived;
			size_t some = left < have ? left : have;
			char *place = place_of(connection);

			if (place && some)
				memcpy(place, at, some);
			at += some;
			connection->arrived += some;
			if (some < left)
				break;
			end_frame(host, connection);
		}
	}
	connection->staged = (size_t)(end - at);
	memmove(connection->staging, at, connection->staged);
}

/*
 * Read the bytes that are available. Payload is read directly to its destination. Returns whether
 * anything was read.
 */
static bool pull(struct ddp_host *host, struct connection *connection)
{
	bool happened = false;

	while (!connection->closed && !connection->blocked) {
		char *place = connection->in_frame ? place_of(connection) : NULL;
		size_t direct = place ? connection->frame.bytes - connection->arrived : 0;
		size_t free_bytes = STAGING - connection->staged;
		/*
		 * If [staging] contains bytes, they are the beginning of a header. Then there is no
		 * payload to read.
		 */
		struct iovec vector[] = {{place, direct},
					 {connection->staging + connection->staged, free_bytes}};
		ssize_t got = readv(connection->fd, vector + !direct, direct ? 2 : 1);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 && errno == EAGAIN)
			break;
		happened = true;
		if (got <= 0) {
			lose(host, connection,
			     got < 0 ? strerror(errno) : "it closed the connection");
			break;
		}
		if ((size_t)got > direct)
			connection->staged += (size_t)got - direct;
		connection->arrived += (size_t)got < direct ? (size_t)got : direct;
		parse(host, connection);
		if ((size_t)got < direct + free_bytes)
			break;
	}
	return happened;
}

/* --- The engine's functions ---------------------------------------------------------------- */

/*
 * [peer] is always a partner of this rank, since collectives exchange messages with partners only.
 */
static struct connection *connection_to(struct ddp_host *host, int peer)
{
	return &host->connections[host->index[peer]];
}

static int tcp_send(struct ddp_host *host, int peer, uint64_t tag, const void *data, size_t bytes,
		    struct ddp_host_request *request, struct ddp_error *error)
{
	struct connection *connection = connection_to(host, peer);
	struct transfer *transfer;

	request->status = 0;
	if (connection->closed || connection->bye) {
		request->status = DDP_ERR_PEER;
		return 0;
	}
	transfer = new_transfer(0);
	if (!transfer)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for a message");
	transfer->request = request;
	transfer->frame = (struct frame){.kind = FRAME_DATA, .tag = tag, .bytes = bytes};
	transfer->data = (char *)(uintptr_t)data;
	append(&connection->sends, transfer);
	if (connection->sends.first == transfer)
		push(host, connection);
	return 0;
}

static int tcp_recv(struct ddp_host *host, int peer, uint64_t tag, void *data, size_t bytes,
		    struct ddp_host_request *request, struct ddp_error *error)
{
	struct connection *connection = connection_to(host, peer);
	struct transfer *transfer;

	(void)tag; /* receives are matched by order, not by tag; the caller compares the tags */
	request->status = 0;
	transfer = new_transfer(0);
	if (!transfer)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for a message");
	transfer->request = request;
	transfer->frame.bytes = bytes;
	transfer->data = data;
	append(&connection->receives, transfer);
	empty_stash(connection);
	if (connection->closed) {
		finish_all(&connection->receives, DDP_ERR_PEER);
	} else if (connection->blocked) {
		connection->blocked = false;
		parse(host, connection);
	}
	return 0;
}

/*
 * Returns whether the peer's host has acknowledged neither data nor probes of an idle connection
 * for half of the limit. A peer that does not read closes its window. Then no data is sent, and the
 * peer's host acknowledges the kernel's probes of the window.
 */
static bool is_host_silent(const struct ddp_host *host, const struct connection *connection)
{
	double patience_ms = host->limit < 8 ? 4000 : host->limit * 500;
	struct tcp_info info;
	socklen_t size = sizeof(info);

	return getsockopt(connection->fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
	       info.tcpi_last_ack_recv > patience_ms &&
	       (info.tcpi_unacked > 0 || info.tcpi_notsent_bytes == 0 || info.tcpi_probes > 1);
}

static void check_hosts(struct ddp_host *host, uint64_t now)
{
	if (now - host->checked < CHECK_NS)
		return;
	host->checked = now;
	for (int i = 0; i < host->count; i++)
		if (!host->connections[i].closed && is_host_silent(host, &host->connections[i]))
			lose(host, &host->connections[i], "its host does not respond");
}

/* Poll all connections, for at most [nanoseconds]. Returns whether anything happened. */
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

static int tcp_progress(struct ddp_host *host, uint64_t nanoseconds)
{
	bool happened = false;

	if (nanoseconds || ddp_now() - host->served >= SERVE_NS)
		return serve(host, nanoseconds);
	for (int i = 0; i < host->count; i++) {
		struct connection *connection = &host->connections[i];

		if (has_output(connection))
			happened |= push(host, connection);
		if (connection->receives.first)
			happened |= pull(host, connection);
	}
	return happened;
}

/*
 * Drop the queued messages. If a message is partly sent, copy the rest of the message and send the
 * copy, so that the peer can read the following frames.
 */
static void cancel_sends(struct ddp_host *host, struct connection *connection)
{
	struct transfer **link = &connection->sends.first, *first = *link, *copy;

	if (connection->sent && first->request) {
		copy = new_transfer(first->frame.bytes);
		if (!copy) {
			lose(host, connection, "out of memory");
			return;
		}
		copy->frame = first->frame;
		if (copy->frame.bytes)
			memcpy(copy->data, first->data, copy->frame.bytes);
		copy->next = first;
		*link = copy;
	}
	while (*link) {
		struct transfer *transfer = *link;

		if (transfer->request) {
			*link = transfer->next;
			finish(transfer, DDP_ERR_ABORTED);
		} else {
			link = &transfer->next;
		}
	}
	connection->sends.end = link;
}

static void tcp_cancel(struct ddp_host *host)
{
	for (int i = 0; i < host->count; i++) {
		struct connection *connection = &host->connections[i];

		cancel_sends(host, connection);
		/* If a message has arrived in part, discard the rest of the message. */
		if (connection->target && connection->target->request)
			connection->target = NULL;
		finish_all(&connection->receives, DDP_ERR_ABORTED);
	}
}

static enum ddp_host_event tcp_event(struct ddp_host *host, int *peer, char *text, size_t size)
{
	if (host->noted >= 0) {
		*peer = host->noted;
		snprintf(text, size, "%s", host->note);
		return DDP_HOST_NOTED;
	}
	if (host->lost < 0)
		return DDP_HOST_QUIET;
	*peer = host->connections[host->lost].peer;
	snprintf(text, size, "%s", host->why);
	return DDP_HOST_LOST;
}

static int tcp_early(struct ddp_host *host, int *position, uint64_t *tag)
{
	while (*position < host->count) {
		const struct connection *connection = &host->connections[(*position)++];

		if (!connection->stash.first)
			continue;
		*tag = connection->stash.first->frame.tag;
		return connection->peer;
	}
	return -1;
}

static void tcp_note(struct ddp_host *host, const char *text)
{
	send_to_all(host, NULL, FRAME_NOTE, host->rank, text);
}

static int tcp_silent(struct ddp_host *host, bool ask, int *first)
{
	int silent = 0;

	for (int i = 0; i < host->count && ask; i++)
		host->connections[i].answered = false;
	if (ask)
		send_to_all(host, NULL, FRAME_ASK, host->rank, "");
	for (int i = 0; i < host->count; i++) {
		const struct connection *connection = &host->connections[i];

		/*
		 * If the connection is blocked, the peer is running: it is ahead of this rank. Its
		 * answer may be queued behind messages that this rank does not read yet.
		 */
		if (connection->answered || connection->bye || connection->blocked)
			continue;
		if (silent++ == 0 || connection->peer < *first)
			*first = connection->peer;
	}
	return silent;
}

static void tcp_describe(struct ddp_host *host, char *text, size_t size)
{
	const struct ddp_tcp_address *address = &host->meeting.own.address;
	char where[DDP_TCP_TEXT];

	snprintf(text, size, "TCP (%s, %s, %d connection%s)", address->interface,
		 ddp_tcp_address_text(address, where), host->count, host->count == 1 ? "" : "s");
}

/* --- Start and end ------------------------------------------------------------------------- */

/*
 * Returns whether bytes are queued on any connection. If [goodbyes] is true, also returns true if
 * there is a partner that has neither sent BYE nor closed its connection.
 */
static bool is_busy(const struct ddp_host *host, bool goodbyes)
{
	for (int i = 0; i < host->count; i++) {
		const struct connection *connection = &host->connections[i];

		if (goodbyes ? !connection->bye && !connection->closed : has_output(connection))
			return true;
	}
	return false;
}

/*
 * If a socket is closed while it has unread bytes, its connection is reset, and the peer loses
 * bytes that it has not read. Therefore read until the partners have closed.
 */
static void flush(struct ddp_host *host, bool clean)
{
	struct ddp_watch watch = ddp_watch_start(clean ? GOODBYE_S : FLUSH_S, NULL, NULL);

	for (int i = 0; i < host->count && clean; i++)
		send_control(&host->connections[i], FRAME_BYE, host->rank, "");
	while (is_busy(host, false) && ddp_watch_check(&watch, NULL) == 0)
		serve(host, DDP_WATCH_PERIOD);
	for (int i = 0; i < host->count; i++)
		shutdown(host->connections[i].fd, SHUT_WR);
	while (clean && is_busy(host, true) && ddp_watch_check(&watch, NULL) == 0)
		serve(host, DDP_WATCH_PERIOD);
	if (!clean)
		serve(host, 0);
}

static void tcp_close(struct ddp_host *host, bool clean)
{
	if (!host)
		return;
	flush(host, clean);
	if (host->meeting.listener >= 0)
		ddp_fork_close_socket(host->meeting.listener);
	for (int i = 0; i < host->count; i++) {
		struct connection *connection = &host->connections[i];

		finish_all(&connection->sends, DDP_ERR_ABORTED);
		finish_all(&connection->receives, DDP_ERR_ABORTED);
		finish_all(&connection->stash, DDP_ERR_ABORTED);
		ddp_fork_close_socket(connection->fd);
	}
	free(host->meeting.partners);
	free(host->connections);
	free(host->polled);
	free(host->index);
	free(host);
}

static int tcp_open(struct ddp_host **made, const struct ddp_host_setup *setup,
		    struct ddp_host_card *card, struct ddp_error *error)
{
	struct ddp_host *host = calloc(1, sizeof(*host));
	struct ddp_tcp_card *own;
	int status = 0;

	*made = NULL;
	if (!host || !(host->index = malloc((size_t)setup->size * sizeof(int)))) {
		free(host);
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for %d ranks", setup->size);
	}
	host->rank = setup->rank;
	host->size = setup->size;
	host->lost = host->noted = -1;
	host->meeting =
		(struct ddp_tcp_meeting){.rank = setup->rank, .listener = -1, .log = setup->log};
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
	_Static_assert(sizeof(*own) <= DDP_HOST_CARD, "bytes of a card");
	card->rank = setup->rank;
	card->bytes = sizeof(*own);
	memcpy(card->data, own, sizeof(*own));
	*made = host;
	return 0;
}

static int read_card(struct ddp_tcp_partner *partner, const struct ddp_host_card *card,
		     struct ddp_error *error)
{
	*partner = (struct ddp_tcp_partner){.rank = card->rank, .fd = -1};
	if (card->bytes == sizeof(partner->card))
		memcpy(&partner->card, card->data, card->bytes);
	if (partner->card.magic != DDP_TCP_MAGIC ||
	    (partner->card.address.any.sa_family != AF_INET &&
	     partner->card.address.any.sa_family != AF_INET6))
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "rank %d published a damaged address, or runs another "
				     "release of libddp",
				     card->rank);
	partner->card.node[sizeof(partner->card.node) - 1] = '\0';
	partner->card.address.interface[sizeof(partner->card.address.interface) - 1] = '\0';
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

static int tcp_meet(struct ddp_host *host, const struct ddp_host_card *cards, int count,
		    const struct ddp_watch *watch, struct ddp_error *error)
{
	struct ddp_tcp_meeting *meeting = &host->meeting;
	int status = 0;

	host->limit = watch->limit;
	meeting->watch = watch;
	meeting->partners = calloc((size_t)count + 1, sizeof(*meeting->partners));
	if (!meeting->partners)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for %d connections", count);
	for (; meeting->count < count && status == 0; meeting->count++)
		status = read_card(&meeting->partners[meeting->count], &cards[meeting->count],
				   error);
	if (status == 0)
		status = ddp_tcp_meet(meeting, error);
	if (status == 0)
		status = make_connections(host, error);
	for (int i = 0; i < meeting->count; i++)
		if (meeting->partners[i].fd >= 0)
			ddp_fork_close_socket(meeting->partners[i].fd);
	free(meeting->partners);
	meeting->partners = NULL;
	meeting->count = 0;
	return status;
}

const struct ddp_host_engine ddp_tcp_engine = {
	.head = {.magic = DDP_MODULE_MAGIC,
		 .version = DDP_HOST_VERSION,
		 .size = sizeof(struct ddp_host_engine),
		 .kind = "wide",
		 .name = "tcp",
		 .release = PACKAGE_VERSION},
	.open = tcp_open,
	.meet = tcp_meet,
	.send = tcp_send,
	.recv = tcp_recv,
	.progress = tcp_progress,
	.cancel = tcp_cancel,
	.event = tcp_event,
	.early = tcp_early,
	.note = tcp_note,
	.silent = tcp_silent,
	.describe = tcp_describe,
	.close = tcp_close,
};
