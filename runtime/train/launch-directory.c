/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch-directory.c - a directory that is gone when its launcher is
 *
 * Its lock says whether the launcher lives. It appears under its name when it is locked already,
 * so that no other launcher takes a directory that is being made for an abandoned one.
 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launch-private.h"

#define PREFIX "ddp-train-"

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *at)
{
	(void)info;
	(void)kind;
	(void)at;
	return remove(path) < 0 && errno != ENOENT ? -1 : 0;
}

static void remove_tree(const char *path)
{
	nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static const char *base(void)
{
	const char *given = getenv("TMPDIR");

	return given && *given == '/' ? given : "/tmp";
}

/* Whether [path] is a directory of ours whose launcher is gone. */
static bool is_abandoned(const char *path)
{
	char lock[PATH_MAX + 8];
	struct stat info;
	bool gone;
	int fd;

	if (lstat(path, &info) < 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid())
		return false;
	snprintf(lock, sizeof(lock), "%s/lock", path);
	fd = open(lock, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return false;
	gone = flock(fd, LOCK_EX | LOCK_NB) == 0;
	close(fd);
	return gone;
}

static void sweep(void)
{
	size_t length = strlen(PREFIX "XXXXXX");
	DIR *directory = opendir(base());
	struct dirent *entry;
	char path[PATH_MAX];

	while (directory && (entry = readdir(directory))) {
		if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) != 0 ||
		    strlen(entry->d_name) != length ||
		    snprintf(path, sizeof(path), "%s/%s", base(), entry->d_name) >= PATH_MAX)
			continue;
		if (is_abandoned(path))
			remove_tree(path);
	}
	if (directory)
		closedir(directory);
}

static int take_lock(struct launch_directory *directory)
{
	char fresh[PATH_MAX + 16], lock[PATH_MAX + 16];

	snprintf(fresh, sizeof(fresh), "%s/lock.new", directory->path);
	snprintf(lock, sizeof(lock), "%s/lock", directory->path);
	directory->lock = open(fresh, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (directory->lock < 0 || flock(directory->lock, LOCK_EX | LOCK_NB) < 0)
		return -1;
	return rename(fresh, lock);
}

int launch_directory_create(struct launch_directory *directory)
{
	directory->lock = -1;
	sweep();
	if (snprintf(directory->path, PATH_MAX, "%s/" PREFIX "XXXXXX", base()) < PATH_MAX &&
	    mkdtemp(directory->path) && take_lock(directory) == 0)
		return 0;
	fprintf(stderr,
		"ddp-train: no directory for the ranks to meet in %s: %s; let TMPDIR name another "
		"one\n",
		base(), strerror(errno));
	launch_directory_destroy(directory);
	return -1;
}

void launch_directory_destroy(struct launch_directory *directory)
{
	if (directory->lock >= 0) {
		remove_tree(directory->path);
		close(directory->lock);
	} else {
		rmdir(directory->path);
	}
}
