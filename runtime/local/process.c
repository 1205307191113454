/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "group-private.h"

enum { WORD_BITS = 64, START_FIELD = 22, STAT_SIZE = 1024 };

/* --- CPUs --------------------------------------------------------------------------------- */

void ddp_cpus_get(uint64_t cpus[DDP_CPU_WORDS])
{
	size_t bytes = DDP_CPU_WORDS * sizeof(*cpus);

	/* A machine with more CPUs than that has enough. */
	memset(cpus, 0, bytes);
	if (sched_getaffinity(0, bytes, (cpu_set_t *)(void *)cpus) < 0)
		memset(cpus, 0xff, bytes);
}

static bool is_within(const uint64_t *cpus, const uint64_t *others)
{
	for (int i = 0; i < DDP_CPU_WORDS; i++)
		if (cpus[i] & ~others[i])
			return false;
	return true;
}

static int count_cpus(const uint64_t *cpus)
{
	int count = 0;

	for (int i = 0; i < DDP_CPU_WORDS; i++)
		count += __builtin_popcountll(cpus[i]);
	return count;
}

/* For each member's CPUs, and for all of them: are more members bound to them than they are? */
bool ddp_cpus_enough(struct ddp_slot *const *slots, int size)
{
	uint64_t all[DDP_CPU_WORDS] = {0};

	for (int m = 0; m < size; m++) {
		int bound = 0;

		for (int i = 0; i < DDP_CPU_WORDS; i++)
			all[i] |= slots[m]->cpus[i];
		for (int other = 0; other < size; other++)
			bound += is_within(slots[other]->cpus, slots[m]->cpus);
		if (bound > count_cpus(slots[m]->cpus))
			return false;
	}
	return size <= count_cpus(all);
}

/* --- Processes ---------------------------------------------------------------------------- */

/* The name, field 2, may hold anything: fields are counted from its last parenthesis on. */
static uint64_t parse_start(const char *stat)
{
	const char *next = strrchr(stat, ')');

	if (!next || next[1] != ' ' || next[2] == 'Z' || next[2] == 'X')
		return 0;
	for (int field = 2; field < START_FIELD && next; field++)
		next = strchr(next + 1, ' ');
	return next ? strtoull(next, NULL, 10) : 0;
}

uint64_t ddp_process_start(int pid)
{
	char path[32], stat[STAT_SIZE];
	ssize_t length;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	length = read(fd, stat, sizeof(stat) - 1);
	close(fd);
	if (length <= 0)
		return 0;
	stat[length] = '\0';
	return parse_start(stat);
}

uint64_t ddp_process_pids(void)
{
	struct stat status;

	return stat("/proc/self/ns/pid", &status) == 0 ? (uint64_t)status.st_ino : 0;
}
