/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <ucs/async/async_fwd.h>
#include <unistd.h>

#include "base/checksum.h"
#include "ucx-sockets.h"

/* --- Sockets of this process ---------------------------------------------------------------- */

static int option_of(int fd, int level, int name)
{
	int value = -1;
	socklen_t size = sizeof(value);

	return getsockopt(fd, level, name, &value, &size) == 0 ? value : -1;
}

static void set_option(int fd, int level, int name, int value)
{
	(void)setsockopt(fd, level, name, &value, sizeof(value));
}

/* A walk over the TCP sockets of the process, which always comes to its end and needs no memory. */
struct walk {
	DIR *directory; /* NULL: there is none to be had, all numbers are tried */
	int socket;
};

static struct walk start_walk(void)
{
	return (struct walk){opendir("/proc/self/fd"), -1};
}

static bool walk_on(struct walk *walk)
{
	struct dirent *entry;

	do {
		if (!walk->directory) {
			if (++walk->socket >= sysconf(_SC_OPEN_MAX))
				return false;
		} else if ((entry = readdir(walk->directory))) {
			walk->socket = atoi(entry->d_name);
		} else {
			closedir(walk->directory);
			return false;
		}
	} while (option_of(walk->socket, SOL_SOCKET, SO_PROTOCOL) != IPPROTO_TCP);
	return true;
}

union address {
	struct sockaddr any;
	struct sockaddr_in four;
	struct sockaddr_in6 six;
};

static struct ddp_ucx_end end_at(const union address *address)
{
	struct ddp_ucx_end end = {.address = {[10] = 0xff, [11] = 0xff}};

	if (address->any.sa_family == AF_INET) {
		memcpy(end.address + 12, &address->four.sin_addr, 4);
		end.port = ntohs(address->four.sin_port);
	} else if (address->any.sa_family == AF_INET6) {
		memcpy(end.address, &address->six.sin6_addr, sizeof(end.address));
		end.port = ntohs(address->six.sin6_port);
	}
	return end;
}

/* The near end of a socket; port 0: it has none. */
static struct ddp_ucx_end near_end(int fd)
{
	union address address = {.any.sa_family = AF_UNSPEC};
	socklen_t size = sizeof(address);

	(void)getsockname(fd, &address.any, &size);
	return end_at(&address);
}

/* The far end, also of a socket that is not connected yet, for which getpeername() has none. */
static struct ddp_ucx_end far_end(int fd)
{
	union address address = {.any.sa_family = AF_UNSPEC};
	socklen_t size = sizeof(address.six);

	/* It wants the size that it is. */
	if (getsockopt(fd, SOL_SOCKET, SO_PEERNAME, &address, &size) < 0) {
		size = sizeof(address.four);
		(void)getsockopt(fd, SOL_SOCKET, SO_PEERNAME, &address, &size);
	}
	return end_at(&address);
}

static bool listens(int fd)
{
	return option_of(fd, SOL_SOCKET, SO_ACCEPTCONN) == 1;
}

static bool has_port(const struct ddp_ucx_ports *ports, uint16_t port)
{
	for (int i = 0; i < ports->count; i++)
		if (ports->list[i] == port)
			return true;
	return false;
}

static bool is_listener(const struct ddp_ucx_door *door, int fd)
{
	return listens(fd) && has_port(&door->ports, near_end(fd).port);
}

static bool was_accepted(const struct ddp_ucx_door *door, int fd)
{
	return !listens(fd) && has_port(&door->ports, near_end(fd).port);
}

struct ddp_ucx_ports ddp_ucx_find_ports(const struct ddp_ucx_ports *others)
{
	struct ddp_ucx_ports ports = {0};
	const int most = (int)(sizeof(ports.list) / sizeof(ports.list[0]));

	for (struct walk walk = start_walk(); walk_on(&walk);) {
		uint16_t port = near_end(walk.socket).port;

		if (listens(walk.socket) && !(others && has_port(others, port)) &&
		    ports.count < most)
			ports.list[ports.count++] = port;
	}
	return ports;
}

/* --- Giving up ------------------------------------------------------------------------------ */

