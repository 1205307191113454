/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "mps.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/text.h"

/*
 * A FIFO, or in some versions a socket. /tmp is anybody's: a daemon of a third user does not serve
 * this one, whatever lies there.
 */
static bool is_pipe(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)) &&
	       (st.st_uid == 0 || st.st_uid == geteuid());
}

/* Does the pid file [path] name a process that is gone? A file that cannot be read says nothing. */
static bool is_left_behind(const char *path)
{
	char text[32];
	uint64_t pid;
	ssize_t n;
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);

	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	if (ddp_parse_number_n(text, strspn(text, "0123456789"), 1, INT32_MAX, &pid) < 0)
		return false;
	return kill((pid_t)pid, 0) < 0 && errno == ESRCH;
}

bool ddp_mps_serves(char *const *env)
{
	const char *dir = ddp_env_filled(env, "CUDA_MPS_PIPE_DIRECTORY");
	char path[DDP_PATH_SIZE];

	if (!dir)
		dir = "/tmp/nvidia-mps";
	if (ddp_format(path, sizeof(path), "%s/control", dir) < 0 || !is_pipe(path))
		return false;
	return ddp_format(path, sizeof(path), "%s/nvidia-cuda-mps-control.pid", dir) < 0 ||
	       !is_left_behind(path);
}
