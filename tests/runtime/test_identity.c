/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <limits.h>
#include <stdio.h>

#include "identity/identity.h"
#include "unit.h"

/*
 * Each environment of this test is a string of words NAME=VALUE. If a name occurs twice, its first
 * word counts. An empty value means unset. So a row of a table puts its changes in front of one of
 * the environments below.
 */

/* Variables that srun sets for task 3 of 4, on two nodes. */
#define STEP                                                                                \
	" SLURM_JOB_ID=42 SLURM_STEP_ID=7 SLURM_PROCID=3 SLURM_STEP_NUM_TASKS=4"            \
	" SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=n[1-2]" \
	" SLURM_STEP_TASKS_PER_NODE=2(x2) SLURM_GTIDS=2,3 SLURMD_NODENAME=n2"               \
	" SLURM_SRUN_COMM_PORT=40123 SLURM_CLUSTER_NAME=tux SLURM_NTASKS=9 SLURM_NPROCS=9"

/* Variables that the plugin adds. */
#define CONTRACT                                                                        \
	" DDP_RANK=3 DDP_SIZE=4 DDP_LOCAL_RANK=1 DDP_LOCAL_SIZE=2 DDP_NODE_RANK=1"      \
	" GROUP_WORLD_SIZE=2 DDP_JOB=tux.42.7 DDP_ATTEMPT=0"                            \
	" DDP_RENDEZVOUS=/nfs/u/.ddp/tux-42.7.0-0123456789abcdef"                       \
	" RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 NODE_RANK=1 GROUP_RANK=1" \
	" TORCHELASTIC_RUN_ID=tux.42.7 MASTER_ADDR=n1 MASTER_PORT=61234"

/* Variables that ddp-run adds. */
#define ATTEMPT                                                     \
	" TORCHELASTIC_RESTART_COUNT=1 TORCHELASTIC_MAX_RESTARTS=3" \
	" TORCHELASTIC_ERROR_FILE=/e DDP_HEARTBEAT=/nfs/u/.ddp/x/beat-3"

/* Variables that torchrun sets for the last worker. There are two agents with two workers each. */
#define TORCHRUN                                                                             \
	" RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 GROUP_RANK=1"                  \
	" GROUP_WORLD_SIZE=2 ROLE_RANK=3 MASTER_ADDR=h1 MASTER_PORT=29500"                   \
	" TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_MAX_RESTARTS=3" \
	" TORCHELASTIC_USE_AGENT_STORE=True"

/* Variables of the batch script of job 43, which is in no step. */
#define BATCH                                                                           \
	" SLURM_JOB_ID=43 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_NTASKS=4" \
	" SLURM_GTIDS=0 SLURMD_NODENAME=n1 SLURM_CLUSTER_NAME=tux"

/* Changes to STEP: the step has only one task. */
#define ONE                                                                                   \
	" SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_GTIDS=0" \
	" SLURM_STEP_NUM_NODES=1 SLURM_STEP_TASKS_PER_NODE=1"

/* Changes to STEP: two tasks on each of three nodes, and one on the fourth. */
#define UNEVEN " SLURM_STEP_NUM_TASKS=7 SLURM_STEP_NUM_NODES=4 SLURM_STEP_TASKS_PER_NODE=2(x3),1"

/* Changes to STEP: the step is the second component of a heterogeneous job. */
#define COMPONENTS                                                                              \
	" SLURM_HET_SIZE=2 SLURM_JOB_NODELIST_HET_GROUP_0=n3 SLURM_JOB_NUM_NODES_HET_GROUP_0=1" \
	" SLURM_JOB_NODELIST_HET_GROUP_1=n[1-2] SLURM_JOB_NUM_NODES_HET_GROUP_1=2"

/* Changes to TORCHRUN: there is only one worker. */
#define ONE_WORKER                                                          \
	" RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 GROUP_RANK=0" \
	" GROUP_WORLD_SIZE=1 TORCHELASTIC_ERROR_FILE=/tmp/t_ab/none_c/attempt_0/0/e"

/* Changes to TORCHRUN: torchrun --virtual-local-rank. */
#define VIRTUAL " LOCAL_RANK=0 TORCHELASTIC_ERROR_FILE=/tmp/t_ab/none_c/attempt_0/1/e"

/* Variables that a user sets by hand, in a shell for each rank. */
#define BY_HAND                                                \
	" RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2" \
	" MASTER_ADDR=h1 MASTER_PORT=12345"

static const struct ddp_surroundings around = {
	.hostname = "laptop", .directory = "/home/u", .process = 4711, .parent = 99};

static int read_text(const char *text, const struct ddp_surroundings *surroundings,
		     struct ddp_identity *identity, struct ddp_error *error)
{
	struct unit_words words;

	ddp_error_clear(error);
	memset(identity, 0x55, sizeof(*identity));
	return ddp_identity_read(unit_words(&words, text), surroundings, identity, error);
}

/*
 * Writes "source rank/size local_rank/local_size node_rank/node_count attempt end_time" to [text].
 */
static void describe(const struct ddp_identity *id, char *text, size_t size)
{
	snprintf(text, size, "%s %d/%d %d/%d %d/%d %d %lld", ddp_source_name(id->source), id->rank,
		 id->size, id->local_rank, id->local_size, id->node_rank, id->node_count,
		 id->attempt, (long long)id->end_time);
}

