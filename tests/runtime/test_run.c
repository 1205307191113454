/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_run.c - ddp-run: the decision after a failed attempt, the command line, the messages of
 * srun, and the output of ranks
 */
#include "config.h"

#include <math.h>
#include <sys/uio.h>

#include "base/file.h"
#include "base/watch.h"
#include "run/decide.h"
#include "run/nodes.h"
#include "run/patterns.h"
#include "run/relay.h"
#include "run/srun-options.h"
#include "run/srun-output.h"

#include "unit.h"

/* --- The next attempt --------------------------------------------------------------------------- */

#define A(end_, status_, point_)                                                             \
	{                                                                                    \
		.end = RUN_END_##end_, .status = status_, .point = point_, .left = INFINITY, \
		.saved = -1                                                                  \
	}
#define AGAIN(status_)                                                                \
	{                                                                             \
		.end = RUN_END_REFUSED, .status = status_, .again = true, .saved = -1 \
	}
#define SAVED(end_, saved_)                                                       \
	{                                                                         \
		.end = RUN_END_##end_, .status = 1, .point = "p", .saved = saved_ \
	}

#define NO_RANK(saved_)                                                                          \
	{                                                                                        \
		.end = RUN_END_EXIT, .status = 1, .point = "p", .refused = true, .saved = saved_ \
	}

#define LEFT(took_, left_)                                                                  \
	{                                                                                   \
		.end = RUN_END_EXIT, .status = 3, .saved = -1, .took = took_, .left = left_ \
	}

#define WANT(act_, status_, nodes_) .want = {.act = RUN_##act_, .status = status_, .nodes = nodes_}
#define LEFT_NODES(wanted_, usable_, fixed_) \
	.nodes = {.wanted = wanted_, .usable = usable_, .fixed = fixed_}

/* If [nodes] is not set, the job has four usable nodes. */
static const struct decide_row {
	const char *name;
	struct run_rules rules;
	struct run_past past[5];
	struct run_decision want;
	struct run_nodes nodes;
} decide_rows[] = {
	{"no failure", {3, 0, false}, {A(GOOD, 0, "")}, WANT(STOP, 0, 0)},
	{"a rank fails", {3, 0, false}, {A(EXIT, 7, "x")}, WANT(RESTART, 7, 4)},
	{"no restarts allowed", {0, 0, false}, {A(EXIT, 7, "x")}, WANT(STOP, 7, 0)},
	{"a hang after which the ranks end with 0",
	 {0, 0, false},
	 {A(HANG, 0, "x")},
	 WANT(STOP, 1, 0)},
	{"a lost node, and other ranks end with 0",
	 {0, 0, false},
	 {A(NODE, 0, "x")},
	 WANT(STOP, 1, 0)},
	{"the last restart",
	 {1, 0, false},
	 {A(EXIT, 7, "x"), A(SIGNAL, 137, "y")},
	 WANT(STOP, 137, 0)},
	{"srun is refused at the first attempt",
	 {3, 0, true},
	 {A(REFUSED, 2, "")},
	 WANT(STOP, 2, 0)},
	{"srun is refused after an attempt that ran",
	 {3, 0, false},
	 {A(EXIT, 7, "x"), AGAIN(2), AGAIN(2)},
	 WANT(RESTART, 2, 4)},
	{"refused attempts between failures at the same point",
	 {9, 0, false},
	 {SAVED(EXIT, 10), {.end = RUN_END_REFUSED, .again = true, .saved = 10}, SAVED(EXIT, 10)},
	 WANT(RESTART, 1, 4)},
	{"nodes refused two attempts of three without a newer checkpoint",
	 {9, 0, false},
	 {SAVED(EXIT, 10), NO_RANK(10), NO_RANK(10)},
	 WANT(RESTART, 1, 4)},
	{"refused until the last restart",
	 {2, 0, false},
	 {A(EXIT, 7, "x"), AGAIN(2), AGAIN(2)},
	 WANT(STOP, 2, 0)},
	{"cancelled", {3, 0, true}, {A(CANCELLED, 143, "")}, WANT(STOP, 143, 0)},
	{"a time limit", {3, 0, false}, {A(TIME_LIMIT, 143, "")}, WANT(STOP, 143, 0)},
	{"the time limit of the step, with --requeue",
	 {3, 0, true},
	 {A(STEP_LIMIT, 0, "")},
	 WANT(RESTART, 1, 4)},
	{"preemption", {3, 0, true}, {A(PREEMPTED, 143, "")}, WANT(REQUEUE, 143, 0)},
	{"a time limit, with --requeue",
	 {3, 0, true},
	 {A(TIME_LIMIT, 143, "")},
	 WANT(REQUEUE, 143, 0)},
	{"a warning", {3, 0, false}, {A(WARNED, 3, "x")}, WANT(STOP, 3, 0)},
	{"a warning, with --requeue", {3, 0, true}, {A(WARNED, 0, "")}, WANT(REQUEUE, 0, 0)},
	{"a stop on request", {3, 0, false}, {A(STOPPED, 3, "x")}, WANT(STOP, 3, 0)},
	{"a stop on request, with --requeue",
	 {0, 0, true},
	 {A(STOPPED, 3, "x")},
	 WANT(REQUEUE, 3, 0)},
	{"near the job's end", {0, 0, true}, {LEFT(120, 119)}, WANT(REQUEUE, 3, 0)},
	{"after the job's end", {0, 0, true}, {LEFT(0.1, -1)}, WANT(REQUEUE, 3, 0)},
	{"a crash at the start, near the job's end",
	 {3, 0, true},
	 {LEFT(1, 119)},
	 WANT(RESTART, 3, 4)},
	{"a crash at the start, near the job's end, no restart left",
	 {0, 0, true},
	 {LEFT(1, 119)},
	 WANT(STOP, 3, 0)},
	{"near the job's end, without --requeue",
	 {3, 0, false},
	 {LEFT(99, 9)},
	 WANT(RESTART, 3, 4)},
	{"long before the job's end", {3, 0, true}, {LEFT(999, 120)}, WANT(RESTART, 3, 4)},
	{"two failures at the same point",
	 {9, 0, false},
	 {A(EXIT, 1, "x"), A(EXIT, 1, "x")},
	 WANT(RESTART, 1, 4)},
	{"three failures at the same point",
	 {9, 0, true},
	 {A(EXIT, 1, "x"), A(EXIT, 1, "x"), A(HANG, 1, "x")},
	 WANT(STOP, RUN_STATUS_STUCK, 0)},
	{"three failures at the same point, not in succession",
	 {9, 0, false},
	 {A(EXIT, 1, "x"), A(EXIT, 1, "x"), A(EXIT, 1, "y"), A(EXIT, 1, "x")},
	 WANT(RESTART, 1, 4)},
	{"three failures without a point",
	 {9, 0, false},
	 {A(EXIT, 1, ""), A(EXIT, 1, ""), A(EXIT, 1, "")},
	 WANT(RESTART, 1, 4)},
	{"three lost nodes do not count as the same point",
	 {9, 0, false},
	 {A(NODE, 1, "x"), A(NODE, 1, "x"), A(NODE, 1, "x")},
	 WANT(RESTART, 1, 4)},
	{"the same point, newer checkpoints",
	 {9, 0, false},
	 {SAVED(EXIT, 10), SAVED(EXIT, 10), SAVED(EXIT, 11)},
	 WANT(RESTART, 1, 4)},
	{"the same point, no newer checkpoint",
	 {9, 0, false},
	 {SAVED(EXIT, 10), SAVED(SIGNAL, 10), SAVED(EXIT, 10)},
	 WANT(STOP, RUN_STATUS_STUCK, 0)},
	{"a lost node, a spare node",
	 {3, 0, false},
	 {A(NODE, 137, "")},
	 WANT(RESTART, 137, 3),
	 LEFT_NODES(3, 3, false)},
	{"a lost node, fewer nodes allowed",
	 {3, 2, false},
	 {A(NODE, 137, "")},
	 WANT(RESTART, 137, 3),
	 LEFT_NODES(4, 3, false)},
	{"a lost node, fewer nodes not allowed",
	 {3, 0, false},
	 {A(NODE, 137, "")},
	 WANT(STOP, RUN_STATUS_NODES, 0),
	 LEFT_NODES(4, 3, false)},
	{"fewer nodes than the minimum",
	 {3, 2, false},
	 {A(NODE, 137, "")},
	 WANT(STOP, RUN_STATUS_NODES, 0),
	 LEFT_NODES(4, 1, false)},
	{"fewer nodes than the minimum, with --requeue",
	 {3, 2, true},
	 {A(NODE, 137, "")},
	 WANT(REQUEUE, RUN_STATUS_NODES, 0),
	 LEFT_NODES(4, 1, false)},
	{"a lost node, fixed number of ranks",
	 {3, 2, false},
	 {A(NODE, 137, "")},
	 WANT(STOP, RUN_STATUS_NODES, 0),
	 LEFT_NODES(4, 3, true)},
};

