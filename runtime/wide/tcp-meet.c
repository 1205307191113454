/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp-meet.c - how two ranks of the TCP engine connect and authenticate each other
 *
 * 1. At each start, each rank draws a secret of 256 bits and publishes it, with its address, in the
 *    rendezvous store, which only ranks of the job can read. The key of two ranks is BLAKE2s(secret
 *    of the listening rank, secret of the connecting rank). It is valid only in one attempt of one
 *    step, so messages recorded in another attempt prove nothing.
 * 2. In each pair of ranks, one side connects: the lower rank if the sum of the ranks is even, else
 *    the higher rank. So each rank listens for about half of its partners.
 * 3. The connecting side sends HELLO: magic, its rank, the rank that it wants to reach, a nonce.
 * 4. The listening side sends CHALLENGE, a second nonce, if the magic is correct and if it is the
 *    listening side of these two ranks. Otherwise it closes the connection.
 * 5. The connecting side sends PROOF: BLAKE2s(key, "connect", HELLO, CHALLENGE).
 * 6. The listening side compares PROOF in constant time. It answers with BLAKE2s(key, "listen ",
 *    HELLO, CHALLENGE), which the connecting side compares. From then on the socket carries frames
 *    (tcp.c).
 *
 * Before step 6, the listening side reads HELLO and PROOF, 32 bytes each, and nothing else. At most
 * MOST_PENDING connections wait for a proof, each for at most PENDING_NS. If one more connection
 * arrives, the oldest one without HELLO is closed, because a rank sends HELLO at once. If a
 * connection is closed in steps 3 to 6, the connecting side tries again until its deadline.
 *
 * Frames are neither encrypted nor signed. A program that can change packets on the network can
 * change sums.
 */
#include "config.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "tcp-private.h"

enum { MOST_PENDING = 64, NONCE = 16 };

#define PENDING_NS UINT64_C(2000000000)
#define RETRY_NS UINT64_C(50000000)

struct hello {
	uint64_t magic;
	int32_t from, to;
	uint8_t nonce[NONCE];
};

struct transcript {
	char role[8];
	struct hello hello;
	uint8_t challenge[NONCE];
};

_Static_assert(sizeof(struct hello) == 32, "bytes of a HELLO");
_Static_assert(sizeof(struct transcript) == 56, "a transcript has no padding");

/* State of a connection. */
enum stage {
	STAGE_IDLE,	 /* connecting side: waits for the time of the next attempt */
	STAGE_CONNECT,	 /* connecting side: waits for the kernel to connect */
	STAGE_CHALLENGE, /* connecting side: waits for CHALLENGE */
	STAGE_ANSWER,	 /* connecting side: waits for the listening side's proof */
	STAGE_HELLO,	 /* listening side: waits for HELLO */
	STAGE_PROOF,	 /* listening side: waits for PROOF */
	STAGE_DONE,
};

struct handshake {
	int fd; /* -1 if there is no socket */
	enum stage stage;
	struct ddp_tcp_partner *partner; /* NULL if not yet known */
	/* time at which this entry came into use; in STAGE_IDLE, time of the next attempt */
	uint64_t since;
	struct hello hello;
	uint8_t challenge[NONCE];
	uint8_t buffer[DDP_HASH_SIZE];
	size_t received;
	struct ddp_tcp_address from; /* listening side: the peer's address */
	int last_error;		     /* connecting side: errno of the last attempt */
	/*
	 * connecting side: time since which no attempt has reached the partner; 0: the last one did
	 */
	uint64_t failing_since;
};

struct meeting {
	struct ddp_tcp_meeting *public;
	struct handshake *ours; /* array of [count] connections that this rank opens */
	/* array of MOST_PENDING incoming connections, stored after [ours] in the same memory */
	struct handshake *theirs;
	struct pollfd *polled; /* entries for poll(): the listener, then all handshakes */
	int missing;	       /* number of partners that are not connected */
	int rejected;	       /* number of connections that were closed without a valid proof */
	char rejected_from[DDP_TCP_TEXT];
};

static bool connects(int rank, int partner)
{
	return (rank + partner) % 2 == 0 ? rank < partner : rank > partner;
}

/* --- Proofs -------------------------------------------------------------------------------- */