static const struct {
	const char *name, *env, *who;
} good[] = {
	/* --- srun --ddp --- */
	{"the plugin's contract", CONTRACT STEP, "srun --ddp or ddp-exec 3/4 1/2 1/2 0 0"},
	{"attempt and end", "DDP_END_TIME=1800000000 DDP_ATTEMPT=2" CONTRACT STEP,
	 "srun --ddp or ddp-exec 3/4 1/2 1/2 2 1800000000"},
	{"the plugin's end time counts more than Slurm's",
	 "DDP_END_TIME=17 SLURM_JOB_END_TIME=18" CONTRACT STEP,
	 "srun --ddp or ddp-exec 3/4 1/2 1/2 0 17"},
	{"a container that hides Slurm's variables", CONTRACT,
	 "srun --ddp or ddp-exec 3/4 1/2 1/2 0 0"},
	{"uneven: the only one on the last of three nodes",
	 "DDP_RANK=4 DDP_SIZE=5 DDP_LOCAL_RANK=0 DDP_LOCAL_SIZE=1 DDP_NODE_RANK=2"
	 " GROUP_WORLD_SIZE=3 RANK=4 WORLD_SIZE=5" CONTRACT,
	 "srun --ddp or ddp-exec 4/5 0/1 2/3 0 0"},
	{"a component of a heterogeneous job, with its own job id",
	 "DDP_JOB=tux.43.7 SLURM_HET_SIZE=2 SLURM_JOB_ID_HET_GROUP_0=42"
	 " SLURM_JOB_ID_HET_GROUP_1=43" CONTRACT STEP,
	 "srun --ddp or ddp-exec 3/4 1/2 1/2 0 0"},
	{"a job's name set by the user", "DDP_JOB=test" CONTRACT STEP,
	 "srun --ddp or ddp-exec 3/4 1/2 1/2 0 0"},
	{"srun --ddp inside a worker of torchrun",
	 "TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_MAX_RESTARTS=3" CONTRACT STEP,
	 "srun --ddp or ddp-exec 3/4 1/2 1/2 0 0"},
	{"MPI with the same rank", "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4" CONTRACT STEP,
	 "srun --ddp or ddp-exec 3/4 1/2 1/2 0 0"},

	/* --- srun --- */
	{"plain srun", STEP, "srun 3/4 1/2 1/2 0 0"},
	{"requeued, with an end", "SLURM_RESTART_COUNT=2 SLURM_JOB_END_TIME=1800000000" STEP,
	 "srun 3/4 1/2 1/2 2 1800000000"},
	{"one task", ONE STEP, "srun 0/1 0/1 0/1 0 0"},
	{"uneven, by the list of counts",
	 "SLURM_GTIDS= SLURM_PROCID=6 SLURM_LOCALID=0"
	 " SLURM_NODEID=3" UNEVEN STEP,
	 "srun 6/7 0/1 3/4 0 0"},
	{"the same, in the middle of its first entry",
	 "SLURM_GTIDS= SLURM_PROCID=5 SLURM_NODEID=2" UNEVEN STEP, "srun 5/7 1/2 2/4 0 0"},
	{"the ranks of the node are right where the list of counts is in another order",
	 "SLURM_GTIDS=3 SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=1,3" STEP,
	 "srun 3/4 0/1 1/2 0 0"},
	{"cyclic", "SLURM_GTIDS=1,3" STEP, "srun 3/4 1/2 1/2 0 0"},
	{"one node needs no list",
	 "SLURM_GTIDS= SLURM_STEP_TASKS_PER_NODE= SLURM_NODEID=0 SLURM_STEP_NUM_NODES=1"
	 " SLURM_LOCALID=3" STEP,
	 "srun 3/4 3/4 0/1 0 0"},
	{"RANK equal to Slurm's", "RANK=3 WORLD_SIZE=4" STEP, "srun 3/4 1/2 1/2 0 0"},
	{"WORLD_SIZE alone is ignored", "WORLD_SIZE=2" STEP, "srun 3/4 1/2 1/2 0 0"},
	{"inside a --ddp step, whose end time is ignored",
	 "DDP_JOB=tux.42.6 DDP_RANK=0 DDP_SIZE=2 RANK=0 WORLD_SIZE=2 DDP_END_TIME=17" CONTRACT STEP,
	 "srun 3/4 1/2 1/2 0 0"},
	{"in a job that a --ddp step submitted",
	 "DDP_JOB=tux.41.7 DDP_RANK=0 DDP_SIZE=2 RANK=0 WORLD_SIZE=2" CONTRACT STEP,
	 "srun 3/4 1/2 1/2 0 0"},
	{"inside a --ddp step of ddp-run",
	 "DDP_JOB=tux.42.6 DDP_RANK=0 DDP_SIZE=2 RANK=0 WORLD_SIZE=2 DDP_RESTART=1" ATTEMPT CONTRACT
		 STEP,
	 "srun 3/4 1/2 1/2 0 0"},
	{"on one component of a heterogeneous job", COMPONENTS STEP, "srun 3/4 1/2 1/2 0 0"},
	{"one task has no other component", "SLURM_HET_SIZE=2" ONE STEP, "srun 0/1 0/1 0/1 0 0"},
	{"Slurm's PMI of an outer step", "PMI_RANK=0 PMI_SIZE=2" STEP, "srun 3/4 1/2 1/2 0 0"},
	{"an MPI world of one rank", "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1" STEP,
	 "srun 3/4 1/2 1/2 0 0"},
	{"torchrun's run id alone", "TORCHELASTIC_RUN_ID=x" STEP, "srun 3/4 1/2 1/2 0 0"},

	/* --- torchrun --- */
	{"torchrun on two hosts", TORCHRUN, "torchrun 3/4 1/2 1/2 0 0"},
	{"restarted", "TORCHELASTIC_RESTART_COUNT=2" TORCHRUN, "torchrun 3/4 1/2 1/2 2 0"},
	{"torchrun's virtual local rank", VIRTUAL TORCHRUN, "torchrun 3/4 1/2 1/2 0 0"},
	{"uneven: the first of two workers on the second host, after three on the first",
	 "RANK=3 WORLD_SIZE=5 LOCAL_RANK=0" TORCHRUN, "torchrun 3/5 0/2 1/2 0 0"},
	{"uneven: the first of two on the second of three hosts",
	 "RANK=3 WORLD_SIZE=6 LOCAL_RANK=0 GROUP_WORLD_SIZE=3"
	 " TORCHELASTIC_ERROR_FILE=/tmp/t_ab/none_c/attempt_0/0/e" TORCHRUN,
	 "torchrun 3/6 0/2 1/3 0 0"},
	{"one worker", ONE_WORKER TORCHRUN, "torchrun 0/1 0/1 0/1 0 0"},
	{"in a task of a plain srun", TORCHRUN STEP, "torchrun 3/4 1/2 1/2 0 0"},
	{"in a task of srun --ddp",
	 "RANK=5 WORLD_SIZE=8 GROUP_RANK=2 GROUP_WORLD_SIZE=4 DDP_END_TIME=17" TORCHRUN CONTRACT
		 STEP,
	 "torchrun 5/8 1/2 2/4 0 17"},
	{"in a task of srun --ddp, with the task's numbers", TORCHRUN CONTRACT STEP,
	 "torchrun 3/4 1/2 1/2 0 0"},
	{"an old torchrun in a task of srun --ddp",
	 "TORCHELASTIC_USE_AGENT_STORE= RANK=5 WORLD_SIZE=8 GROUP_RANK=2"
	 " GROUP_WORLD_SIZE=4" TORCHRUN CONTRACT STEP,
	 "torchrun 5/8 1/2 2/4 0 0"},
	{"in a batch script", TORCHRUN BATCH, "torchrun 3/4 1/2 1/2 0 0"},
	{"PMI of the agent's task", "PMI_RANK=0 PMI_SIZE=2 MPI_LOCALRANKID=0" TORCHRUN STEP,
	 "torchrun 3/4 1/2 1/2 0 0"},
	{"another launcher with torchrun's variables",
	 "RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 GROUP_RANK=1 GROUP_WORLD_SIZE=2",
	 "torchrun 1/2 0/1 1/2 0 0"},
	{"one node without GROUP_*", "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2",
	 "torchrun 1/2 1/2 0/1 0 0"},
	{"one rank without other variables", "RANK=0 WORLD_SIZE=1", "torchrun 0/1 0/1 0/1 0 0"},

	/* --- alone --- */
	{"nothing", "", "single 0/1 0/1 0/1 0 0"},
	{"a batch script", BATCH, "single 0/1 0/1 0/1 0 0"},
	{"a batch script of Slurm 26.05", "SLURM_STEP_ID=-5" BATCH, "single 0/1 0/1 0/1 0 0"},
	{"an interactive step of Slurm 26.05", "SLURM_STEP_ID=-6 SLURM_STEP_NUM_TASKS=1" BATCH,
	 "single 0/1 0/1 0/1 0 0"},
	{"a batch script of Slurm 26.05 that a --ddp step submitted",
	 "SLURM_STEP_ID=-5 DDP_JOB=tux.42.7" CONTRACT BATCH, "single 0/1 0/1 0/1 0 0"},
	{"a batch script with an end time", "SLURM_JOB_END_TIME=1800000000" BATCH,
	 "single 0/1 0/1 0/1 0 1800000000"},
	{"a shell of salloc", "SLURM_JOB_ID=43 SLURM_NTASKS=4", "single 0/1 0/1 0/1 0 0"},
	{"an interactive step", "SLURM_STEP_ID=4294967290" ONE STEP, "single 0/1 0/1 0/1 0 0"},
	{"a step without ranks", "SLURM_STEP_ID=7 SLURM_PROCID=" BATCH, "single 0/1 0/1 0/1 0 0"},
	{"a batch script that a --ddp step submitted, cleaned of steps",
	 "SLURM_STEP_ID=" BATCH CONTRACT STEP, "single 0/1 0/1 0/1 0 0"},
	{"a plan that a batch script inherited", "SLURM_DDP_STEP=v2;job=42;step=7" BATCH,
	 "single 0/1 0/1 0/1 0 0"},
	{"WORLD_SIZE=1", "WORLD_SIZE=1", "single 0/1 0/1 0/1 0 0"},
	{"Slurm's numbers without a job", "SLURM_STEP_ID=7 SLURM_JOB_ID=" STEP,
	 "single 0/1 0/1 0/1 0 0"},
	{"mpirun of one", "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1",
	 "single 0/1 0/1 0/1 0 0"},
	{"similar names are ignored", "RANKS=3 WORLD_SIZES=4 DDP_RANKS=3",
	 "single 0/1 0/1 0/1 0 0"},
};

