/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leftovers.c - in srun: clear away what a killed srun could not
 */
#include "config.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "contract.h"
#include "directory.h"
#include "rendezvous.h"

enum {
	SWEEP_MAX = 64, /* leftovers looked at by one srun */
	DAY = 24 * 60 * 60,
};

uint64_t ddp_process_began(uint32_t pid)
{
	char path[64], line[1024];
	unsigned long long began = 0;
	const char *end;
	char state = 'Z';
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%u/stat", pid);
	file = fopen(path, "re");
	if (!file)
		return 0;
	/* The command's name may hold anything; what follows its last ')' is regular. */
	if (fgets(line, sizeof(line), file) && (end = strrchr(line, ')')) &&
	    sscanf(end + 1,
		   " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
		   "%*s %*s %llu",
		   &state, &began) != 2)
		began = 0;
	fclose(file);
	return state == 'Z' || state == 'X' ? 0 : began; /* nobody has waited for it yet */
}

static bool srun_lives(const struct ddp_channel *record)
{
	return record->pid && ddp_process_began(record->pid) == record->began;
}

/* A name of a step's directory on this cluster; ours of now, and others' words, are not. */
static bool is_candidate(const char *name, const struct ddp_channel *channel)
{
	size_t n = strlen(channel->cluster), length = strlen(name);
	const char *dash = strrchr(name, '-');

	return length > n && strncmp(name, channel->cluster, n) == 0 && name[n] == '-' && dash &&
	       dash > name + n && strlen(dash + 1) == DDP_NONCE_SIZE - 1 &&
	       strspn(dash + 1, "0123456789abcdef") == DDP_NONCE_SIZE - 1 &&
	       strcmp(dash + 1, channel->nonce) != 0;
}

static bool is_leftover(int parent, const char *name, const struct ddp_channel *channel,
			struct ddp_channel *record, bool (*ended)(uint32_t job, uint32_t step))
{
	int dir = ddp_open_own(parent, name, NULL);
	bool old, readable;
	struct stat st;

	if (dir < 0)
		return false;
	old = fstat(dir, &st) == 0 && st.st_mtime < time(NULL) - DAY;
	readable = ddp_read_record(dir, record, NULL) == 0 && record->complete;
	close(dir);
	if (!readable)
		return old;
	if (strcmp(record->cluster, channel->cluster) != 0)
		return false;
	if (strcmp(record->from, channel->from) == 0 ? srun_lives(record) : !old)
		return false;
	/* Slurm gives the steps of a requeued job the same numbers again. */
	if (record->job == channel->job && record->attempt < channel->attempt)
		return true;
	return ended(record->job, record->step);
}

void ddp_rendezvous_sweep(const struct ddp_rendezvous *rdzv, const struct ddp_channel *channel,
			  bool (*ended)(uint32_t job, uint32_t step))
{
	struct ddp_channel *record = malloc(sizeof(*record));
	int fd = rdzv->parent >= 0 ? openat(rdzv->parent, ".", DDP_DIR_FLAGS) : -1;
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *entry;
	int looked = 0;

	if (!dir && fd >= 0)
		close(fd);
	while (dir && record && looked < SWEEP_MAX && (entry = readdir(dir))) {
		if (!is_candidate(entry->d_name, channel))
			continue;
		looked++;
		if (is_leftover(rdzv->parent, entry->d_name, channel, record, ended))
			ddp_remove_tree(rdzv->parent, entry->d_name);
	}
	if (dir)
		closedir(dir);
	free(record);
}
