/* SPDX-License-Identifier: Apache-2.0 */
/*
 * claims.c - claims, by which each ddp-run of a job shows the others which nodes it uses
 *
 * A ddp-run keeps its claims between two attempts, when no step runs on its nodes. A claim is an
 * open memory file with the name "ddp-run/<hash of the job>/<node>", so it needs no directory and
 * ends with its process. Another ddp-run finds it in /proc/<process>/fd. Claims of another user's
 * processes do not count. All ddp-runs of a job run on the same host.
 */
#include "config.h"

#include "ddp-run.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/xalloc.h"
#include "inspect.h"

/* The claims of this process. */
static struct node_list claimed;
static int *files; /* descriptors, one for each node in claimed; -1: no claim */

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

void claims_set(const struct node_list *nodes)
{
	struct node_list all = {.name = NULL};
	int *kept = ddp_xcalloc(nodes->count + 1, sizeof(*kept), "claims of nodes");
	struct ddp_shown prefix = name_job();
	char name[FACTS_NAME + 64];

	for (size_t i = 0; i < nodes->count; i++) {
		size_t k = 0;

		nodes_add(&all, nodes->name[i]);
		while (k < claimed.count && strcmp(claimed.name[k], nodes->name[i]) != 0)
			k++;
		snprintf(name, sizeof(name), "%s%s", prefix.text, nodes->name[i]);
		kept[i] = k < claimed.count ? files[k] : memfd_create(name, MFD_CLOEXEC);
		if (k < claimed.count)
			files[k] = -1;
	}
	for (size_t k = 0; k < claimed.count; k++)
		if (files[k] >= 0)
			close(files[k]);
	nodes_free(&claimed);
	free(files);
	claimed = all;
	files = kept;
}

/* Add to [nodes] the nodes that [process] has claimed. */
static void add_claims(long process, const char *prefix, struct node_list *nodes)
{
	static const char before[] = "/memfd:", after[] = " (deleted)";
	char path[64], target[FACTS_NAME + 96];
	struct stat st;
	struct dirent *entry;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%ld/fd", process);
	dir = stat(path, &st) == 0 && st.st_uid == geteuid() ? opendir(path) : NULL;
	while (dir && (entry = readdir(dir))) {
		ssize_t n = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);
		const char *name = target + strlen(before);
		char *end;

		target[n < 0 ? 0 : n] = '\0';
		end = strstr(target, after);
		if (!end || strncmp(target, before, strlen(before)) != 0 ||
		    strncmp(name, prefix, strlen(prefix)) != 0)
			continue;
		*end = '\0';
		nodes_add(nodes, name + strlen(prefix));
	}
	if (dir)
		closedir(dir);
}

void claims_of_others(const struct node_list *own, struct node_list *nodes)
{
	DIR *dir = opendir("/proc");
	struct ddp_shown prefix = name_job();

	for (long process; (process = inspect_next_number(dir));) {
		struct node_list claims = {.name = NULL};

		if (process != getpid())
			add_claims(process, prefix.text, &claims);
		if (!own || !nodes_have_any(own, &claims))
			nodes_add_all(nodes, &claims);
		nodes_free(&claims);
	}
}