TEST_ROWS(test_good, good)
{
	struct ddp_identity id;
	struct ddp_error error;
	char who[256];

	unit_number(good[_i].name, "status", read_text(good[_i].env, &around, &id, &error), 0);
	unit_text(good[_i].name, "error", error.text, "");
	describe(&id, who, sizeof(who));
	unit_text(good[_i].name, "identity", who, good[_i].who);
}

/* --- Errors ------------------------------------------------------------------------------- */

static const struct {
	const char *name, *env;
	const char *pieces;
} errors[] = {
	/* malformed numbers */
	{"not a number", "DDP_RANK=three" CONTRACT STEP, "DDP_RANK=three|not a number"},
	{"a sign", "SLURM_PROCID=-1" STEP, "SLURM_PROCID=-1|not a number"},
	{"another sign", "SLURM_PROCID=+3" STEP, "SLURM_PROCID=+3|not a number"},
	{"too large", "WORLD_SIZE=2147483648" TORCHRUN, "WORLD_SIZE=2147483648|2147483647"},
	{"far too large", "SLURM_STEP_NUM_TASKS=99999999999999999999" STEP,
	 "SLURM_STEP_NUM_TASKS=99999999999999999999|not a number"},
	{"an invalid step id", "SLURM_STEP_ID=batch" STEP, "SLURM_STEP_ID=batch"},
	{"an invalid negative step id", "SLURM_STEP_ID=-x" STEP, "SLURM_STEP_ID=-x"},
	{"a sign alone", "SLURM_STEP_ID=-" STEP, "SLURM_STEP_ID=-"},
	{"a restart count", "SLURM_RESTART_COUNT=x" STEP, "SLURM_RESTART_COUNT=x"},
	{"torchrun's restart count", "TORCHELASTIC_RESTART_COUNT=x" TORCHRUN,
	 "TORCHELASTIC_RESTART_COUNT=x"},
	{"the plugin's restart count", "DDP_ATTEMPT=x" CONTRACT, "DDP_ATTEMPT=x"},
	{"a device", "DDP_DEVICE=-1" CONTRACT, "DDP_DEVICE=-1"},
	{"an end time", "DDP_END_TIME=soon" CONTRACT, "DDP_END_TIME=soon"},
	{"Slurm's end time", "SLURM_JOB_END_TIME=soon" BATCH, "SLURM_JOB_END_TIME=soon"},
	{"a share of nothing", "DDP_SHARE=0" CONTRACT, "DDP_SHARE=0|above 0"},
	{"a share too large", "DDP_SHARE=1.01" CONTRACT, "DDP_SHARE=1.01|at most 1"},

	/* missing variables */
	{"no size", "DDP_SIZE=" CONTRACT, "DDP_SIZE is missing|DDP_RANK=3|with srun"},
	{"no rank", "DDP_RANK=" CONTRACT, "DDP_RANK is missing|DDP_SIZE=4"},
	{"no local rank", "DDP_LOCAL_RANK=" CONTRACT, "DDP_LOCAL_RANK is missing"},
	{"no local size", "DDP_LOCAL_SIZE=" CONTRACT, "DDP_LOCAL_SIZE is missing"},
	{"no node", "DDP_NODE_RANK=" CONTRACT, "DDP_NODE_RANK is missing"},
	{"no nodes", "GROUP_WORLD_SIZE=" CONTRACT, "GROUP_WORLD_SIZE is missing"},
	{"no job", "DDP_JOB=" CONTRACT, "DDP_JOB is missing"},
	{"srun: no size", "SLURM_STEP_NUM_TASKS=" STEP,
	 "SLURM_STEP_NUM_TASKS is missing|SLURM_PROCID=3"},
	{"srun: no rank", "SLURM_PROCID=" STEP, "SLURM_PROCID is missing|SLURM_STEP_NUM_TASKS=4"},
	{"srun: no local id", "SLURM_LOCALID=" STEP, "SLURM_LOCALID is missing"},
	{"srun: no node", "SLURM_NODEID=" STEP, "SLURM_NODEID is missing"},
	{"srun: no nodes", "SLURM_STEP_NUM_NODES=" STEP, "SLURM_STEP_NUM_NODES is missing"},
	{"srun: no counts", "SLURM_GTIDS= SLURM_STEP_TASKS_PER_NODE=" STEP,
	 "SLURM_STEP_TASKS_PER_NODE= does not contain|on node 1"},
	{"srun: too few counts", "SLURM_GTIDS= SLURM_STEP_TASKS_PER_NODE=4" STEP,
	 "SLURM_STEP_TASKS_PER_NODE=4|on node 1"},
	{"srun: malformed counts", "SLURM_GTIDS= SLURM_STEP_TASKS_PER_NODE=2(x2" STEP,
	 "SLURM_STEP_TASKS_PER_NODE=2(x2"},
	{"RANK alone", "RANK=3", "WORLD_SIZE is missing|RANK=3|unset RANK"},
	{"WORLD_SIZE alone", "WORLD_SIZE=4", "RANK is missing|WORLD_SIZE=4"},
	{"no LOCAL_RANK", "RANK=1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2", "LOCAL_RANK is missing"},
	{"no LOCAL_WORLD_SIZE", "LOCAL_WORLD_SIZE=" TORCHRUN, "LOCAL_WORLD_SIZE is missing"},
	{"no GROUP_RANK", "GROUP_RANK=" TORCHRUN, "GROUP_RANK is missing|RANK=3"},

	/* contradictory values */
	{"rank too large", "DDP_RANK=4" CONTRACT, "DDP_RANK=4|DDP_SIZE=4|not below"},
	{"local rank too large", "DDP_LOCAL_RANK=2" CONTRACT, "DDP_LOCAL_RANK=2|DDP_LOCAL_SIZE=2"},
	{"node rank too large", "DDP_NODE_RANK=2" CONTRACT, "DDP_NODE_RANK=2|GROUP_WORLD_SIZE=2"},
	{"more ranks on the node than in all", "DDP_LOCAL_SIZE=5" CONTRACT,
	 "DDP_SIZE=4|DDP_LOCAL_SIZE=5"},
	{"all ranks on this node, but two nodes", "DDP_LOCAL_SIZE=4" CONTRACT,
	 "DDP_SIZE=4|GROUP_WORLD_SIZE=2|DDP_LOCAL_SIZE=4"},
	{"ranks on other nodes, but one node", "GROUP_WORLD_SIZE=1 DDP_NODE_RANK=0" CONTRACT,
	 "GROUP_WORLD_SIZE=1|DDP_LOCAL_SIZE=2"},
	{"more nodes than other ranks", "GROUP_WORLD_SIZE=4" CONTRACT,
	 "GROUP_WORLD_SIZE=4|DDP_LOCAL_SIZE=2"},
	{"srun: rank too large", "SLURM_STEP_NUM_TASKS=3" STEP,
	 "SLURM_PROCID=3|SLURM_STEP_NUM_TASKS=3"},
	{"srun: local id too large", "SLURM_LOCALID=2" STEP, "SLURM_LOCALID=2|local size=2"},
	{"srun: node id too large", "SLURM_NODEID=2" STEP, "SLURM_NODEID=2|SLURM_STEP_NUM_NODES=2"},
	{"torchrun: rank too large", "WORLD_SIZE=2" TORCHRUN, "RANK=3 is not below WORLD_SIZE=2"},
	{"rank 1 in a world of one", "RANK=1 WORLD_SIZE=1", "RANK=1|WORLD_SIZE=1"},

	/* Two launchers set variables. */
	{"another task's contract", "SLURM_PROCID=2 SLURM_LOCALID=0" CONTRACT STEP,
	 "srun set SLURM_PROCID=2|rank 3 of 4"},
	{"a launcher inside a task of srun --ddp", "RANK=5 WORLD_SIZE=8" CONTRACT STEP,
	 "RANK=5 and WORLD_SIZE=8|srun --ddp or ddp-exec this process is rank 3 of 4"},
	{"a launcher inside a task of srun", "RANK=5 WORLD_SIZE=8" STEP,
	 "RANK=5 and WORLD_SIZE=8|for srun this process is rank 3 of 4"},
	{"a rank that is not in SLURM_GTIDS", "SLURM_GTIDS=0,1" STEP,
	 "SLURM_GTIDS=0,1 does not contain task 3"},
	{"malformed SLURM_GTIDS", "SLURM_GTIDS=2,,3" STEP, "SLURM_GTIDS=2,,3"},
	{"a heterogeneous step", "SLURM_HET_SIZE=2" STEP,
	 "SLURM_HET_SIZE=2|heterogeneous|--het-group"},
	{"over all components", "SLURM_STEP_NUM_NODES=3 SLURM_STEP_NODELIST=n[1-3]" COMPONENTS STEP,
	 "SLURM_HET_SIZE=2|--het-group"},
	{"over two components on the same nodes", "SLURM_STEP_NUM_NODES=4" COMPONENTS STEP,
	 "SLURM_HET_SIZE=2|--het-group"},
	{"mpirun inside a task of srun --ddp",
	 "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=8" CONTRACT STEP,
	 "OMPI_COMM_WORLD_RANK=1|OMPI_COMM_WORLD_SIZE=8|for srun --ddp or ddp-exec this process is rank 3 of 4|mpirun set"},
	{"mpirun over daemons that srun started",
	 "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=8" STEP,
	 "OMPI_COMM_WORLD_RANK=1|for srun this process is rank 3 of 4"},
	{"mpirun in a batch script", "PMI_RANK=1 PMI_SIZE=4 MPI_LOCALRANKID=1" BATCH,
	 "PMI_RANK=1|PMI_SIZE=4|but without them this process is rank 0 of 1|Let srun start all ranks"},

	/* The plugin is installed where srun ran, but not on this node. */
	{"SLURM_DDP_STEP that no plugin has read", "SLURM_DDP_STEP=v2;nonce=12;job=42;step=7" STEP,
	 "node n2|SLURM_DDP_STEP|Install slurm-ddp on that node|--no-ddp"},
	{"on a node without a name", "SLURM_DDP_STEP=v2;nonce=12 SLURMD_NODENAME=" STEP,
	 "node laptop"},
};

