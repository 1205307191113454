/* SPDX-License-Identifier: Apache-2.0 */
/*
 * passing.c - pass descriptors from member 0 to members in other containers
 *
 * A process can open another process's descriptors through /proc/PID/fd only if both are in the
 * same pid and user namespace. A Unix socket works between all namespaces, if it is in a directory
 * that both processes have mounted. The protocol:
 *
 * 1. Member 0 binds a socket in the rendezvous directory and draws a secret of 256 bits. The
 *    socket's name and the secret are part of member 0's ticket, which only ranks of the job can
 *    read.
 * 2. A member connects. Member 0 sends CHALLENGE, 32 random bytes.
 * 3. The member sends PROOF, with its pidfd: its index and BLAKE2s(secret, CHALLENGE, index). The
 *    peer's credentials would prove less, since they are mapped to the receiver's user namespace.
 * 4. Member 0 sends the token of the memory with the memory's descriptor, and its own pidfd. The
 *    token is 128 random bits, which are in the ticket and in the memory. So the member accepts no
 *    other memory.
 * 5. The connection stays open, and carries the descriptor of each further region. In any pid
 *    namespace, a pidfd shows when the process ends. Without pidfds (Linux before 5.3) the end of
 *    the connection shows it, unless a child of the process has inherited the connection.
 *
 * Member 0 removes the socket from the directory once all members have the memory. The socket has
 * type SOCK_SEQPACKET, so that messages arrive complete or not at all.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "group-private.h"

enum { SPARE = 16 }; /* number of connections that may be pending in addition to one per member */

/* Nanoseconds between checks for members that have attached without the socket. */
#define POLL_PERIOD 200000

struct challenge {
	uint8_t bytes[DDP_HASH_SIZE];
	int32_t index; /* index of the member that sends a proof */
};

struct proof {
	int32_t index;
	uint8_t hash[DDP_HASH_SIZE];
};

struct token {
	uint64_t words[2];
};

struct pending {
	int fd; /* descriptor of the connection, or -1 if this entry is free */
	struct challenge challenge;
};

struct ddp_passing {
	int directory, listener;
	struct ddp_socket socket;
	struct pending *pending;
	int count, next;
	struct pollfd *polls; /* the listener, then the pending connections */
};

/*
 * Returns the address of socket [name] in [directory]. It contains the directory's descriptor,
 * because the directory's path may be too long for an address.
 */
static struct sockaddr_un address_of(int directory, const char *name)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", directory,
		 name);
	return address;
}

