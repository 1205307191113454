/* SPDX-License-Identifier: Apache-2.0 */
/* command.c - run a child process with a time limit, and read its output from pipes */
#include "config.h"

#include "base/command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/watch.h"

static void __attribute__((noreturn))
run_child(char *const argv[], const struct ddp_command *how, int out, int err, pid_t parent)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	sigset_t none;

	/* If the parent ends, end this process, too, because no process would wait for it. */
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	setpgid(0, 0);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (how->prepare)
		how->prepare();
	if (getppid() == parent && null >= 0 && dup2(null, STDIN_FILENO) >= 0 &&
	    dup2(out, STDOUT_FILENO) >= 0 && dup2(err, STDERR_FILENO) >= 0)
		execvp(argv[0], argv);
	_exit(127);
}

/* Read the available bytes. Drop bytes beyond [most], so that the child's writes never block. */
static void read_available(struct pollfd *from, size_t most, struct ddp_text *text)
{
	char bytes[16384];
	ssize_t n;

	if (from->fd < 0 || !from->revents)
		return;
	n = read(from->fd, bytes, sizeof(bytes));
	if (n > 0 && (most == 0 || text->size + (size_t)n <= most))
		ddp_text_put(text, bytes, (size_t)n);
	if (n == 0 || (n < 0 && errno != EINTR))
		from->fd = -1;
}

/* Read both pipes until [end]. Returns whether both are closed. */
static bool read_until(struct pollfd from[2], double end, size_t most,
		       struct ddp_command_said *result)
{
	double left;

	while ((from[0].fd >= 0 || from[1].fd >= 0) && (left = end - ddp_seconds()) > 0) {
		if (poll(from, 2, (int)(left * 1e3) + 1) < 0 && errno != EINTR)
			break;
		read_available(&from[0], most, &result->out);
		read_available(&from[1], most, &result->err);
	}
	return from[0].fd < 0 && from[1].fd < 0;
}

/*
 * Wait for the child. After the time limit, send SIGTERM, and after the grace time SIGKILL. On
 * SIGTERM, srun cancels its step.
 */
static int end_child(pid_t child, struct pollfd from[2], const struct ddp_command *how,
		     struct ddp_command_said *result)
{
	enum { PERIOD = 5000 };
	double end = ddp_seconds() + how->grace;
	int status = 0;
	pid_t ended;

	if (result->timed_out) {
		kill(-child, SIGTERM);
		(void)read_until(from, end, how->most, result);
	}
	while ((ended = waitpid(child, &status, WNOHANG)) == 0 || (ended < 0 && errno == EINTR)) {
		if (ddp_seconds() >= end)
			kill(-child, SIGKILL);
		usleep(PERIOD);
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void close_both(const int fds[2])
{
	close(fds[0]);
	close(fds[1]);
}

void ddp_command_run(char *const argv[], const struct ddp_command *how,
		     struct ddp_command_said *result)
{
	double end = ddp_seconds() + how->limit;
	int out[2] = {-1, -1}, err[2] = {-1, -1};
	pid_t child = -1, parent = getpid();

	*result = (struct ddp_command_said){.status = 127};
	if (pipe2(out, O_CLOEXEC) == 0 && (how->merged || pipe2(err, O_CLOEXEC) == 0))
		child = fork();
	if (child == 0)
		run_child(argv, how, out[1], how->merged ? out[1] : err[1], parent);
	if (child > 0) {
		struct pollfd from[2] = {{.fd = out[0], .events = POLLIN},
					 {.fd = err[0], .events = POLLIN}};

		/* both processes set the child's process group, because either may run first */
		setpgid(child, child);
		close(out[1]);
		close(err[1]);
		out[1] = err[1] = -1;
		result->timed_out = !read_until(from, end, how->most, result);
		result->status = end_child(child, from, how, result);
	}
	close_both(out);
	close_both(err);
	ddp_text_add(&result->out, "%s", "");
	ddp_text_add(&result->err, "%s", "");
}

void ddp_command_said_free(struct ddp_command_said *result)
{
	ddp_text_free(&result->out);
	ddp_text_free(&result->err);
}