TEST_ROWS(test_errors, errors)
{
	struct ddp_identity id;
	struct ddp_error error;

	unit_number(errors[_i].name, "status", read_text(errors[_i].env, &around, &id, &error),
		    DDP_ERR_ENVIRONMENT);
	unit_number(errors[_i].name, "error", error.status, DDP_ERR_ENVIRONMENT);
	unit_has(errors[_i].name, error.text, errors[_i].pieces);
}

/* --- Job, host, directories --------------------------------------------------------------- */

#define RENDEZVOUS "/nfs/u/.ddp/tux-42.7.0-0123456789abcdef"

static const struct {
	const char *name, *env;
	const char *job, *host, *directory, *records;
	bool own;
} directories[] = {
	{"srun --ddp", CONTRACT STEP, "tux.42.7", "n2", RENDEZVOUS, "/nfs/u/.ddp/failed-tux-42.7",
	 true},
	{"without a directory", "DDP_RENDEZVOUS=" CONTRACT STEP, "tux.42.7", "n2", "",
	 "/home/u/.ddp/failed-tux-42.7", false},
	{"in a container", CONTRACT, "tux.42.7", "laptop", RENDEZVOUS,
	 "/nfs/u/.ddp/failed-tux-42.7", true},
	{"SLURMD_NODENAME without a job is ignored", "SLURMD_NODENAME=n9" CONTRACT, "tux.42.7",
	 "laptop", RENDEZVOUS, "/nfs/u/.ddp/failed-tux-42.7", true},
	{"set by the user", "DDP_RENDEZVOUS=/tmp/meet DDP_JOB=test" CONTRACT, "test", "laptop",
	 "/tmp/meet", "/home/u/.ddp/failed-test", true},
	{"set by the user, in the root directory", "DDP_RENDEZVOUS=/meet DDP_JOB=a.b" CONTRACT,
	 "a.b", "laptop", "/meet", "/home/u/.ddp/failed-a.b", true},
	{"a cluster with dots", "DDP_JOB=tux.site.org.42.7" CONTRACT STEP, "tux.site.org.42.7",
	 "n2", RENDEZVOUS, "/nfs/u/.ddp/failed-tux.site.org-42.7", true},

	{"srun", STEP, "tux.42.7", "n2", "/home/u/.ddp/srun-tux-42.7.0-40123",
	 "/home/u/.ddp/failed-tux-42.7", false},
	{"requeued", "SLURM_RESTART_COUNT=2" STEP, "tux.42.7", "n2",
	 "/home/u/.ddp/srun-tux-42.7.2-40123", "/home/u/.ddp/failed-tux-42.7", false},
	{"a directory set by the user", "DDP_RENDEZVOUS=/nfs/u" STEP, "tux.42.7", "n2",
	 "/nfs/u/.ddp/srun-tux-42.7.0-40123", "/nfs/u/.ddp/failed-tux-42.7", false},
	{"a relative directory", "DDP_RENDEZVOUS=runs/1" STEP, "tux.42.7", "n2",
	 "/home/u/runs/1/.ddp/srun-tux-42.7.0-40123", "/home/u/runs/1/.ddp/failed-tux-42.7", false},
	{"the root", "DDP_RENDEZVOUS=/" STEP, "tux.42.7", "n2", "/.ddp/srun-tux-42.7.0-40123",
	 "/.ddp/failed-tux-42.7", false},
	{"the directory of an outer --ddp step is ignored", "DDP_JOB=tux.42.6" CONTRACT STEP,
	 "tux.42.7", "n2", "/home/u/.ddp/srun-tux-42.7.0-40123", "/home/u/.ddp/failed-tux-42.7",
	 false},
	{"no cluster, no port", "SLURM_CLUSTER_NAME= SLURM_SRUN_COMM_PORT=" STEP, "cluster.42.7",
	 "n2", "/home/u/.ddp/srun-cluster-42.7.0-0", "/home/u/.ddp/failed-cluster-42.7", false},
	{"a cluster's name that is not a valid file name", "SLURM_CLUSTER_NAME=a/b" STEP,
	 "a_b-e620c3190468cf61.42.7", "n2", "/home/u/.ddp/srun-a_b-e620c3190468cf61-42.7.0-40123",
	 "/home/u/.ddp/failed-a_b-e620c3190468cf61-42.7", false},

	{"torchrun on two hosts", TORCHRUN, "none-h1-29500", "laptop",
	 "/home/u/.ddp/torchrun-none-h1-29500.0", "/home/u/.ddp/failed-none", false},
	{"restarted", "TORCHELASTIC_RESTART_COUNT=2" TORCHRUN, "none-h1-29500", "laptop",
	 "/home/u/.ddp/torchrun-none-h1-29500.2", "/home/u/.ddp/failed-none", false},
	{"a run's name that is not a valid file name", "TORCHELASTIC_RUN_ID=../my" TORCHRUN,
	 ".._my-e5ac50f1875579d8-h1-29500", "laptop",
	 "/home/u/.ddp/torchrun-.._my-e5ac50f1875579d8-h1-29500.0",
	 "/home/u/.ddp/failed-.._my-e5ac50f1875579d8", false},
	{"one host, distinguished by torchrun's directory", ONE_WORKER TORCHRUN,
	 "none-29500-48b2775852dea393", "laptop",
	 "/home/u/.ddp/torchrun-none-29500.0-48b2775852dea393",
	 "/home/u/.ddp/failed-none-48b2775852dea393", false},
	{"in a task of srun", TORCHRUN STEP, "none-h1-29500", "n2",
	 "/home/u/.ddp/torchrun-none-h1-29500.0", "/home/u/.ddp/failed-tux-42.7", false},
	{"in a task of srun --ddp", TORCHRUN CONTRACT STEP, "none-h1-29500", "n2",
	 RENDEZVOUS "/.ddp/torchrun-none-h1-29500.0", "/nfs/u/.ddp/failed-tux-42.7", false},

	{"started by hand in two shells", BY_HAND, "h1-12345", "laptop",
	 "/home/u/.ddp/env-h1-12345.0", "/home/u/.ddp/failed-h1-12345", false},
	{"with a job's name", "DDP_JOB=mine" BY_HAND, "mine", "laptop", "/home/u/.ddp/env-mine.0",
	 "/home/u/.ddp/failed-mine", false},
	{"in a batch script of a --ddp step, whose job name is ignored",
	 "DDP_JOB=tux.42.6" BY_HAND BATCH, "h1-12345", "n1", "/home/u/.ddp/env-h1-12345.0",
	 "/home/u/.ddp/failed-h1-12345", false},
	{"no port", "MASTER_PORT=" BY_HAND, "none-0-c6442eb25572ee4e", "laptop",
	 "/home/u/.ddp/torchrun-none-0.0-c6442eb25572ee4e",
	 "/home/u/.ddp/failed-none-c6442eb25572ee4e", false},

	{"one process", "", "laptop.4711", "laptop", "", "/home/u/.ddp/failed-laptop.4711", false},
	{"a batch script", BATCH, "tux.43.single-4711", "n1", "",
	 "/home/u/.ddp/failed-tux-43.single-4711", false},
};

