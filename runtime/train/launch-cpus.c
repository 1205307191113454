/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "launch-private.h"

struct place {
	int package, core, cpu;
};

static int read_topology(int cpu, const char *name)
{
	char path[128];
	FILE *file;
	int value = 0;

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, name);
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (fscanf(file, "%d", &value) != 1)
		value = 0;
	fclose(file);
	return value;
}

static int compare(const void *a, const void *b)
{
	const struct place *one = a, *two = b;

	if (one->package != two->package)
		return one->package < two->package ? -1 : 1;
	if (one->core != two->core)
		return one->core < two->core ? -1 : 1;
	return one->cpu - two->cpu;
}

/* Fill [places] with the CPUs of this process, those of a core together. Returns how many. */
static int list(struct place places[static CPU_SETSIZE])
{
	cpu_set_t set;
	int count = 0;

	if (sched_getaffinity(0, sizeof(set), &set) < 0)
		return 0;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET((size_t)cpu, &set))
			places[count++] = (struct place){read_topology(cpu, "physical_package_id"),
							 read_topology(cpu, "core_id"), cpu};
	qsort(places, (size_t)count, sizeof(*places), compare);
	return count;
}

int launch_cpus(void)
{
	cpu_set_t set;
	int count = sched_getaffinity(0, sizeof(set), &set) < 0 ? 1 : CPU_COUNT(&set);

	return count > 0 ? count : 1;
}

void launch_bind(int rank, int count)
{
	struct place places[CPU_SETSIZE];
	int cpus = list(places), first, end;
	cpu_set_t set;

	if (cpus == 0)
		return;
	first = (int)((long)rank * cpus / count);
	end = (int)((long)(rank + 1) * cpus / count);
	CPU_ZERO(&set);
	for (int i = first; i < end || i == first; i++)
		CPU_SET((size_t)places[i].cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
}