TEST_ROWS(test_decisions, decide_rows)
{
	const struct decide_row *row = &decide_rows[_i];
	struct run_nodes nodes =
		row->nodes.wanted ? row->nodes : (struct run_nodes){4, 4, false, NULL};
	struct run_decision decision;
	int count = 0;

	nodes.why = "they are uneven";
	while (count < 5 && (row->past[count].status || row->past[count].end || !count))
		count++;
	decision = run_decide(&row->rules, row->past + (count < RUN_SAME ? 0 : count - RUN_SAME),
			      count, &nodes);
	ck_assert_msg(decision.act == row->want.act && decision.status == row->want.status &&
			      decision.nodes == row->want.nodes && decision.why[0],
		      "%s: act %d, status %d, %d nodes: %s", row->name, decision.act,
		      decision.status, decision.nodes, decision.why);
}

TEST(test_ranks_that_cannot_continue_after_a_traceback)
{
	for (int bits = 0; bits < 16; bits++) {
		struct run_raised raised = {STACK_RUNS, bits & 1, bits & 2, bits & 4, bits & 8};

		ck_assert(!run_cannot_continue(&raised));
		ck_assert_int_eq(run_is_doubtful(&raised), raised.uncaught && !raised.active);
		raised.place = STACK_WAITS;
		ck_assert(!run_cannot_continue(&raised));
		raised.place = STACK_ENDS;
		ck_assert_int_eq(run_cannot_continue(&raised),
				 raised.uncaught ||
					 (raised.is_checked && !raised.active && !raised.others));
		ck_assert(run_is_doubtful(&raised));
		raised.place = STACK_UNKNOWN;
		ck_assert_int_eq(run_cannot_continue(&raised), raised.uncaught && !raised.active);
		ck_assert_int_eq(run_is_doubtful(&raised), raised.uncaught || !raised.active);
	}
}

TEST(test_requeues_without_progress_have_a_limit)
{
	ck_assert(run_may_requeue(2, 3, -1, 5000, 600));
	ck_assert(!run_may_requeue(3, 3, -1, 5000, 600));
	ck_assert(!run_may_requeue(3, 3, 0, 5000, 600));
	ck_assert(!run_may_requeue(3, 3, 4399, 5000, 600));
	ck_assert(run_may_requeue(3, 3, 4401, 5000, 600));
	ck_assert(run_may_requeue(3, 3, 10, 5000, INFINITY));
	ck_assert(!run_may_requeue(3, 3, 0, 5000, INFINITY));
}

TEST(test_the_node_that_fails_twice_in_a_row)
{
	struct run_past past[RUN_SAME] = {{.node = "n2"}, {.node = "n1"}, {.node = "n1"}};

	ck_assert_ptr_null(run_bad_node(past, 1));
	ck_assert_ptr_null(run_bad_node(past, 2));
	ck_assert_str_eq(run_bad_node(past, 7), "n1");
	past[1].node[0] = past[2].node[0] = '\0';
	ck_assert_ptr_null(run_bad_node(past, 3));
}

TEST(test_times_in_slurms_answers)
{
	static const char answer[] =
		"JobId=1 RunTime=1-02:03:04 TimeLimit=00:10:00 TimeMin=N/A MaxTime=UNLIMITED\n";

	ck_assert(nodes_seconds(answer, "RunTime") == 93784);
	ck_assert(nodes_seconds(answer, "TimeLimit") == 600);
	ck_assert(nodes_seconds(answer, "TimeMin") == INFINITY);
	ck_assert(nodes_seconds(answer, "MaxTime") == INFINITY);
	ck_assert(nodes_seconds(answer, "Time") == INFINITY);
	ck_assert(nodes_seconds("", "TimeLimit") == INFINITY);
	/* a job name like a field */
	ck_assert(
		nodes_seconds("JobId=5 JobName=a TimeLimit=00:00:01 UserId=u(1) TimeLimit=00:00:02",
			      "TimeLimit") == 2);
	ck_assert(nodes_date("SubmitTime=2026-11-25T16:45:52 x", "SubmitTime") -
			  nodes_date("StartTime=2026-11-24T16:45:50 x", "StartTime") ==
		  86402);
	ck_assert(nodes_date("StartTime=Unknown", "StartTime") == 0);
}

/* --- srun's command line ----------------------------------------------------------------------- */

static const char help[] =
	"Usage: srun [OPTIONS(0)... [executable(0) [args(0)...]]]\n"
	"\n"
	"  -A, --account=name          charge job to specified account\n"
	"      --container             Path to OCI container bundle\n"
	"  -I, --immediate[=secs]      exit if resources not available in \"secs\"\n"
	"  -K, --kill-on-bad-exit      kill the job if any task terminates with non-zero exit code\n"
	"  -l, --label                 prepend task number to lines of stdout/err\n"
	"  -N, --nodes=N               number of nodes on which to run\n"
	"  -n, --ntasks=ntasks         number of tasks to run\n"
	"      --ntasks-per-node=n     number of tasks to invoke on each node\n"
	"      --ddp-port=PORT         [ddp] of a plugin\n"
	"  -w, --nodelist=hosts...     request a specific list of hosts\n"
	"Other\n";

static const struct line_row {
	const char *words[12];
	size_t program;
	const char *nodes; /* NULL: without -N */
} line_rows[] = {
	{{"a.out", "-N4"}, 0, NULL},
	{{"-N4", "a.out"}, 1, "4"},
	{{"-N", "4", "a.out"}, 2, "4"},
	{{"-lN", "4", "-n8", "a.out", "-N7"}, 3, "4"},
	{{"-lN4", "a.out"}, 1, "4"},
	{{"-N4", "-lI", "a.out"}, 2, "4"},
	{{"--nodes", "4", "--label", "a.out"}, 3, "4"},
	{{"--nodes=4", "--node=5", "a.out"}, 2, "4"},
	{{"--nodes=4", "-N", "2", "a.out"}, 3, "2"},
	{{"--ntasks-per-n", "2", "a.out"}, 2, NULL},
	{{"--imm", "a.out"}, 1, NULL},
	{{"--immediate=5", "-I", "a.out"}, 2, NULL},
	{{"--container", "x", "a.out"}, 2, NULL},
	{{"--ddp-port", "7", "--other", "a.out"}, 3, NULL},
	{{"--open-mode", "append", "-N4", "a.out"}, 3, "4"},
	{{"-F", "hosts", "--cpu-b", "none", "-N4", "a.out"}, 5, "4"},
	{{"-N2", "--", "-odd"}, 2, "2"},
	{{"-N"}, 1, ""},
};

TEST_ROWS(test_where_the_program_begins, line_rows)
{
	const struct line_row *row = &line_rows[_i];
	const char *value = NULL;
	struct srun_options options;
	char *words[12];
	bool given;

	memcpy(words, row->words, sizeof(words));
	srun_options_read(&options, help, false);
	ck_assert_uint_eq(srun_program(&options, words), row->program);
	given = srun_given(&options, words, "nodes", &value);
	ck_assert_int_eq(given, row->nodes != NULL);
	if (row->nodes)
		ck_assert_str_eq(value, row->nodes);
	free(options.option);
}

TEST(test_a_name_that_begins_others)
{
	char *words[] = {"--mem", "4G", "a.out", NULL};
	struct srun_options options;

	srun_options_read(&options,
			  "      --mem-per-cpu=MB\n      --mem-per-gpu=MB\n      --mem=MB\n",
			  false);
	ck_assert_uint_eq(srun_program(&options, words), 2);
	free(options.option);
}

TEST(test_each_letter_of_a_word_counts)
{
	char *words[] = {"-lI5", "a.out", NULL};
	struct srun_options options;
	const char *value = NULL;

	srun_options_read(&options, help, false);
	ck_assert(srun_given(&options, words, "label", &value));
	ck_assert_str_eq(value, "");
	ck_assert(srun_given(&options, words, "immediate", &value));
	ck_assert_str_eq(value, "5");
	words[0] = "-lK0";
	ck_assert(srun_given(&options, words, "kill-on-bad-exit", &value));
	ck_assert_str_eq(value, "0");
	free(options.option);
}