TEST_ROWS(test_directories, directories)
{
	const char *name = directories[_i].name;
	struct ddp_identity id;
	struct ddp_error error;

	unit_number(name, "status", read_text(directories[_i].env, &around, &id, &error), 0);
	unit_text(name, "job", id.job, directories[_i].job);
	unit_text(name, "host", id.host, directories[_i].host);
	unit_text(name, "directory", id.directory, directories[_i].directory);
	unit_text(name, "records", id.records, directories[_i].records);
	unit_number(name, "own", id.own, directories[_i].own);
}

static const struct {
	const char *env, *heartbeat;
} heartbeats[] = {
	{ATTEMPT CONTRACT STEP, "/nfs/u/.ddp/x/beat-3"},
	{"DDP_JOB=tux.42.6" ATTEMPT CONTRACT STEP, ""}, /* inherited from an outer step */
	{"DDP_HEARTBEAT=/h" STEP, "/h"},
	{CONTRACT STEP, ""},
};

TEST_ROWS(test_heartbeat, heartbeats)
{
	struct ddp_identity id;
	struct ddp_error error;

	ck_assert_int_eq(read_text(heartbeats[_i].env, &around, &id, &error), 0);
	unit_text(heartbeats[_i].env, "heartbeat", id.heartbeat, heartbeats[_i].heartbeat);
}

