/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_nodelist.c - Slurm's lists: nodes, tasks per node, ports, GRES. Each parser gets the whole
 * input
 */
#include "config.h"

#include "devices.h"
#include "endpoint.h"
#include "fuzz.h"
#include "nodelist.h"

/* Names contain no brackets. Every name of a valid list can be read. */
static void check_name(const char *list, size_t i, char *name, size_t size)
{
	char shorter[DDP_NODE_SIZE];
	size_t n;

	if (ddp_nodelist_nth(list, i, name, size) < 0) {
		name[0] = '\0';
		return;
	}
	n = strlen(name);
	HOLDS(n > 0 && n < size);
	HOLDS(!strpbrk(name, "[], \t\n"));
	HOLDS(ddp_nodelist_nth(list, i, shorter, n + 1) == 0);
	HOLDS(strcmp(shorter, name) == 0);
	HOLDS(ddp_nodelist_nth(list, i, shorter, n) < 0);
}

static void check_nodes(const char *list)
{
	long count = ddp_nodelist_count(list);
	char name[DDP_NODE_SIZE], wide[2048];

	HOLDS(count >= -1 && count <= 1000000 && count != 0);
	check_name(list, 0, name, sizeof(name));
	if (count < 0)
		return;
	HOLDS(ddp_nodelist_nth(list, (size_t)count, name, sizeof(name)) < 0);
	for (long i = 0; i < count && i < 64; i++) {
		/* If the buffer is large enough, every name of a valid list must be found. */
		if (strlen(list) < sizeof(wide))
			HOLDS(ddp_nodelist_nth(list, (size_t)i, wide, sizeof(wide)) == 0);
		check_name(list, (size_t)i, name, sizeof(name));
		check_name(list, (size_t)(count - 1 - i), name, sizeof(name));
	}
}

/* A list that is written out has the names in order, separated by commas. */
static void check_written_out(const char *list)
{
	long count = ddp_nodelist_count(list);
	char out[64 * DDP_NODE_SIZE] = "", name[DDP_NODE_SIZE], again[DDP_NODE_SIZE];
	size_t used = 0;

	if (count < 1 || count > 64)
		return;
	for (long i = 0; i < count; i++) {
		if (ddp_nodelist_nth(list, (size_t)i, name, sizeof(name)) < 0)
			return;
		used += (size_t)snprintf(out + used, sizeof(out) - used, i ? ",%s" : "%s", name);
	}
	HOLDS(ddp_nodelist_count(out) == count);
	for (long i = 0; i < count; i++) {
		HOLDS(ddp_nodelist_nth(list, (size_t)i, name, sizeof(name)) == 0);
		HOLDS(ddp_nodelist_nth(out, (size_t)i, again, sizeof(again)) == 0);
		HOLDS(strcmp(name, again) == 0);
	}
}

static void check_tasks(const char *text)
{
	int uneven = ddp_tasks_uneven(text);
	char *twice;

	HOLDS(uneven >= -1 && uneven <= 1);
	if (uneven < 0)
		return;
	HOLDS(strspn(text, "0123456789,(x)") == strlen(text));
	/*
	 * The result is the same if every node appears twice. With another number of nodes, the
	 * list is uneven.
	 */
	twice = malloc(2 * strlen(text) + 32);
	HOLDS(twice);
	sprintf(twice, "%s,%s", text, text);
	HOLDS(ddp_tasks_uneven(twice) == uneven);
	sprintf(twice, "%s,4294967295,1", text);
	HOLDS(ddp_tasks_uneven(twice) == 1);
	free(twice);
}

static void check_ports(const char *text)
{
	struct ddp_port_range range = {0, 0};
	struct ddp_message message;
	uint32_t ports[8];
	size_t n = ddp_ports_reserved(text, ports, 8);

	HOLDS(n <= 8);
	for (size_t i = 0; i < n; i++)
		HOLDS(ports[i] >= 1 && ports[i] <= 65535);
	if (ddp_ports_parse(text, "ports", &range, &message) == 0) {
		HOLDS(range.lo >= 1 && range.lo <= range.hi && range.hi <= 65535);
		HOLDS(n > 0 && ports[0] == range.lo);
	}
}

static void check_gres(const char *text)
{
	uint32_t each = ddp_gres_shards_per_gpu(text);

	HOLDS(each == 0 || ddp_gres_has_shards(text));
	HOLDS(each == 0 || strstr(text, "gpu:") || strstr(text, "gpu="));
}

/* Parses the text as the value of SLURM_GPU_BIND, and as a list of devices. */
static void check_devices(const char *text, size_t size)
{
	char *bind = malloc(size + 32), *list = malloc(size + 32), share[16];
	char *const step[] = {"CUDA_VISIBLE_DEVICES=0,1", "SLURM_SHARDS_ON_NODE=4", NULL};
	char *const task[] = {bind, list, NULL};
	struct ddp_device_facts facts = {.step_env = step, .task_env = task, .shards_per_gpu = 4};
	struct ddp_devices d;

	HOLDS(bind && list);
	sprintf(bind, "SLURMD_TRES_BIND=%s", text);
	sprintf(list, "CUDA_VISIBLE_DEVICES=%s", text);
	for (facts.local_size = 1; facts.local_size < 4; facts.local_size++) {
		facts.local_id = facts.local_size - 1;
		ddp_devices_decide(&facts, &d);
		HOLDS(d.device < (int64_t)d.visible && d.device >= -1);
		HOLDS((d.device >= 0) == (d.visible > 0));
		HOLDS(d.neighbours <= facts.local_size);
		HOLDS(d.share_num <= d.share_den);
		HOLDS((d.share_den > 0) == (d.share_reason == DDP_SHARE_KNOWN));
		HOLDS((ddp_share_print(&d, share, sizeof(share)) == 0) == (d.share_den > 0));
	}
	free(bind);
	free(list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_text(data, size);

	check_nodes(text);
	check_written_out(text);
	check_tasks(text);
	check_ports(text);
	check_gres(text);
	check_devices(text, strlen(text));
	free(text);
	return 0;
}
