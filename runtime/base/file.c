/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"

int ddp_file_write_all(int fd, const char *data, size_t size)
{
	while (size > 0) {
		ssize_t done = write(fd, data, size);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return -1;
		data += done;
		size -= (size_t)done;
	}
	return 0;
}

/* Returns -1 with errno set; [fd] is closed either way. */
static int fill(int fd, const struct iovec *parts, int count, bool sync)
{
	int number;

	for (int i = 0; i < count; i++)
		if (ddp_file_write_all(fd, parts[i].iov_base, parts[i].iov_len) < 0)
			goto error;
	if (sync && fsync(fd) < 0)
		goto error;
	return close(fd);
error:
	number = errno;
	close(fd);
	errno = number;
	return -1;
}

/* The new name is on disk only when its directory is; a file system that cannot is believed. */
static void sync_directory(const char *path)
{
	char parent[PATH_MAX];
	const char *slash = strrchr(path, '/');
	int fd;

	if (slash)
		snprintf(parent, sizeof(parent), "%.*s", slash == path ? 1 : (int)(slash - path),
			 path);
	fd = open(slash ? parent : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return;
	(void)fsync(fd);
	close(fd);
}

int ddp_file_write(const char *path, const struct iovec *parts, int count, unsigned mode, bool sync,
		   struct ddp_error *error)
{
	char temporary[PATH_MAX];
	int status, fd;

	if (snprintf(temporary, sizeof(temporary), "%s.tmp.%ld", path, (long)getpid()) >=
	    (int)sizeof(temporary))
		return ddp_error_set(error, DDP_ERR_FILE, "%.100s...: the path is too long", path);
	fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
		  (mode_t)(mode ? mode : 0600));
	if (fd < 0)
		return ddp_error_errno(error, DDP_ERR_FILE, "cannot create %s", temporary);
	if (fill(fd, parts, count, sync) < 0 || rename(temporary, path) < 0) {
		status = ddp_error_errno(error, DDP_ERR_FILE, "cannot write %s", path);
		unlink(temporary);
		return status;
	}
	if (sync)
		sync_directory(path);
	return 0;
}

int ddp_file_read_at(int fd, void *data, size_t size, uint64_t offset)
{
	for (size_t done = 0; done < size;) {
		ssize_t got = pread(fd, (char *)data + done, size - done, (off_t)(offset + done));

		if (got < 0 && errno == EINTR)
			continue;
		if (got == 0)
			errno = ENODATA; /* it ends before, or shrank while being read */
		if (got <= 0)
			return -1;
		done += (size_t)got;
	}
	return 0;
}

int ddp_file_read(const char *path, size_t limit, char **data, size_t *size,
		  struct ddp_error *error)
{
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a FIFO must not hold us up */
	struct stat info;
	int status = 0;
	char *buffer = NULL;

	*data = NULL;
	*size = 0;
	if (fd < 0 && (errno == ENOENT || errno == ESTALE))
		return 1;
	if (fd < 0 || fstat(fd, &info) < 0) {
		status = ddp_error_errno(error, DDP_ERR_FILE, "cannot open %s", path);
		goto out;
	}
	if (!S_ISREG(info.st_mode) || info.st_size < 0 || (uintmax_t)info.st_size > limit) {
		status = ddp_error_set(error, DDP_ERR_FORMAT,
				       "%s: not a plain file of at most %zu bytes", path, limit);
		goto out;
	}
	buffer = malloc((size_t)info.st_size + 1);
	if (!buffer) {
		status = ddp_error_set(error, DDP_ERR_MEMORY, "%s: no memory for %lld bytes", path,
				       (long long)info.st_size);
		goto out;
	}
	if (ddp_file_read_at(fd, buffer, (size_t)info.st_size, 0) < 0) {
		status = errno == ESTALE
				 ? 1
				 : ddp_error_errno(error, DDP_ERR_FILE, "cannot read %s", path);
		goto out;
	}
	buffer[info.st_size] = '\0';
	*data = buffer;
	*size = (size_t)info.st_size;
	buffer = NULL;
out:
	free(buffer);
	if (fd >= 0)
		close(fd);
	return status;
}

void ddp_file_change_directory(const char *path, const char *name)
{
	char file[PATH_MAX];
	int fd;

	if (snprintf(file, sizeof(file), "%s/%s", path, name) >= (int)sizeof(file))
		return;
	fd = open(file, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	if (fd >= 0)
		close(fd);
	(void)unlink(file);
}

int ddp_file_mkdirs(const char *path, unsigned mode, struct ddp_error *error)
{
	char part[PATH_MAX];
	struct stat info;

	if (snprintf(part, sizeof(part), "%s", path) >= (int)sizeof(part))
		return ddp_error_set(error, DDP_ERR_FILE, "%.100s...: the path is too long", path);
	for (char *slash = *part ? strchr(part + 1, '/') : NULL; slash;
	     slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(part, (mode_t)mode) < 0 && errno != EEXIST && access(part, F_OK) < 0)
			return ddp_error_errno(error, DDP_ERR_FILE, "cannot make directory %s",
					       part);
		*slash = '/';
	}
	if (mkdir(part, (mode_t)mode) == 0)
		return 0;
	if (errno == EEXIST && stat(part, &info) == 0) {
		if (S_ISDIR(info.st_mode))
			return 0;
		errno = ENOTDIR;
	}
	return ddp_error_errno(error, DDP_ERR_FILE, "cannot make directory %s", part);
}