static void read_directory(const char *env, const struct ddp_surroundings *surroundings, char *path)
{
	struct ddp_identity id;
	struct ddp_error error;

	ck_assert_msg(read_text(env, surroundings, &id, &error) == 0, "%s: %s", env, error.text);
	memcpy(path, id.directory, sizeof(id.directory));
}

/* Each world gets its own directory. All ranks of a world get the same one. */
TEST(test_directories_of_worlds)
{
	static const char *const base = "TORCHELASTIC_ERROR_FILE=" ONE_WORKER TORCHRUN;
	struct ddp_surroundings other = around;
	char first[PATH_MAX], second[PATH_MAX];

	read_directory(base, &around, first);
	other.process = 1;
	other.directory = "/home/u";
	read_directory(base, &other, second);
	ck_assert_str_eq(first, second);
	other.parent = 100;
	read_directory(base, &other, second);
	ck_assert_str_ne(first, second);
	other = around;
	other.hostname = "desktop";
	read_directory(base, &other, second);
	ck_assert_str_ne(first, second);

	/*
	 * If a shell runs between torchrun and a worker, the parent differs, but the world is the
	 * same.
	 */
	read_directory(ONE_WORKER TORCHRUN, &around, first);
	other = around;
	other.parent = 100;
	read_directory(ONE_WORKER TORCHRUN, &other, second);
	ck_assert_str_eq(first, second);
	read_directory("TORCHELASTIC_ERROR_FILE=/tmp/t_ab/none_d/attempt_0/0/e" ONE_WORKER TORCHRUN,
		       &around, second);
	ck_assert_str_ne(first, second);
	read_directory("TORCHELASTIC_ERROR_FILE=/tmp/t_ab/none_c/attempt_0/1/e" ONE_WORKER TORCHRUN,
		       &around, second);
	ck_assert_str_eq(first, second);

	/* two worlds with torchrun's default run id and port, whose first nodes differ */
	read_directory(TORCHRUN, &around, first);
	read_directory("MASTER_ADDR=h2" TORCHRUN, &around, second);
	ck_assert_str_ne(first, second);

	/* ranks that were started by hand in two shells */
	read_directory(BY_HAND, &around, first);
	other.parent = 100;
	read_directory("RANK=0 LOCAL_RANK=0" BY_HAND, &other, second);
	ck_assert_str_eq(first, second);
	read_directory("MASTER_PORT=12346" BY_HAND, &around, second);
	ck_assert_str_ne(first, second);

	read_directory(STEP, &around, first);
	read_directory("SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_GTIDS=0,1"
		       " SLURMD_NODENAME=n1" STEP,
		       &around, second);
	ck_assert_str_eq(first, second);
	read_directory("SLURM_SRUN_COMM_PORT=40124" STEP, &around, second);
	ck_assert_str_ne(first, second);
}

