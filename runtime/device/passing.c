/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "passing.h"
#include "shard-protocol.h"

/* Connections that have not sent yet: one of each member, and as many that will never send. */
enum { PENDING = 2 * DDP_SHARD_MEMBERS };

#define MAGIC 0x64647031u /* "ddp1" */

/* What travels: one packet. */
struct parcel {
	uint32_t magic;
	uint32_t descriptors; /* 0 or 1 */
	struct ddp_passing_letter letter;
};

struct ddp_passing {
	int listener;
	int pending[PENDING]; /* the oldest first */
	int count;
};

union control {
	struct cmsghdr head;
	char bytes[CMSG_SPACE(sizeof(int))];
};

/* What recvmsg() gave. */
struct arrival {
	struct parcel parcel;
	int fd;	  /* -1: none */
	bool cut; /* a descriptor was sent, and the kernel could not hand it over */
};

/* The address of [name] in the abstract namespace, which is no file. */
static socklen_t make_address(struct sockaddr_un *address, const char *name)
{
	size_t length = strlen(name);

	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	memcpy(address->sun_path + 1, name, length);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

/* The user of the process at the other end; false where it is not known. */
static bool get_user(int fd, uid_t *user)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
		return false;
	*user = peer.uid;
	return true;
}

/* --- The leader ------------------------------------------------------------------------- */

static int make_name(char name[DDP_PASSING_NAME], struct ddp_error *error)
{
	uint64_t random[2];

	if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
		return ddp_error_errno(error, DDP_ERR_SYSTEM, "passing descriptors: getrandom");
	snprintf(name, DDP_PASSING_NAME, "ddp-%016llx%016llx", (unsigned long long)random[0],
		 (unsigned long long)random[1]);
	return 0;
}

static int open_listener(struct ddp_passing *passing, const char *name, struct ddp_error *error)
{
	struct sockaddr_un address;
	socklen_t size = make_address(&address, name);

	passing->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (passing->listener < 0 ||
	    bind(passing->listener, (struct sockaddr *)&address, size) < 0 ||
	    listen(passing->listener, SOMAXCONN) < 0)
		return ddp_error_errno(error, DDP_ERR_SYSTEM,
				       "passing descriptors: listening at the UNIX socket @%s",
				       name);
	return 0;
}

int ddp_passing_listen(struct ddp_passing **passing, char name[DDP_PASSING_NAME],
		       struct ddp_error *error)
{
	struct ddp_passing *made = calloc(1, sizeof(*made));
	int status;

	*passing = NULL;
	if (!made)
		return ddp_error_set(error, DDP_ERR_MEMORY, "passing descriptors: out of memory");
	made->listener = -1;
	status = make_name(name, error);
	if (status == 0)
		status = open_listener(made, name, error);
	if (status < 0) {
		ddp_passing_close(made);
		return status;
	}
	*passing = made;
	return 0;
}

void ddp_passing_close(struct ddp_passing *passing)
{
	if (!passing)
		return;
	for (int i = 0; i < passing->count; i++)
		close(passing->pending[i]);
	if (passing->listener >= 0)
		close(passing->listener);
	free(passing);
}

static void drop(struct ddp_passing *passing, int index)
{
	close(passing->pending[index]);
	passing->count--;
	memmove(passing->pending + index, passing->pending + index + 1,
		(size_t)(passing->count - index) * sizeof(passing->pending[0]));
}

/*
 * Take who knocks, if it is of our user; for its place the one that has been silent longest goes.
 * Returns 0, or the errno of what kept it from taking more.
 */
