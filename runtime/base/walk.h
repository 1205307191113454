/* SPDX-License-Identifier: Apache-2.0 */
/*
 * walk.h - open a directory whose path only root and this user can change
 *
 * All functions are in this header, because both libddp and the plugin use them, and the plugin
 * does not link libddp. The rule is that of ssh's StrictModes:
 *
 *   - Each directory from the root on must belong to root or to this user.
 *   - No other user may write to it, unless its sticky bit prevents users from renaming entries of
 *     other users.
 *   - The group may not write either, not even a group that contains only this user: if the
 *     directory has an access list, the group bits are the list's mask, and other users may be
 *     allowed to write.
 *   - Symbolic links in the path are followed if they belong to root or to this user.
 *
 * Each component is opened relative to the open directory before it, so that the directory which
 * was checked is the one that is used.
 */
#ifndef DDP_BASE_WALK_H
#define DDP_BASE_WALK_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DDP_WALK_LINKS = 16 }; /* maximum number of links in a path */

struct ddp_walk {
	bool make; /* create missing directories, with mode 0700 */
	/* [made] is the number of directories created, [links] the number of links followed */
	unsigned made, links;
	char at[PATH_MAX];	  /* the current path, for messages */
	char why[PATH_MAX + 256]; /* the error message */
};

/* Write a formatted error message to walk->why. Returns -1 with errno set to [number]. */
static inline int __attribute__((format(printf, 3, 4)))
ddp_walk_fail(struct ddp_walk *walk, int number, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(walk->why, sizeof(walk->why), format, arguments);
	va_end(arguments);
	errno = number;
	return -1;
}

/*
 * Returns whether each user has a distinct owner number here. In a container with a user namespace,
 * files of root and of all unmapped users have the same owner, 65534. That owner is then trusted,
 * because the plugin has checked the path outside of the container.
 */
static inline bool ddp_walk_knows_all(void)
{
	unsigned long inside = 0, outside = 0, count = 0;
	FILE *file = fopen("/proc/self/uid_map", "re");

	if (!file)
		return true;
	if (fscanf(file, "%lu %lu %lu", &inside, &outside, &count) != 3)
		count = UINT_MAX;
	fclose(file);
	return inside == 0 && outside == 0 && count >= UINT_MAX;
}

static inline bool ddp_walk_trusts(uid_t owner)
{
	return owner == 0 || owner == geteuid() || (owner == 65534 && !ddp_walk_knows_all());
}

/* Check the directory [fd]. Returns [fd], or -1 after closing it. */
static inline int ddp_walk_check(struct ddp_walk *walk, int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		ddp_walk_fail(walk, errno, "cannot stat %s: %s", walk->at, strerror(errno));
	else if (!ddp_walk_trusts(st.st_uid))
		ddp_walk_fail(walk, EPERM,
			      "%s belongs to user %u, who could replace the rendezvous", walk->at,
			      st.st_uid);
	else if (st.st_mode & S_ISVTX)
		return fd;
	else if (st.st_mode & S_IWOTH)
		ddp_walk_fail(walk, EPERM,
			      "%s is writable for everybody and not sticky, so anybody could "
			      "replace the rendezvous (chmod o-w or chmod +t prevents that)",
			      walk->at);
	else if (st.st_mode & S_IWGRP)
		ddp_walk_fail(walk, EPERM,
			      "%s is writable for group %u and not sticky, so the group's members "
			      "could replace the rendezvous (chmod g-w or chmod +t prevents that)",
			      walk->at, st.st_gid);
	else
		return fd;
	close(fd);
	errno = EPERM;
	return -1;
}

/* Append [name] to walk->at. Returns the length that walk->at had before, or -1 on failure. */
static inline int ddp_walk_name(struct ddp_walk *walk, const char *name, size_t length)
{
	size_t used = strlen(walk->at);
	bool slash = used > 0 && walk->at[used - 1] != '/';

	if (used + slash + length >= sizeof(walk->at))
		return ddp_walk_fail(walk, ENAMETOOLONG, "%.200s... is too long", walk->at);
	if (slash)
		walk->at[used] = '/';
	memcpy(walk->at + used + slash, name, length);
	walk->at[used + slash + length] = '\0';
	return (int)used;
}

static inline int ddp_walk_path(struct ddp_walk *walk, int at, const char *path);