/* Compute the proof of one side, and write it to [proof]. [role] is "connect" or "listen ". */
static void make_proof(const struct ddp_tcp_meeting *meeting, const struct handshake *handshake,
		       const char role[8], uint8_t proof[static DDP_HASH_SIZE])
{
	const struct ddp_tcp_card *partner = &handshake->partner->card, *own = &meeting->own;
	bool connecting = handshake->hello.from == meeting->rank;
	struct transcript transcript = {.hello = handshake->hello};
	uint8_t key[DDP_HASH_SIZE];

	memcpy(transcript.role, role, sizeof(transcript.role));
	memcpy(transcript.challenge, handshake->challenge, NONCE);
	ddp_keyed_hash((connecting ? partner : own)->secret, (connecting ? own : partner)->secret,
		       DDP_HASH_SIZE, key);
	ddp_keyed_hash(key, &transcript, sizeof(transcript), proof);
}

static bool is_proof(const struct ddp_tcp_meeting *meeting, const struct handshake *handshake,
		     const char role[8])
{
	uint8_t proof[DDP_HASH_SIZE];

	make_proof(meeting, handshake, role, proof);
	return ddp_hash_equal(proof, handshake->buffer);
}

/* --- Sockets ------------------------------------------------------------------------------- */

/*
 * Send [data] without waiting. The send buffer of a new connection is always large enough. Returns
 * 0, or -1 with errno set.
 */
static int send_all(int fd, const void *data, size_t size)
{
	ssize_t sent = send(fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);

	if (sent == (ssize_t)size)
		return 0;
	if (sent >= 0)
		errno = EIO;
	return -1;
}

/*
 * Receive bytes into the handshake's buffer until it contains [size] bytes, without waiting.
 * Returns 1 if it does, 0 if some are still missing, or -1 if the connection has ended.
 */