static int take_connections(struct ddp_passing *passing)
{
	for (int i = 0; i < PENDING; i++) {
		int fd = accept4(passing->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		uid_t user;

		if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
			continue;
		if (fd < 0)
			return errno == EAGAIN ? 0 : errno;
		if (!get_user(fd, &user) || user != geteuid()) {
			close(fd);
			continue;
		}
		if (passing->count == PENDING)
			drop(passing, 0);
		passing->pending[passing->count++] = fd;
	}
	return 0;
}

/*
 * There is room for one descriptor; the kernel keeps what more there are, and says so.
 * Returns 1 with a letter in [arrival], 0 where nothing came yet, -1 where nothing good will.
 */
static int read_arrival(int fd, struct arrival *arrival)
{
	const struct parcel *parcel = &arrival->parcel;
	union control control = {.head = {.cmsg_len = 0}};
	struct iovec data = {.iov_base = &arrival->parcel, .iov_len = sizeof(arrival->parcel)};
	struct msghdr message = {.msg_iov = &data,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = CMSG_LEN(sizeof(int))};
	bool few, letter;
	ssize_t bytes;

	*arrival = (struct arrival){.fd = -1};
	bytes = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (bytes < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	if (control.head.cmsg_len == CMSG_LEN(sizeof(int)) &&
	    control.head.cmsg_level == SOL_SOCKET && control.head.cmsg_type == SCM_RIGHTS)
		memcpy(&arrival->fd, CMSG_DATA(&control.head), sizeof(arrival->fd));
	few = message.msg_flags & MSG_CTRUNC;
	arrival->cut = few && arrival->fd < 0 && parcel->descriptors == 1;
	letter = bytes == (ssize_t)sizeof(*parcel) && !(message.msg_flags & MSG_TRUNC) &&
		 parcel->magic == MAGIC && parcel->letter.bytes <= DDP_PASSING_BYTES &&
		 (arrival->cut || (!few && parcel->descriptors == (arrival->fd >= 0)));
	if (!letter && arrival->fd >= 0)
		close(arrival->fd);
	return letter ? 1 : -1;
}

/* Returns 1 with the letter of whoever sent one, 0 if nobody did. */
static int read_pending(struct ddp_passing *passing, struct arrival *arrival)
{
	for (int i = 0; i < passing->count;) {
		int status = read_arrival(passing->pending[i], arrival);

		if (status == 0) {
			i++;
			continue;
		}
		drop(passing, i);
		if (status > 0)
			return 1;
	}
	return 0;
}

static void wait_for_any(struct ddp_passing *passing)
{
	struct pollfd polled[1 + PENDING] = {{.fd = passing->listener, .events = POLLIN}};

	for (int i = 0; i < passing->count; i++)
		polled[1 + i] = (struct pollfd){.fd = passing->pending[i], .events = POLLIN};
	poll(polled, (nfds_t)passing->count + 1, DDP_WATCH_PERIOD / 1000000);
}

int ddp_passing_receive(struct ddp_passing *passing, int *fd, struct ddp_passing_letter *letter,
			const struct ddp_watch *watch, struct ddp_error *error)
{
	struct arrival arrival;
	int number, status;

	*fd = -1;
	for (;;) {
		number = take_connections(passing);
		if (read_pending(passing, &arrival) > 0)
			break;
		errno = number;
		if (number)
			return ddp_error_errno(error, DDP_ERR_SYSTEM,
					       "passing descriptors: taking a connection "
					       "(for \"Too many open files\", raise ulimit -n)");
		status = ddp_watch_check(watch, error);
		if (status == DDP_ERR_TIMEOUT)
			return ddp_error_set(error, status,
					     "no rank of this GPU passed its memory within %g s",
					     watch->limit);
		if (status < 0)
			return status;
		wait_for_any(passing);
	}
	*letter = arrival.parcel.letter;
	*fd = arrival.fd;
	if (!arrival.cut)
		return 0;
	return ddp_error_set(
		error, DDP_ERR_SYSTEM,
		"passing descriptors: that of member %d was lost on its way in: this "
		"process has too many open files (raise ulimit -n), or a security module "
		"forbids it",
		(int)letter->member);
}

/* --- The others ------------------------------------------------------------------------- */

/* After EAGAIN: whether to try once more. */
static int try_again(const char *name, const struct ddp_watch *watch, struct ddp_error *error)
{
	int status = ddp_watch_check(watch, error);

	if (status == DDP_ERR_TIMEOUT)
		return ddp_error_set(error, status,
				     "passing descriptors: the leader at @%s took none within %g s",
				     name, watch->limit);
	if (status == 0)
		ddp_watch_sleep(watch, DDP_WATCH_PERIOD);
	return status;
}

static int connect_leader(int fd, const char *name, const struct ddp_watch *watch,
			  struct ddp_error *error)
{
	struct sockaddr_un address;
	socklen_t size = make_address(&address, name);
	int status = 0;

	while (status == 0 && connect(fd, (struct sockaddr *)&address, size) < 0) {
		if (errno == ECONNREFUSED)
			return ddp_error_set(
				error, DDP_ERR_PEER,
				"passing descriptors: nobody listens at @%s: the leader "
				"is gone, or in another network namespace; ranks that "
				"share a GPU must be in one container",
				name);
		if (errno != EAGAIN && errno != EINTR)
			return ddp_error_errno(error, DDP_ERR_SYSTEM,
					       "passing descriptors: connecting to @%s", name);
		status = try_again(name, watch, error);
	}
	return status;
}

/* A name can be taken by anybody once its owner is gone. */
static int check_leader(int fd, const char *name, struct ddp_error *error)
{
	uid_t user;

	if (!get_user(fd, &user))
		return ddp_error_errno(error, DDP_ERR_SYSTEM,
				       "passing descriptors: asking who listens at @%s", name);
	if (user != geteuid())
		return ddp_error_set(
			error, DDP_ERR_SYSTEM,
			"passing descriptors: who listens at @%s is of user %u, this rank "
			"of user %u; ranks that share a GPU must be of one user",
			name, (unsigned)user, (unsigned)geteuid());
	return 0;
}

static int post(int connection, const char *name, int fd, const struct ddp_passing_letter *letter,
		const struct ddp_watch *watch, struct ddp_error *error)
{
	struct parcel parcel = {.magic = MAGIC, .descriptors = fd >= 0, .letter = *letter};
	struct iovec data = {.iov_base = &parcel, .iov_len = sizeof(parcel)};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
	union control control = {.head = {.cmsg_len = CMSG_LEN(sizeof(int)),
					  .cmsg_level = SOL_SOCKET,
					  .cmsg_type = SCM_RIGHTS}};
	int status = 0;

	memset(parcel.letter.room + letter->bytes, 0, DDP_PASSING_BYTES - letter->bytes);
	if (fd >= 0) {
		memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
		message.msg_control = &control;
		message.msg_controllen = sizeof(control.bytes);
	}
	while (status == 0 && sendmsg(connection, &message, MSG_NOSIGNAL) < 0) {
		if (errno == EPIPE || errno == ECONNRESET)
			return ddp_error_set(error, DDP_ERR_PEER,
					     "passing descriptors: the leader at @%s is gone",
					     name);
		if (errno != EAGAIN && errno != EINTR)
			return ddp_error_errno(error, DDP_ERR_SYSTEM,
					       "passing descriptor %d to the leader at @%s", fd,
					       name);
		status = try_again(name, watch, error);
	}
	return status;
}

int ddp_passing_send(const char *name, int fd, const struct ddp_passing_letter *letter,
		     const struct ddp_watch *watch, struct ddp_error *error)
{
	int connection, status;

	if (*name == '\0' || strnlen(name, DDP_PASSING_NAME) == DDP_PASSING_NAME)
		return ddp_error_set(
			error, DDP_ERR_ARGUMENT,
			"passing descriptors: \"%.*s\" is no name of a leader's socket",
			DDP_PASSING_NAME, name);
	if (letter->bytes > DDP_PASSING_BYTES)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "passing descriptors: %u bytes with one, %d at most",
				     letter->bytes, DDP_PASSING_BYTES);
	connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (connection < 0)
		return ddp_error_errno(error, DDP_ERR_SYSTEM, "passing descriptors: socket");
	status = connect_leader(connection, name, watch, error);
	if (status == 0)
		status = check_leader(connection, name, error);
	if (status == 0)
		status = post(connection, name, fd, letter, watch, error);
	close(connection);
	return status;
}