/*
 * A cable that is pulled, a machine that loses power: no packet says so. A connection that is
 * idle is probed after DDP_UCX_KEEP_IDLE seconds, DDP_UCX_KEEP_COUNT times with
 * DDP_UCX_KEEP_INTERVAL between. One with data on its way is not: there TCP tries for 15 minutes,
 * unless TCP_USER_TIMEOUT is set. UCX sets that nowhere, and the others only where it connects,
 * not where it accepts. So they are set from outside: on sockets with just these three numbers,
 * which are those that UCX connected, and on those of a port that UCX listens on, which are those
 * that it accepted.
 */
#define KEEP_MS ((DDP_UCX_KEEP_IDLE + DDP_UCX_KEEP_INTERVAL * DDP_UCX_KEEP_COUNT) * 1000)
static bool was_connected(int fd)
{
	return option_of(fd, IPPROTO_TCP, TCP_KEEPIDLE) == DDP_UCX_KEEP_IDLE &&
	       option_of(fd, IPPROTO_TCP, TCP_KEEPINTVL) == DDP_UCX_KEEP_INTERVAL &&
	       option_of(fd, IPPROTO_TCP, TCP_KEEPCNT) == DDP_UCX_KEEP_COUNT;
}

void ddp_ucx_bound_sockets(const struct ddp_ucx_ports *ports)
{
	for (struct walk walk = start_walk(); walk_on(&walk);) {
		int fd = walk.socket;

		if (option_of(fd, IPPROTO_TCP, TCP_USER_TIMEOUT) != 0 ||
		    (!was_connected(fd) && !has_port(ports, near_end(fd).port)))
			continue;
		set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, KEEP_MS);
		set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, DDP_UCX_KEEP_IDLE);
		set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, DDP_UCX_KEEP_INTERVAL);
		set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, DDP_UCX_KEEP_COUNT);
		set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	}
}

/* --- Ends ----------------------------------------------------------------------------------- */

uint64_t ddp_ucx_place(void)
{
	char boot[64] = "";
	struct stat network = {0};
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

	if (file && !fgets(boot, sizeof(boot), file))
		*boot = '\0';
	if (file)
		fclose(file);
	(void)stat("/proc/self/ns/net", &network);
	return ddp_hash(DDP_HASH_INIT, boot, strlen(boot)) ^ (uint64_t)network.st_ino;
}

bool ddp_ucx_is_loopback(const struct ddp_ucx_end *end)
{
	static const uint8_t four[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127};
	static const uint8_t six[16] = {[15] = 1};

	return memcmp(end->address, four, sizeof(four)) == 0 ||
	       memcmp(end->address, six, sizeof(six)) == 0;
}

static bool same(const struct ddp_ucx_end *one, const struct ddp_ucx_end *other)
{
	return one->port == other->port &&
	       memcmp(one->address, other->address, sizeof(one->address)) == 0;
}

static const struct ddp_ucx_end *find_end(const struct ddp_ucx_ends *ends,
					  const struct ddp_ucx_end *end)
{
	for (int i = 0; i < ends->count; i++)
		if (same(&ends->list[i], end))
			return &ends->list[i];
	return NULL;
}

int ddp_ucx_add_end(struct ddp_ucx_ends *ends, const struct ddp_ucx_end *end, int rank,
		    struct ddp_error *error)
{
	struct ddp_ucx_end *list =
		realloc(ends->list, ((size_t)ends->count + 1) * sizeof(*ends->list));

	if (!list)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for UCX");
	ends->list = list;
	list[ends->count] = *end;
	list[ends->count++].rank = rank;
	return 0;
}

int ddp_ucx_find_listeners(const struct ddp_ucx_door *door, struct ddp_ucx_ends *ends,
			   struct ddp_error *error)
{
	int status = 0;

	for (struct walk walk = start_walk(); walk_on(&walk);) {
		struct ddp_ucx_end end = near_end(walk.socket);

		if (status == 0 && is_listener(door, walk.socket))
			status = ddp_ucx_add_end(ends, &end, 0, error);
	}
	return status;
}

