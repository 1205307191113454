/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <dirent.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucs/debug/debug.h>

#include "ucx-setup.h"
#include "ucx-sockets.h"

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
	{"TCP_KEEPIDLE", TEXT(DDP_UCX_KEEP_IDLE) ".5s"},
	{"TCP_KEEPINTVL", TEXT(DDP_UCX_KEEP_INTERVAL) ".5s"},
	{"TCP_KEEPCNT", TEXT(DDP_UCX_KEEP_COUNT)},
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
