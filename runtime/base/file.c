/* SPDX-License-Identifier: Apache-2.0 */
/* file.c - read or atomically replace whole files, create directories, check standard streams */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checksum.h"
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

/* Write all [parts], then close [fd], even if writing failed. Returns 0, or -1 with errno set. */
static int write_and_close(int fd, const struct iovec *parts, int count, bool sync)
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

/*
 * Returns whether fsync() failed because the file system cannot sync a directory. SMB and FUSE
 * report that as EBADF.
 */
static bool cannot_sync(int number)
{
	return number == EINVAL || number == ENOSYS || number == EOPNOTSUPP || number == EBADF;
}

/*
 * Sync the directory of [path], so that a new name in it is durable. It is not an error if the file
 * system cannot sync a directory, or if the directory is writable but not readable.
 * Returns 0, or -1 with errno set.
 */
static int sync_parent(const char *path)
{
	char parent[PATH_MAX];
	const char *slash = strrchr(path, '/');
	int fd, number = 0;

	if (slash)
		snprintf(parent, sizeof(parent), "%.*s", slash == path ? 1 : (int)(slash - path),
			 path);
	fd = open(slash ? parent : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return errno == EACCES ? 0 : -1;
	if (fsync(fd) < 0 && !cannot_sync(errno))
		number = errno;
	close(fd);
	errno = number;
	return number ? -1 : 0;
}

/*
 * Resolve the symbolic link [path]. The kernel follows the link, so that its protection of links in
 * sticky directories applies. To make this possible, a missing target is created and then removed.
 * Returns 0 with the target's path and properties, or -1 with errno set.
 */
static int follow_link(const char *path, char target[PATH_MAX], struct stat *info)
{
	int fd = open(path, O_PATH | O_CLOEXEC), number;
	bool created = fd < 0 && errno == ENOENT;
	ssize_t length = -1;
	char name[32];

	if (created)
		fd = open(path, O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);
	if (fd < 0)
		return -1;
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	if (fstat(fd, info) == 0)
		length = readlink(name, target, PATH_MAX - 1);
	if (length >= 0) {
		target[length] = '\0';
		if (created && info->st_size == 0)
			unlink(target);
	}
	number = errno;
	close(fd);
	errno = number;
	return length < 0 ? -1 : 0;
}

int ddp_file_output(const struct stat *info)
{
	struct stat output;

	for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++)
		if (fstat(fd, &output) == 0 && output.st_dev == info->st_dev &&
		    output.st_ino == info->st_ino)
			return fd;
	return -1;
}

/*
 * Find the file that a write to [path] replaces: [path], or the target of a link.
 * Returns the file's path, which may be stored in [target]. Returns NULL with an error if [path] is
 * a directory, where rename() would fail, or a device, FIFO or socket, which rename() would
 * destroy.
 */
static const char *find_target(const char *path, char target[PATH_MAX], struct ddp_error *error)
{
	struct stat info;
	bool linked;

	if (lstat(path, &info) < 0)
		return path;
	linked = S_ISLNK(info.st_mode);
	if (linked && follow_link(path, target, &info) < 0) {
		ddp_error_errno(error, DDP_ERR_FILE, "cannot write %s", path);
		return NULL;
	}
	/*
	 * [path] is /dev/stdout, or another link to the file of stdout or stderr. If that file were
	 * replaced, programs that have the log open would not see the new file.
	 */
	if (linked && S_ISREG(info.st_mode) && ddp_file_output(&info) >= 0) {
		ddp_error_set(error, DDP_ERR_FILE, "cannot write %s: it is stdout or stderr", path);
		return NULL;
	}
	/* /dev/stdout can lead to a file that was unlinked. Such a file cannot be replaced. */
	if (S_ISREG(info.st_mode) && (!linked || info.st_nlink > 0))
		return linked ? target : path;
	ddp_error_set(error, DDP_ERR_FILE, "cannot write %s: it is %s", path,
		      S_ISDIR(info.st_mode) ? "a directory" : "not a plain file");
	return NULL;
}

/*
 * Returns a hash of the node's boot ID and the PID namespace; 0 if unknown. A PID identifies a
 * process only among processes with the same hash.
 */
static uint32_t process_space(void)
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	char boot[36];
	struct stat info;
	uint64_t hash = 0;

	if (fd >= 0 && ddp_file_read_at(fd, boot, sizeof(boot), 0) == 0 &&
	    stat("/proc/self/ns/pid", &info) == 0) {
		hash = ddp_hash(DDP_HASH_INIT, boot, sizeof(boot));
		hash = ddp_hash(hash, &info.st_ino, sizeof(info.st_ino));
	}
	if (fd >= 0)
		close(fd);
	return (uint32_t)(hash ^ hash >> 32);
}

bool ddp_file_is_temporary(const char *suffix, bool *dead)
{
	unsigned space, pid, random;
	int end = -1;
	size_t prefix = strlen(".tmp."), digits;

	*dead = false;
	if (strncmp(suffix, ".tmp.", prefix) != 0)
		return false;
	/* suffixes of earlier releases have only one number, so [dead] stays false */
	digits = strspn(suffix + prefix, "0123456789abcdef");
	if (digits > 0 && !suffix[prefix + digits])
		return true;
	if (sscanf(suffix, ".tmp.%8x-%8x-%8x%n", &space, &pid, &random, &end) != 3 || suffix[end])
		return false;
	*dead = pid > 0 && pid <= INT_MAX && space != 0 && space == process_space() &&
		kill((pid_t)pid, 0) < 0 && errno == ESRCH;
	return true;
}

