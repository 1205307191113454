/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "card.h"

enum { MASK_BITS = 1024 };

static bool has(const uint64_t mask[16], int cpu)
{
	return cpu < MASK_BITS && (mask[cpu / 64] >> (cpu % 64) & 1);
}

void info_cpu_list(const uint64_t mask[16], char *text, size_t size)
{
	size_t used = 0;

	text[0] = '\0';
	for (int cpu = 0; cpu < MASK_BITS; cpu++) {
		char range[32];
		int last = cpu;

		if (!has(mask, cpu))
			continue;
		while (has(mask, last + 1))
			last++;
		snprintf(range, sizeof(range), last > cpu ? "%s%d-%d" : "%s%d", used ? "," : "",
			 cpu, last);
		if (used + strlen(range) + 4 >= size) {
			snprintf(text + used, size - used, "...");
			return;
		}
		used += (size_t)snprintf(text + used, size - used, "%s", range);
		cpu = last;
	}
}

static void fill_cpus(struct info_card *card)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	if (sched_getaffinity(0, sizeof(set), &set) < 0)
		return;
	card->cpus = CPU_COUNT(&set);
	for (int cpu = 0; cpu < MASK_BITS; cpu++)
		if (CPU_ISSET((size_t)cpu, &set))
			card->cpu_mask[cpu / 64] |= UINT64_C(1) << (cpu % 64);
	info_cpu_list(card->cpu_mask, card->cpu_list, sizeof(card->cpu_list));
}

/* How many devices CUDA_VISIBLE_DEVICES lists; -1 where it is not set. */
static int visible_devices(const char *list)
{
	int count = 0;

	if (!list)
		return -1;
	for (const char *at = list; *at; at++)
		count += *at != ',' && (at == list || at[-1] == ',');
	return strcmp(list, "-1") == 0 || strcmp(list, "NoDevFiles") == 0 ? 0 : count;
}

static void fill_endpoint(struct info_card *card)
{
	const char *address = getenv("MASTER_ADDR");
	const char *port = getenv("MASTER_PORT");

	if (address && *address && port && *port)
		snprintf(card->endpoint, sizeof(card->endpoint), "%.80s:%.8s", address, port);
}

void info_card_fill(struct info_card *card, const struct ddp_world *world)
{
	*card = (struct info_card){
		.rank = world->rank,
		.node_rank = world->node_rank,
		.local_rank = world->local_rank,
		.local_size = world->local_size,
		.pid = (int32_t)getpid(),
		.visible = visible_devices(getenv("CUDA_VISIBLE_DEVICES")),
		.device = world->device,
		.reached = -1,
		.share = world->share,
	};
	snprintf(card->host, sizeof(card->host), "%.63s", world->host);
	snprintf(card->release, sizeof(card->release), "%s", PACKAGE_VERSION);
	fill_cpus(card);
	fill_endpoint(card);
	if (world->device >= 0)
		info_card_device(card, world->device);
}
