/* SPDX-License-Identifier: Apache-2.0 */
/*
 * claims.c - the nodes that each ddp-run of a job uses, also between two attempts, when no step runs
 * on them
 *
 * A claim is a bound abstract Unix socket, so it needs no shared directory and ends with its process.
 * Its name is "ddp-run/<hash of the job>/<process>/<node>". The ddp-runs of a job run on one host.
 */
#include "config.h"

#include "ddp-run.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/xalloc.h"

#define LOCK_AGAIN 0.02 /* seconds */

/* The claims of this process. */
static struct node_list claimed;
static int *sockets; /* one for each node in claimed; -1: no claim */

/* Returns the beginning of the names of the job's claims, "ddp-run/<hash>/". */
static struct ddp_shown name_job(void)
{
	const char *const parts[] = {getenv("SLURM_CLUSTER_NAME"), getenv("SLURM_CONF"), job.id};
	uint64_t hash = DDP_HASH_INIT;

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (parts[i])
			hash = ddp_hash(hash, parts[i], strlen(parts[i]) + 1);
	return ddp_show("ddp-run/%016" PRIx64 "/", hash);
}

/* Returns a socket with the name <prefix><name>, or -1 with errno; EADDRINUSE: there is one. */
static int bind_name(const char *name)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), error;
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	size_t length;

	/* An abstract name starts with a zero byte and ends without one. */
	snprintf(at.sun_path + 1, sizeof(at.sun_path) - 1, "%s%s", name_job().text, name);
	length = offsetof(struct sockaddr_un, sun_path) + 1 + strlen(at.sun_path + 1);
	if (fd < 0 || bind(fd, (const struct sockaddr *)&at, (socklen_t)length) == 0)
		return fd;
	error = errno;
	close(fd);
	errno = error;
	return -1;
}

int claims_lock(void)
{
	int fd;

	while ((fd = bind_name("lock")) < 0 && errno == EADDRINUSE && !attempt_end_requested())
		attempt_wait(LOCK_AGAIN);
	return fd;
}

void claims_set(const struct node_list *nodes)
{
	struct node_list all = {.name = NULL};
	int *kept = ddp_xcalloc(nodes->count + 1, sizeof(*kept), "claims of nodes");
	char name[FACTS_NAME + 16];

	for (size_t i = 0; i < nodes->count; i++) {
		size_t k = 0;

		nodes_add(&all, nodes->name[i]);
		while (k < claimed.count && strcmp(claimed.name[k], nodes->name[i]) != 0)
			k++;
		snprintf(name, sizeof(name), "%d/%s", (int)getpid(), nodes->name[i]);
		kept[i] = k < claimed.count ? sockets[k] : bind_name(name);
		if (k < claimed.count)
			sockets[k] = -1;
	}
	for (size_t k = 0; k < claimed.count; k++)
		if (sockets[k] >= 0)
			close(sockets[k]);
	nodes_free(&claimed);
	free(sockets);
	claimed = all;
	sockets = kept;
}

void claims_of_others(const struct node_list *own, struct node_list *nodes)
{
	FILE *file = fopen("/proc/net/unix", "re");
	struct node_list sharing = {.name = NULL}; /* processes whose claims do not count */
	struct ddp_shown prefix = name_job();
	char line[256];

	nodes_add(&sharing, ddp_show("%d", (int)getpid()).text);
	for (int pass = 0; file && pass < 2; pass++) {
		rewind(file);
		while (fgets(line, sizeof(line), file)) {
			const char *claim = strstr(line, prefix.text);
			char process[FACTS_NAME], node[FACTS_NAME];

			if (!claim || sscanf(claim + strlen(prefix.text), "%15[0-9]/%127s", process,
					     node) != 2)
				continue;
			if (pass == 0 && own && nodes_have(own, node))
				nodes_add(&sharing, process);
			else if (pass == 1 && !nodes_have(&sharing, process))
				nodes_add(nodes, node);
		}
	}
	if (file)
		fclose(file);
	nodes_free(&sharing);
}
