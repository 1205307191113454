/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint.h"

void ddp_checkpoint_name(char name[DDP_CHECKPOINT_NAME], uint64_t step)
{
	snprintf(name, DDP_CHECKPOINT_NAME, "checkpoint-%010" PRIu64 ".safetensors", step);
}

/*
 * Whether [name] begins as the name of a checkpoint does, in just the way that we write it.
 * Returns what follows it, or NULL.
 */
static const char *parse_name(const char *name, uint64_t *step)
{
	static const char prefix[] = "checkpoint-";
	char want[DDP_CHECKPOINT_NAME];

	if (strncmp(name, prefix, sizeof(prefix) - 1) != 0)
		return NULL;
	errno = 0;
	*step = strtoull(name + sizeof(prefix) - 1, NULL, 10);
	if (errno != 0)
		return NULL;
	ddp_checkpoint_name(want, *step);
	return strncmp(name, want, strlen(want)) == 0 ? name + strlen(want) : NULL;
}

/* Larger steps first. */
static int compare_steps(const void *a, const void *b)
{
	uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;

	return one > other ? -1 : one < other;
}

int ddp_checkpoint_list(const char *directory, uint64_t **steps, size_t *count,
			struct ddp_error *error)
{
	DIR *dir = opendir(directory);
	const struct dirent *entry;
	size_t room = 0;
	int status = 0;

	*steps = NULL;
	*count = 0;
	if (!dir && errno == ENOENT)
		return 0;
	if (!dir)
		return ddp_error_errno(error, DDP_ERR_FILE, "cannot read directory %s", directory);
	while (errno = 0, (entry = readdir(dir)) != NULL) {
		uint64_t step, *list = *steps;
		const char *rest = parse_name(entry->d_name, &step);

		if (!rest || *rest)
			continue;
		if (*count == room) {
			room = room ? 2 * room : 16;
			list = reallocarray(list, room, sizeof(*list));
		}
		if (!list) {
			status = ddp_error_set(error, DDP_ERR_MEMORY, "%s: no memory", directory);
			goto out;
		}
		*steps = list;
		list[(*count)++] = step;
	}
	if (errno != 0)
		status =
			ddp_error_errno(error, DDP_ERR_FILE, "cannot read directory %s", directory);
	else if (*count > 0)
		qsort(*steps, *count, sizeof(**steps), compare_steps);
out:
	closedir(dir);
	if (status < 0) {
		free(*steps);
		*steps = NULL;
		*count = 0;
	}
	return status;
}

/* Whether [name] is the temporary of a writer that is gone: "<checkpoint>.tmp.<pid>". */
static bool is_leftover(int dir, const char *name)
{
	static const char infix[] = ".tmp.";
	uint64_t step;
	const char *rest = parse_name(name, &step);
	struct stat info;
	char *end;
	long pid;

	if (!rest || strncmp(rest, infix, sizeof(infix) - 1) != 0)
		return false;
	rest += sizeof(infix) - 1;
	errno = 0;
	pid = strtol(rest, &end, 10);
	if (errno != 0 || *rest < '1' || *rest > '9' || *end || pid != (pid_t)pid)
		return false;
	if (fstatat(dir, name, &info, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(info.st_mode) ||
	    info.st_uid != geteuid())
		return false;
	/* Another job that writes into this directory at this moment is not disturbed. */
	return pid == (long)getpid() || kill((pid_t)pid, 0) < 0;
}

void ddp_checkpoint_sweep(const char *directory, const struct ddp_log *log)
{
	DIR *dir = opendir(directory);
	const struct dirent *entry;

	if (!dir)
		return;
	while ((entry = readdir(dir)) != NULL) {
		if (!is_leftover(dirfd(dir), entry->d_name))
			continue;
		if (unlinkat(dirfd(dir), entry->d_name, 0) == 0)
			ddp_log_print(log, DDP_LEVEL_INFO, "state",
				      "removed %s/%s: its writer was killed", directory,
				      entry->d_name);
		else if (errno != ENOENT)
			ddp_log_print(log, DDP_LEVEL_WARNING, "state", "cannot remove %s/%s: %s",
				      directory, entry->d_name, strerror(errno));
	}
	closedir(dir);
}