TEST(test_no_working_directory)
{
	struct ddp_surroundings nowhere = {.process = 1, .parent = 2};
	struct ddp_identity id;
	struct ddp_error error;

	ck_assert_int_eq(read_text(STEP, &nowhere, &id, &error), 0);
	ck_assert_str_eq(id.directory, "");
	ck_assert_str_eq(id.records, "");
	ck_assert_int_eq(read_text("DDP_RENDEZVOUS=/x" STEP, &nowhere, &id, &error), 0);
	ck_assert_str_eq(id.directory, "/x/.ddp/srun-tux-42.7.0-40123");
	ck_assert_int_eq(read_text("DDP_RENDEZVOUS=" CONTRACT, &nowhere, &id, &error), 0);
	ck_assert_str_eq(id.records, "");
	ck_assert_int_eq(read_text("", &nowhere, &id, &error), 0);
	ck_assert_str_eq(id.host, "localhost");
}

/* Paths and names of any length are either used in full or an error. They are never truncated. */
TEST(test_long_values)
{
	static const char *const names[] = {
		"SLURM_CLUSTER_NAME", "DDP_RENDEZVOUS", "DDP_JOB",	 "TORCHELASTIC_RUN_ID",
		"MASTER_PORT",	      "SLURM_JOB_ID",	"SLURM_STEP_ID", "SLURM_SRUN_COMM_PORT"};
	static const char *const bases[] = {CONTRACT STEP, STEP, TORCHRUN, BATCH};
	const size_t lengths[] = {30, 250, 255, 256, PATH_MAX - 40, PATH_MAX - 1, PATH_MAX, 9000};
	static char word[9001], text[16384]; /* a slash followed by sevens */
	int refused = 0;

	for (int i = 0; i < ROWS(names) * ROWS(bases) * ROWS(lengths); i++) {
		size_t length = lengths[i % ROWS(lengths)];
		const char *name = names[i / ROWS(lengths) % ROWS(names)];
		struct ddp_identity id;
		struct ddp_error error;

		memset(word, '7', length);
		word[0] = '/';
		word[length] = '\0';
		snprintf(text, sizeof(text), "%s=%s%s", name, word,
			 bases[i / ROWS(lengths) / ROWS(names)]);
		if (read_text(text, &around, &id, &error) < 0) {
			ck_assert_int_eq(error.status, DDP_ERR_ENVIRONMENT);
			refused++;
			continue;
		}
		if (*id.directory && strcmp(name, "DDP_RENDEZVOUS") == 0)
			ck_assert_msg(strncmp(id.directory, word, length) == 0, "%s", text);
		else if (*id.directory)
			ck_assert_uint_lt(strlen(strrchr(id.directory, '/')), NAME_MAX);
		if (strcmp(name, "DDP_JOB") == 0 && id.source == DDP_SOURCE_PLUGIN)
			ck_assert_str_eq(id.job, word);
		ck_assert_uint_lt(strlen(strrchr(id.records, '/')), NAME_MAX);
	}
	ck_assert_int_gt(refused, 0);
}

