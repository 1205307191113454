/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mps.h - does NVIDIA's Multi-Process Service serve here, and which limits does it keep?
 *
 * The one rule for the plugin, which knows no runtime, and for the runtime's programs. CUDA itself looks
 * for a daemon in this way; where none answers, programs run without it and nothing is said.
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

/* Variables of CUDA's that a client reads. */
#define DDP_MPS_PIPE_DIRECTORY "CUDA_MPS_PIPE_DIRECTORY"
#define DDP_MPS_THREADS "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
#define DDP_MPS_MEMORY "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"

enum ddp_mps_state {
	DDP_MPS_NONE,	/* none that this user may ask */
	DDP_MPS_STALE,	/* one was, and left its socket */
	DDP_MPS_SERVES, /* one listens */
};

/* Where the daemon's socket is, with [given] as CUDA_MPS_PIPE_DIRECTORY: NULL or "" for the default. */
static inline const char *ddp_mps_directory(const char *given)
{
	return given && *given ? given : "/tmp/nvidia-mps";
}

/*
 * Whether somebody has the socket [path] open. The daemon notices nothing: its socket is one of connections, which
 * the kernel does not join with one of datagrams. But before it says so it looks whether anybody is there
 * (ECONNREFUSED), and whether this user may connect (EACCES).
 */
static inline enum ddp_mps_state ddp_mps_ask(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd, why = 0;

	if (strlen(path) >= sizeof(address.sun_path))
		return DDP_MPS_NONE; /* CUDA cannot connect either */
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

static inline int ddp_mps_is_ours(const struct stat *st)
{
	return st->st_uid == 0 || st->st_uid == geteuid();
}

/*
 * Look in [directory] (ddp_mps_directory()). Changes nothing, waits for nobody. What lies there counts if it,
 * the directory and a link to that are root's or the user's own: a daemon of a third user serves nobody else, and
 * /tmp is anybody's. No link in the directory is followed. The FIFO of daemons before sockets tells nothing more,
 * and counts as one that serves.
 */
static inline enum ddp_mps_state ddp_mps_look(const char *directory)
{
	char path[4096];
	struct stat st;

	if (lstat(directory, &st) < 0 || !ddp_mps_is_ours(&st) || stat(directory, &st) < 0 ||
	    !ddp_mps_is_ours(&st) ||
	    snprintf(path, sizeof(path), "%s/control", directory) >= (int)sizeof(path) ||
	    lstat(path, &st) < 0 || !ddp_mps_is_ours(&st))
		return DDP_MPS_NONE;
	if (S_ISFIFO(st.st_mode))
		return DDP_MPS_SERVES;
	return S_ISSOCK(st.st_mode) ? ddp_mps_ask(path) : DDP_MPS_NONE;
}

/* The percentage of threads in [text], CUDA_MPS_ACTIVE_THREAD_PERCENTAGE; 0: no limit. */
static inline double ddp_mps_threads(const char *text)
{
	char *end;
	double percent = text ? strtod(text, &end) : 0;

	return text && end != text && *end == '\0' && percent > 0 && percent < 100 ? percent : 0;
}

/*
 * The limit of [device]'s memory in [text], CUDA_MPS_PINNED_DEVICE_MEM_LIMIT such as "0=4G,1=512M", in
 * [limit]: "4G", or "" where there is none.
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
