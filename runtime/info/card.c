/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "card.h"
#include "mps.h"

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

/*
 * Slurm's number of [device] on the node, which is the same for all its tasks: CUDA_VISIBLE_DEVICES need not
 * be, since it may count what this task sees.
 */
static void fill_slot(struct info_card *card)
{
	const char *list = getenv("SLURM_STEP_GPUS");

	if (!list || card->device < 0 || visible_devices(list) != card->visible)
		return;
	for (int i = 0; i < card->device && *list; i++) {
		list += strcspn(list, ",");
		list += *list == ',';
	}
	snprintf(card->slot, sizeof(card->slot), "%.*s", (int)strcspn(list, ","), list);
}

static void fill_mps(struct info_card *card)
{
	const char *directory = ddp_mps_directory(getenv(DDP_MPS_PIPE_DIRECTORY));

	card->mps = (int32_t)ddp_mps_look(directory);
	card->threads = ddp_mps_threads(getenv(DDP_MPS_THREADS));
	snprintf(card->mps_directory, sizeof(card->mps_directory), "%s", directory);
	ddp_mps_memory(getenv(DDP_MPS_MEMORY), card->device, card->memory_limit,
		       sizeof(card->memory_limit));
}

/* ddp_init() has refused what is neither on nor off. */
static bool is_apart(void)
{
	const char *local = getenv("DDP_LOCAL");

	return local && strcmp(local, "off") == 0;
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
		.client = -1,
		.apart = is_apart(),
		.first = -1,
		.share = world->share,
	};
	snprintf(card->host, sizeof(card->host), "%.63s", world->host);
	snprintf(card->release, sizeof(card->release), "%s", PACKAGE_VERSION);
	fill_cpus(card);
	fill_endpoint(card);
	if (world->device < 0)
		return;
	fill_slot(card);
	fill_mps(card);
	info_card_device(card, world->device);
}