static int receive(struct handshake *handshake, size_t size)
{
	ssize_t got = recv(handshake->fd, handshake->buffer + handshake->received,
			   size - handshake->received, MSG_DONTWAIT);

	if (got == 0) {
		errno = ECONNRESET;
		return -1;
	}
	if (got < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	handshake->received += (size_t)got;
	if (handshake->received < size)
		return 0;
	handshake->received = 0;
	return 1;
}

/*
 * Size of the kernel's buffers for a peer on this host. With larger ones, data leaves the cache
 * before the peer reads it; for 4 MiB and more this doubled the time.
 */
enum { LOCAL_BUFFER = 64 << 10 };

/*
 * Send data at once. Probe an idle connection, so that a dead host is detected after half of the
 * limit. tcp.c checks connections with data in flight. TCP_USER_TIMEOUT would do both, but it would
 * also end connections to a living peer that does not read for that time.
 */
static void set_options(int fd, double limit, bool same_host)
{
	int buffer = LOCAL_BUFFER, on = 1, probes = 3;
	int idle = limit < 16 ? 1 : limit > 4800 ? 600 : (int)(limit / 8);

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
	if (same_host)
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
}

static void drop(struct handshake *handshake)
{
	if (handshake->fd >= 0)
		ddp_fork_close_socket(handshake->fd);
	handshake->fd = -1;
	handshake->received = 0;
}

/* End a handshake in which both sides are authenticated: pass the socket to the partner's entry. */
static void finish(struct meeting *meeting, struct handshake *handshake)
{
	struct ddp_tcp_partner *partner = handshake->partner;

	/*
	 * The partner connects for the second time, because its first connection failed before this
	 * rank's proof had arrived. Close the first connection.
	 */
	if (partner->fd >= 0)
		ddp_fork_close_socket(partner->fd);
	else
		meeting->missing--;
	set_options(handshake->fd, meeting->public->watch->limit,
		    ddp_tcp_same_host(&partner->card.address, &meeting->public->own.address));
	partner->fd = handshake->fd;
	handshake->fd = -1;
	handshake->stage = STAGE_DONE;
}

/* --- The connecting side ------------------------------------------------------------------- */

/*
 * Schedule the next attempt. [why] is the errno of the last one. ECONNRESET and EBADMSG mean that
 * the partner was reached, and perhaps closed the connection to make space for another one.
 */
static void retry_later(const struct ddp_tcp_meeting *meeting, struct handshake *handshake, int why)
{
	uint64_t now = ddp_watch_now(meeting->watch);

	drop(handshake);
	handshake->stage = STAGE_IDLE;
	handshake->since = now + RETRY_NS;
	handshake->last_error = why;
	if (why == ECONNRESET || why == EBADMSG)
		handshake->failing_since = 0;
	else if (!handshake->failing_since)
		handshake->failing_since = now;
}

static void start_connecting(const struct ddp_tcp_meeting *meeting, struct handshake *handshake)
{
	struct ddp_tcp_address from = meeting->own.address;
	const struct ddp_tcp_address *to = &handshake->partner->card.address;

	if (from.any.sa_family == AF_INET)
		from.v4.sin_port = 0;
	else
		from.v6.sin6_port = 0;
	handshake->fd = ddp_fork_socket(to->any.sa_family, SOCK_STREAM);
	handshake->stage = STAGE_CONNECT;
	handshake->since = ddp_watch_now(meeting->watch);
	if (handshake->fd < 0) {
		retry_later(meeting, handshake, errno);
		return;
	}
	/* Send from this rank's address: of the interface that the user chose, or of the route. */
	if (from.any.sa_family == to->any.sa_family)
		bind(handshake->fd, &from.any, ddp_tcp_address_size(&from));
	if (connect(handshake->fd, &to->any, ddp_tcp_address_size(to)) < 0 && errno != EINPROGRESS)
		retry_later(meeting, handshake, errno);
}

static int send_hello(const struct ddp_tcp_meeting *meeting, struct handshake *handshake)
{
	handshake->hello = (struct hello){
		.magic = DDP_TCP_MAGIC, .from = meeting->rank, .to = handshake->partner->rank};
	if (getrandom(handshake->hello.nonce, NONCE, 0) != NONCE)
		return -1;
	handshake->stage = STAGE_CHALLENGE;
	return send_all(handshake->fd, &handshake->hello, sizeof(handshake->hello));
}

static int send_proof(const struct ddp_tcp_meeting *meeting, struct handshake *handshake)
{
	uint8_t proof[DDP_HASH_SIZE];

	memcpy(handshake->challenge, handshake->buffer, NONCE);
	make_proof(meeting, handshake, "connect", proof);
	handshake->stage = STAGE_ANSWER;
	return send_all(handshake->fd, proof, sizeof(proof));
}

static void continue_ours(struct meeting *meeting, struct handshake *handshake)
{
	int status = 1;

	if (handshake->stage == STAGE_CONNECT) {
		status = send_hello(meeting->public, handshake);
	} else if (handshake->stage == STAGE_CHALLENGE) {
		status = receive(handshake, NONCE);
		if (status > 0)
			status = send_proof(meeting->public, handshake);
	} else {
		status = receive(handshake, DDP_HASH_SIZE);
		if (status > 0 && is_proof(meeting->public, handshake, "listen ")) {
			finish(meeting, handshake);
			return;
		}
		if (status > 0) {
			errno = EBADMSG;
			status = -1;
		}
	}
	if (status < 0)
		retry_later(meeting->public, handshake, errno);
}

/* --- The listening side -------------------------------------------------------------------- */

static void reject(struct meeting *meeting, struct handshake *handshake)
{
	if (meeting->rejected++ == 0)
		ddp_tcp_address_text(&handshake->from, meeting->rejected_from);
	drop(handshake);
}

/*
 * Close the oldest pending connection that has not sent HELLO. If all have sent it, close the
 * oldest. Returns the entry of the closed connection, or NULL if no connection is pending.
 */
static struct handshake *reject_oldest(struct meeting *meeting)
{
	struct handshake *oldest = NULL;

	for (int i = 0; i < MOST_PENDING; i++) {
		struct handshake *entry = &meeting->theirs[i];

		if (entry->fd >= 0 &&
		    (!oldest || entry->stage < oldest->stage ||
		     (entry->stage == oldest->stage && entry->since < oldest->since)))
			oldest = entry;
	}
	if (oldest)
		reject(meeting, oldest);
	return oldest;
}

static struct handshake *make_entry(struct meeting *meeting)
{
	for (int i = 0; i < MOST_PENDING; i++)
		if (meeting->theirs[i].fd < 0)
			return &meeting->theirs[i];
	return reject_oldest(meeting);
}

static struct ddp_tcp_partner *find_partner(const struct ddp_tcp_meeting *meeting,
					    const struct hello *hello)
{
	if (hello->magic != DDP_TCP_MAGIC || hello->to != meeting->rank)
		return NULL;
	for (int i = 0; i < meeting->count; i++)
		if (meeting->partners[i].rank == hello->from &&
		    !connects(meeting->rank, hello->from))
			return &meeting->partners[i];
	return NULL;
}

static int send_challenge(const struct ddp_tcp_meeting *meeting, struct handshake *handshake)
{
	memcpy(&handshake->hello, handshake->buffer, sizeof(handshake->hello));
	handshake->partner = find_partner(meeting, &handshake->hello);
	if (!handshake->partner || getrandom(handshake->challenge, NONCE, 0) != NONCE)
		return -1;
	handshake->stage = STAGE_PROOF;
	return send_all(handshake->fd, handshake->challenge, NONCE);
}

static int send_answer(const struct ddp_tcp_meeting *meeting, struct handshake *handshake)
{
	uint8_t proof[DDP_HASH_SIZE];

	if (!is_proof(meeting, handshake, "connect"))
		return -1;
	make_proof(meeting, handshake, "listen ", proof);
	return send_all(handshake->fd, proof, sizeof(proof));
}

static void continue_theirs(struct meeting *meeting, struct handshake *handshake)
{
	bool is_hello = handshake->stage == STAGE_HELLO;
	int status = receive(handshake, is_hello ? sizeof(struct hello) : DDP_HASH_SIZE);

	if (status > 0)
		status = is_hello ? send_challenge(meeting->public, handshake)
				  : send_answer(meeting->public, handshake);
	else if (status == 0)
		return;
	if (status < 0)
		reject(meeting, handshake);
	else if (!is_hello)
		finish(meeting, handshake);
}

static int accept_all(struct meeting *meeting, struct ddp_error *error)
{
	for (int i = 0; i < MOST_PENDING; i++) {
		struct handshake *entry, new = {.stage = STAGE_HELLO};
		socklen_t size = sizeof(new.from.v6);

		new.since = ddp_watch_now(meeting->public->watch);
		new.fd = ddp_fork_accept(meeting->public->listener, &new.from.any, &size);
		if (new.fd < 0 &&
		    (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
			return reject_oldest(meeting)
				       ? 0
				       : ddp_error_errno(error, DDP_ERR_ENGINE,
							 "cannot accept a connection");
		if (new.fd < 0)
			return 0;
		entry = make_entry(meeting);
		*entry = new;
		continue_theirs(meeting, entry);
	}
	return 0;
}

static void expire(struct meeting *meeting, uint64_t now)
{
	for (int i = 0; i < MOST_PENDING; i++)
		if (meeting->theirs[i].fd >= 0 && now - meeting->theirs[i].since > PENDING_NS)
			reject(meeting, &meeting->theirs[i]);
}

/* --- The meeting --------------------------------------------------------------------------- */

/* If a SYN gets no answer for this time, in nanoseconds, a firewall probably drops the packets. */
#define CONNECT_NS UINT64_C(30000000000)
/*
 * If connections are refused for this time, in nanoseconds, the listener probably does not exist.
 */
#define REFUSED_NS UINT64_C(5000000000)

static int cannot_connect(const struct ddp_tcp_meeting *meeting,
			  const struct ddp_tcp_partner *partner, const char *why,
			  struct ddp_error *error)
{
	char there[DDP_TCP_TEXT];

	return ddp_error_set(error, DDP_ERR_ENGINE,
			     "cannot connect from %s (%s) to rank %d on %s at %s (%s): %s. Select "
			     "network interfaces with DDP_SOCKET_IFNAME, and ports with "
			     "DDP_TCP_PORTS.",
			     meeting->own.node, meeting->own.address.interface, partner->rank,
			     partner->card.node,
			     ddp_tcp_address_text(&partner->card.address, there),
			     partner->card.address.interface, why);
}

/* If a partner cannot be reached, fail without waiting for the deadline. */
static int check_tries(const struct meeting *meeting, uint64_t now, struct ddp_error *error)
{
	const struct ddp_tcp_meeting *public = meeting->public;

	for (int i = 0; i < public->count; i++) {
		const struct handshake *handshake = &meeting->ours[i];

		if (handshake->stage == STAGE_CONNECT && now - handshake->since > CONNECT_NS)
			return cannot_connect(public, handshake->partner,
					      "no answer, perhaps because a firewall drops the "
					      "packets",
					      error);
		if (handshake->stage == STAGE_IDLE && handshake->failing_since &&
		    now - handshake->failing_since > REFUSED_NS)
			return cannot_connect(public, handshake->partner,
					      strerror(handshake->last_error), error);
	}
	return 0;
}

static int report_missing(const struct meeting *meeting, struct ddp_error *error)
{
	const struct ddp_tcp_meeting *public = meeting->public;
	const struct ddp_tcp_partner *partner = public->partners;
	char here[DDP_TCP_TEXT], more[32] = "";

	while (partner->fd >= 0)
		partner++;
	if (connects(public->rank, partner->rank)) {
		cannot_connect(public, partner, "the handshake timed out", error);
		error->status = DDP_ERR_TIMEOUT;
		return error->status;
	}
	if (meeting->missing > 1)
		snprintf(more, sizeof(more), " and %d more", meeting->missing - 1);
	return ddp_error_set(error, DDP_ERR_TIMEOUT,
			     "rank %d on %s%s did not connect to %s (%s, %s) in %g s",
			     partner->rank, partner->card.node, more,
			     ddp_tcp_address_text(&public->own.address, here), public->own.node,
			     public->own.address.interface, public->watch->limit);
}

/* Wait for events, but at most for [milliseconds], and handle them. */
static int handle_events(struct meeting *meeting, int milliseconds, struct ddp_error *error)
{
	struct pollfd *listener = meeting->polled, *polled = listener + 1;
	int ours = meeting->public->count, count = ours + MOST_PENDING;

	/*
	 * Omit unused entries at the end, since poll() fails if there are more entries than the
	 * limit of open descriptors.
	 */
	while (count > 0 && meeting->ours[count - 1].fd < 0)
		count--;
	*listener = (struct pollfd){.fd = meeting->public->listener, .events = POLLIN};
	for (int i = 0; i < count; i++)
		polled[i] = (struct pollfd){
			.fd = meeting->ours[i].fd,
			.events = meeting->ours[i].stage == STAGE_CONNECT ? POLLOUT : POLLIN};
	if (poll(meeting->polled, (nfds_t)count + 1, milliseconds) < 0 && errno != EINTR)
		return ddp_error_errno(error, DDP_ERR_ENGINE, "poll");
	for (int i = 0; i < count; i++)
		if (polled[i].revents && i < ours)
			continue_ours(meeting, &meeting->ours[i]);
		else if (polled[i].revents)
			continue_theirs(meeting, &meeting->ours[i]);
	/* accept new connections last, because they can reuse entries that were just handled */
	return listener->revents ? accept_all(meeting, error) : 0;
}

static int run_meeting(struct meeting *meeting, struct ddp_error *error)
{
	struct ddp_tcp_meeting *public = meeting->public;
	int status = 0;

	while (meeting->missing > 0 && status == 0) {
		uint64_t now = ddp_watch_now(public->watch);

		for (int i = 0; i < public->count; i++)
			if (meeting->ours[i].stage == STAGE_IDLE && meeting->ours[i].since <= now)
				start_connecting(public, &meeting->ours[i]);
		status = handle_events(meeting, 20, error);
		now = ddp_watch_now(public->watch);
		expire(meeting, now);
		if (status < 0 || meeting->missing == 0)
			break;
		status = check_tries(meeting, now, error);
		if (status == 0)
			status = ddp_watch_check(public->watch, error);
		if (status == DDP_ERR_TIMEOUT && !*error->text)
			status = report_missing(meeting, error);
	}
	return status;
}

int ddp_tcp_meet(struct ddp_tcp_meeting *public, struct ddp_error *error)
{
	size_t count = (size_t) public->count;
	struct meeting meeting = {
		.public = public,
		.ours = calloc(count + MOST_PENDING, sizeof(*meeting.ours)),
		.polled = calloc(count + MOST_PENDING + 1, sizeof(*meeting.polled)),
		.missing = public->count,
	};
	int status;

	ddp_error_clear(error);
	if (!meeting.ours || !meeting.polled) {
		status = ddp_error_set(error, DDP_ERR_MEMORY, "no memory for %d connections",
				       public->count);
		goto out;
	}
	meeting.theirs = meeting.ours + count;
	for (size_t i = 0; i < count; i++)
		meeting.ours[i] = (struct handshake){
			.fd = -1,
			.partner = &public->partners[i],
			.stage = connects(public->rank, public->partners[i].rank) ? STAGE_IDLE
										  : STAGE_DONE,
		};
	for (int i = 0; i < MOST_PENDING; i++)
		meeting.theirs[i].fd = -1;
	status = run_meeting(&meeting, error);
	for (int i = 0; i < public->count; i++)
		drop(&meeting.ours[i]);
	for (int i = 0; i < MOST_PENDING; i++)
		if (meeting.theirs[i].fd >= 0)
			reject(&meeting, &meeting.theirs[i]);
	if (meeting.rejected)
		ddp_log_print(public->log, DDP_LEVEL_WARNING, "tcp",
			      "rejected %d connections without a valid proof, the first from %s",
			      meeting.rejected, meeting.rejected_from);
out:
	ddp_fork_close_socket(public->listener);
	public->listener = -1;
	free(meeting.ours);
	free(meeting.polled);
	return status;
}