int ddp_ucx_find_connections(const struct ddp_ucx_door *door, struct ddp_ucx_ends *ends,
			     struct ddp_error *error)
{
	int status = 0;

	for (struct walk walk = start_walk(); walk_on(&walk);) {
		struct ddp_ucx_end end = near_end(walk.socket), far = far_end(walk.socket);
		const struct ddp_ucx_end *there = far.port ? find_end(&door->there, &far) : NULL;

		if (status == 0 && there)
			status = ddp_ucx_add_end(ends, &end, there->rank, error);
	}
	return status;
}

/* --- The door ------------------------------------------------------------------------------- */

/* Connections that may wait besides those of the ranks. */
#define SPARE_ROOM 64
/* More than any system lets wait. */
#define LONGEST_QUEUE 65536
/* Nanoseconds between two looks at who has come. */
#define LOOK_FIRST 50000u
#define LOOK_LAST 2000000u

struct ddp_ucx_pause {
	int bell;
	sem_t here, end;
};

/* On UCX's thread, once. */
static void rest(int bell, ucs_event_set_types_t events, void *argument)
{
	struct ddp_ucx_pause *pause = argument;
	uint64_t rung;

	(void)events;
	if (read(bell, &rung, sizeof(rung)) < 0)
		return;
	sem_post(&pause->here);
	while (sem_wait(&pause->end) < 0)
		;
}

struct ddp_ucx_pause *ddp_ucx_pause_begin(void)
{
	struct ddp_ucx_pause *pause = malloc(sizeof(*pause));
	struct timespec limit;

	if (!pause)
		return NULL;
	sem_init(&pause->here, 0, 0);
	sem_init(&pause->end, 0, 0);
	pause->bell = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
	if (pause->bell < 0 ||
	    ucs_async_set_event_handler(UCS_ASYNC_MODE_THREAD, pause->bell, UCS_EVENT_SET_EVREAD,
					rest, pause, NULL) != UCS_OK) {
		if (pause->bell >= 0)
			close(pause->bell);
		free(pause);
		return NULL;
	}
	/* A thread that comes later than that finds the end of the pause. */
	clock_gettime(CLOCK_MONOTONIC, &limit);
	limit.tv_sec++;
	while (sem_clockwait(&pause->here, CLOCK_MONOTONIC, &limit) < 0 && errno == EINTR)
		;
	return pause;
}

void ddp_ucx_pause_end(struct ddp_ucx_pause *pause)
{
	if (!pause)
		return;
	sem_post(&pause->end);
	(void)ucs_async_remove_handler(pause->bell, 1);
	close(pause->bell);
	free(pause);
}

/* Turn away who waits at [listener]; at most as many as ever can, however fast others come. */
static void turn_away(int listener)
{
	struct pollfd waiting = {.fd = listener, .events = POLLIN};

	for (int i = 0; i < LONGEST_QUEUE && poll(&waiting, 1, 0) == 1; i++) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0)
			return;
		close(fd);
	}
}

void ddp_ucx_door_hold(const struct ddp_ucx_door *door, int size)
{
	for (struct walk walk = start_walk(); walk_on(&walk);) {
		if (!is_listener(door, walk.socket))
			continue;
		(void)ucs_async_modify_handler(walk.socket, 0);
		/* Who waits will be a file of ours: not more of them than we can have. */
		(void)listen(walk.socket, 2 * size + SPARE_ROOM);
		turn_away(walk.socket);
	}
}

/*
 * From now on the kernel drops what comes to [listener] from other ports than the guests', so that
 * strangers cannot keep guests out by their number. It is for that alone, and left out where there
 * are more guests than a filter can name: whole ends are compared afterwards.
 */
static void prefer_guests(int listener, const struct ddp_ucx_ends *guests)
{
	enum { MOST = 1000 };
	struct sock_filter code[2 * MOST + 2] = {BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 0)};
	struct sock_fprog program = {.filter = code, .len = 1};

	if (guests->count > MOST)
		return;
	for (int i = 0; i < guests->count; i++) {
		code[program.len++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
								   guests->list[i].port, 0, 1);
		code[program.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, UINT32_MAX);
	}
	code[program.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0);
	(void)setsockopt(listener, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
}

