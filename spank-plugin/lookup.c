/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lookup.c - on the nodes: is the rendezvous directory here too?
 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "contract.h"
#include "directory.h"
#include "rendezvous.h"

enum {
	WAIT_MS = 2000, /* for a file system that lags */
	POLL_MS = 25,
};

int ddp_read_record(int dir, struct ddp_channel *channel, struct ddp_message *message)
{
	char *text = malloc(DDP_CHANNEL_SIZE);
	struct stat st;
	ssize_t n = -1;
	int fd, rv = -1;

	if (!text)
		return ddp_fail(message, "out of memory");
	fd = openat(dir, DDP_DIR_STEP, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid())
		n = read(fd, text, DDP_CHANNEL_SIZE - 1);
	if (n >= 0) {
		text[n] = '\0';
		rv = ddp_channel_decode(text, channel, message);
	} else {
		ddp_fail(message, "it has no record of this step");
	}
	if (fd >= 0)
		close(fd);
	free(text);
	return rv;
}

int ddp_open_own(int at, const char *name, struct ddp_message *message)
{
	int fd = openat(at, name, DDP_DIR_FLAGS);
	struct stat st;

	if (fd < 0)
		return ddp_fail(message, "%s", strerror(errno));
	if (fstat(fd, &st) < 0 || st.st_uid != geteuid()) {
		close(fd);
		return ddp_fail(message, "it is not yours");
	}
	return fd;
}

/* stat asks as the user; access would ask as root, whom a file server may not trust. */
static bool exists(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0;
}

static void pause_ms(long ms)
{
	struct timespec t = {.tv_nsec = ms * 1000000};

	nanosleep(&t, NULL);
}

static int check_once(const char *directory, const char *nonce, struct ddp_message *message)
{
	struct ddp_channel *found = malloc(sizeof(*found));
	int fd = ddp_open_own(AT_FDCWD, directory, message), rv = -1;

	if (found && fd >= 0 && ddp_read_record(fd, found, message) == 0) {
		if (strcmp(found->nonce, nonce) == 0)
			rv = 0;
		else
			ddp_fail(message, "it is another step's");
	}
	if (fd >= 0)
		close(fd);
	free(found);
	return rv;
}

int ddp_rendezvous_check(const char *directory, const char *nonce, struct ddp_message *message)
{
	char parent[DDP_PATH_SIZE];
	char *slash;

	if (ddp_format(parent, sizeof(parent), "%s", directory) < 0)
		return ddp_fail(message, "its path is too long");
	slash = strrchr(parent, '/');
	if (!slash)
		return ddp_fail(message, "its path is not absolute");
	*slash = '\0';
	for (int waited = 0;; waited += POLL_MS) {
		if (check_once(directory, nonce, message) == 0)
			return 0;
		/* Where .ddp is not there either, this is another file system: do not wait. */
		if (waited >= WAIT_MS || !exists(parent))
			return -1;
		pause_ms(POLL_MS);
	}
}

/* Find the entry of [dir] that ends in "-<nonce>". */
static int find_entry(int parent, const char *nonce, char *name, size_t size)
{
	int fd = openat(parent, ".", DDP_DIR_FLAGS), rv = -1;
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *entry;

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return -1;
	}
	while (rv < 0 && (entry = readdir(dir))) {
		const char *dash = strrchr(entry->d_name, '-');

		if (dash && strcmp(dash + 1, nonce) == 0)
			rv = ddp_format(name, size, "%s", entry->d_name);
	}
	closedir(dir);
	return rv;
}

static int find_once(const char *parent_path, const char *nonce, struct ddp_channel *channel,
		     struct ddp_message *message)
{
	int parent = ddp_open_own(AT_FDCWD, parent_path, message), dir = -1, rv = -1;
	char name[DDP_PATH_SIZE];

	if (parent < 0)
		return -1;
	if (find_entry(parent, nonce, name, sizeof(name)) < 0)
		ddp_fail(message, "it has no directory of this step");
	else if ((dir = ddp_open_own(parent, name, message)) >= 0)
		rv = ddp_read_record(dir, channel, message);
	if (rv == 0 && strcmp(channel->nonce, nonce) != 0)
		rv = ddp_fail(message, "it is another step's");
	if (dir >= 0)
		close(dir);
	close(parent);
	return rv;
}

int ddp_rendezvous_find(const char *base, const char *nonce, struct ddp_channel *channel,
			struct ddp_message *message)
{
	char parent[DDP_PATH_SIZE];

	if (ddp_format(parent, sizeof(parent), "%s/%s", base, DDP_DIR_PARENT) < 0)
		return ddp_fail(message, "its path is too long");
	for (int waited = 0;; waited += POLL_MS) {
		if (find_once(parent, nonce, channel, message) == 0)
			return 0;
		if (waited >= WAIT_MS || !exists(parent))
			return -1;
		pause_ms(POLL_MS);
	}
}
