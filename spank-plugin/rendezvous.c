/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "rendezvous.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "contract.h"
#include "directory.h"

/* What a user can do about any of it. */
#define ELSEWHERE "; choose another directory with --ddp-rdzv=DIR"

enum {
	DEPTH_MAX = 16, /* of a directory tree that we remove */
	TRIES_MAX = 20, /* to make directories that others remove */
};

/* Remove up to [n] empty components from the end of [path]. */
static void unmake_path(const char *path, unsigned n)
{
	char copy[DDP_PATH_SIZE];

	if (ddp_format(copy, sizeof(copy), "%s", path) < 0)
		return;
	for (; n > 0 && rmdir(copy) == 0; n--) {
		char *slash = strrchr(copy, '/');

		while (slash && slash > copy && slash[1] == '\0') {
			*slash = '\0';
			slash = strrchr(copy, '/');
		}
		if (!slash || slash == copy)
			return;
		*slash = '\0';
	}
}

/*
 * Make the missing components of [path], as mkdir -p does, private to the user, and count
 * them in [made].
 * Returns 0, or -1 with errno and nothing made.
 */
static int make_path(const char *path, unsigned *made)
{
	char copy[DDP_PATH_SIZE];
	int error;

	*made = 0;
	if (ddp_format(copy, sizeof(copy), "%s", path) < 0) {
		errno = ENAMETOOLONG;
		return -1;
	}
	for (char *p = copy + 1;; p++) {
		char c = *p;

		if (c != '/' && c != '\0')
			continue;
		*p = '\0';
		if (p[-1] != '/' && mkdir(copy, 0700) == 0)
			(*made)++;
		else if ((error = errno) != EEXIST && access(copy, F_OK) < 0)
			break;
		*p = c;
		if (c == '\0')
			return 0;
	}
	*strrchr(copy, '/') = '\0';
	unmake_path(copy, *made);
	*made = 0;
	errno = error;
	return -1;
}

/* A link to the base is the user's own business, or the administrator's, but nobody else's. */
static int check_link(const char *base, struct ddp_message *message)
{
	struct stat st;

	if (lstat(base, &st) == 0 && S_ISLNK(st.st_mode) && st.st_uid != geteuid() &&
	    st.st_uid != 0)
		return ddp_fail(message,
				"%s is a symbolic link of user %u; choose a directory of your "
				"own with --ddp-rdzv=DIR",
				base, st.st_uid);
	return 0;
}

/* Open the base and refuse one in which anybody could swap our directory for another. */
static int open_base(const char *base, struct ddp_message *message)
{
	struct stat st;
	int fd;

	if (check_link(base, message) < 0)
		return -1;
	fd = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0) {
		ddp_fail(message, "cannot open %s: %s" ELSEWHERE, base, strerror(errno));
		goto fail;
	}
	if ((st.st_mode & S_IWOTH) && !(st.st_mode & S_ISVTX)) {
		ddp_fail(message,
			 "%s is writable for everybody and not sticky, anybody could replace "
			 "the rendezvous; chmod o-w it or choose another with --ddp-rdzv=DIR",
			 base);
		goto fail;
	}
	return fd;
fail:
	if (fd >= 0)
		close(fd);
	return -1;
}

static int foreign_parent(const char *base, uid_t owner, struct ddp_message *message)
{
	errno = EPERM;
	return ddp_fail(message,
			"%s/%s belongs to user %u; choose a directory of your own with "
			"--ddp-rdzv=DIR, for instance one with %%u in it",
			base, DDP_DIR_PARENT, owner);
}

/*
 * Open [base]/.ddp, which must be a directory, no link, and the user's own.
 * Returns a descriptor, or -1 with a message, and errno ENOENT if it is not there.
 */
