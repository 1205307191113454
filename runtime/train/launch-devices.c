/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch-devices.c - GPUs of this machine, and which of them, or what part of one, a rank has
 *
 * A process that has asked CUDA for anything must not fork: so a child asks, and ends.
 */
#include "config.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine.h"
#include "launch-private.h"

#define VISIBLE "CUDA_VISIBLE_DEVICES"
#define SHARE "DDP_SHARE"

enum { PATIENCE = 60 }; /* seconds for a driver that has to wake its cards */

/* In a job without GPUs those of the node belong to others. */
static bool may_use(void)
{
	const char *job = getenv("SLURM_JOB_ID");

	return getenv(VISIBLE) || !job || !*job;
}

static int ask_engine(void)
{
	const struct engine_class *class;

	if (!engine_has_driver(NULL))
		return 0;
	class = engine_find("cuda", NULL, NULL);
	if (!class)
		return 0;
	return class->devices ? class->devices(NULL, 0, NULL) : 1;
}

static void tell(int fd)
{
	int count;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	count = ask_engine();
	_exit(write(fd, &count, sizeof(count)) == sizeof(count) ? 0 : 1);
}

/* What the child says; one that crashes has no GPU, nor has one that hangs. */
static int hear(int fd, pid_t child)
{
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	bool hangs = poll(&ready, 1, PATIENCE * 1000) == 0;
	int count = 0;

	if (hangs) {
		fprintf(stderr,
			"ddp-train: the driver did not say within %d s how many GPUs there are: "
			"taken for none\n",
			PATIENCE);
		kill(child, SIGKILL);
	}
	if (hangs || read(fd, &count, sizeof(count)) != sizeof(count) || count < 0)
		count = 0;
	/* Who hangs in a driver may not even be killed. */
	waitpid(child, NULL, hangs ? WNOHANG : 0);
	return count;
}

/* Entry [index] of the list at [list], counted around; its length, or 0. */
static size_t entry(const char *list, int index, const char **start)
{
	for (; index > 0; index--) {
		list += strcspn(list, ",");
		if (!*list++)
			return 0;
	}
	*start = list;
	return strcspn(list, ",");
}

/* How many entries a list of MIG slices has, of which a process can use one alone; 0: no such. */
static int count_slices(void)
{
	const char *list = getenv(VISIBLE), *start;
	int count = 0;

	if (!list || !strstr(list, "MIG-"))
		return 0;
	while (entry(list, count, &start) > 0)
		count++;
	return count;
}

int launch_devices(void)
{
	int ends[2], count, slices = count_slices();
	pid_t child;

	if (!may_use() || pipe(ends) < 0)
		return 0;
	fflush(NULL);
	child = fork();
	if (child == 0)
		tell(ends[1]);
	close(ends[1]);
	count = child < 0 ? 0 : hear(ends[0], child);
	close(ends[0]);
	return count > 0 && slices > 0 ? slices : count;
}

bool launch_knows_share(double *share)
{
	const char *mine = getenv(SHARE);
	char *end;

	*share = 1;
	if (!mine || !*mine)
		return true;
	*share = strtod(mine, &end);
	if (!*end && *share > 0 && *share <= 1)
		return true;
	fprintf(stderr,
		"ddp-train: " SHARE
		"=%.100s is not a part of a GPU, more than 0 and at most 1; set "
		"it right or unset it\n",
		mine);
	return false;
}

void launch_share_device(int rank, int count, int devices, double share)
{
	int ranks = devices > 0 ? count / devices + (rank % devices < count % devices) : 1;
	char text[32];

	if (ranks < 2)
		return;
	snprintf(text, sizeof(text), "%.12f", share / ranks);
	setenv(SHARE, text, 1);
}

void launch_show_device(int rank)
{
	int slices = count_slices();
	const char *start = NULL;
	size_t length = slices > 0 ? entry(getenv(VISIBLE), rank % slices, &start) : 0;
	char *own = length > 0 ? strndup(start, length) : NULL;

	if (own)
		setenv(VISIBLE, own, 1);
	free(own);
}
