/* SPDX-License-Identifier: Apache-2.0 */
/* What ddp-run makes of its command line, of srun's words, and of attempts that failed. */
#include "config.h"

#include <math.h>
#include <sys/uio.h>

#include "base/file.h"
#include "run/decide.h"
#include "run/nodes.h"
#include "run/srun-line.h"
#include "run/tails.h"

#include "unit.h"

/* --- What to do next --------------------------------------------------------------------------- */

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

#define LEFT(left_)                                                          \
	{                                                                    \
		.end = RUN_END_EXIT, .status = 3, .saved = -1, .left = left_ \
	}

static const struct decide_row {
	const char *name;
	struct run_rules rules;
	struct run_past past[5];
	int wanted, usable;
	bool fixed;
	enum run_act act;
	int status, nodes;
} decide_rows[] = {
	{"a good end", {3, 0, false}, {A(GOOD, 0, "")}, 4, 4, false, RUN_STOP, 0, 0},
	{"a rank fails", {3, 0, false}, {A(EXIT, 7, "x")}, 4, 4, false, RUN_RESTART, 7, 4},
	{"no restarts are wanted", {0, 0, false}, {A(EXIT, 7, "x")}, 4, 4, false, RUN_STOP, 7, 0},
	{"a hang whose ranks end well",
	 {0, 0, false},
	 {A(HANG, 0, "x")},
	 4,
	 4,
	 false,
	 RUN_STOP,
	 1,
	 0},
	{"a lost node, and the others end well",
	 {0, 0, false},
	 {A(NODE, 0, "x")},
	 4,
	 4,
	 false,
	 RUN_STOP,
	 1,
	 0},
	{"the last restart",
	 {1, 0, false},
	 {A(EXIT, 7, "x"), A(SIGNAL, 137, "y")},
	 4,
	 4,
	 false,
	 RUN_STOP,
	 137,
	 0},
	{"what is refused", {3, 0, true}, {A(REFUSED, 2, "")}, 4, 4, false, RUN_STOP, 2, 0},
	{"what is refused after it had run",
	 {3, 0, false},
	 {A(EXIT, 7, "x"), AGAIN(2), AGAIN(2)},
	 4,
	 4,
	 false,
	 RUN_RESTART,
	 2,
	 4},
	{"refusals are no point",
	 {9, 0, false},
	 {SAVED(EXIT, 10), {.end = RUN_END_REFUSED, .again = true, .saved = 10}, SAVED(EXIT, 10)},
	 4,
	 4,
	 false,
	 RUN_RESTART,
	 1,
	 4},
	{"refusals to the last restart",
	 {2, 0, false},
	 {A(EXIT, 7, "x"), AGAIN(2), AGAIN(2)},
	 4,
	 4,
	 false,
	 RUN_STOP,
	 2,
	 0},
	{"what is cancelled", {3, 0, true}, {A(CANCELLED, 143, "")}, 4, 4, false, RUN_STOP, 143, 0},
	{"a time limit", {3, 0, false}, {A(TIME_LIMIT, 143, "")}, 4, 4, false, RUN_STOP, 143, 0},
	{"the time limit of the step, with --requeue",
	 {3, 0, true},
	 {A(STEP_LIMIT, 0, "")},
	 4,
	 4,
	 false,
	 RUN_RESTART,
	 1,
	 4},
	{"another job in its place",
	 {3, 0, true},
	 {A(PREEMPTED, 143, "")},
	 4,
	 4,
	 false,
	 RUN_REQUEUE,
	 143,
	 0},
	{"it, with --requeue",
	 {3, 0, true},
	 {A(TIME_LIMIT, 143, "")},
	 4,
	 4,
	 false,
	 RUN_REQUEUE,
	 143,
	 0},
	{"a warning", {3, 0, false}, {A(WARNED, 3, "x")}, 4, 4, false, RUN_STOP, 3, 0},
	{"a warning, with --requeue",
	 {3, 0, true},
	 {A(WARNED, 0, "")},
	 4,
	 4,
	 false,
	 RUN_REQUEUE,
	 0,
	 0},
	{"a stop on request", {3, 0, false}, {A(STOPPED, 3, "x")}, 4, 4, false, RUN_STOP, 3, 0},
	{"a stop on request, with --requeue",
	 {0, 0, true},
	 {A(STOPPED, 3, "x")},
	 4,
	 4,
	 false,
	 RUN_REQUEUE,
	 3,
	 0},
	{"near the job's end", {0, 0, true}, {LEFT(119)}, 4, 4, false, RUN_REQUEUE, 3, 0},
	{"near it without --requeue", {3, 0, false}, {LEFT(9)}, 4, 4, false, RUN_RESTART, 3, 4},
	{"long before it", {3, 0, true}, {LEFT(120)}, 4, 4, false, RUN_RESTART, 3, 4},
	{"two at one point",
	 {9, 0, false},
	 {A(EXIT, 1, "x"), A(EXIT, 1, "x")},
	 4,
	 4,
	 false,
	 RUN_RESTART,
	 1,
	 4},
	{"three at one point",
	 {9, 0, true},
	 {A(EXIT, 1, "x"), A(EXIT, 1, "x"), A(HANG, 1, "x")},
	 4,
	 4,
	 false,
	 RUN_STOP,
	 RUN_STATUS_STUCK,
	 0},
	{"three, but not in a row",
	 {9, 0, false},
	 {A(EXIT, 1, "x"), A(EXIT, 1, "x"), A(EXIT, 1, "y"), A(EXIT, 1, "x")},
	 4,
	 4,
	 false,
	 RUN_RESTART,
	 1,
	 4},
	{"three without a point",
	 {9, 0, false},
	 {A(EXIT, 1, ""), A(EXIT, 1, ""), A(EXIT, 1, "")},
	 4,
	 4,
	 false,
	 RUN_RESTART,
	 1,
	 4},
	{"three lost nodes are no point",
	 {9, 0, false},
	 {A(NODE, 1, "x"), A(NODE, 1, "x"), A(NODE, 1, "x")},
	 4,
	 4,
	 false,
	 RUN_RESTART,
	 1,
	 4},
	{"one point, newer checkpoints",
	 {9, 0, false},
	 {SAVED(EXIT, 10), SAVED(EXIT, 10), SAVED(EXIT, 11)},
	 4,
	 4,
	 false,
	 RUN_RESTART,
	 1,
	 4},
	{"no newer checkpoint",
	 {9, 0, false},
	 {SAVED(EXIT, 10), SAVED(SIGNAL, 10), SAVED(EXIT, 10)},
	 4,
	 4,
	 false,
	 RUN_STOP,
	 RUN_STATUS_STUCK,
	 0},
	{"a lost node, a spare",
	 {3, 0, false},
	 {A(NODE, 137, "")},
	 3,
	 3,
	 false,
	 RUN_RESTART,
	 137,
	 3},
	{"a lost node, fewer will do",
	 {3, 2, false},
	 {A(NODE, 137, "")},
	 4,
	 3,
	 false,
	 RUN_RESTART,
	 137,
	 3},
	{"a lost node, fewer will not do",
	 {3, 0, false},
	 {A(NODE, 137, "")},
	 4,
	 3,
	 false,
	 RUN_STOP,
	 RUN_STATUS_NODES,
	 0},
	{"below the least",
	 {3, 2, false},
	 {A(NODE, 137, "")},
	 4,
	 1,
	 false,
	 RUN_STOP,
	 RUN_STATUS_NODES,
	 0},
	{"below the least, requeued",
	 {3, 2, true},
	 {A(NODE, 137, "")},
	 4,
	 1,
	 false,
	 RUN_REQUEUE,
	 RUN_STATUS_NODES,
	 0},
	{"a fixed number of ranks",
	 {3, 2, false},
	 {A(NODE, 137, "")},
	 4,
	 3,
	 true,
	 RUN_STOP,
	 RUN_STATUS_NODES,
	 0},
};