static int open_parent(int base_fd, const char *base, struct ddp_message *message)
{
	struct stat st;
	int fd, error;

	/* Another user's cannot even be opened, so look at its owner first. */
	if (fstatat(base_fd, DDP_DIR_PARENT, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		if (S_ISLNK(st.st_mode))
			return ddp_fail(message,
					"%s/%s is a symbolic link; remove it or choose another "
					"directory with --ddp-rdzv=DIR",
					base, DDP_DIR_PARENT);
		if (st.st_uid != geteuid())
			return foreign_parent(base, st.st_uid, message);
	}
	fd = openat(base_fd, DDP_DIR_PARENT, DDP_DIR_FLAGS);
	if (fd < 0 || fstat(fd, &st) < 0) {
		error = errno;
		ddp_fail(message, "cannot open %s/%s: %s" ELSEWHERE, base, DDP_DIR_PARENT,
			 strerror(error));
		if (fd >= 0)
			close(fd);
		errno = error;
		return -1;
	}
	if (st.st_uid != geteuid()) {
		foreign_parent(base, st.st_uid, message);
		goto fail;
	}
	if ((st.st_mode & S_IWOTH) && !(st.st_mode & S_ISVTX)) {
		ddp_fail(message, "%s/%s is writable for everybody; chmod 700 it", base,
			 DDP_DIR_PARENT);
		goto fail;
	}
	return fd;
fail:
	close(fd);
	errno = EPERM;
	return -1;
}

/*
 * Make [base]/.ddp where it is missing, open it and make [name] in it.
 * Returns a descriptor of .ddp, or -1 with a message and nothing made, and errno ENOENT if
 * another srun removed what was there a moment ago.
 */
static int make_step(int base_fd, const char *base, const char *name, struct ddp_message *message)
{
	int fd, error;

	if (mkdirat(base_fd, DDP_DIR_PARENT, 0700) < 0 && errno != EEXIST) {
		error = errno;
		ddp_fail(message, "cannot make %s/%s: %s" ELSEWHERE, base, DDP_DIR_PARENT,
			 strerror(error));
		errno = error;
		return -1;
	}
	fd = open_parent(base_fd, base, message);
	if (fd < 0 || mkdirat(fd, name, 0700) == 0)
		return fd;
	error = errno;
	close(fd);
	(void)unlinkat(base_fd, DDP_DIR_PARENT, AT_REMOVEDIR);
	ddp_fail(message, "cannot make %s/%s/%s: %s" ELSEWHERE, base, DDP_DIR_PARENT, name,
		 strerror(error));
	errno = error;
	return -1;
}

/*
 * Make [base] and what is below it.
 * Returns 0, or -1 with a message, and errno ENOENT if it is worth another try.
 */
static int make_directories(struct ddp_rendezvous *rdzv, const char *base,
			    struct ddp_message *message)
{
	unsigned made;
	int fd, rv, error;

	errno = 0;
	rv = make_path(base, &made);
	/* What vanished under an earlier try is counted once. */
	if (made > rdzv->made)
		rdzv->made = made;
	if (rv < 0) {
		error = errno;
		ddp_fail(message, "cannot make %s: %s" ELSEWHERE, base, strerror(error));
		errno = error;
		return -1;
	}
	fd = open_base(base, message);
	if (fd < 0)
		return -1;
	rdzv->parent = make_step(fd, base, rdzv->name, message);
	error = errno;
	close(fd);
	errno = error;
	return rdzv->parent < 0 ? -1 : 0;
}

/* The last directory on the way to [path] that is there must let us make the rest. */
static int check_ancestor(const char *path, struct ddp_message *message)
{
	char copy[DDP_PATH_SIZE];
	char *slash;

	if (ddp_format(copy, sizeof(copy), "%s", path) < 0)
		return ddp_fail(message, "%.200s... is too long" ELSEWHERE, path);
	while (access(copy, F_OK) < 0 && errno == ENOENT && (slash = strrchr(copy, '/')) &&
	       slash > copy)
		*slash = '\0';
	if (strrchr(copy, '/') == copy && access(copy, F_OK) < 0)
		strcpy(copy, "/");
	if (eaccess(copy, W_OK | X_OK) < 0)
		return ddp_fail(message, "cannot make %s: %s: %s" ELSEWHERE, path, copy,
				strerror(errno));
	return 0;
}

int ddp_rendezvous_usable(const char *base, struct ddp_message *message)
{
	int fd, parent, rv = 0;
	struct stat st;

	if (stat(base, &st) < 0)
		return check_ancestor(base, message);
	fd = open_base(base, message);
	if (fd < 0)
		return -1;
	if (fstatat(fd, DDP_DIR_PARENT, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		parent = open_parent(fd, base, message);
		rv = parent < 0 ? -1 : close(parent);
	} else if (eaccess(base, W_OK | X_OK) < 0) {
		rv = ddp_fail(message, "cannot write in %s: %s" ELSEWHERE, base, strerror(errno));
	}
	close(fd);
	return rv;
}

static int write_all(int fd, const char *text, size_t n)
{
	while (n > 0) {
		ssize_t wrote = write(fd, text, n);

		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote <= 0)
			return -1;
		text += wrote;
		n -= (size_t)wrote;
	}
	return 0;
}

/*
 * Write the record under a name of its own, then rename: no reader sees half of it. Closing a
 * file is what makes it visible to other nodes (NFS); it need not survive a power failure.
 */
static int write_record(int dir, const struct ddp_channel *channel)
{
	static const char fresh[] = DDP_DIR_STEP ".new";
	char *text = malloc(DDP_CHANNEL_SIZE);
	int fd = -1, rv = -1;

	if (!text)
		return -1;
	if (ddp_channel_encode(channel, text, DDP_CHANNEL_SIZE - 1) < 0) {
		errno = ENAMETOOLONG;
		goto out;
	}
	strcat(text, "\n");
	fd = openat(dir, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0 || write_all(fd, text, strlen(text)) < 0)
		goto out;
	if (close(fd) < 0) {
		fd = -1;
		goto out;
	}
	fd = -1;
	rv = renameat(dir, fresh, dir, DDP_DIR_STEP);
out:
	if (fd >= 0)
		close(fd);
	free(text);
	return rv;
}

int ddp_rendezvous_make(struct ddp_rendezvous *rdzv, const char *base, struct ddp_channel *channel,
			struct ddp_message *message)
{
	int dir = -1;

	*rdzv = (struct ddp_rendezvous){.parent = -1};
	if (ddp_format(rdzv->base, sizeof(rdzv->base), "%s", base) < 0 ||
	    ddp_channel_directory_name(channel, rdzv->name, sizeof(rdzv->name)) < 0 ||
	    ddp_format(channel->directory, sizeof(channel->directory), "%s/%s/%s",
		       strcmp(base, "/") == 0 ? "" : base, DDP_DIR_PARENT, rdzv->name) < 0) {
		channel->directory[0] = '\0';
		return ddp_fail(message,
				"the path below %.200s is too long; choose another directory "
				"with --ddp-rdzv=DIR",
				base);
	}
	/* Another srun may remove, meanwhile, what it made and now leaves empty: begin again. */
	for (int tries = 0; tries < TRIES_MAX && rdzv->parent < 0; tries++)
		if (make_directories(rdzv, base, message) < 0 && errno != ENOENT)
			break;
	if (rdzv->parent < 0)
		goto fail;
	dir = openat(rdzv->parent, rdzv->name, DDP_DIR_FLAGS);
	if (dir < 0 || write_record(dir, channel) < 0) {
		ddp_fail(message, "cannot write in %s: %s" ELSEWHERE, channel->directory,
			 strerror(errno));
		goto fail;
	}
	close(dir);
	return 0;
fail:
	if (dir >= 0)
		close(dir);
	ddp_rendezvous_remove(rdzv);
	channel->directory[0] = '\0';
	return -1;
}

static void remove_at(int parent, const char *name, int depth);

static void remove_entries(int fd, int depth)
{
	DIR *dir = fdopendir(fd);
	struct dirent *entry;

	if (!dir) {
		close(fd);
		return;
	}
	while ((entry = readdir(dir))) {
		const char *name = entry->d_name;

		if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
			continue;
		if (unlinkat(dirfd(dir), name, 0) < 0 && (errno == EISDIR || errno == EPERM))
			remove_at(dirfd(dir), name, depth + 1);
	}
	closedir(dir);
}

static void remove_at(int parent, const char *name, int depth)
{
	int fd;

	if (depth > DEPTH_MAX)
		return;
	fd = openat(parent, name, DDP_DIR_FLAGS);
	if (fd >= 0)
		remove_entries(fd, depth);
	(void)unlinkat(parent, name, AT_REMOVEDIR);
}

void ddp_remove_tree(int parent, const char *name)
{
	remove_at(parent, name, 0);
}

void ddp_rendezvous_remove(struct ddp_rendezvous *rdzv)
{
	char path[DDP_PATH_SIZE + sizeof(DDP_DIR_PARENT)];

	if (rdzv->parent >= 0) {
		ddp_remove_tree(rdzv->parent, rdzv->name);
		close(rdzv->parent);
		rdzv->parent = -1;
		/* Other steps, and records of failures, keep it. */
		if (ddp_format(path, sizeof(path), "%s/%s", rdzv->base, DDP_DIR_PARENT) == 0)
			(void)rmdir(path);
	}
	if (rdzv->made > 0)
		unmake_path(rdzv->base, rdzv->made);
	rdzv->made = 0;
}
