/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <dirent.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <ucs/debug/debug.h>

#include "ucx-setup.h"

/*
 * A cable that is pulled, a machine that loses power: no packet says so. A connection that is
 * idle is probed after KEEP_IDLE seconds, KEEP_COUNT times with KEEP_INTERVAL between. One
 * with data on its way is not: there TCP tries for 15 minutes, unless TCP_USER_TIMEOUT is set.
 * UCX sets that nowhere, and the others only where it connects, not where it accepts. So they
 * are set from outside: on sockets with just these three numbers, which are those that UCX
 * connected, and on those of a port that UCX listens on, which are those that it accepted.
 */
#define KEEP_IDLE 8
#define KEEP_INTERVAL 3
#define KEEP_COUNT 4
#define KEEP_MS ((KEEP_IDLE + KEEP_INTERVAL * KEEP_COUNT) * 1000)

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

struct preference {
	const char *name, *value;
};

/* Where the user did not say otherwise, by UCX_name. */
static const struct preference preferences[] = {
	/* Ranks that can share memory do so without UCX; its segments could be left behind. */
	{"TLS", "^sm"},
	/* To a machine that is off, connect() would wait for minutes. */
	{"TCP_CONN_NB", "y"},
	{"KEEPALIVE_INTERVAL", "2s"},
	/* UCX cuts off what is below a second. */
	{"TCP_KEEPIDLE", TEXT(KEEP_IDLE) ".5s"},
	{"TCP_KEEPINTVL", TEXT(KEEP_INTERVAL) ".5s"},
	{"TCP_KEEPCNT", TEXT(KEEP_COUNT)},
};

/*
 * Over TCP alone; UCX does not know these well there, and they would be wrong for RDMA. A
 * handshake costs two wake-ups of the peer, more than copying 256 KiB; and what is announced
 * comes straight into its place when the receiver lets the sender put it.
 */
static const struct preference tcp_preferences[] = {
	{"RNDV_THRESH", "256k"},
	{"RNDV_SCHEME", "put_zcopy"},
};

/*
 * The kernel grows buffers of sockets by itself, but late: 4 MiB take two thirds of the time
 * with buffers that are large at once (measured on loopback). To ask for less than one could
 * have makes it worse, so only where the kernel allows that much.
 */
#define SOCKET_BUFFER (1 << 20)
static const struct preference buffer_preferences[] = {
	{"TCP_SNDBUF", "1m"},
	{"TCP_RCVBUF", "1m"},
};

static long kernel_limit(const char *path)
{
	FILE *file = fopen(path, "re");
	long value = 0;

	if (!file)
		return 0;
	if (fscanf(file, "%ld", &value) != 1)
		value = 0;
	fclose(file);
	return value;
}

static bool allows_buffers(void)
{
	return kernel_limit("/proc/sys/net/core/wmem_max") >= SOCKET_BUFFER &&
	       kernel_limit("/proc/sys/net/core/rmem_max") >= SOCKET_BUFFER;
}

static bool has_rdma(void)
{
	DIR *directory = opendir("/sys/class/infiniband");
	struct dirent *entry;
	bool found = false;

	while (directory && (entry = readdir(directory)))
		found |= entry->d_name[0] != '.';
	if (directory)
		closedir(directory);
	return found;
}

static bool is_set(const char *name)
{
	char variable[64];

	snprintf(variable, sizeof(variable), "UCX_%s", name);
	return getenv(variable) != NULL;
}

/* Before UCX 1.16 a transport's setting is taken without the transport's name alone. */
static const char *bare_name(const char *name)
{
	return strncmp(name, "TCP_", 4) == 0 ? name + 4 : NULL;
}

static void prefer(ucp_config_t *config, const char *name, const char *value)
{
	const char *bare = bare_name(name);

	/* A release that does not know the setting does without. */
	if (is_set(name))
		return;
	(void)ucp_config_modify(config, name, value);
	if (bare)
		(void)ucp_config_modify(config, bare, value);
}

#define ROWS(table) (sizeof(table) / sizeof((table)[0]))

static void prefer_all(ucp_config_t *config, const struct preference *table, size_t rows)
{
	for (size_t i = 0; i < rows; i++)
		prefer(config, table[i].name, table[i].value);
}

int ddp_ucx_configure(const struct ddp_log *log, ucp_config_t **config, bool *watch_sockets,
		      struct ddp_error *error)
{
	ucs_status_t status = ucp_config_read(NULL, NULL, config);