/*
 * Choose the name of a temporary file beside [target]. If it would exceed NAME_MAX, the end of the
 * target's name is omitted. Returns false if the path is too long.
 */
static bool name_temporary(char temporary[PATH_MAX], const char *target, uint32_t random)
{
	const char *slash = strrchr(target, '/');
	size_t length = strlen(target), name = strlen(slash ? slash + 1 : target), size;
	char suffix[sizeof(".tmp.01234567-01234567-01234567")];

	size = (size_t)snprintf(suffix, sizeof(suffix), ".tmp.%08" PRIx32 "-%x-%08" PRIx32,
				process_space(), (unsigned)getpid(), random);
	if (name <= NAME_MAX && name + size > NAME_MAX)
		length -= name + size - NAME_MAX;
	return snprintf(temporary, PATH_MAX, "%.*s%s", (int)length, target, suffix) < PATH_MAX;
}

int ddp_file_can_replace(const char *path, struct ddp_error *error)
{
	char target[PATH_MAX];

	return find_target(path, target, error) ? 0 : DDP_ERR_FILE;
}

int ddp_file_write(const char *path, const struct iovec *parts, int count, unsigned mode, bool sync,
		   struct ddp_error *error)
{
	char real[PATH_MAX], temporary[PATH_MAX];
	const char *target = find_target(path, real, error);
	uint32_t random;
	int status, fd;

	if (!target)
		return DDP_ERR_FILE;
	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		return ddp_error_errno(error, DDP_ERR_FILE, "cannot write %s: getrandom", path);
	if (!name_temporary(temporary, target, random))
		return ddp_error_set(error, DDP_ERR_FILE, "the path %.100s... is too long", path);
	fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, (mode_t)(mode ? mode : 0600));
	if (fd < 0)
		return ddp_error_errno(error, DDP_ERR_FILE, "cannot create %s", temporary);
	if (write_and_close(fd, parts, count, sync) < 0 || rename(temporary, target) < 0) {
		status = ddp_error_errno(error, DDP_ERR_FILE, "cannot write %s", path);
		unlink(temporary);
		return status;
	}
	if (sync && sync_parent(target) < 0)
		return ddp_error_errno(error, DDP_ERR_FILE, "cannot sync the directory of %s",
				       path);
	return 0;
}

int ddp_file_write_text(const char *directory, const char *name, const struct ddp_text *text,
			struct ddp_error *error)
{
	struct iovec part = {text->data, text->size};
	char path[PATH_MAX + 300];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	return ddp_file_write(path, &part, 1, 0600, false, error);
}

int ddp_file_read_at(int fd, void *data, size_t size, uint64_t offset)
{
	for (size_t done = 0; done < size;) {
		ssize_t count = pread(fd, (char *)data + done, size - done, (off_t)(offset + done));

		if (count < 0 && errno == EINTR)
			continue;
		/* The file ends earlier than expected, perhaps because it was truncated. */
		if (count == 0)
			errno = ENODATA;
		if (count <= 0)
			return -1;
		done += (size_t)count;
	}
	return 0;
}

int ddp_file_read(const char *path, size_t limit, char **data, size_t *size,
		  struct ddp_error *error)
{
	/* O_NONBLOCK, because opening a FIFO must not block */
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
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
				       "%s is not a plain file of at most %zu bytes", path, limit);
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

/* Create directory [path] unless it exists. Returns 0, or -1 with errno set. */
static int make_directory(const char *path, unsigned mode)
{
	struct stat info;
	int number;

	if (mkdir(path, (mode_t)mode) == 0)
		return sync_parent(path);
	number = errno;
	if (stat(path, &info) < 0)
		errno = number;
	else if (S_ISDIR(info.st_mode))
		return 0;
	else
		errno = ENOTDIR;
	return -1;
}

int ddp_file_mkdirs(const char *path, unsigned mode, struct ddp_error *error)
{
	char part[PATH_MAX];

	if (snprintf(part, sizeof(part), "%s", path) >= (int)sizeof(part))
		return ddp_error_set(error, DDP_ERR_FILE, "the path %.100s... is too long", path);
	for (char *slash = *part ? strchr(part + 1, '/') : NULL; slash;
	     slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (make_directory(part, mode) < 0)
			return ddp_error_errno(error, DDP_ERR_FILE, "cannot make directory %s",
					       part);
		*slash = '/';
	}
	if (make_directory(part, mode) < 0)
		return ddp_error_errno(error, DDP_ERR_FILE, "cannot make directory %s", part);
	return 0;
}

void ddp_stdio_open(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDONLY);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

int ddp_stdio_flush(const char *program)
{
	bool failed = ferror(stdout);

	errno = 0;
	if (fflush(stdout) == 0 && !failed)
		return 0;
	fprintf(stderr, "%s: cannot write to stdout: %s\n", program, strerror(errno ? errno : EIO));
	return -1;
}
