/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "plan.h"
#include "starter.h"
#include "unit.h"

/* A task's environment. */
#define STEP(rank, size, local, node, nodes)                                       \
	"SLURM_PROCID=" rank " SLURM_STEP_NUM_TASKS=" size " SLURM_LOCALID=" local \
	" SLURM_NODEID=" node " SLURM_STEP_NUM_NODES=" nodes

static const struct {
	const char *name;
	const char *env;
	uint32_t local_size;
	const char *want; /* rank/size local_rank/local_size node_rank/nodes node_id */
	uint32_t first_node;
} good[] = {
	{"alone", STEP("0", "1", "0", "0", "1"), 1, "0/1 0/1 0/1 0", 0},
	{"last of 2x2", STEP("3", "4", "1", "1", "2"), 2, "3/4 1/2 1/2 1", 0},
	{"cyclic: rank 1 is the first of the second node", STEP("1", "4", "0", "1", "2"), 2,
	 "1/4 0/2 1/2 1", 0},
	{"arbitrary: rank 0 on the second node", STEP("0", "4", "0", "1", "2"), 2, "0/4 0/2 0/2 1",
	 1},
	{"uneven, 3 and 1", STEP("3", "4", "0", "1", "2"), 1, "3/4 0/1 1/2 1", 0},
	{"arbitrary: the first node exchanges its number with rank 0's node",
	 STEP("2", "3", "0", "0", "3"), 1, "2/3 0/1 2/3 0", 2},
	{"arbitrary: other nodes keep their numbers", STEP("1", "3", "0", "1", "3"), 1,
	 "1/3 0/1 1/3 1", 2},
};

TEST_ROWS(test_good, good)
{
	const char *name = good[_i].name;
	struct ddp_message message = {""};
	struct unit_words words;
	struct ddp_task id;
	char got[128];

	ck_assert_int_eq(ddp_task_read(unit_words(&words, good[_i].env), good[_i].local_size,
				       good[_i].first_node, &id, &message),
			 0);
	snprintf(got, sizeof(got), "%u/%u %u/%u %u/%u %u", id.rank, id.size, id.local_rank,
		 id.local_size, id.node_rank, id.nodes, id.node_id);
	unit_text(name, "task", got, good[_i].want);
	unit_text(name, "message", message.text, "");
}

static const struct {
	const char *name;
	const char *env;
	uint32_t local_size;
	const char *pieces;
} bad[] = {
	{"no PROCID",
	 "SLURM_STEP_NUM_TASKS=1 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_STEP_NUM_NODES=1", 1,
	 "SLURM_PROCID|did not set"},
	{"no NUM_TASKS", "SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_STEP_NUM_NODES=1", 1,
	 "SLURM_STEP_NUM_TASKS|did not set"},
	{"no LOCALID",
	 "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_NODEID=0 SLURM_STEP_NUM_NODES=1", 1,
	 "SLURM_LOCALID|did not set"},
	{"no NODEID",
	 "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_LOCALID=0 SLURM_STEP_NUM_NODES=1", 1,
	 "SLURM_NODEID|did not set"},
	{"no NUM_NODES", "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_LOCALID=0 SLURM_NODEID=0", 1,
	 "SLURM_STEP_NUM_NODES|did not set"},
	{"not a number", STEP("0", "four", "0", "0", "1"), 1,
	 "SLURM_STEP_NUM_TASKS=four|not a number"},
	{"empty", STEP("", "1", "0", "0", "1"), 1, "SLURM_PROCID=|not a number"},
	{"too large a number", STEP("4294967296", "1", "0", "0", "1"), 1,
	 "SLURM_PROCID=4294967296"},
	{"rank beyond", STEP("4", "4", "0", "0", "1"), 4, "SLURM_PROCID=4|SLURM_STEP_NUM_TASKS=4"},
	{"local rank beyond", STEP("3", "4", "2", "0", "1"), 2, "SLURM_LOCALID=2|2 on this node"},
	{"more on the node than in the step", STEP("0", "2", "0", "0", "1"), 3,
	 "3 on this node and 2"},
	{"no task on the node", STEP("0", "2", "0", "0", "1"), 0, "SLURM_LOCALID=0"},
	{"node beyond", STEP("0", "2", "0", "2", "2"), 1, "SLURM_NODEID=2|SLURM_STEP_NUM_NODES=2"},
};

TEST_ROWS(test_bad, bad)
{
	const struct ddp_task untouched = {9, 9, 9, 9, 9, 9, 9};
	struct ddp_task id = untouched;
	struct ddp_message message = {""};
	struct unit_words words;

	ck_assert_int_eq(ddp_task_read(unit_words(&words, bad[_i].env), bad[_i].local_size, 0, &id,
				       &message),
			 -1);
	unit_has(bad[_i].name, message.text, bad[_i].pieces);
	ck_assert_mem_eq(&id, &untouched, sizeof(id));
}

TEST(test_bad_first_node)
{
	struct ddp_message message = {""};
	struct unit_words words;
	struct ddp_task id;

	ck_assert_int_eq(ddp_task_read(unit_words(&words, good[1].env), good[1].local_size, 2, &id,
				       &message),
			 -1);
	UNIT_SAYS("first node", message.text, "node 2", "SLURM_STEP_NUM_NODES=2");
}

/* --- Programs ----------------------------------------------------------------------------- */

static const struct {
	const char *program;
	bool launcher;
} programs[] = {
	{"orted", true},
	{"/usr/bin/orted", true},
	{"./prted", true},
	{"orterun", true},
	{"prterun", true},
	{"mpirun", true},
	{"mpiexec", true},
	{"/opt/intel/bin/hydra_bstrap_proxy", true},
	{"hydra_pmi_proxy", true},
	{"pmi_proxy", true},
	{"python3", false},
	{"torchrun", false},
	{"orted/train", false},
	{"orted2", false},
	{"xorted", false},
	{"my_hydra_", false},
	{"hydra", false},
	{"/usr/bin/", false},
	{"", false},
};

static const struct {
	const char *program;
	bool ours;
} ours[] = {
	{"ddp-train", true},
	{"/opt/ddp/bin/ddp-train", true},
	{"./ddp-info", true},
	{"ddp-ranks", true},
	{"ddp-train2", false},
	{"my-ddp-train", false},
	{"ddp-train/x", false},
	{"python3", false},
	{"", false},
};

TEST_ROWS(test_ours, ours)
{
	unit_number(ours[_i].program, "ours", ddp_is_ours(ours[_i].program), ours[_i].ours);
}

TEST_ROWS(test_launcher, programs)
{
	unit_number(programs[_i].program, "launcher", ddp_is_launcher(programs[_i].program),
		    programs[_i].launcher);
}

UNIT_MAIN("task", NULL)