TEST_ROWS(test_decisions, decide_rows)
{
	const struct decide_row *row = &decide_rows[_i];
	struct run_nodes nodes = {row->wanted, row->usable, row->fixed, "they are uneven"};
	struct run_decision decision;
	int count = 0;

	while (count < 5 && (row->past[count].status || row->past[count].end || !count))
		count++;
	decision = run_decide(&row->rules, row->past + (count < RUN_SAME ? 0 : count - RUN_SAME),
			      count, &nodes);
	ck_assert_msg(decision.act == row->act && decision.status == row->status &&
			      decision.nodes == row->nodes && decision.why[0],
		      "%s: act %d, status %d, %d nodes: %s", row->name, decision.act,
		      decision.status, decision.nodes, decision.why);
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

TEST(test_times_that_slurm_tells)
{
	static const char answer[] =
		"JobId=1 RunTime=1-02:03:04 TimeLimit=00:10:00 TimeMin=N/A MaxTime=UNLIMITED\n";

	ck_assert(nodes_seconds(answer, "RunTime") == 93784);
	ck_assert(nodes_seconds(answer, "TimeLimit") == 600);
	ck_assert(nodes_seconds(answer, "TimeMin") == INFINITY);
	ck_assert(nodes_seconds(answer, "MaxTime") == INFINITY);
	ck_assert(nodes_seconds(answer, "Time") == INFINITY);
	ck_assert(nodes_seconds("", "TimeLimit") == INFINITY);
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
	const char *nodes; /* NULL: -N is not given */
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
	/* What only begins as one of srun's is another. */
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

/* --- What srun says ---------------------------------------------------------------------------- */

static void say(struct srun_said *said, const char *text)
{
	/* In two pieces, as it may come. */
	srun_hear(said, -1, text, 5, 1.5);
	srun_hear(said, -1, text + 5, strlen(text + 5), 2.5);
}

TEST(test_how_tasks_ended)
{
	struct srun_said said = {.task = NULL};

	say(&said,
	    "loss 0.1\n"
	    "srun: error: n3: task 2: Segmentation fault (core dumped)\n"
	    "srun: error: n1: tasks 0-1,4: Exited with exit code 3\n"
	    "srun: error: n1: task 7: Out Of Memory\n"
	    "srun: error: n1: task x: Killed\n"
	    "srun: error: n1: task 8: became a frog\n"
	    "srun: error: Node failure on n2\n"
	    "srun: error: Task launch for StepId=4.0 failed on node n5: Communication connection failure\n"
	    "srun: error: Application launch failed: Communication connection failure\n"
	    "slurmstepd-n1: error: *** STEP 4.0 ON n1 CANCELLED AT 2026-11-23T14:19:07 ***\n");
	ck_assert_uint_eq(said.count, 5);
	ck_assert_int_eq(said.task[0].rank, 2);
	ck_assert_str_eq(said.task[0].node, "n3");
	ck_assert_int_eq(said.task[0].how, FACTS_SIGNAL);
	ck_assert_int_eq(said.task[0].code, 11);
	ck_assert_int_eq(said.task[1].how, FACTS_EXIT);
	ck_assert_int_eq(said.task[1].code, 3);
	ck_assert_int_eq(said.task[2].rank, 1);
	ck_assert_int_eq(said.task[3].rank, 4);
	ck_assert_int_eq(said.task[4].how, FACTS_OOM);
	ck_assert_uint_eq(said.lost.count, 1);
	ck_assert_str_eq(said.lost.name[0], "n2");
	ck_assert_uint_eq(said.missed.count, 1);
	ck_assert_str_eq(said.missed.name[0], "n5");
	ck_assert(!said.cancelled && !said.limit && !said.not_found);
	srun_said_free(&said);
}

/* A rank may have started a step of its own, whose srun speaks of other tasks. */
TEST(test_what_a_rank_says_is_not_sruns)
{
	static const char words[] = "srun: error: n1: task 7: Killed\n",
			  node[] = "slurmstepd-n1: error: execve(): x: No such file or directory\n";
	struct srun_said said = {.task = NULL};

	srun_hear(&said, 2, words, strlen(words), 1);
	ck_assert_uint_eq(said.count, 0);
	srun_hear(&said, 2, node, strlen(node), 1);
	ck_assert(said.not_found);
	srun_hear(&said, -1, words, strlen(words), 1);
	ck_assert_uint_eq(said.count, 1);
	srun_said_free(&said);
}

/* With or without a label: its node says nothing of whose step it is but in the words themselves. */
TEST(test_what_another_step_says_is_not_ours)
{
	struct srun_said said = {.step = "14.1", .program = "bin/train"};

	say(&said,
	    "slurmstepd-n1: error: *** STEP 14.2 ON n1 CANCELLED AT 2026 DUE TO TIME LIMIT ***\n"
	    "slurmstepd-n1: error: *** STEP 4.1 ON n1 CANCELLED AT 2026 DUE TO PREEMPTION ***\n"
	    "slurmstepd-n1: error: *** STEP 14.10 ON n1 CANCELLED AT 2026 ***\n"
	    "srun: sending Ctrl-C to StepId=14.2\n"
	    "srun: Terminating StepId=14.2\n"
	    "slurmstepd-n1: error: execve(): trains: No such file or directory\n"
	    "slurmstepd-n1: error: execve(): train/me: No such file or directory\n");
	ck_assert(!said.cancelled && !said.limit && !said.preempted && !said.ending &&
		  !said.not_found);
	say(&said, "slurmstepd-n1: error: execve(): /work/bin/train: Permission denied\n");
	ck_assert(said.not_found);
	say(&said, "srun: launch/slurm: _step_signal: Terminating StepId=14.1\n");
	ck_assert(said.ending && !said.cancelled);
	say(&said, "[2026-11-23T14:19:07.123] error: *** STEP 14.1 ON n1 CANCELLED AT 2026 ***\n");
	ck_assert(said.cancelled && !said.limit);
	srun_said_free(&said);
}

TEST(test_a_step_of_the_program_loses_a_node)
{
	static char names[][FACTS_NAME] = {"n1", "n2"};
	const struct node_list nodes = {names, 2};
	struct srun_said said = {.step = "4.0", .nodes = &nodes, .mixed = true};

	say(&said, "srun: Job step aborted: Waiting up to 7 seconds for job step to finish.\n"
		   "srun: error: Node failure on n9\n"
		   "srun: error: Task launch for StepId=4.1 failed on node n8: Timeout\n");
	ck_assert(!srun_lost_node(&said) && !said.cancelled && said.aborted);
	say(&said, "srun: error: Node failure on n2\n");
	ck_assert(srun_lost_node(&said));
	srun_said_free(&said);
}

TEST(test_tasks_of_another_step_are_dropped)
{
	static const char words[] = "srun: error: n2: task 0: Exited with exit code 3\n"
				    "srun: error: n1: tasks 0-1: Killed\n"
				    "srun: Terminating StepId=4.0\n"
				    "srun: error: n2: task 2: Terminated\n";
	struct srun_said mixed = {.step = "4.0", .mixed = true}, said = {.step = "4.0"};

	say(&mixed, words);
	ck_assert_uint_eq(mixed.count, 3);
	ck_assert_str_eq(mixed.task[0].node, "n1");
	ck_assert_int_eq(mixed.task[2].rank, 2);
	srun_said_free(&mixed);
	say(&said, words);
	ck_assert_uint_eq(said.count, 4);
	srun_said_free(&said);
}

TEST(test_who_ended_the_step)
{
	struct srun_said said = {.task = NULL};

	say(&said,
	    "slurmstepd: error: *** STEP 4.0 ON n1 CANCELLED AT 2026 DUE TO TIME LIMIT ***\n");
	ck_assert(said.cancelled && said.limit && !said.preempted && !said.not_found);
	srun_said_free(&said);
	say(&said,
	    "slurmstepd: error: *** STEP 4.0 ON n1 CANCELLED AT 2026 DUE TO PREEMPTION ***\n");
	ck_assert(said.cancelled && !said.limit && said.preempted);
	srun_said_free(&said);
	say(&said, "srun: Job step aborted: Waiting up to 7 seconds for job step to finish.\n"
		   "srun: error: n1: task 0: Killed\n");
	ck_assert(said.cancelled && !said.limit && !said.not_found);
	srun_said_free(&said);
	say(&said, "srun: error: Application launch failed: Invalid node name specified\n"
		   "srun: Job step aborted: Waiting up to 7 seconds for job step to finish.\n");
	ck_assert(!said.cancelled && !said.limit && !said.not_found);
	srun_said_free(&said);
	for (int i = 0; i < 3; i++) {
		static const char *const lost[] = {
			"step_launch_notify_io_failure: aborting, io error with slurmstepd on node 2",
			"Aborting, step missing and io error on node 1",
			"Task launch for StepId=4.0 failed on node n5: Communication connection failure",
		};

		say(&said, "srun: error: ");
		say(&said, lost[i]);
		say(&said,
		    "\nsrun: Job step aborted: Waiting up to 7 seconds for job step to finish.\n"
		    "slurmstepd-n1: error: *** STEP 4.0 ON n1 CANCELLED AT 2026 ***\n");
		ck_assert(!said.cancelled && said.broken == (i < 2));
		srun_said_free(&said);
	}
	say(&said, "srun: interrupt (one more within 1 sec to abort)\n"
		   "srun: StepId=5.0 tasks 0-1: running\n");
	ck_assert(!said.cancelled);
	say(&said, "srun: sending Ctrl-C to StepId=5.0\nsrun: error: n2: task 1: Interrupt\n");
	ck_assert(said.cancelled && !said.limit);
	srun_said_free(&said);
	say(&said, "srun: forcing job termination\n"
		   "srun: Job step aborted: Waiting up to 7 seconds for job step to finish.\n");
	ck_assert(said.cancelled && said.forced);
	srun_said_free(&said);
	said.step = "5.0";
	say(&said, "srun: First task exited 60s ago\n"
		   "srun: StepId=4.0 task 7: running\n"
		   "srun: StepId=5.0 tasks 1,3: running\n"
		   "srun: StepId=5.0 tasks 0,2: exited\n"
		   "srun: Terminating StepId=5.0\n"
		   "srun: Job step aborted: Waiting up to 7 seconds for job step to finish.\n"
		   "slurmstepd-n1: error: *** STEP 5.0 ON n1 CANCELLED AT 2026 ***\n");
	ck_assert(said.late && said.ending && !said.cancelled);
	ck_assert_uint_eq(said.count, 2);
	ck_assert(said.task[0].rank == 1 && said.task[0].how == FACTS_LATE &&
		  said.task[0].code == 60 && said.task[1].rank == 3);
	srun_said_free(&said);
	say(&said, "slurmstepd-n1: error: execve(): nosuch: No such file or directory\n");
	ck_assert(said.not_found && !said.cancelled);
	srun_said_free(&said);
}

/* Of steps on one node, by srun -v. */
TEST(test_whether_a_node_was_missed)
{
	static const char launched[] = "srun: jobid 2: nodes(4):`n[1-4]', cpu counts: 1(x4)\n"
				       "srun: launching StepId=2.0 on host n3, 1 tasks: 0\n",
			  missed[] = "srun: error: Task launch for StepId=2.0 failed on node n3: "
				     "Communication connection failure\n"
				     "srun: Job step aborted\n",
			  refused[] = "srun: fatal: --ntasks-per-node is mutually exclusive with "
				      "--ntasks-per-gpu and SLURM_NTASKS_PER_GPU\n",
			  down[] = "srun: error: Unable to confirm allocation for job 2: Unable to "
				   "contact slurm controller (connect failure)\nsrun: Check\n";
	char why[256];

	ck_assert(srun_missed_node(launched, true));
	ck_assert(!srun_missed_node(launched, false));
	ck_assert(srun_missed_node(missed, false));
	ck_assert(!srun_missed_node("", true));
	ck_assert(!srun_missed_node(refused, false));
	ck_assert(!srun_missed_node(down, true));
	srun_reason(refused, why, sizeof(why));
	ck_assert_str_eq(why, "srun: fatal: --ntasks-per-node is mutually exclusive with "
			      "--ntasks-per-gpu and SLURM_NTASKS_PER_GPU");
	srun_reason(down, why, sizeof(why));
	ck_assert_str_eq(why, "srun: error: Unable to confirm allocation for job 2: Unable to "
			      "contact slurm controller (connect failure)");
	srun_reason("", why, sizeof(why));
	ck_assert_str_eq(why, "Slurm does not answer");
}

/* --- What Slurm says --------------------------------------------------------------------------- */

/* scontrol, of a job that has many nodes: two of them are gone. */
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
	struct iovec part = {(char *)scontrol, strlen(scontrol)};
	char dir[64], path[128], search[4096], state[32];
	struct node_list left, drained = {.name = NULL};

	unit_directory(dir, sizeof(dir));
	snprintf(path, sizeof(path), "%s/scontrol", dir);
	ck_assert_int_eq(ddp_file_write(path, &part, 1, 0755, false, NULL), 0);
	snprintf(search, sizeof(search), "%s:%s", dir, getenv("PATH"));
	setenv("PATH", search, 1);
	left = nodes_of_job("5", state, sizeof(state), &drained);
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

/* --- What ranks printed ------------------------------------------------------------------------ */

/* As Slurm sends it: 1,024 bytes of a longer line, ended by sattach. */
/* Its words, each followed by the rank that they are of. */
static void take(void *data, int rank, const char *bytes, size_t size)
{
	char *got = data;

	sprintf(got + strlen(got), "%.*s<%d>", (int)size, bytes, rank);
}

TEST(test_labels_are_taken_off)
{
	static const char text[] =
		" 3: one\n12: 4: two\n\nsrun: error: n1\n  7 no label\n5:no\n :6: \n 12: \n-1: x\n1: un";
	struct srun_labels labels = {.length = 0};
	char got[8192] = "";

	for (size_t at = 0, n; at < strlen(text); at += n) {
		n = strlen(text + at) < 7 ? strlen(text + at) : 7;
		srun_unlabel(&labels, text + at, n, take, got);
	}
	ck_assert_str_eq(got, "one\n<3>4: two\n<12>\n<-1>srun: error: n1\n<-1>  7 no label\n<-1>"
			      "5:no\n<-1> :6: \n<-1>\n<12>-1: x\n<-1>");
	srun_unlabel(&labels, "til\n", 4, take, got);
	ck_assert_ptr_nonnull(strstr(got, "\n<-1>until\n<1>"));
}

/* A long line of srun's own comes out whole, though in parts. */
TEST(test_a_long_line_has_no_label)
{
	struct srun_labels labels = {.length = 0};
	char text[4000], got[8192] = "";

	snprintf(text, sizeof(text), "srun: %0*d3: x\n4: y\n", 1095, 0);
	srun_unlabel(&labels, text, strlen(text), take, got);
	ck_assert_ptr_nonnull(strstr(got, "3: x\n<-1>y\n<4>"));
}

static void take_tails(void *data, int rank, const char *bytes, size_t size)
{
	tails_take(data, rank, bytes, size);
}

static void read_text(const char *path, char *text, size_t size)
{
	FILE *file = fopen(path, "r");

	ck_assert_ptr_nonnull(file);
	text[fread(text, 1, size - 1, file)] = '\0';
	fclose(file);
}

/* Whatever is read at once, a rank's bytes are as it wrote them. */
TEST(test_pieces_of_a_line_are_one)
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
			srun_unlabel(&labels, text + at, n, take_tails, tails);
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

/* A file has all of it, the tail the last of it. */
TEST(test_a_tail_is_the_last_of_much)
{
	char dir[64], path[128], got[1 << 16], line[32];
	struct tails *tails;
	size_t all = 0;

	unit_directory(dir, sizeof(dir));
	tails = tails_create(dir);
	for (int i = 0; i < 5000; i++) {
		snprintf(line, sizeof(line), "line %d\n", i);
		all += strlen(line);
		tails_take(tails, 3, line, strlen(line));
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

/* Of an earlier run nothing is left, and of more ranks than files may be open each has its own. */
TEST(test_files_of_many_ranks_begin_anew)
{
	char dir[64], path[128], got[64], want[64];
	struct tails *tails;

	unit_directory(dir, sizeof(dir));
	for (int run = 0; run < 2; run++) {
		tails = tails_create(dir);
		for (int part = 0; part < 2; part++)
			for (int rank = 0; rank < 300; rank++) {
				snprintf(got, sizeof(got), "%d of %d\n", part, rank);
				tails_take(tails, rank, got, strlen(got));
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
	/* What is a link is not followed. */
	snprintf(path, sizeof(path), "%s/rank-0.log", dir);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(symlink("rank-1.log", path), 0);
	tails = tails_create(dir);
	tails_take(tails, 0, "x\n", 2);
	tails_log(tails);
	tails_destroy(tails);
	read_text(path, got, sizeof(got));
	ck_assert_str_eq(got, "0 of 1\n1 of 1\n");
	unit_remove(dir);
}

UNIT_MAIN("run", NULL)