TEST(test_an_option_that_srun_does_not_have)
{
	char *words[] = {"-N", "--other", "--nodes", "4", "--restarts=3", "5", "--more", NULL};
	struct srun_options options;

	srun_options_read(&options, help, false);
	ck_assert_str_eq(srun_unknown(&options, words), "--restarts=3");
	ck_assert_ptr_null(srun_unknown(&options, words + 5));
	free(options.option);
}

TEST(test_options_that_salloc_has_too)
{
	static const char *const want[] = {"--nodes=4", "--ntasks=8", "--immediate",
					   "--nodelist=n1", "--ntasks-per-gpu=1"};
	char *words[] = {"-lN",
			 "4",
			 "--label",
			 "-n8",
			 "--ddp-port=7",
			 "-I",
			 "-w",
			 "n1",
			 "--ntasks-per-gpu",
			 "1",
			 "--open-mode",
			 "append",
			 "a.out",
			 "-N7",
			 NULL};
	struct srun_options options, salloc;
	char **shared;
	size_t i = 0;

	srun_options_read(&options, help, false);
	/* An option that only starts with the name of an srun option is a different option. */
	srun_options_read(&salloc,
			  "  -N, --nodes=N\n  -w, --nodelist=hosts\n  -n, --ntasks=N\n"
			  "  -I, --immediate[=secs]\n  --label-of=x\n",
			  true);
	shared = srun_shared(&options, words, &salloc);
	for (; i < sizeof(want) / sizeof(want[0]); i++) {
		ck_assert_ptr_nonnull(shared[i]);
		ck_assert_str_eq(shared[i], want[i]);
		free(shared[i]);
	}
	ck_assert_ptr_null(shared[i]);
	free(shared);
	free(options.option);
	free(salloc.option);
}

/* --- Messages of srun -------------------------------------------------------------------------- */

#define ABORTED "srun: Job step aborted: Waiting up to 7 seconds for job step to finish.\n"
#define CANCELLED "slurmstepd-n1: error: *** STEP 4.0 ON n1 CANCELLED AT 2026"

/* Lines of srun's stderr, and the expected result of describe() for them. */
static const struct message_row {
	const char *name, *lines, *want;
	const char *step, *program;
	int rank; /* rank + 1 of the rank that wrote the lines; 0: srun wrote them */
	bool mixed, stays, nodes;
} message_rows[] = {
	{"how tasks ended",
	 "loss 0.1\n"
	 "srun: error: n3: task 2: Segmentation fault (core dumped)\n"
	 "srun: error: n1: tasks 0-1,4: Exited with exit code 3\n"
	 "srun: error: n1: task 7: Out Of Memory\n"
	 "srun: error: n1: task x: Killed\n"
	 "srun: error: n1: task 8: became a frog\n"
	 "srun: error: Node failure on n2\n"
	 "srun: error: Task launch for StepId=4.0 failed on node n5: Communication connection failure\n"
	 "srun: error: Application launch failed: Communication connection failure\n" CANCELLED
	 "-11-23T14:19:07 ***\n",
	 .want = "2@n3 signal 11, 0@n1 exit 3, 1@n1 exit 3, 4@n1 exit 3, 7@n1 oom 0, lost n2, missed n5 (Communication connection failure), "},
	{"after a progress bar, if the output has no labels",
	 "\r 40%|####  | 4/10\r 50%|##### | 5/10srun: error: n2: task 1: Killed\nsrun: forcing job termination\n",
	 .want = "1@n2 signal 9, forced, "},
	{"a program that prints a message of another srun",
	 "the log has srun: error: n2: task 1: Killed\n", .want = ""},
	{"a rank may have started an srun, whose tasks are not ours",
	 "srun: error: n1: task 7: Killed\nsrun: forcing job termination\n", .want = "", .rank = 1},
	{"a rank's slurmstepd, with the label of the rank",
	 "slurmstepd-n1: error: execve(): x: No such file or directory\n",
	 .want = "not found (execve(): x: No such file or directory), ", .rank = 1},
	{"another step",
	 "slurmstepd-n1: error: *** STEP 14.2 ON n1 CANCELLED AT 2026 DUE TO TIME LIMIT ***\n"
	 "slurmstepd-n1: error: *** STEP 4.1 ON n1 CANCELLED AT 2026 DUE TO PREEMPTION ***\n"
	 "slurmstepd-n1: error: *** STEP 14.10 ON n1 CANCELLED AT 2026 ***\n"
	 "srun: sending Ctrl-C to StepId=14.2\n"
	 "srun: Terminating StepId=14.2\n"
	 "slurmstepd-n1: error: execve(): trains: No such file or directory\n"
	 "slurmstepd-n1: error: execve(): train/me: No such file or directory\n",
	 .want = "", .step = "14.1", .program = "bin/train"},
	{"our step, by its number",
	 "slurmstepd-n1: error: execve(): /work/bin/train: Permission denied\n"
	 "srun: launch/slurm: _step_signal: Terminating StepId=14.1\n"
	 "[2026-11-23T14:19:07.123] error: *** STEP 14.1 ON n1 CANCELLED AT 2026 ***\n",
	 .want = "not found (execve(): /work/bin/train: Permission denied), ending, cancelled, ",
	 .step = "14.1", .program = "bin/train"},
	{"a directory as the program",
	 "slurmstepd-n1: error: execve(): /work/./train/slurm_bcast_4.0_n1: No such file or directory\n",
	 .want = "not found (execve(): /work/./train/slurm_bcast_4.0_n1: No such file or directory), ",
	 .program = "./train/"},
	{"a usage error, found by the plugin",
	 "slurmstepd-n1: error: ddp: usage error: port 80 is for root only. Unset it.\n",
	 .want = "usage (port 80 is for root only. Unset it.), "},
	{"a usage error, found by the plugin of Slurm 25.05 and later",
	 "[2026-11-29T07:18:34.760] error: ddp: n2: usage error: port 80 is for root only.\n",
	 .want = "usage (port 80 is for root only.), "},
	{"a usage error, found by ddp-exec",
	 "ddp-exec: usage error: --ddp-share=most is not valid. Choose one of a|b.\n",
	 .want = "usage (--ddp-share=most is not valid. Choose one of a|b.), ", .rank = 1},
	{"a node refuses the step, and cannot end it",
	 "slurmstepd-n1: error: ddp: port 80 of n1 is in use. Unset it.\n"
	 "slurmstepd-n1: error: ddp: cannot end step 4.0 (x), so its other tasks continue.\n",
	 .want = "refused (ddp: port 80 of n1 is in use. Unset it.), "},
	{"two nodes refuse the step for different reasons",
	 "slurmstepd-n1: error: ddp: node n1 does not see /a, which srun made on n0 (x). Y\n"
	 "slurmstepd-n2: error: ddp: out of memory\n",
	 .want = "refused (ddp: node n1 does not see /a, which srun made on n0 (x). Y), "},
	{"two nodes refuse the step for the same reason",
	 "slurmstepd-n1: error: ddp: node n1 does not see /a, which srun made on n0 (x). Y\n"
	 "slurmstepd-n2: error: ddp: node n2 does not see /a, which srun made on n0 (x). Y\n",
	 .want = "usage (ddp: node n1 does not see /a, which srun made on n0 (x). Y), "},
	{"the same, since Slurm 25.05",
	 "[2026-11-29T07:18:34.760] error: ddp: n1: node n1 does not see /a\n"
	 "[2026-11-29T07:18:34.760] error: ddp: n2: node n2 does not see /a\n",
	 .want = "usage (ddp: n1: node n1 does not see /a), "},
	{"a file of --output", "srun: error: Could not open stdout file: Permission denied\n",
	 .want = "no file (Could not open stdout file: Permission denied), "},
	{"a step of the program loses a node",
	 ABORTED "srun: error: Node failure on n9\n"
		 "srun: error: Task launch for StepId=4.1 failed on node n8: Timeout\n",
	 .want = "aborted, ", .step = "4.0", .mixed = true, .nodes = true},
	{"a step of the program cannot reach a node of our step",
	 "srun: error: Task launch for StepId=4.1 failed on node n1: Timeout\n", .want = "",
	 .step = "4.0", .mixed = true, .nodes = true},
	{"our step loses a node", "srun: error: Node failure on n2\n", .want = "lost n2, ",
	 .step = "4.0", .mixed = true, .nodes = true},
	{"tasks of another step are dropped if they are mixed with ours",
	 "srun: error: n2: task 0: Exited with exit code 3\n"
	 "srun: error: n1: tasks 0-1: Killed\n"
	 "srun: Terminating StepId=4.0\n"
	 "srun: error: n2: task 2: Terminated\n",
	 .want = "0@n1 signal 9, 1@n1 signal 9, 2@n2 signal 15, ending, ", .step = "4.0",
	 .mixed = true},
	{"tasks of another step are kept if they are not mixed with ours",
	 "srun: error: n2: task 0: Exited with exit code 3\n"
	 "srun: error: n1: tasks 0-1: Killed\n"
	 "srun: Terminating StepId=4.0\n"
	 "srun: error: n2: task 2: Terminated\n",
	 .want = "0@n2 exit 3, 0@n1 signal 9, 1@n1 signal 9, 2@n2 signal 15, ending, ",
	 .step = "4.0"},
	{"tasks that failed before others were late",
	 "srun: error: n1: task 0: Exited with exit code 3\n"
	 "srun: error: n2: task 2: Exited with exit code 4\n"
	 "srun: First task exited 2s ago\n"
	 "srun: StepId=4.0 task 1: running\n"
	 "srun: Terminating StepId=4.0\n",
	 .want = "0@n1 exit 3, 2@n2 exit 4, 1@ late 2, ending, late, ", .step = "4.0",
	 .mixed = true, .stays = true},
	{"a time limit", CANCELLED " DUE TO TIME LIMIT ***\n", .want = "cancelled, limit, "},
	{"preemption", CANCELLED " DUE TO PREEMPTION ***\n", .want = "cancelled, preempted, "},
	{"the step is cancelled before a task fails", ABORTED "srun: error: n1: task 0: Killed\n",
	 .want = "0@n1 signal 9, cancelled, aborted, "},
	{"the step ends for an error of srun",
	 "srun: error: Application launch failed: Invalid node name specified\n" ABORTED,
	 .want = ""},
	{"srun loses a slurmstepd",
	 "srun: error: step_launch_notify_io_failure: aborting, io error with slurmstepd on node 2\n" ABORTED
		 CANCELLED " ***\n",
	 .want = "broken, "},
	{"srun loses a slurmstepd of our step",
	 "srun: error: step_launch_notify_io_failure: aborting, io error with slurmstepd on node 1\n",
	 .want = "slurmstepd of n2, broken, ", .nodes = true},
	{"srun cannot reach a node",
	 "srun: error: Task launch for StepId=4.0 failed on node n5: Communication connection failure\n" ABORTED
		 CANCELLED " ***\n",
	 .want = "missed n5 (Communication connection failure), "},
	{"one Ctrl-C",
	 "srun: interrupt (one more within 1 sec to abort)\nsrun: StepId=5.0 tasks 0-1: running\n",
	 .want = ""},
	{"two Ctrl-C", "srun: sending Ctrl-C to StepId=5.0\nsrun: error: n2: task 1: Interrupt\n",
	 .want = "1@n2 signal 2, cancelled, "},
	{"two Ctrl-C of which ddp-run saw one",
	 "srun: sending Ctrl-C to StepId=5.0\nsrun: forcing job termination\n" ABORTED,
	 .want = "cancelled, aborted, "},
	{"SIGTERM to srun", "srun: forcing job termination\n" ABORTED,
	 .want = "cancelled, aborted, forced, "},
	{"ranks that still run after --wait",
	 "srun: First task exited 60s ago\n"
	 "srun: StepId=4.0 task 7: running\n"
	 "srun: StepId=5.0 tasks 1,3: running\n"
	 "srun: StepId=5.0 tasks 0,2: exited\n"
	 "srun: Terminating StepId=5.0\n" ABORTED
	 "slurmstepd-n1: error: *** STEP 5.0 ON n1 CANCELLED AT 2026 ***\n",
	 .want = "1@ late 60, 3@ late 60, ending, late, ", .step = "5.0"},
	{"ranks that no node has started, at a Ctrl-C",
	 "srun: StepId=5.0 tasks 0-1: running\nsrun: StepId=5.0 task 2: unknown\n", .want = ""},
};