static int open_directory(const char *directory)
{
	return open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static void make_proof(const struct ddp_socket *socket, struct challenge challenge, int index,
		       uint8_t hash[static DDP_HASH_SIZE])
{
	challenge.index = index;
	ddp_keyed_hash(socket->secret, &challenge, sizeof(challenge), hash);
}

/* --- Descriptors in messages ------------------------------------------------------------- */

enum { DESCRIPTORS = 2 }; /* maximum number of descriptors in a message */

union control {
	struct cmsghdr head;
	char bytes[CMSG_SPACE(DESCRIPTORS * sizeof(int))];
};

/*
 * Send [data] and the first [count] descriptors of [fds], without waiting. Returns 0, or -1 with
 * errno set.
 */
static int send_message(int link, void *data, size_t bytes, const int *fds, int count)
{
	size_t length = (size_t)count * sizeof(*fds);
	struct iovec part = {data, bytes};
	union control control = {0};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	if (count > 0) {
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(length);
		control.head = (struct cmsghdr){.cmsg_len = CMSG_LEN(length),
						.cmsg_level = SOL_SOCKET,
						.cmsg_type = SCM_RIGHTS};
		memcpy(CMSG_DATA(&control.head), fds, length);
	}
	return sendmsg(link, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -1 : 0;
}

static void close_all(const int *fds)
{
	for (int i = 0; i < DESCRIPTORS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

/*
 * Receive a message of [bytes] to [data], and its descriptors to [fds]; a missing descriptor is -1.
 * Returns 0; MSG_CTRUNC if this process can open no more descriptors, or if a security policy
 * removed one; or -1 with errno.
 */
static int receive_message(int link, void *data, size_t bytes, int fds[static DESCRIPTORS])
{
	struct iovec part = {data, bytes};
	union control control = {0};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};
	ssize_t length = recvmsg(link, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct cmsghdr *head = length >= 0 ? CMSG_FIRSTHDR(&message) : NULL;

	for (int i = 0; i < DESCRIPTORS; i++)
		fds[i] = -1;
	if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS)
		memcpy(fds, CMSG_DATA(head), head->cmsg_len - CMSG_LEN(0));
	if (length == (ssize_t)bytes)
		return message.msg_flags & MSG_CTRUNC;
	close_all(fds);
	if (length >= 0)
		errno = length == 0 ? ECONNRESET : EBADMSG;
	return -1;
}

int ddp_passing_send(int link, const uint64_t words[2], int fd)
{
	struct token token = {{words[0], words[1]}};

	return send_message(link, &token, sizeof(token), &fd, 1);
}

/*
 * Keep [pidfd] to check [member]'s process. Ignores -1, and closes descriptors of the upper half.
 */
static void keep_pidfd(struct ddp_group *group, int member, int pidfd)
{
	if (pidfd < 0)
		return;
	if (!ddp_is_low_descriptor(pidfd)) {
		close(pidfd);
		return;
	}
	if (group->pidfds[member] >= 0)
		close(group->pidfds[member]);
	group->pidfds[member] = pidfd;
}

int ddp_passing_receive(struct ddp_group *group, const uint64_t words[2])
{
	struct token token = {{0, 0}};
	int fds[DESCRIPTORS], status;

	while ((status = receive_message(group->links[0], &token, sizeof(token), fds)) >= 0) {
		if (fds[0] < 0) {
			errno = status ? EMFILE : EBADMSG;
			return -1;
		}
		if (token.words[0] == words[0] && token.words[1] == words[1]) {
			keep_pidfd(group, 0, fds[1]);
			return fds[0];
		}
		/* these descriptors belong to a region whose creation failed */
		close_all(fds);
	}
	return -1;
}

/* --- Member 0 ---------------------------------------------------------------------------- */

static void stop_listening(struct ddp_passing *passing)
{
	(void)unlinkat(passing->directory, passing->socket.name, 0);
	ddp_fork_close_socket(passing->listener);
	passing->listener = -1;
}

void ddp_passing_close(struct ddp_passing *passing)
{
	if (!passing)
		return;
	if (passing->listener >= 0)
		stop_listening(passing);
	if (passing->directory >= 0)
		close(passing->directory);
	for (int i = 0; passing->pending && i < passing->count; i++)
		if (passing->pending[i].fd >= 0)
			ddp_fork_close_socket(passing->pending[i].fd);
	free(passing->pending);
	free(passing->polls);
	free(passing);
}

static bool bind_socket(struct ddp_passing *passing)
{
	struct sockaddr_un address = address_of(passing->directory, passing->socket.name);

	passing->listener = ddp_fork_socket(AF_UNIX, SOCK_SEQPACKET);
	return passing->listener >= 0 &&
	       bind(passing->listener, (struct sockaddr *)&address, sizeof(address)) == 0 &&
	       listen(passing->listener, passing->count) == 0;
}

struct ddp_passing *ddp_passing_listen(const char *directory, int members)
{
	struct ddp_passing *passing = calloc(1, sizeof(*passing));
	uint64_t number;
	int why;

	if (!passing)
		return NULL;
	passing->listener = -1;
	passing->directory = open_directory(directory);
	passing->count = members + SPARE;
	passing->pending = calloc((size_t)passing->count, sizeof(*passing->pending));
	passing->polls = calloc((size_t)passing->count + 1, sizeof(*passing->polls));
	for (int i = 0; passing->pending && i < passing->count; i++)
		passing->pending[i].fd = -1;
	if (passing->directory >= 0 && passing->pending && passing->polls &&
	    getrandom(&number, sizeof(number), 0) == sizeof(number) &&
	    getrandom(passing->socket.secret, DDP_HASH_SIZE, 0) == DDP_HASH_SIZE) {
		snprintf(passing->socket.name, sizeof(passing->socket.name),
			 "%016" PRIx64 ".socket", number);
		if (bind_socket(passing))
			return passing;
	}
	why = errno;
	ddp_passing_close(passing);
	errno = why;
	return NULL;
}

const struct ddp_socket *ddp_passing_socket(const struct ddp_passing *passing)
{
	return &passing->socket;
}

static void drop(struct pending *pending)
{
	ddp_fork_close_socket(pending->fd);
	pending->fd = -1;
}

/*
 * Accept new connections. Half of the descriptors are left to the program. A member that is refused
 * uses /proc; if it cannot, the ranks of the node do not share memory.
 */
static void accept_all(struct ddp_passing *passing)
{
	int fd;

	while ((fd = ddp_fork_accept(passing->listener, NULL, NULL)) >= 0) {
		struct pending *pending = &passing->pending[passing->next];

		if (!ddp_is_low_descriptor(fd)) {
			ddp_fork_close_socket(fd);
			continue;
		}
		/*
		 * No entry is free, although there are more entries than members. So the peer of
		 * the oldest connection is probably not a member; close its connection.
		 */
		passing->next = (passing->next + 1) % passing->count;
		if (pending->fd >= 0)
			drop(pending);
		pending->fd = fd;
		if (getrandom(pending->challenge.bytes, DDP_HASH_SIZE, 0) != DDP_HASH_SIZE ||
		    send(fd, pending->challenge.bytes, DDP_HASH_SIZE,
			 MSG_DONTWAIT | MSG_NOSIGNAL) != DDP_HASH_SIZE)
			drop(pending);
	}
	/*
	 * This process can open no more descriptors. Stop listening, because otherwise every poll()
	 * would report the connection that cannot be accepted.
	 */
	if (passing->listener >= 0 && (errno == EMFILE || errno == ENFILE))
		stop_listening(passing);
}

static int send_memory(const struct ddp_group *group, int link)
{
	const uint64_t *words = ddp_segment_token(&group->segment);
	struct token token = {{words[0], words[1]}};
	int fds[DESCRIPTORS] = {group->segment.fd, ddp_pidfd_open(getpid())};
	int status = send_message(link, &token, sizeof(token), fds, fds[1] < 0 ? 1 : 2);

	if (fds[1] >= 0)
		close(fds[1]);
	return status;
}

/* If [pending] has received a member's proof, send the memory and keep the connection. */
static void answer(struct ddp_group *group, struct pending *pending)
{
	const struct ddp_socket *socket = &group->passing->socket;
	uint8_t hash[DDP_HASH_SIZE];
	struct proof proof;
	int fds[DESCRIPTORS];

	if (receive_message(pending->fd, &proof, sizeof(proof), fds) < 0) {
		if (errno != EAGAIN && errno != EINTR)
			drop(pending);
		return;
	}
	if (proof.index > 0 && proof.index < group->size)
		make_proof(socket, pending->challenge, proof.index, hash);
	if (proof.index <= 0 || proof.index >= group->size || !ddp_hash_equal(hash, proof.hash) ||
	    send_memory(group, pending->fd) < 0) {
		close_all(fds);
		drop(pending);
		return;
	}
	keep_pidfd(group, proof.index, fds[0]);
	if (fds[1] >= 0)
		close(fds[1]);
	if (group->links[proof.index] >= 0)
		ddp_fork_close_socket(group->links[proof.index]);
	group->links[proof.index] = pending->fd;
	pending->fd = -1;
}

static void wait_for_events(struct ddp_passing *passing)
{
	const struct timespec period = {.tv_nsec = POLL_PERIOD};
	nfds_t count = 0;

	/*
	 * List only open descriptors, because ppoll() fails if the list is longer than
	 * RLIMIT_NOFILE.
	 */
	if (passing->listener >= 0)
		passing->polls[count++] =
			(struct pollfd){.fd = passing->listener, .events = POLLIN};
	for (int i = 0; i < passing->count; i++)
		if (passing->pending[i].fd >= 0)
			passing->polls[count++] =
				(struct pollfd){.fd = passing->pending[i].fd, .events = POLLIN};
	(void)ppoll(passing->polls, count, &period, NULL);
}

static bool have_all_joined(const struct ddp_group *group)
{
	for (int m = 0; m < group->size; m++)
		if (atomic_load(&group->slots[m]->state) == DDP_MEMBER_NONE)
			return false;
	return true;
}

bool ddp_group_serve(struct ddp_group *group, uint64_t nanoseconds)
{
	struct ddp_passing *passing = group->passing;
	struct ddp_watch watch;

	if (!passing)
		return have_all_joined(group);
	watch = ddp_watch_start((double)nanoseconds * 1e-9, NULL, NULL);
	for (;;) {
		accept_all(passing);
		for (int i = 0; i < passing->count; i++)
			if (passing->pending[i].fd >= 0)
				answer(group, &passing->pending[i]);
		if (have_all_joined(group))
			return true;
		if (ddp_watch_check(&watch, NULL) < 0)
			return false;
		wait_for_events(passing);
	}
}

/* --- Other members ----------------------------------------------------------------------- */

/* Wait until [link] is readable. Returns 1, or returns 0 with the watch's error in [status]. */
static int wait_readable(int link, const struct ddp_watch *watch, int *status,
			 struct ddp_error *error)
{
	struct pollfd poll_link = {.fd = link, .events = POLLIN};

	while (poll(&poll_link, 1, DDP_WATCH_PERIOD / 1000000) <= 0) {
		*status = ddp_watch_check(watch, error);
		if (*status < 0)
			return 0;
	}
	return 1;
}

/*
 * Connect to the socket [name]. Returns the connection, or -1. After a failure, [status] is the
 * watch's error if it is below 0; otherwise errno is set.
 */
static int connect_to(const char *directory, const char *name, const struct ddp_watch *watch,
		      int *status, struct ddp_error *error)
{
	int at = open_directory(directory), fd = -1, number;
	struct sockaddr_un address = address_of(at, name);

	if (at >= 0)
		fd = ddp_fork_socket(AF_UNIX, SOCK_SEQPACKET);
	while (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		number = errno;
		/* the queue of the listener is full */
		if (number == EAGAIN)
			*status = ddp_watch_check(watch, error);
		if (number != EAGAIN || *status < 0) {
			ddp_fork_close_socket(fd);
			fd = -1;
			errno = number;
		} else {
			ddp_watch_sleep(watch, POLL_PERIOD);
		}
	}
	number = errno;
	if (at >= 0)
		close(at);
	errno = number;
	return fd;
}

/*
 * Answer member 0's challenge. Returns 1; 0 with the watch's error in [status]; or -1 with errno.
 */
static int prove(int link, const struct ddp_socket *socket, int index,
		 const struct ddp_watch *watch, int *status, struct ddp_error *error)
{
	struct proof proof = {.index = index};
	struct challenge challenge = {.index = 0};
	ssize_t length;
	int pidfd, sent;

	if (!wait_readable(link, watch, status, error))
		return 0;
	length = recv(link, challenge.bytes, DDP_HASH_SIZE, MSG_DONTWAIT);
	if (length != DDP_HASH_SIZE) {
		errno = length < 0 ? errno : length == 0 ? ECONNRESET : EBADMSG;
		return -1;
	}
	make_proof(socket, challenge, index, proof.hash);
	pidfd = ddp_pidfd_open(getpid());
	sent = send_message(link, &proof, sizeof(proof), &pidfd, pidfd < 0 ? 0 : 1);
	if (pidfd >= 0)
		close(pidfd);
	return sent < 0 ? -1 : 1;
}

int ddp_passing_connect(struct ddp_group *group, const struct ddp_socket *socket,
			const uint64_t token[2], const struct ddp_watch *watch,
			struct ddp_error *error)
{
	int status = 0, fd = -1, number, link;
	bool connected;

	ddp_watch_block(); /* the directory may be on a file server */
	link = connect_to(group->directory, socket->name, watch, &status, error);
	ddp_watch_unblock();
	connected = link >= 0;
	group->links[0] = link;
	if (connected && prove(link, socket, group->index, watch, &status, error) > 0 &&
	    wait_readable(link, watch, &status, error))
		fd = ddp_passing_receive(group, token);
	number = errno;
	if (fd >= 0)
		return fd;
	group->links[0] = -1;
	if (connected)
		ddp_fork_close_socket(link);
	if (status < 0)
		return *error->text ? status
				    : ddp_error_set(error, status,
						    "rank %d on %s did not pass its memory in %g s",
						    group->ranks[0], group->host, watch->limit);
	errno = number;
	ddp_error_errno(error, DDP_ERR_SYSTEM, "%s %s/%s",
			connected ? "cannot receive a descriptor over" : "cannot connect to",
			group->directory, socket->name);
	errno = number;
	return DDP_ERR_SYSTEM;
}
