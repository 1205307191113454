/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mps.h - detect NVIDIA's Multi-Process Service (MPS) and its limits
 *
 * All functions are in this header, because they are used by libddp's programs and by the plugin,
 * which does not link libddp. CUDA detects an MPS daemon in the same way. If there is none, CUDA
 * runs programs without MPS and prints nothing.
 */
#ifndef DDP_BASE_MPS_H
#define DDP_BASE_MPS_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* Names of CUDA's variables for MPS clients. */
#define DDP_MPS_PIPE_DIRECTORY "CUDA_MPS_PIPE_DIRECTORY"
#define DDP_MPS_THREADS "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
#define DDP_MPS_MEMORY "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"

enum ddp_mps_state {
	DDP_MPS_NONE,	/* there is no daemon that this user can connect to */
	DDP_MPS_STALE,	/* a socket exists, but the daemon has ended */
	DDP_MPS_SERVES, /* a daemon is listening */
};

/*
 * Returns the directory of the daemon's socket: [given], the value of CUDA_MPS_PIPE_DIRECTORY, or
 * the default if that is NULL or "".
 */
static inline const char *ddp_mps_directory(const char *given)
{
	return given && *given ? given : "/tmp/nvidia-mps";
}

/*
 * Returns whether a process listens on the socket [path]. The daemon does not notice the check.
 * Connecting a datagram socket to the daemon's stream socket always fails. But the kernel first
 * checks that a process listens (ECONNREFUSED), and that this user may connect (EACCES).
 */
static inline enum ddp_mps_state ddp_mps_ask(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd, why = 0;

	if (strlen(path) >= sizeof(address.sun_path))
		return DDP_MPS_NONE; /* CUDA could not connect to this path either */
	strcpy(address.sun_path, path);
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return DDP_MPS_SERVES;
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		why = errno;
	close(fd);
	if (why == EACCES || why == ENOENT)
		return DDP_MPS_NONE;
	return why == ECONNREFUSED ? DDP_MPS_STALE : DDP_MPS_SERVES;
}

static inline int ddp_mps_is_trusted(const struct stat *st)
{
	return st->st_uid == 0 || st->st_uid == geteuid();
}

/*
 * Check for a daemon in [directory], see ddp_mps_directory(). Changes nothing and does not wait.
 * The directory, a link to it, and the socket are ignored unless they belong to root or to this
 * user: all users can write to /tmp, and a daemon of a third user serves only that user. Links
 * inside the directory are not followed. Old daemons have a FIFO, which does not show whether the
 * daemon runs; it counts as a running daemon.
 */
static inline enum ddp_mps_state ddp_mps_look(const char *directory)
{
	char path[4096];
	struct stat st;

	if (lstat(directory, &st) < 0 || !ddp_mps_is_trusted(&st) || stat(directory, &st) < 0 ||
	    !ddp_mps_is_trusted(&st) ||
	    snprintf(path, sizeof(path), "%s/control", directory) >= (int)sizeof(path) ||
	    lstat(path, &st) < 0 || !ddp_mps_is_trusted(&st))
		return DDP_MPS_NONE;
	if (S_ISFIFO(st.st_mode))
		return DDP_MPS_SERVES;
	return S_ISSOCK(st.st_mode) ? ddp_mps_ask(path) : DDP_MPS_NONE;
}

/* Parse CUDA_MPS_ACTIVE_THREAD_PERCENTAGE. Returns the percentage, or 0 if there is no limit. */
static inline double ddp_mps_threads(const char *text)
{
	char *end;
	double percent = text ? strtod(text, &end) : 0;

	return text && end != text && *end == '\0' && percent > 0 && percent < 100 ? percent : 0;
}

/*
 * Find the memory limit of [device] in [text], the value of CUDA_MPS_PINNED_DEVICE_MEM_LIMIT, such
 * as "0=4G,1=512M". Write the limit, such as "4G", to [limit], or "" if there is none.
 */
static inline void ddp_mps_memory(const char *text, int device, char *limit, size_t size)
{
	limit[0] = '\0';
	while (text && *text) {
		size_t length = strcspn(text, ",");
		char *end;
		long index = strtol(text, &end, 10);

		if (end != text && *end == '=' && index == device) {
			snprintf(limit, size, "%.*s", (int)(text + length - end - 1), end + 1);
			return;
		}
		text += length + (text[length] == ',');
	}
}

#endif /* DDP_BASE_MPS_H */