static void describe(const struct srun_said *said, struct ddp_text *text)
{
	const struct {
		bool is;
		const char *name;
	} flags[] = {{said->ending, "ending, "},       {said->late, "late, "},
		     {said->broken, "broken, "},       {said->cancelled, "cancelled, "},
		     {said->aborted, "aborted, "},     {said->limit, "limit, "},
		     {said->preempted, "preempted, "}, {said->forced, "forced, "}};

	for (size_t i = 0; i < said->count; i++)
		ddp_text_add(text, "%d@%s %s %d, ", said->task[i].rank, said->task[i].node,
			     facts_how_name(said->task[i].how), said->task[i].code);
	for (size_t i = 0; i < said->lost.count; i++)
		ddp_text_add(text, "lost %s, ", said->lost.name[i]);
	for (size_t i = 0; i < said->missed.count; i++)
		ddp_text_add(text, "missed %s (%s), ", said->missed.name[i], said->missed_why);
	for (size_t i = 0; i < said->stepd_lost.count; i++)
		ddp_text_add(text, "slurmstepd of %s, ", said->stepd_lost.name[i]);
	if (said->refused || said->usage_error)
		ddp_text_add(text, "%s (%s), ", said->usage_error ? "usage" : "refused",
			     said->refusal);
	if (said->not_found || said->no_file)
		ddp_text_add(text, "%s (%s), ", said->no_file ? "no file" : "not found",
			     said->refusal);
	for (int i = 0; i < ROWS(flags); i++)
		ddp_text_add(text, "%s", flags[i].is ? flags[i].name : "");
	ck_assert_int_eq(srun_lost_node(said),
			 said->broken || said->lost.count || said->missed.count);
}

TEST_ROWS(test_messages_of_srun, message_rows)
{
	static char names[][FACTS_NAME] = {"n1", "n2"};
	const struct node_list nodes = {names, 2};
	const struct message_row *row = &message_rows[_i];
	struct srun_said said = {.step = row->step,
				 .program = row->program,
				 .nodes = row->nodes ? &nodes : NULL,
				 .mixed = row->mixed,
				 .stays = row->stays};
	struct ddp_text text = {.data = NULL};

	/* srun's output may arrive in pieces. */
	srun_parse_messages(&said, row->rank - 1, row->lines, 5, 1.5);
	srun_parse_messages(&said, row->rank - 1, row->lines + 5, strlen(row->lines + 5), 2.5);
	describe(&said, &text);
	unit_text(row->name, "result", text.data, row->want);
	ddp_text_free(&text);
	srun_said_free(&said);
}

/* Slurm passes on a progress bar in pieces, of which the last one is not a line. */
TEST(test_message_of_srun_after_a_piece_of_a_line)
{
	static const char killed[] = "srun: error: n2: task 1: Killed\n";
	struct srun_said said = {.step = NULL};
	struct ddp_text text = {.data = NULL};

	srun_parse_messages(&said, 0, "\r 50%|##### | 5/10", 18, 1.5);
	srun_parse_messages(&said, -1, killed, strlen(killed), 2.5);
	describe(&said, &text);
	unit_text("bar", "result", text.data, "1@n2 signal 9, ");
	ddp_text_free(&text);
	srun_said_free(&said);
}

/* --- Answers of Slurm -------------------------------------------------------------------------- */

/* Creates a shell script [name] in [dir], and puts [dir] first in PATH. */
static void put_command(const char *dir, const char *name, const char *script)
{
	struct iovec part = {(char *)script, strlen(script)};
	char path[128], search[4096];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	ck_assert_int_eq(ddp_file_write(path, &part, 1, 0755, false, NULL), 0);
	snprintf(search, sizeof(search), "%s:%s", dir, getenv("PATH"));
	setenv("PATH", search, 1);
}

