/* SPDX-License-Identifier: Apache-2.0 */
/* test_slurmctl.c - srun's requests to slurmctld, also in clusters of tens of thousands of nodes */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/slurmdb.h>

#include "launch/channel.h"
#include "launch/format.h"
#include "launch/nodelist.h"
#include "slurmctl.h"
#include "unit.h"

static node_info_msg_t cluster;
static unsigned asked, unfreed; /* requests, and answers that are not freed yet */

int slurm_load_node(time_t since, node_info_msg_t **answer, uint16_t flags)
{
	(void)since;
	(void)flags;
	asked++;
	unfreed++;
	*answer = &cluster;
	return SLURM_SUCCESS;
}

int slurm_load_node_single(node_info_msg_t **answer, char *name, uint16_t flags)
{
	(void)name;
	return slurm_load_node(0, answer, flags);
}

void slurm_free_node_info_msg(node_info_msg_t *answer)
{
	ck_assert_ptr_eq(answer, &cluster);
	unfreed--;
}

static slurm_job_info_t jobs[] = {{.job_id = 6, .end_time = 1},
				  {.job_id = 7, .end_time = 99, .tres_per_node = "gres:shard:2"}};

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
int slurm_load_job(job_info_msg_t **answer, slurm_step_id_t id, uint16_t flags)
#else
int slurm_load_job(job_info_msg_t **answer, uint32_t id, uint16_t flags)
#endif
{
	static job_info_msg_t all = {.job_array = jobs, .record_count = 2};

	(void)id;
	(void)flags;
	unfreed++;
	*answer = &all;
	return SLURM_SUCCESS;
}

void slurm_free_job_info_msg(job_info_msg_t *answer)
{
	ck_assert_ptr_eq(answer->job_array, jobs);
	unfreed--;
}

/* srun's own data about nodes. An srun for another cluster has working_cluster_rec. */
slurmdb_cluster_rec_t *working_cluster_rec;
char *slurm_conf_get_address(const char *node);
int slurm_conf_check_addr(const char *node, bool *dynamic);
void slurm_xfree(void **memory);

char *slurm_conf_get_address(const char *node)
{
	return strdup(strcmp(node, "n1") == 0 ? "10.0.0.9" : node);
}

int slurm_conf_check_addr(const char *node, bool *dynamic)
{
	(void)node;
	*dynamic = false;
	return SLURM_SUCCESS;
}

void slurm_xfree(void **memory)
{
	free(*memory);
}

/* If srun knows the address of a node, slurmctld is not asked, which has no nodes of other clusters. */
TEST(test_known_address)
{
	char text[DDP_NAME_SIZE];

	asked = 0;
	ck_assert_int_eq(ddp_ask_address("n1", text, sizeof(text)), 0);
	ck_assert_str_eq(text, "10.0.0.9");
	ck_assert_int_eq(ddp_ask_address("n2", text, sizeof(text)), 0);
	ck_assert_str_eq(text, "");
	ck_assert_uint_eq(asked, 0);
}

/* Of several records in an answer, that of the requested job or node counts. Answers are freed. */
TEST(test_answers)
{
	node_info_t nodes[] = {{.name = "n10", .node_addr = "10.0.0.10", .gres = "gpu:1,shard:2"},
			       {.name = "n1", .node_addr = "10.0.0.1", .gres = "gpu:1,shard:4"}};
	slurmdb_cluster_rec_t other = {0};
	struct ddp_job job = {0};
	char text[DDP_NAME_SIZE];
	uint32_t shards;

	cluster = (node_info_msg_t){.node_array = nodes, .record_count = 2};
	working_cluster_rec = &other;
	ck_assert_int_eq(ddp_ask_address("n1", text, sizeof(text)), 0);
	ck_assert_str_eq(text, "10.0.0.1");
	working_cluster_rec = NULL;
	ck_assert_int_eq(ddp_ask_shards("n1", &shards), 0);
	ck_assert_uint_eq(shards, 4);
	ck_assert_int_eq(ddp_ask_job(7, &job), 0);
	ck_assert(job.end == 99 && job.has_shards);
	ck_assert_int_eq(ddp_ask_job(8, &job), -1);
	ck_assert_uint_eq(unfreed, 0);
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

TEST(test_different_numbers)
{
	char *list = make_cluster(300, differ);
	uint32_t shards = 1;

	ck_assert_int_eq(ddp_ask_shards(list, &shards), 1);
	ck_assert_uint_eq(shards, 0);
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
	char node[DDP_NODE_SIZE], *list = make_cluster(count, alike);
	uint32_t shards;

	asked = 0;
	compared = parsed = 0;
	ck_assert_int_eq(ddp_nodelist_count(list), count);
	ck_assert_int_eq(ddp_nodelist_nth(list, 0, node, sizeof(node)), 0);
	ck_assert_int_eq(ddp_ask_shards(list, &shards), 0);
	ck_assert_uint_eq(shards, 4);
	ck_assert_uint_eq(asked, 1);
	ck_assert_uint_eq(unfreed, 0);
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