/* A guest that is not in yet, NULL if all are. */
static const struct ddp_ucx_end *missing(const struct ddp_ucx_door *door)
{
	const struct ddp_ucx_ends *guests = &door->guests;
	struct ddp_ucx_ends here = {NULL, 0};
	const struct ddp_ucx_end *found = NULL;
	struct ddp_error error; /* no memory: looked for again */

	for (struct walk walk = start_walk(); walk_on(&walk);) {
		struct ddp_ucx_end far = far_end(walk.socket);

		if (was_accepted(door, walk.socket))
			(void)ddp_ucx_add_end(&here, &far, 0, &error);
	}
	for (int i = 0; i < guests->count && !found; i++)
		if (!find_end(&here, &guests->list[i]))
			found = &guests->list[i];
	free(here.list);
	return found;
}

int ddp_ucx_door_open(const struct ddp_ucx_door *door, const struct ddp_watch *watch,
		      struct ddp_error *error)
{
	const struct ddp_ucx_end *guest;
	uint64_t rest = LOOK_FIRST;
	int status;

	ddp_error_clear(error);
	for (struct walk walk = start_walk(); walk_on(&walk);) {
		if (!is_listener(door, walk.socket))
			continue;
		prefer_guests(walk.socket, &door->guests);
		(void)ucs_async_modify_handler(walk.socket, UCS_EVENT_SET_EVREAD);
	}
	while ((guest = missing(door))) {
		status = ddp_watch_check(watch, error);
		if (status == DDP_ERR_TIMEOUT && !*error->text)
			return ddp_error_set(error, status,
					     "rank %d did not connect to this one in %g s",
					     guest->rank, watch->limit);
		if (status < 0)
			return status;
		ddp_watch_sleep(watch, rest);
		rest = rest < LOOK_LAST ? 2 * rest : LOOK_LAST;
	}
	return 0;
}

/* What it sent is thrown away; UCX finds a connection that has ended. */
static void cut_off(int fd)
{
	(void)connect(fd, &(struct sockaddr){.sa_family = AF_UNSPEC}, sizeof(struct sockaddr));
	(void)shutdown(fd, SHUT_RDWR);
}

static void accept_no_more(const struct ddp_ucx_door *door)
{
	for (struct walk walk = start_walk(); walk_on(&walk);)
		/* It waits until UCX is through with accepting. */
		if (is_listener(door, walk.socket))
			(void)ucs_async_remove_handler(walk.socket, 1);
}

void ddp_ucx_door_shut(struct ddp_ucx_door *door, const struct ddp_log *log)
{
	char text[INET6_ADDRSTRLEN] = "", more[32] = "";
	struct ddp_ucx_end first = {.port = 0};
	int strangers = 0;

	if (door->shut)
		return;
	door->shut = true;
	accept_no_more(door);
	for (struct walk walk = start_walk(); walk_on(&walk);) {
		struct ddp_ucx_end far = far_end(walk.socket);

		if (!has_port(&door->ports, near_end(walk.socket).port))
			continue;
		if (listens(walk.socket)) {
			(void)shutdown(walk.socket, SHUT_RD);
		} else if (find_end(&door->guests, &far)) {
			set_option(walk.socket, SOL_SOCKET, SO_DETACH_FILTER, 0);
		} else {
			cut_off(walk.socket);
			if (strangers++ == 0)
				first = far;
		}
	}
	if (!strangers || !log)
		return;
	inet_ntop(AF_INET6, first.address, text, sizeof(text));
	if (strangers > 1)
		snprintf(more, sizeof(more), " and %d more", strangers - 1);
	ddp_log_print(log, DDP_LEVEL_WARNING, "ucx",
		      "refused a stranger that connected from %s port %u%s",
		      strncmp(text, "::ffff:", 7) == 0 ? text + 7 : text, first.port, more);
}

void ddp_ucx_door_free(struct ddp_ucx_door *door)
{
	free(door->there.list);
	free(door->guests.list);
	door->there = door->guests = (struct ddp_ucx_ends){NULL, 0};
}
