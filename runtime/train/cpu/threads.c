/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many threads a rank may use: what OMP_NUM_THREADS says, which srun --ddp and torchrun set;
 * else its CPUs, divided among the ranks of the node that may run on some of them too.
 */
#include "config.h"

#include <sched.h>
#include <stdlib.h>

#include "base/error.h"
#include "engine-private.h"

struct seat {
	int node;
	cpu_set_t cpus;
};

static int sharers(const struct seat *seats, int count, const struct seat *mine)
{
	int found = 0;

	for (int i = 0; i < count; i++) {
		cpu_set_t both;

		CPU_AND(&both, &seats[i].cpus, &mine->cpus);
		found += seats[i].node == mine->node && CPU_COUNT(&both) > 0;
	}
	return found > 0 ? found : 1;
}

/* The number that OMP_NUM_THREADS begins with, 0: none. */
static int told_threads(void)
{
	const char *text = getenv("OMP_NUM_THREADS");
	long number = text ? strtol(text, NULL, 10) : 0;

	return number > 0 && number <= CPU_SETSIZE ? (int)number : 0;
}

int engine_threads(struct ddp *ddp, int *threads, struct ddp_error *error)
{
	const struct ddp_world *world = ddp_world(ddp);
	struct seat mine = {.node = world->node_rank};
	struct seat *seats = calloc((size_t)world->size, sizeof(*seats));
	int status, told = told_threads(), cpus;

	if (!seats)
		return ddp_error_set(error, DDP_ERR_MEMORY, "CPU engine: out of memory");
	CPU_ZERO(&mine.cpus);
	/* More CPUs than fit: one thread, until somebody says --threads. */
	if (sched_getaffinity(0, sizeof(mine.cpus), &mine.cpus) < 0)
		CPU_SET(0, &mine.cpus);
	status = ddp_all_gather(ddp, &mine, seats, sizeof(mine));
	if (status < 0) {
		status = ddp_error_set(error, status, "%s", ddp_error(ddp));
		goto out;
	}
	cpus = CPU_COUNT(&mine.cpus) / sharers(seats, world->size, &mine);
	*threads = cpus > 1 ? cpus : 1;
	if (told > 0)
		*threads = told;
out:
	free(seats);
	return status;
}
