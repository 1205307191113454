/* SPDX-License-Identifier: Apache-2.0 */
/*
 * old.c - checkpoints that a fresh run leaves alone until it has one of its own
 *
 * Its steps begin at 0 again, so that the newest file by its step would be one of the old run's:
 * those that were there go when the first one of this run is on disk.
 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "run.h"
#include "state.h"

#define NAME "checkpoint-%010" PRIu64 ".safetensors"

static bool is_checkpoint(const char *name, uint64_t *step)
{
	char again[64];

	if (sscanf(name, "checkpoint-%" SCNu64, step) != 1)
		return false;
	snprintf(again, sizeof(again), NAME, *step);
	return strcmp(again, name) == 0;
}

int old_list(struct keeper *keeper, struct ddp_error *error)
{
	DIR *directory = opendir(keeper->directory);
	struct dirent *entry;
	uint64_t step;
	int status = 0;

	if (!directory)
		return errno == ENOENT ? 0
				       : ddp_error_errno(error, DDP_ERR_FILE, "--checkpoint %s",
							 keeper->directory);
	while (status == 0 && (entry = readdir(directory))) {
		uint64_t *more;

		if (!is_checkpoint(entry->d_name, &step))
			continue;
		more = realloc(keeper->old, (keeper->old_count + 1) * sizeof(*more));
		if (!more) {
			status = ddp_error_set(error, DDP_ERR_MEMORY,
					       "no memory for a list of files");
			break;
		}
		keeper->old = more;
		keeper->old[keeper->old_count++] = step;
	}
	closedir(directory);
	return status;
}

uint64_t old_newest(const struct keeper *keeper)
{
	uint64_t newest = 0;

	for (size_t i = 0; i < keeper->old_count; i++)
		if (keeper->old[i] > newest)
			newest = keeper->old[i];
	return newest;
}

bool old_path(const struct keeper *keeper, char path[static PATH_MAX], uint64_t step)
{
	return snprintf(path, PATH_MAX, "%s/" NAME, keeper->directory, step) < PATH_MAX;
}

void old_remove(struct keeper *keeper, uint64_t saved)
{
	char path[PATH_MAX];

	for (size_t i = 0; i < keeper->old_count; i++) {
		if (keeper->old[i] != saved && old_path(keeper, path, keeper->old[i]))
			unlink(path);
	}
	keeper->old_count = 0;
}