/* A job has 1,000 nodes, of which two are lost and one is being drained. */
TEST(test_nodes_of_a_large_job)
{
	static const char scontrol[] =
		"#!/bin/sh\n"
		"case $* in\n"
		"*' job '*) echo 'JobId=5 JobState=RUNNING ReqNodeList=(null) NodeList=n[0001-1000]' ;;\n"
		"*hostnames*) seq -f 'n%04.0f' 1000 ;;\n"
		"*' node n[0001-1000]') seq -f 'n%04.0f' 1000 | awk '{\n"
		"	state = $1 == \"n0007\" ? \"DOWN+DRAIN\" : $1 == \"n0009\" ? \"MIXED+DRAIN\" : $1 == \"n0999\" ? \"IDLE+NOT_RESPONDING\" : \"IDLE\"\n"
		"	printf \"NodeName=%s Arch=x86_64 OS=%01000d State=%s ThreadsPerCore=1\\n\", $1, 0, state }' ;;\n"
		"*) exit 1 ;;\n"
		"esac\n";
	char dir[64], state[32];
	struct node_list left, drained = {.name = NULL};

	unit_directory(dir, sizeof(dir));
	put_command(dir, "scontrol", scontrol);
	left = nodes_of_job("5", state, sizeof(state), &drained, NULL);
	ck_assert_str_eq(state, "RUNNING");
	ck_assert_uint_eq(left.count, 998);
	ck_assert_str_eq(left.name[6], "n0008");
	ck_assert_str_eq(left.name[997], "n1000");
	ck_assert(!nodes_have(&left, "n0007") && !nodes_have(&left, "n0999"));
	ck_assert_uint_eq(drained.count, 1);
	ck_assert_str_eq(drained.name[0], "n0009");
	nodes_free(&left);
	nodes_free(&drained);
	unit_remove(dir);
}

/*
 * Output and exit status of srun -v when it probes node n1, and the expected result of the probe.
 */
static const struct probe_row {
	const char *name, *script;
	size_t with_ranks, silent, unasked;
	const char *why;
} probe_rows[] = {
	{"the node has processes of the step", "exit 0", 1, 0, 0, ""},
	{"the node has no processes", "exit 3", 0, 0, 0, ""},
	{"the probe fails after the launch",
	 "echo 'srun: launching StepId=2.0 on host n1, 1 tasks: 0' >&2; exit 1", 0, 0, 1,
	 "Slurm does not answer"},
	{"the node cannot be reached",
	 "echo 'srun: error: Task launch for StepId=2.0 failed on node n1: Communication connection failure'; exit 1",
	 0, 1, 0, ""},
	{"the node fails", "echo 'srun: error: Node failure on n1'; exit 1", 0, 1, 0, ""},
	{"the probe is refused",
	 "echo 'srun: fatal: --ntasks-per-node is mutually exclusive with --ntasks-per-gpu'; exit 1",
	 0, 0, 1, "srun: fatal: --ntasks-per-node is mutually exclusive with --ntasks-per-gpu"},
	{"slurmctld does not answer",
	 "printf 'srun: error: Unable to confirm allocation for job 2\nsrun: Check\n'; exit 1", 0,
	 0, 1, "srun: error: Unable to confirm allocation for job 2"},
};

TEST_ROWS(test_probe, probe_rows)
{
	const struct probe_row *row = &probe_rows[_i];
	struct nodes_answers answers = {.with_ranks = 0};
	struct node_list nodes = {.name = NULL};
	char dir[64], script[512];

	unit_directory(dir, sizeof(dir));
	snprintf(script, sizeof(script), "#!/bin/sh\n%s\n", row->script);
	put_command(dir, "srun", script);
	put_command(dir, "scontrol", "#!/bin/sh\nexit 1\n");
	nodes_add(&nodes, "n1");
	nodes_probe(&nodes, "2", "0", false, 20, &answers);
	unit_number(row->name, "with ranks", (int64_t)answers.with_ranks, (int64_t)row->with_ranks);
	unit_number(row->name, "silent", (int64_t)answers.silent.count, (int64_t)row->silent);
	unit_number(row->name, "unasked", (int64_t)answers.unasked.count, (int64_t)row->unasked);
	unit_text(row->name, "why", answers.why, row->why);
	nodes_answers_free(&answers);
	nodes_free(&nodes);
	unit_remove(dir);
}

/* Programs that two looks find, and the rank that has written between them; -1: none. */
static const struct written_row {
	const char *name, *before, *after;
	int rank;
} written_rows[] = {
	{"none", "program 0 pid 7 written 10 place 4", "program 0 pid 7 written 10 place 4", -1},
	{"one of two", "program 0 pid 7 written 10 place 4\nprogram 1 pid 8 written 10 place 4",
	 "program 1 pid 8 written 11 place 4\nprogram 0 pid 7 written 10 place 4", 1},
	{"a program that is new", "program 0 pid 7 written 10 place 4",
	 "program 0 pid 8 written 11 place 4", -1},
	{"no answer", "", "program 0 pid 7 written 11 place 4", -1},
	{"lines of other programs", "srun: x\nprogram 0 pid 7 written 10 place 4",
	 "x program 0 pid 7 written 11 place 4", -1},
};

TEST_ROWS(test_programs_that_write, written_rows)
{
	const struct written_row *row = &written_rows[_i];
	const char *const outputs[] = {row->before, row->after};
	struct nodes_programs looks[2];
	char dir[64], script[512];
	int rank = -1;

	unit_directory(dir, sizeof(dir));
	for (int i = 0; i < 2; i++) {
		snprintf(script, sizeof(script), "#!/bin/sh\necho '%s'\n", outputs[i]);
		put_command(dir, "srun", script);
		nodes_find_programs("2", "0", "n1", "-", 20, &looks[i]);
	}
	ck_assert_int_eq(nodes_have_written(&looks[0], &looks[1], &rank), row->rank >= 0);
	unit_number(row->name, "rank", rank, row->rank);
	free(looks[0].all);
	free(looks[1].all);
	unit_remove(dir);
}

TEST(test_programs_of_many_ranks)
{
	struct nodes_programs programs;
	char dir[64];

	unit_directory(dir, sizeof(dir));
	put_command(
		dir, "srun",
		"#!/bin/sh\ni=0\nwhile [ $i -lt 1000 ]; do echo \"program $i pid 1 written 0 place 1\"; "
		"i=$((i + 1)); done\nexit 1\n");
	ck_assert(!nodes_find_programs("2", "0", "n1", "-", 60, &programs));
	ck_assert_uint_eq(programs.count, 1000);
	for (int i = 0; i < 1000; i++)
		ck_assert_int_eq(programs.all[i].rank, i);
	free(programs.all);
	unit_remove(dir);
}

/* --- Lines of other programs ------------------------------------------------------------------- */

/*
 * The text of each row matches the row's example. If an earlier row matches the example too, that
 * row has the same meaning.
 */
TEST(test_each_pattern_matches_its_example)
{
	struct pattern_part part[PATTERN_PARTS];

	for (const struct pattern *row = patterns; row < patterns + patterns_count; row++) {
		size_t length = strlen(row->example), parts = 1;

		for (const char *at = row->text; (at = strchr(at, '%')); at++)
			parts++;
		ck_assert_uint_le(parts, PATTERN_PARTS);
		ck_assert_msg(pattern_match(row->text, row->example, length, part),
			      "\"%s\" does not match \"%s\"", row->text, row->example);
		unit_number(row->example, "meaning",
			    pattern_find(row->source, row->example, length, part), row->meaning);
		ck_assert_ptr_nonnull(row->printed_by);
	}
}

/* --- Output of ranks --------------------------------------------------------------------------- */

/*
 * Stores the output without labels, with "<rank>" after each piece. Slurm passes on at most 1,024
 * bytes of a line, and sattach adds a newline to them.
 */
static void collect_pieces(void *data, int rank, const char *bytes, size_t size)
{
	char *got = data;

	sprintf(got + strlen(got), "%.*s<%d>", (int)size, bytes, rank);
}

TEST(test_labels_are_removed)
{
	static const char text[] =
		" 3: one\n12: 4: two\n\nsrun: error: n1\n  7 no label\n5:no\n :6: \n 12: \n-1: x\n1: un";
	struct srun_labels labels = {.length = 0};
	char got[8192] = "";

	for (size_t at = 0, n; at < strlen(text); at += n) {
		n = strlen(text + at) < 7 ? strlen(text + at) : 7;
		srun_unlabel(&labels, text + at, n, collect_pieces, got);
	}
	ck_assert_str_eq(got, "one\n<3>4: two\n<12>\n<-1>srun: error: n1\n<-1>  7 no label\n<-1>"
			      "5:no\n<-1> :6: \n<-1>\n<12>-1: x\n<-1>");
	srun_unlabel(&labels, "til\n", 4, collect_pieces, got);
	ck_assert_ptr_nonnull(strstr(got, "\n<-1>until\n<1>"));
}