/* Follow [name] in [at], which is not a directory, if it is a link of root or of this user. */
static inline int ddp_walk_link(struct ddp_walk *walk, int at, const char *name, int before)
{
	int link = openat(at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC), fd = -1;
	char target[PATH_MAX];
	struct stat st;
	ssize_t n;

	if (link < 0 || fstat(link, &st) < 0)
		ddp_walk_fail(walk, errno, "cannot open %s: %s", walk->at, strerror(errno));
	else if (!S_ISLNK(st.st_mode))
		ddp_walk_fail(walk, ENOTDIR, "cannot open %s: %s", walk->at, strerror(ENOTDIR));
	else if (!ddp_walk_trusts(st.st_uid))
		ddp_walk_fail(walk, EPERM, "%s is a symbolic link of user %u", walk->at, st.st_uid);
	else if (++walk->links > DDP_WALK_LINKS)
		ddp_walk_fail(walk, ELOOP, "cannot open %s: %s", walk->at, strerror(ELOOP));
	else if ((n = readlinkat(link, "", target, sizeof(target) - 1)) < 0)
		ddp_walk_fail(walk, errno, "cannot read %s: %s", walk->at, strerror(errno));
	else {
		bool make = walk->make;

		target[n] = '\0';
		walk->at[before] = '\0';
		walk->make = false;
		fd = ddp_walk_path(walk, at, target);
		walk->make = make;
	}
	n = errno;
	if (link >= 0)
		close(link);
	errno = (int)n;
	return fd;
}

/* Open the directory [name] in [at], or the target of a link. Returns a descriptor, or -1. */
static inline int ddp_walk_step(struct ddp_walk *walk, int at, const char *name)
{
	/* O_DIRECTORY makes an automounter mount the directory. */
	const int flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	int before = ddp_walk_name(walk, name, strlen(name)), fd;

	if (before < 0)
		return -1;
	fd = openat(at, name, flags);
	if (fd < 0 && errno == ENOENT && walk->make) {
		if (mkdirat(at, name, 0700) == 0)
			walk->made++;
		else if (errno != EEXIST)
			return ddp_walk_fail(walk, errno, "cannot make %s: %s", walk->at,
					     strerror(errno));
		fd = openat(at, name, flags);
	}
	if (fd >= 0)
		return ddp_walk_check(walk, fd);
	if (errno == ENOTDIR || errno == ELOOP)
		return ddp_walk_link(walk, at, name, before);
	return ddp_walk_fail(walk, errno, "cannot open %s: %s", walk->at, strerror(errno));
}

/*
 * Open the directory [path]. If it is relative, it is relative to [at], which stays open. Returns a
 * descriptor, or -1 with errno set.
 */
static inline int ddp_walk_path(struct ddp_walk *walk, int at, const char *path)
{
	const char *root = *path == '/' ? "/" : ".";
	int fd, number;

	if (*path == '/')
		strcpy(walk->at, "/");
	else if (at == AT_FDCWD)
		strcpy(walk->at, ".");
	fd = openat(at, root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return ddp_walk_fail(walk, errno, "cannot open %s: %s", walk->at, strerror(errno));
	fd = ddp_walk_check(walk, fd);
	while (fd >= 0 && *(path += strspn(path, "/"))) {
		size_t n = strcspn(path, "/");
		char name[NAME_MAX + 1];
		int next = -1;

		if (n > NAME_MAX) {
			if (ddp_walk_name(walk, path, n) >= 0)
				ddp_walk_fail(walk, ENAMETOOLONG, "cannot %s %s: %s",
					      walk->make ? "make" : "open", walk->at,
					      strerror(ENAMETOOLONG));
		} else {
			memcpy(name, path, n);
			name[n] = '\0';
			next = ddp_walk_step(walk, fd, name);
		}
		number = errno;
		close(fd);
		errno = number;
		fd = next;
		path += n;
	}
	return fd;
}

/*
 * Open the directory [path]. If walk->make is set, missing directories are created. All other
 * members of [walk] must be zero.
 * Returns a descriptor (O_PATH); or -1 with errno and the message in walk->why. errno is EPERM if
 * other users could change the path. On failure, all created directories are removed.
 */
static inline int ddp_walk_open(struct ddp_walk *walk, const char *path)
{
	int fd = ddp_walk_path(walk, AT_FDCWD, path), number = errno;

	while (fd < 0 && walk->made > 0) {
		char *slash = strrchr(walk->at, '/');

		if (rmdir(walk->at) == 0)
			walk->made--;
		else if (errno != ENOENT && errno != ENOTDIR && errno != ENAMETOOLONG)
			break;
		if (!slash)
			break;
		*slash = '\0';
	}
	errno = number;
	return fd;
}

/*
 * Open the parent directory of [path] like ddp_walk_open(). Set [name] to the last component of
 * [path], or to "" if [path] is the root.
 */
static inline int ddp_walk_above(struct ddp_walk *walk, const char *path,
				 char name[static NAME_MAX + 1])
{
	size_t end = strlen(path), begin;
	char above[PATH_MAX];

	while (end > 1 && path[end - 1] == '/')
		end--;
	for (begin = end; begin > 0 && path[begin - 1] != '/'; begin--)
		;
	if (end - begin > NAME_MAX || begin >= sizeof(above))
		return ddp_walk_fail(walk, ENAMETOOLONG, "%.200s... is too long", path);
	snprintf(name, NAME_MAX + 1, "%.*s", (int)(end - begin), path + begin);
	snprintf(above, sizeof(above), "%.*s", (int)begin, path);
	return ddp_walk_open(walk, begin ? above : ".");
}

#endif /* DDP_BASE_WALK_H */