	if (status != UCS_OK)
		return ddp_error_set(error, DDP_ERR_ENVIRONMENT,
				     "UCX cannot read its settings (UCX_* in the environment): %s",
				     ucs_status_string(status));
	prefer_all(*config, preferences, ROWS(preferences));
	if (!has_rdma()) {
		prefer_all(*config, tcp_preferences, ROWS(tcp_preferences));
		if (allows_buffers())
			prefer_all(*config, buffer_preferences, ROWS(buffer_preferences));
	}
	/* What goes wrong is told by us, once. */
	if (!ddp_log_wants(log, DDP_LEVEL_DEBUG, "ucx"))
		prefer(*config, "LOG_LEVEL", "fatal");
	*watch_sockets =
		!is_set("TCP_KEEPIDLE") && !is_set("TCP_KEEPINTVL") && !is_set("TCP_KEEPCNT");
	return 0;
}

/* --- Signals ---------------------------------------------------------------------------- */

/* The object that has [function]. */
static const void *object_of(const void *function)
{
	Dl_info info;

	return function && dladdr(function, &info) ? info.dli_fbase : NULL;
}

static void give_back(int number)
{
	const void *library = object_of((const void *)(uintptr_t)ucs_debug_disable_signal);
	struct sigaction action;

	if (sigaction(number, NULL, &action) < 0 || !library)
		return;
	if (object_of((const void *)(uintptr_t)action.sa_handler) == library)
		ucs_debug_disable_signal(number);
}

void ddp_ucx_calm(void)
{
	static const int errors[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE};

	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		if (!is_set("HANDLE_ERRORS") && !is_set("ERROR_SIGNALS"))
			give_back(errors[i]);
	if (!is_set("DEBUG_SIGNO"))
		give_back(SIGHUP);
}

/* --- Sockets ---------------------------------------------------------------------------- */

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

/* The local port of a socket, 0 if it has none. */
static uint16_t port_of(int fd)
{
	union {
		struct sockaddr any;
		struct sockaddr_in four;
		struct sockaddr_in6 six;
	} address;
	socklen_t size = sizeof(address);

	if (getsockname(fd, &address.any, &size) < 0)
		return 0;
	if (address.any.sa_family == AF_INET)
		return ntohs(address.four.sin_port);
	return address.any.sa_family == AF_INET6 ? ntohs(address.six.sin6_port) : 0;
}

static bool has_port(const struct ddp_ucx_ports *ports, uint16_t port)
{
	for (int i = 0; i < ports->count; i++)
		if (ports->list[i] == port)
			return true;
	return false;
}

/* Call [visit] for each TCP socket of the process. */
static void for_sockets(void (*visit)(int fd, void *argument), void *argument)
{
	DIR *directory = opendir("/proc/self/fd");
	struct dirent *entry;

	while (directory && (entry = readdir(directory))) {
		int fd = atoi(entry->d_name);

		if (option_of(fd, SOL_SOCKET, SO_PROTOCOL) == IPPROTO_TCP)
			visit(fd, argument);
	}
	if (directory)
		closedir(directory);
}

static void add_port(int fd, void *argument)
{
	struct ddp_ucx_ports *ports = argument;

	if (option_of(fd, SOL_SOCKET, SO_ACCEPTCONN) == 1 &&
	    ports->count < (int)(sizeof(ports->list) / sizeof(ports->list[0])))
		ports->list[ports->count++] = port_of(fd);
}

struct ddp_ucx_ports ddp_ucx_find_ports(const struct ddp_ucx_ports *others)
{
	struct ddp_ucx_ports all = {0}, ours = {0};

	for_sockets(add_port, &all);
	for (int i = 0; i < all.count; i++)
		if (!others || !has_port(others, all.list[i]))
			ours.list[ours.count++] = all.list[i];
	return ours;
}

static bool was_connected(int fd)
{
	return option_of(fd, IPPROTO_TCP, TCP_KEEPIDLE) == KEEP_IDLE &&
	       option_of(fd, IPPROTO_TCP, TCP_KEEPINTVL) == KEEP_INTERVAL &&
	       option_of(fd, IPPROTO_TCP, TCP_KEEPCNT) == KEEP_COUNT;
}

static void bound_socket(int fd, void *argument)
{
	const struct ddp_ucx_ports *ports = argument;

	if (option_of(fd, IPPROTO_TCP, TCP_USER_TIMEOUT) != 0 ||
	    (!was_connected(fd) && !has_port(ports, port_of(fd))))
		return;
	set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, KEEP_MS);
	set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEP_IDLE);
	set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEP_INTERVAL);
	set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEP_COUNT);
	set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
}

void ddp_ucx_bound_sockets(struct ddp_ucx_ports *ports)
{
	for_sockets(bound_socket, ports);
}