/* --- Device and share --------------------------------------------------------------------- */

static const struct {
	const char *name, *env;
	int machine, device; /* devices of the machine; the device that is expected */
	double share;
} devices[] = {
	{"srun --ddp", "DDP_DEVICE=1 DDP_SHARE=0.25" CONTRACT STEP, 8, 1, 0.25},
	{"a whole one", "DDP_DEVICE=0 DDP_SHARE=1 CUDA_VISIBLE_DEVICES=0,1" CONTRACT STEP, 8, 0, 1},
	{"a third", "DDP_DEVICE=0 DDP_SHARE=0.333333" CONTRACT STEP, 8, 0, 333333 / 1e6},
	{"many digits", "DDP_DEVICE=0 DDP_SHARE=.50000000000000000000000000001" CONTRACT, 0, 0,
	 0.5},
	{"no device, in spite of a list", "CUDA_VISIBLE_DEVICES=0,1" CONTRACT STEP, 8, -1, 0},
	{"srun: as many as tasks", "CUDA_VISIBLE_DEVICES=0,1" STEP, 8, 1, 0},
	{"srun: more than tasks", "CUDA_VISIBLE_DEVICES=4,5,6" STEP, 8, 1, 0},
	{"srun: only the task's device", "CUDA_VISIBLE_DEVICES=5" STEP, 8, 0, 0},
	{"srun: fewer than tasks",
	 "CUDA_VISIBLE_DEVICES=0,1 SLURM_PROCID=3 SLURM_LOCALID=2 SLURM_GTIDS=1,2,3"
	 " SLURM_STEP_TASKS_PER_NODE=1,3" STEP,
	 8, 0, 0},
	{"srun: devices by UUID", "CUDA_VISIBLE_DEVICES=GPU-1b,MIG-2c" STEP, 8, 1, 0},
	{"srun: none", "CUDA_VISIBLE_DEVICES=" STEP, 8, -1, 0},
	{"srun: none, as old Slurm releases write it", "CUDA_VISIBLE_DEVICES=NoDevFiles" STEP, 8,
	 -1, 0},
	{"srun: devices after -1 are hidden", "CUDA_VISIBLE_DEVICES=3,-1,2" STEP, 8, 0, 0},
	{"srun: all hidden", "CUDA_VISIBLE_DEVICES=-1" STEP, 8, -1, 0},
	{"srun: without a list the job has none", STEP, 8, -1, 0},
	{"torchrun: without a list all devices of the machine", TORCHRUN, 8, 1, 0},
	{"torchrun: a machine with none", TORCHRUN, 0, -1, 0},
	{"torchrun: a list", "CUDA_VISIBLE_DEVICES=7" TORCHRUN, 8, 0, 0},
	{"torchrun in a task: the task's device is ignored",
	 "DDP_DEVICE=0 DDP_SHARE=0.5 CUDA_VISIBLE_DEVICES=2,3" TORCHRUN CONTRACT STEP, 8, 1, 0},
	{"torchrun: a share that the user gives", "DDP_SHARE=0.25" TORCHRUN, 8, 1, 0.25},
	{"srun: a share that the user gives", "DDP_SHARE=0.125 CUDA_VISIBLE_DEVICES=5" STEP, 8, 0,
	 0.125},
	{"torchrun's virtual local rank", "CUDA_VISIBLE_DEVICES=1" VIRTUAL TORCHRUN, 8, 0, 0},
	{"one process", "", 8, 0, 0},
	{"one process, with a list", "CUDA_VISIBLE_DEVICES=3,4", 8, 0, 0},
	{"one process, without devices", "", 0, -1, 0},
	{"one process, all devices hidden", "CUDA_VISIBLE_DEVICES=", 8, -1, 0},
	{"a batch script with a device", "CUDA_VISIBLE_DEVICES=0" BATCH, 8, 0, 0},
	{"a batch script without a device", BATCH, 8, -1, 0},
};

TEST_ROWS(test_devices, devices)
{
	struct ddp_surroundings here = around;
	struct ddp_identity id;
	struct ddp_error error;

	here.devices = devices[_i].machine;
	unit_number(devices[_i].name, "status", read_text(devices[_i].env, &here, &id, &error), 0);
	unit_number(devices[_i].name, "device", id.device, devices[_i].device);
	ck_assert_double_eq(id.share, devices[_i].share);
}

static const char *const shares[] = {"0.0", "00.0", "1.5",  "2",   ".",	     "0.",    "1e-1",
				     "0,5", "-0.5", "0.5x", "nan", "0x1p-1", "0.5.5", "10"};

TEST_ROWS(test_bad_share, shares)
{
	struct ddp_identity id;
	struct ddp_error error;
	char env[1024];

	snprintf(env, sizeof(env), "DDP_SHARE=%s%s", shares[_i], CONTRACT);
	unit_number(shares[_i], "status", read_text(env, &around, &id, &error),
		    DDP_ERR_ENVIRONMENT);
}

UNIT_MAIN("identity", NULL)
