/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_slurmctl.c - what srun makes of slurmctld's answers about a cluster of tens of thousands of nodes
 */
#include "config.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#include "core/channel.h"
#include "slurmctl.h"
#include "unit.h"

static node_info_msg_t cluster;
static unsigned asked;

int slurm_load_node(time_t since, node_info_msg_t **answer, uint16_t flags)
{
	(void)since;
	(void)flags;
	asked++;
	*answer = &cluster;
	return SLURM_SUCCESS;
}

void slurm_free_node_info_msg(node_info_msg_t *answer)
{
	ck_assert_ptr_eq(answer, &cluster);
}

/* Every second of [2 * count] nodes, so the list has a range for each, and what slurmctld knows. */
static char *make_cluster(uint32_t count, const char *const gres[2])
{
	char *list = malloc(count * 8 + 16), *end = list;
	node_info_t *nodes = calloc(2 * (size_t)count, sizeof(*nodes));

	ck_assert(list && nodes);
	for (uint32_t i = 0; i < 2 * count; i++) {
		ck_assert_int_gt(asprintf(&nodes[i].name, "n%u", i), 0);
		nodes[i].gres = (char *)(uintptr_t)gres[i / 2 % 2];
		if (i % 2 == 0)
			end += sprintf(end, i ? ",%u" : "n[%u", i);
	}
	strcpy(end, "]");
	cluster = (node_info_msg_t){.node_array = nodes, .record_count = 2 * count};
	return list;
}

static void free_cluster(char *list)
{
	for (uint32_t i = 0; i < cluster.record_count; i++)
		free(cluster.node_array[i].name);
	free(cluster.node_array);
	free(list);
}

static const char *const alike[2] = {"gpu:2,shard:8", "gpu:2,shard:8"};
static const char *const differ[2] = {"gpu:2,shard:8", "gpu:2,shard:16"};

/* A list that is cut would be taken for a whole one, and the nodes after it for unknown. */
TEST(test_cut)
{
	char shards[DDP_LIST_SIZE] = "x", *list = make_cluster(300, differ);

	ck_assert_int_eq(ddp_ask_shards(list, shards, sizeof(shards)), 0);
	ck_assert_int_eq(strncmp(shards, "n0:4,n2:8,n4:4,n6:8,", 20), 0);
	free_cluster(list);
	list = make_cluster(1000, differ);
	ck_assert_int_eq(ddp_ask_shards(list, shards, sizeof(shards)), 1);
	ck_assert_str_eq(shards, "");
	free_cluster(list);
}

/* CPU time, not the clock's; looking up each node in the whole list took 20 s of it. */
TEST(test_large)
{
	char shards[DDP_LIST_SIZE], *list = make_cluster(40000, alike);
	clock_t began = clock();

	asked = 0;
	ck_assert_int_eq(ddp_ask_shards(list, shards, sizeof(shards)), 0);
	ck_assert_str_eq(shards, "4");
	ck_assert_uint_eq(asked, 1);
	ck_assert_double_lt((double)(clock() - began) / CLOCKS_PER_SEC, 3);
	free_cluster(list);
}

UNIT_MAIN("slurmctl", NULL)