/* A long line of srun is passed on in full, in several pieces. */
TEST(test_a_long_line_has_no_label)
{
	struct srun_labels labels = {.length = 0};
	char text[4000], got[8192] = "";

	snprintf(text, sizeof(text), "srun: %0*d3: x\n4: y\n", 1095, 0);
	srun_unlabel(&labels, text, strlen(text), collect_pieces, got);
	ck_assert_ptr_nonnull(strstr(got, "3: x\n<-1>y\n<4>"));
}

static void collect_tails(void *data, int rank, const char *bytes, size_t size)
{
	tails_add(data, rank, 1, bytes, size);
}

static void read_text(const char *path, char *text, size_t size)
{
	FILE *file = fopen(path, "r");

	ck_assert_ptr_nonnull(file);
	text[fread(text, 1, size - 1, file)] = '\0';
	fclose(file);
}

/* Output of a rank, and the last error in it. */
static const struct error_row {
	const char *name, *output;
	int rank;
	enum pattern_meaning printed_by;
	const char *text;
	int prefix;
} error_rows[] = {
	{"an exception",
	 "epoch 1\nTraceback (most recent call last):\n  File \"a\"\nKeyError: 1 \nend\n", -1,
	 LINE_TRACEBACK, "KeyError: 1", -1},
	{"PyTorch's prefix, with lines of loggers and of another rank between",
	 "[rank1]: Traceback (most recent call last):\n[rank0]:[W1129 a.cpp:1] Warning\nepoch 2\n"
	 "[rank0]: Traceback (most recent call last):\n[rank1]:   File \"a\"\n\n[rank0]: OSError\n"
	 "[rank1]: ValueError: b\n[rank1]: CUDA kernel errors might be\n",
	 -1, LINE_TRACEBACK, "ValueError: b", 1},
	{"an uncaught exception in the traceback of a thread",
	 "Traceback (most recent call last):\n[rank1]: Traceback (most recent call last):\n"
	 "KeyError: 1\n[rank1]: ValueError: b\n",
	 -1, LINE_TRACEBACK, "ValueError: b", 1},
	{"the prefix alone is no error", "[rank1]: ValueError: b\n[rank1]:[E1129] x\n", -1,
	 LINE_OTHER, "", -1},
	{"of chained exceptions, the last",
	 "Traceback (most recent call last):\nKeyError: 1\n\nDuring handling\n\n"
	 "Traceback (most recent call last):\n    | re.A\nValueError: b\n",
	 -1, LINE_TRACEBACK, "ValueError: b", -1},
	{"an exception in rich's box",
	 "[rank1]: ╭──── Traceback (most recent call last) ────╮\n[rank1]: │ a.py:3 in f │\n"
	 "[rank1]: ╰────────────╯\n[rank1]: ValueError: b\n",
	 -1, LINE_TRACEBACK, "ValueError: b", 1},
	{"an exception of a DataLoader worker",
	 "[rank0]: Traceback (most recent call last):\n[rank0]: ValueError: Caught ValueError in "
	 "DataLoader worker process 0.\n[rank0]: Original Traceback (most recent call last):\n"
	 "[rank0]:   File \"a\"\n[rank0]: ValueError: broken\n",
	 -1, LINE_TRACEBACK, "ValueError: broken", 0},
	{"of nested groups, the first exception in them",
	 "[rank0]:   + Exception Group Traceback (most recent call last):\n[rank0]:   |   File \"a\"\n"
	 "[rank0]:   | ExceptionGroup: several (2 sub-exceptions)\n[rank0]:   | a note\n"
	 "[rank0]:   +-+---------------- 1 ----------------\n"
	 "[rank0]:     | ExceptionGroup: inner (1 sub-exception)\n"
	 "[rank0]:     +-+---------------- 1 ----------------\n"
	 "[rank0]:       | Traceback (most recent call last):\n[rank0]:       |   File \"a\"\n"
	 "[rank0]:       | ValueError: b\n[rank0]:       +------------------------------------\n"
	 "[rank0]:     +---------------- 2 ----------------\n[rank0]:     | KeyError: 'later'\n"
	 "[rank0]:     +------------------------------------\n",
	 -1, LINE_TRACEBACK, "ValueError: b", 0},
	{"a group that is cut off",
	 "  + Exception Group Traceback (most recent call last):\n  | ExceptionGroup: several\n",
	 -1, LINE_TRACEBACK, "ExceptionGroup: several", -1},
	{"an exception of a destructor, after the real one",
	 "Traceback (most recent call last):\nKeyError: 1\n"
	 "Exception ignored in: <function A.__del__ at 0x7f>\nTraceback (most recent call last):\n"
	 "  File \"a\"\nOSError: 2\n\nDuring handling of the above exception, another exception occurred:\n\n"
	 "Traceback (most recent call last):\nAssertionError: 3\n",
	 -1, LINE_TRACEBACK, "KeyError: 1", -1},
	{"an exception after an ignored one",
	 "Exception ignored in: <function A.__del__ at 0x7f>\nTraceback (most recent call last):\n"
	 "OSError: 2\nTraceback (most recent call last):\nKeyError: 1\n",
	 -1, LINE_TRACEBACK, "KeyError: 1", -1},
	{"an exception after an ignored one without a traceback",
	 "Exception ignored in: <_io.TextIOWrapper>\nBrokenPipeError: x\n"
	 "Traceback (most recent call last):\nKeyError: 1\n",
	 -1, LINE_TRACEBACK, "KeyError: 1", -1},
	{"only ignored exceptions",
	 "Error in atexit._run_exitfuncs:\nTraceback (most recent call last):\nOSError: 2\n", -1,
	 LINE_OTHER, "", -1},
	{"an exception of a thread, after that of the main thread",
	 "Traceback (most recent call last):\nKeyError: 1\nException in thread Thread-1 (f):\n"
	 "Traceback (most recent call last):\nOSError: 2\n",
	 -1, LINE_TRACEBACK, "KeyError: 1", -1},
	{"an exception of a thread alone",
	 "Exception in thread Thread-1 (f):\nTraceback (most recent call last):\nOSError: 2\n", -1,
	 LINE_TRACEBACK, "OSError: 2", -1},
	{"an uncaught exception, then others while the rank exits",
	 "[rank1]: Traceback (most recent call last):\n[rank1]: ValueError: b\n"
	 "Traceback (most recent call last):\nKeyError: 1\n  what():  bad\n",
	 -1, LINE_TRACEBACK, "ValueError: b", 1},
	{"an uncaught exception with a cause",
	 "[rank1]: Traceback (most recent call last):\n[rank1]: ValueError: b\n[rank1]: \n"
	 "[rank1]: The above exception was the direct cause of the following exception:\n[rank1]: \n"
	 "[rank1]: Traceback (most recent call last):\n[rank1]: OSError: c\n",
	 -1, LINE_TRACEBACK, "OSError: c", 1},
	{"a progress bar before PyTorch's prefix",
	 " 30%|███▏      | 3/10 [00:01<00:03]\r 40%|███▌      | 4/10 [00:01<00:02]"
	 "[rank0]: Traceback (most recent call last):\n[rank0]:   File \"a\"\n[rank0]: KeyError: 1\n",
	 -1, LINE_TRACEBACK, "KeyError: 1", 0},
	{"a progress bar before a traceback",
	 " 40%|███▌      | 4/10 [00:01<00:02]Traceback (most recent call last):\n"
	 "  File \"a\"\nKeyError: 1\n",
	 -1, LINE_TRACEBACK, "KeyError: 1", -1},
	{"a progress bar before an ExceptionGroup with PyTorch's prefix",
	 " 40%|███▌      | 4/10[rank0]:   + Exception Group Traceback (most recent call last):\n"
	 "[rank0]:   |   File \"a\"\n[rank0]:   | ExceptionGroup: several (1 sub-exception)\n",
	 -1, LINE_TRACEBACK, "ExceptionGroup: several (1 sub-exception)", 0},
	{"a progress bar before an exception of a thread, after that of the main thread",
	 "Traceback (most recent call last):\nKeyError: 1\n 40%|███▌      | 4/10"
	 "Exception in thread Thread-1 (f):\nTraceback (most recent call last):\nOSError: 2\n",
	 -1, LINE_TRACEBACK, "KeyError: 1", -1},
	{"a progress bar before an uncaught exception in the traceback of a thread",
	 "Traceback (most recent call last):\n 40%|[rank1]: Traceback (most recent call last):\n"
	 "KeyError: 1\n[rank1]:   File \"a\"\n[rank1]: ValueError: b\n",
	 -1, LINE_TRACEBACK, "ValueError: b", 1},
	{"a prefix of all lines",
	 "[n1] Traceback (most recent call last):\n[n1]   File \"x.py\", line 3, in <module>\nlog\n"
	 "[n1]     f()\n[n1] ValueError: bad\n[n1] end\n",
	 -1, LINE_TRACEBACK, "ValueError: bad", -1},
	{"a prefix of all lines, and PyTorch's",
	 "[n1] [rank0]: Traceback (most recent call last):\n[n1] [rank0]:   File \"a\"\n"
	 "[n1] [rank0]: ValueError: bad\n",
	 -1, LINE_TRACEBACK, "ValueError: bad", 0},
	{"a prefix of all lines, and a progress bar",
	 "[n1]  40%|███▌      | 4/10[rank0]: Traceback (most recent call last):\n"
	 "[n1] [rank0]:   File \"a\"\n[n1] [rank0]: ValueError: bad\n",
	 -1, LINE_TRACEBACK, "ValueError: bad", 0},
	{"a time before each line",
	 "12:00:01 Traceback (most recent call last):\n12:00:01   File \"a\"\n12:00:02 KeyError: 1\n"
	 "12:00:02 \n12:00:02 During handling of the above exception, another exception occurred:\n"
	 "12:00:02 \n12:00:02 Traceback (most recent call last):\n12:00:02   File \"a\"\n"
	 "12:00:03 ValueError: bad\n",
	 -1, LINE_TRACEBACK, "ValueError: bad", -1},
	{"an ignored exception with a time before each line",
	 "12:00:01 Exception ignored in: <function A.__del__ at 0x7f>\n12:00:01 Traceback (most "
	 "recent call last):\n12:00:01   File \"a\"\n12:00:02 KeyError: 1\n",
	 -1, LINE_OTHER, "", -1},
	{"an exception that ends with PyTorch's prefix and the words",
	 "Traceback (most recent call last):\n  File \"a\"\nRuntimeError: worker: [rank0]: Traceback "
	 "(most recent call last):\n",
	 -1, LINE_TRACEBACK,
	 "RuntimeError: worker: [rank0]: Traceback (most recent call last):", -1},
	{"a traceback after a log that quotes the words",
	 "log: [rank0]: Traceback (most recent call last) seen\nlog: [rank0]: epoch 3\n"
	 "Traceback (most recent call last):\n  File \"a\"\nKeyError: 1\n",
	 -1, LINE_TRACEBACK, "KeyError: 1", -1},
	{"a log that quotes the words twice",
	 "log: [rank0]: Traceback (most recent call last) seen\nlog: [rank0]: epoch 3\n", -1,
	 LINE_OTHER, "", -1},
	{"a C++ exception after an indented traceback",
	 "  Traceback (most recent call last):\n    File \"a\"\n  KeyError: 1\nterminate called\n"
	 "  what():  bad\n",
	 -1, LINE_CPP, "bad", -1},
	{"a log with the words of an ignored exception",
	 "ERROR Exception ignored by the loop\nTraceback (most recent call last):\n  File \"a\"\n"
	 "KeyError: 1\n",
	 -1, LINE_TRACEBACK, "KeyError: 1", -1},
	{"a line of a log that quotes the words",
	 "log: no Traceback (most recent call last) seen\nepoch 2\nlog: [rank0]: Traceback (most "
	 "recent call last) seen\n[rank0]: epoch 3\nepoch 4\n",
	 -1, LINE_OTHER, "", -1},
	{"an exception and a frame that quote the words",
	 "Traceback (most recent call last):\n  File \"a\"\n    f(\"Traceback (most recent call "
	 "last)\")\nRuntimeError: worker: Traceback (most recent call last):\n",
	 -1, LINE_TRACEBACK, "RuntimeError: worker: Traceback (most recent call last):", -1},
	{"a C++ exception counts more than libddp's error", "  what():  bad\nddp[0@n1]: x\n", -1,
	 LINE_CPP, "bad", -1},
	{"of libddp's errors, the last", "ddp[0@n1]: x\nddp[0@n1]: warning: w\nddp[0@n1]: y\n", -1,
	 LINE_LIBDDP, "y", -1},
	{"the output of all ranks: only lines that name the rank",
	 "Traceback (most recent call last):\nKeyError: 1\n[rank1]: Traceback (most recent call last):\n"
	 "[rank2]: Traceback (most recent call last):\n[rank1]: ValueError: b\n[rank2]: OSError\n",
	 2, LINE_TRACEBACK, "OSError", 2},
};

