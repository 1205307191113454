/* SPDX-License-Identifier: Apache-2.0 */
/* test_slurmctl.c - srun's requests to slurmctld, in clusters of tens of thousands of nodes */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#include "core/channel.h"
#include "core/format.h"
#include "core/nodelist.h"
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

/*
 * Creates slurmctld's records of 2 * [count] nodes. Returns a list of every second node, which
 * therefore has no ranges.
 */
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

/* A truncated list is an error. The plugin must not use it as the complete list. */
TEST(test_truncated_list)
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

/*
 * Numbers of calls of wrapped functions (linker option --wrap): comparisons of names, and numbers
 * parsed from lists.
 */
static unsigned long compared, parsed;

int __real_strcmp(const char *a, const char *b);
int __wrap_strcmp(const char *a, const char *b);
int __real_ddp_parse_number_n(const char *text, size_t n, uint64_t min, uint64_t max,
			      uint64_t *value);
int __wrap_ddp_parse_number_n(const char *text, size_t n, uint64_t min, uint64_t max,
			      uint64_t *value);

int __wrap_strcmp(const char *a, const char *b)
{
	compared++;
	return __real_strcmp(a, b);
}

int __wrap_ddp_parse_number_n(const char *text, size_t n, uint64_t min, uint64_t max,
			      uint64_t *value)
{
	parsed++;
	return __real_ddp_parse_number_n(text, n, min, max, value);
}

/* Returns the total number of these calls that srun makes for a step of [count] nodes. */
static unsigned long work_of(uint32_t count)
{
	char shards[DDP_LIST_SIZE], node[DDP_NODE_SIZE], *list = make_cluster(count, alike);

	asked = 0;
	compared = parsed = 0;
	ck_assert_int_eq(ddp_nodelist_count(list), count);
	ck_assert_int_eq(ddp_nodelist_nth(list, 0, node, sizeof(node)), 0);
	ck_assert_int_eq(ddp_ask_shards(list, shards, sizeof(shards)), 0);
	ck_assert_str_eq(shards, "4");
	ck_assert_uint_eq(asked, 1);
	free_cluster(list);
	ck_assert_uint_ge(compared, count);
	ck_assert_uint_ge(parsed, count);
	return compared + parsed;
}

/*
 * The cost per node is the same in clusters of 2,000 and 20,000 nodes. In an earlier release it
 * grew with the number of nodes.
 */
TEST(test_cost_per_node)
{
	unsigned long work = work_of(1000);

	ck_assert_uint_le(work, 10 * 1000);
	ck_assert_uint_le(work_of(10000), 10 * work);
}

UNIT_MAIN("slurmctl", NULL)
