/* SPDX-License-Identifier: Apache-2.0 */
/*
 * walk.h - the way to a directory, which nobody but root and this user may be able to change
 *
 * The one rule for the plugin, which knows no runtime, and for libddp, as of ssh's StrictModes: each directory from
 * the root on belongs to root or to this user, and no other may write in it, unless its sticky bit keeps others from
 * renaming what is not theirs. The group may not write in it either, not even a group that only this user is a member
 * of: if the directory has an access list, the group bits are its mask and allow other users to write.
 * Symbolic links on the way are followed if they belong to root or to this user.
 * Each step is taken from the open directory before it, so what was looked at is what is used.
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

enum { DDP_WALK_LINKS = 16 }; /* on one way */

struct ddp_walk {
	bool make;		  /* what is missing, with mode 0700 */
	unsigned made, links;	  /* so far */
	char at[PATH_MAX];	  /* the directory that is looked at, for people */
	char why[PATH_MAX + 256]; /* it went wrong */
};

/* A step that fails. Returns -1 with errno [number]. */
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
 * In a container with a user namespace of its own, root's files and those of all others who are not known
 * there have one owner: they cannot be told apart, and the plugin has looked outside of it.
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

/* Look at the directory [fd]. Returns it, or -1 and it is closed. */
static inline int ddp_walk_look(struct ddp_walk *walk, int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		ddp_walk_fail(walk, errno, "cannot look at %s: %s", walk->at, strerror(errno));
	else if (!ddp_walk_trusts(st.st_uid))
		ddp_walk_fail(walk, EPERM,
			      "%s belongs to user %u, who could replace the rendezvous", walk->at,
			      st.st_uid);
	else if (st.st_mode & S_ISVTX)
		return fd;
	else if (st.st_mode & S_IWOTH)
		ddp_walk_fail(walk, EPERM,
			      "%s is writable for everybody and not sticky (chmod o-w or +t it), "
			      "anybody could replace the rendezvous",
			      walk->at);
	else if (st.st_mode & S_IWGRP)
		ddp_walk_fail(walk, EPERM,
			      "%s is writable for group %u and not sticky (chmod g-w or +t it), "
			      "its members could replace the rendezvous",
			      walk->at, st.st_gid);
	else
		return fd;
	close(fd);
	errno = EPERM;
	return -1;
}

/* Add [name] to what people are told. Returns how long that was before, or -1. */
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

/* [name] in [at] is no directory, perhaps a link to one. */
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

/* One step, from the directory [at] to [name] in it. Returns a descriptor, or -1 with errno. */
static inline int ddp_walk_step(struct ddp_walk *walk, int at, const char *name)
{
	/* O_DIRECTORY, or an automounter would not do its work. */
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
		return ddp_walk_look(walk, fd);
	if (errno == ENOTDIR || errno == ELOOP)
		return ddp_walk_link(walk, at, name, before);
	return ddp_walk_fail(walk, errno, "cannot open %s: %s", walk->at, strerror(errno));
}

/* From the directory [at], which stays open, along [path]. Returns a descriptor, or -1 with errno. */
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
	fd = ddp_walk_look(walk, fd);
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
 * Open the directory [path]; where walk->make is set, what is missing of it is made. [walk] begins with zeros.
 * Returns a descriptor to go on from (O_PATH), or -1 with errno, EPERM where others could change the way, what is
 * wrong in walk->why, and nothing made.
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
 * Open the directory that [path] is in, and set [name] to what [path] is called there, "" for the root. As ddp_walk_open().
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