TEST_ROWS(test_errors_in_output, error_rows)
{
	const struct error_row *row = &error_rows[_i];
	struct rank_error error;

	rank_error_find(&error, row->output, row->rank);
	unit_text(row->name, "text", error.text, row->text);
	unit_number(row->name, "printed by", error.printed_by, row->printed_by);
	if (error.printed_by == LINE_TRACEBACK)
		unit_number(row->name, "prefix", error.prefix, row->prefix);
}

/* An error is kept if its line is longer than the tail, or if much output follows. */
TEST(test_tail_keeps_the_last_error)
{
	static const char *const errors[] = {
		"[rank1]: Traceback (most recent call last):\n[rank1]: ValueError: ",
		"terminate called\n  what():  ", "ddp[1@n1]: "};
	char dir[64], path[128], got[1 << 16];
	struct rank_error error;

	for (int i = 0; i < 3; i++)
		for (int pieces = 1; pieces <= 100; pieces += 99) {
			struct tails *tails = tails_create(NULL);

			unit_directory(dir, sizeof(dir));
			tails_add(tails, 1, 1, errors[i], strlen(errors[i]));
			for (int piece = 0; piece < 1000; piece++)
				tails_add(tails, 1, 1, piece % pieces ? "and more" : "broken: x",
					  8);
			tails_add(tails, 1, 1, "\n", 1);
			for (int line = 0; line < (pieces == 1 ? 1000 : 0); line++)
				tails_add(tails, 1, 1, "step of a thread\n", 17);
			ck_assert_int_eq(tails_write(tails, dir, 1, NULL), 0);
			tails_destroy(tails);
			snprintf(path, sizeof(path), "%s/tail-1.txt", dir);
			read_text(path, got, sizeof(got));
			rank_error_find(&error, got, -1);
			ck_assert_msg(strstr(error.text, "broken: "), "\"%s\" in %s", error.text,
				      got);
			if (i == 0)
				ck_assert_int_eq(error.prefix, 1);
			unit_remove(dir);
		}
}

/* A line on stdout within a traceback on stderr is not the exception. */
TEST(test_streams_are_parsed_separately)
{
	static const char *const stderr_pieces[] = {"Traceback (most recent call last):\n",
						    "  File \"a\"\nKeyEr", "ror: 1\n"};
	static const char out[] = "the thread runs\n";
	struct tails *tails = tails_create(NULL);
	char dir[64], path[128], got[4096];
	struct rank_error error;

	unit_directory(dir, sizeof(dir));
	for (int i = 0; i < 3; i++) {
		tails_add(tails, 1, 1, stderr_pieces[i], strlen(stderr_pieces[i]));
		tails_add(tails, 1, 0, out, strlen(out));
	}
	ck_assert_int_eq(tails_write(tails, dir, 1, NULL), 0);
	tails_destroy(tails);
	snprintf(path, sizeof(path), "%s/tail-1.txt", dir);
	read_text(path, got, sizeof(got));
	rank_error_find(&error, got, -1);
	ck_assert_str_eq(error.text, "KeyError: 1");
	unit_remove(dir);
}

/* Ranks with a traceback, and when each is checked again. */
TEST(test_ranks_with_tracebacks)
{
	static const char *const outputs[] = {
		"Traceback (most recent call last):\nKeyError: 1\n", "  what():  x\nddp[1@n1]: y\n",
		"[rank2]: Traceback (most recent call last):\n[rank2]: KeyError: 1\n",
		"[rank3]:[W1129 a.cpp:1] Traceback (most recent call last):\n[rank3]: KeyError\n"};
	struct tails *tails = tails_create(NULL);
	struct raised_rank *ranks;
	double before = ddp_seconds(), after;

	for (int i = 0; i < 4; i++)
		tails_add(tails, i, 1, outputs[i], strlen(outputs[i]));
	after = ddp_seconds();
	ck_assert_uint_eq(tails_raised(tails, before - 1, &ranks), 0);
	free(ranks);
	ck_assert_uint_eq(tails_raised(tails, after, &ranks), 2);
	ck_assert_int_eq(ranks[0].rank, 0);
	ck_assert_int_eq(ranks[1].rank, 2);
	ck_assert(!ranks[0].uncaught && ranks[1].uncaught);
	ck_assert(ranks[0].at >= before && ranks[0].at <= after);
	tails_set_checked(tails, &ranks[0], INFINITY);
	tails_set_checked(tails, &ranks[1], after + 9);
	free(ranks);
	ck_assert_uint_eq(tails_raised(tails, after + 8, &ranks), 0);
	free(ranks);
	ck_assert_uint_eq(tails_raised(tails, after + 9, &ranks), 1);
	ck_assert_int_eq(ranks[0].rank, 2);
	/* A check that began before another traceback does not count for it. */
	tails_add(tails, 2, 1, outputs[2], strlen(outputs[2]));
	tails_set_checked(tails, &ranks[0], INFINITY);
	free(ranks);
	ck_assert_uint_eq(tails_raised(tails, ddp_seconds(), &ranks), 1);
	free(ranks);
	tails_destroy(tails);
}

/* A traceback is found after other text on its line, also after more text than is parsed. */
TEST(test_ranks_with_tracebacks_after_other_text)
{
	static const struct {
		const char *text, *output;
		bool uncaught;
	} rows[] = {
		{" 40%|███▌      | 4/10 [00:01<00:02]\r",
		 " 50%|█████     | 5/10[rank0]: Traceback (most recent call last):\n"
		 "[rank0]:   File \"a\"\n[rank0]: KeyError: 1\n",
		 true},
		{" 40%|███▌      | 4/10 [00:01<00:02]\r",
		 " 50%|█████     | 5/10Traceback (most recent call last):\n  File \"a\"\nKeyError: 1\n",
		 false},
		{"[n1] step\n",
		 "[n1] Traceback (most recent call last):\n[n1]   File \"a\"\n[n1] KeyError: 1\n",
		 false},
		{"12:00:00 step\n",
		 "12:00:01 Traceback (most recent call last):\n12:00:01   File \"a\"\n"
		 "12:00:02 KeyError: 1\n",
		 false},
	};
	enum { ROWS = sizeof(rows) / sizeof(rows[0]) };
	struct raised_rank *ranks;

	for (int times = 0; times <= 100; times += 50) {
		struct tails *tails = tails_create(NULL);

		for (int i = 0; i < ROWS; i++) {
			for (int k = 0; k < times; k++)
				tails_add(tails, i, 1, rows[i].text, strlen(rows[i].text));
			tails_add(tails, i, 1, rows[i].output, strlen(rows[i].output));
		}
		tails_add(tails, ROWS, 1, "log: no Traceback (most recent call last) seen\nend\n",
			  51);
		ck_assert_uint_eq(tails_raised(tails, INFINITY, &ranks), ROWS);
		for (int i = 0; i < ROWS; i++) {
			ck_assert_int_eq(ranks[i].rank, i);
			ck_assert_int_eq(ranks[i].uncaught, rows[i].uncaught);
		}
		free(ranks);
		tails_destroy(tails);
	}
}

/* Labelled pieces of any length are joined to the rank's original output. */
TEST(test_output_is_restored_from_pieces)
{
	static const size_t pieces[] = {1, 7, 1024, 1030, 8192};
	char dir[64], path[128], text[4096], want[4096], got[4096];

	snprintf(text, sizeof(text),
		 "0: begin\n 1: %0*d\n 0: between\n 1: %0*d\n 1: %0*d\n 1: \n0: end\n", 1024, 1, 20,
		 2, 1024, 3);
	snprintf(want, sizeof(want), "%0*d%0*d\n%0*d\n", 1024, 1, 20, 2, 1024, 3);
	for (size_t piece = 0; piece < sizeof(pieces) / sizeof(pieces[0]); piece++) {
		struct srun_labels labels = {.length = 0};
		struct tails *tails;

		unit_directory(dir, sizeof(dir));
		tails = tails_create(dir);
		for (size_t at = 0, n; at < strlen(text); at += n) {
			n = strlen(text + at) < pieces[piece] ? strlen(text + at) : pieces[piece];
			srun_unlabel(&labels, text + at, n, collect_tails, tails);
			tails_log(tails);
		}
		ck_assert_int_eq(tails_write(tails, dir, 0, NULL), 0);
		ck_assert_int_eq(tails_write(tails, dir, 1, NULL), 0);
		ck_assert_int_eq(tails_write(tails, dir, 2, NULL), 0);
		ck_assert_int_eq(tails_write(tails, dir, TAILS_ALL, NULL), 0);
		tails_destroy(tails);
		snprintf(path, sizeof(path), "%s/tail-1.txt", dir);
		read_text(path, got, sizeof(got));
		ck_assert_str_eq(got, want);
		snprintf(path, sizeof(path), "%s/rank-1.log", dir);
		read_text(path, got, sizeof(got));
		ck_assert_str_eq(got, want);
		snprintf(path, sizeof(path), "%s/rank-0.log", dir);
		read_text(path, got, sizeof(got));
		ck_assert_str_eq(got, "begin\nbetween\nend\n");
		snprintf(path, sizeof(path), "%s/tail.txt", dir);
		read_text(path, got, sizeof(got));
		ck_assert_uint_eq(strlen(got), strlen(want) + strlen("begin\nbetween\nend\n"));
		snprintf(path, sizeof(path), "%s/tail-2.txt", dir);
		ck_assert_int_lt(access(path, F_OK), 0);
		unit_remove(dir);
	}
}

/* rank-N.log has all output of rank N, and tail-N.txt has the end of that output. */
TEST(test_tail_is_the_end_of_the_output)
{
	char dir[64], path[128], got[1 << 16], line[32];
	struct tails *tails;
	size_t all = 0;

	unit_directory(dir, sizeof(dir));
	tails = tails_create(dir);
	for (int i = 0; i < 5000; i++) {
		snprintf(line, sizeof(line), "line %d\n", i);
		all += strlen(line);
		tails_add(tails, 3, 1, line, strlen(line));
		if (i % 7 == 0)
			tails_log(tails);
	}
	tails_log(tails);
	ck_assert_int_eq(tails_write(tails, dir, 3, NULL), 0);
	ck_assert_int_eq(tails_write(tails, "/nowhere", 3, NULL), DDP_ERR_FILE);
	tails_destroy(tails);
	snprintf(path, sizeof(path), "%s/rank-3.log", dir);
	read_text(path, got, sizeof(got));
	ck_assert_uint_eq(strlen(got), all);
	ck_assert_ptr_nonnull(strstr(got, "\nline 1024\nline 1025\n"));
	snprintf(path, sizeof(path), "%s/tail-3.txt", dir);
	read_text(path, got, sizeof(got));
	ck_assert_uint_lt(strlen(got), 16384);
	ck_assert_uint_gt(strlen(got), 4096);
	ck_assert_str_eq(got + strlen(got) - 20, "line 4998\nline 4999\n");
	ck_assert_int_eq(strncmp(got, "line ", 5), 0);
	unit_remove(dir);
}

/* Files of an earlier run are replaced. The number of ranks may exceed the limit of open files. */
TEST(test_files_of_many_ranks_are_replaced)
{
	char dir[64], path[128], got[64], want[64];
	struct tails *tails;

	unit_directory(dir, sizeof(dir));
	for (int run = 0; run < 2; run++) {
		tails = tails_create(dir);
		for (int part = 0; part < 2; part++)
			for (int rank = 0; rank < 300; rank++) {
				snprintf(got, sizeof(got), "%d of %d\n", part, rank);
				tails_add(tails, rank, 1, got, strlen(got));
				tails_log(tails);
			}
		tails_destroy(tails);
	}
	for (int rank = 0; rank < 300; rank++) {
		snprintf(path, sizeof(path), "%s/rank-%d.log", dir, rank);
		snprintf(want, sizeof(want), "0 of %d\n1 of %d\n", rank, rank);
		read_text(path, got, sizeof(got));
		ck_assert_str_eq(got, want);
	}
	/* Nothing is written through a symbolic link. */
	snprintf(path, sizeof(path), "%s/rank-0.log", dir);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(symlink("rank-1.log", path), 0);
	tails = tails_create(dir);
	tails_add(tails, 0, 1, "x\n", 2);
	tails_log(tails);
	tails_destroy(tails);
	read_text(path, got, sizeof(got));
	ck_assert_str_eq(got, "0 of 1\n1 of 1\n");
	unit_remove(dir);
}

UNIT_MAIN("run", NULL)
