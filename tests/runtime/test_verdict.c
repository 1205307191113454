/* SPDX-License-Identifier: Apache-2.0 */
/* test_verdict.c - which rank failed first, decided from the known facts about an attempt */
#include "config.h"

#include "run/verdict.h"
#include "unit.h"

#define EXIT(code_) .how = FACTS_EXIT, .code = code_
#define KILLED(signal_) .how = FACTS_SIGNAL, .code = signal_
#define AT(order_, time_) .order = order_, .time = 1795000000 + time_
#define LIBDDP(message_) .message = message_, .libddp = true
#define PEER "RuntimeError: Connection closed by peer [127.0.0.1]:3456"
#define ALIVE .state = 'S', .heartbeat_age = -1

static const struct row {
	/* silent: name of a node that does not answer; NULL: all answer */
	const char *name, *kind, *silent;
	struct facts_rank ranks[4]; /* three ranks; the last element is not used */
	int missing;		    /* bit mask of ranks that did not arrive in the collective */
	/* first: rank that failed first; follows: bit mask of ranks that failed because of it */
	int first, follows;
	enum facts_how how; /* how the first rank failed */
	const char *why;
} rows[] = {
	{"the earliest message of srun",
	 "exit",
	 NULL,
	 {{EXIT(1), AT(2, 11), .message = "b"}, {EXIT(1), AT(1, 10), .message = "a"}},
	 .first = 1,
	 .how = FACTS_EXIT},
	{"an exception and a message of srun",
	 "exit",
	 NULL,
	 {{EXIT(1), AT(1, 10), .message = "b"}, {EXIT(1), AT(2, 11), .message = "a", .raised = 8}},
	 .first = 0,
	 .how = FACTS_EXIT},
	{"the earliest exception counts more than the earliest message of srun",
	 "exit",
	 NULL,
	 {{EXIT(1), AT(1, 10), .message = "b", .raised = 9},
	  {EXIT(1), AT(2, 11), .message = "a", .raised = 8}},
	 .first = 1,
	 .how = FACTS_EXIT},
	{"of two at the same time, the first that srun reported",
	 "exit",
	 NULL,
	 {{EXIT(1), AT(2, 10), .message = "b"}, {EXIT(1), AT(1, 10), .message = "a"}},
	 .first = 1,
	 .how = FACTS_EXIT},
	{"an exit without a message may be the effect of a signal that srun reports later",
	 "signal",
	 NULL,
	 {{EXIT(1), AT(1, 10)}, {KILLED(11), AT(2, 10.5)}},
	 .first = 1,
	 .follows = 1,
	 .how = FACTS_SIGNAL},
	{"a shell's exit status for a signal is a signal",
	 "exit",
	 NULL,
	 {{EXIT(1), AT(1, 10)}, {EXIT(139), AT(2, 10.5)}},
	 .first = 1,
	 .follows = 1,
	 .how = FACTS_EXIT},
	{"a lost connection follows",
	 "exit",
	 NULL,
	 {{EXIT(1), AT(1, 10), .message = PEER}, {EXIT(1), AT(2, 11), .message = "KeyError: x"}},
	 .first = 1,
	 .follows = 1,
	 .how = FACTS_EXIT},
	{"a stop on request follows",
	 "exit",
	 NULL,
	 {{EXIT(3), AT(1, 10), .message = "stopped: SIGTERM"}, {EXIT(9), AT(2, 11)}},
	 .first = 1,
	 .follows = 1,
	 .how = FACTS_EXIT},
	{"SIGTERM, and SIGKILL more than a second later, end a rank with the step",
	 "exit",
	 NULL,
	 {{KILLED(15), AT(1, 10)}, {EXIT(2), AT(2, 10)}, {KILLED(9), AT(3, 11.5)}},
	 .first = 1,
	 .follows = 1 | 4,
	 .how = FACTS_EXIT},
	{"SIGKILL within a second is the failure",
	 "signal",
	 NULL,
	 {{EXIT(1), AT(1, 10)}, {KILLED(9), AT(2, 10.5)}},
	 .first = 1,
	 .follows = 1,
	 .how = FACTS_SIGNAL},
	{"out of memory",
	 "signal",
	 NULL,
	 {{.how = FACTS_OOM, AT(1, 10)}, {KILLED(15), AT(2, 11)}},
	 .first = 0,
	 .follows = 2,
	 .how = FACTS_OOM},
	{"libddp's exit status for a lost peer follows, also without a message",
	 "exit",
	 NULL,
	 {{EXIT(64 - DDP_ERR_PEER), AT(1, 10)}, {EXIT(70), AT(2, 11), LIBDDP("cannot open /data")}},
	 .first = 1,
	 .follows = 1,
	 .how = FACTS_EXIT},
	{"if all follow, the rank that most of them name",
	 "exit",
	 NULL,
	 {{EXIT(66), AT(1, 10), LIBDDP("rank 2 on n2 is gone")},
	  {EXIT(66), AT(2, 10), LIBDDP("from rank 0 on n1: rank 2 on n2 is gone")},
	  {KILLED(15), AT(3, 11)}},
	 .first = 2,
	 .follows = 1 | 2,
	 .how = FACTS_SIGNAL,
	 .why = "other ranks name it"},
	{"rank 0, which others name",
	 "exit",
	 NULL,
	 {{KILLED(15), AT(3, 11)}, {EXIT(66), AT(1, 10), LIBDDP("rank 0 on n1 is gone")}},
	 .first = 0,
	 .follows = 2,
	 .how = FACTS_SIGNAL,
	 .why = "other ranks name it"},
	{"if all follow and name none, the rank that reported an error, but that Slurm ended before it exited",
	 "exit",
	 NULL,
	 {{EXIT(1), AT(1, 10), .message = PEER, .raised = 9},
	  {KILLED(15), AT(2, 11), .message = "KeyError: x", .raised = 9},
	  {KILLED(15), AT(3, 11)}},
	 .missing = 4,
	 .first = 1,
	 .follows = 1 | 4,
	 .how = FACTS_SIGNAL},
	{"if all follow and name none, a rank that did not arrive",
	 "signal",
	 NULL,
	 {{KILLED(15), AT(1, 10)}, {KILLED(15), AT(2, 10)}, {KILLED(15), AT(3, 11)}},
	 .missing = 4,
	 .first = 2,
	 .follows = 1 | 2,
	 .how = FACTS_SIGNAL,
	 .why = "it did not arrive"},
	{"if all follow and none is missing, the earliest",
	 "signal",
	 NULL,
	 {{KILLED(15), AT(2, 10)}, {KILLED(15), AT(1, 10)}},
	 .first = 1,
	 .follows = 1,
	 .how = FACTS_SIGNAL},
	{"a rank of a lost node counts more than a message",
	 "node",
	 "n2",
	 {{EXIT(1), AT(1, 10), .node = "n1", .message = "x"}, {.node = "n2"}},
	 .first = 1,
	 .how = FACTS_NODE},
	{"a lost slurmstepd: the rank that srun did not report",
	 "node",
	 NULL,
	 {{KILLED(9), AT(1, 10)}, {.pid = 7}, {KILLED(9), AT(2, 10)}},
	 .first = 1,
	 .follows = 1 | 4,
	 .how = FACTS_SLURMSTEPD},
	{"nobody failed if the job's time was over",
	 "timelimit",
	 NULL,
	 {{KILLED(15), AT(1, 10)}},
	 .first = -1,
	 .follows = 1},
	{"nothing is known", NULL, NULL, {{.pid = 0}}, .first = -1},
	{"a hang: a node that does not answer counts more than a stopped rank",
	 "hang",
	 "n2",
	 {{.node = "n1", .state = 'T', .heartbeat_age = -1}, {.node = "n2", .heartbeat_age = -1}},
	 .first = 1,
	 .why = "its node does not answer"},
	{"a hang: a stopped rank, although the end of the step killed it",
	 "hang",
	 NULL,
	 {{ALIVE, KILLED(15), AT(1, 10)},
	  {.state = 'T', .heartbeat_age = -1, KILLED(9), AT(2, 12)}},
	 .missing = 1,
	 .first = 1,
	 .how = FACTS_SIGNAL,
	 .why = "it is stopped"},
	{"a hang: a lost parent",
	 "hang",
	 NULL,
	 {{ALIVE, .parent = "slurmstepd"}, {ALIVE, .parent = "systemd"}},
	 .first = 1,
	 .why = "the slurmstepd that started it is gone"},
	{"a hang: a rank that did not arrive counts more than an old heartbeat",
	 "hang",
	 NULL,
	 {{.state = 'S', .heartbeat_age = 60}, {.state = 'S', .heartbeat_age = 1}},
	 .missing = 2,
	 .first = 1,
	 .why = "it did not arrive"},
	{"a hang: a heartbeat that is more than five seconds older than another",
	 "hang",
	 NULL,
	 {{.state = 'D', .heartbeat_age = 3},
	  {.state = 'S', .heartbeat_age = 9},
	  {.heartbeat_age = -1}},
	 .first = 1,
	 .why = "its last heartbeat was 9 s ago, those of other ranks were later"},
	{"a hang: a rank that waits in the kernel, if heartbeats do not differ",
	 "hang",
	 NULL,
	 {{.state = 'S', .heartbeat_age = 3},
	  {.state = 'D', .heartbeat_age = 7},
	  {.heartbeat_age = -1}},
	 .first = 1,
	 .why = "it waits in the kernel, usually for a disk or a file server"},
	{"a hang: rank 0 waits in the kernel",
	 "hang",
	 NULL,
	 {{.state = 'D', .heartbeat_age = -1}, {ALIVE}},
	 .first = 0,
	 .why = "it waits in the kernel, usually for a disk or a file server"},
	{"a hang: the node of rank 0 does not answer",
	 "hang",
	 "n1",
	 {{.node = "n1", .heartbeat_age = -1}, {ALIVE}},
	 .first = 0,
	 .why = "its node does not answer"},
	{"a hang of which no rank stands out",
	 "hang",
	 NULL,
	 {{ALIVE}, {ALIVE}, {ALIVE}},
	 .first = -1},
};

TEST_ROWS(test_decisions, rows)
{
	const struct row *row = &rows[_i];
	struct facts_rank ranks[4];
	struct ddp_arrival arrivals[3] = {{.there = false}};
	struct facts_node node = {.silent = row->silent != NULL};
	struct facts facts = {.kind = row->kind,
			      .size = 3,
			      .ranks = ranks,
			      .arrivals = arrivals,
			      .known = &node,
			      .known_count = 1,
			      .collectives = "did not arrive"};
	int follows = 0;

	memcpy(ranks, row->ranks, sizeof(ranks));
	snprintf(node.name, sizeof(node.name), "%s", row->silent ? row->silent : "n9");
	for (int i = 0; i < 3; i++)
		arrivals[i].missing = row->missing >> i & 1;
	verdict_judge(&facts);
	unit_number(row->name, "first", facts.first, row->first);
	for (int i = 0; i < 3; i++)
		follows |= ranks[i].follows << i;
	unit_number(row->name, "ranks that follow", follows, row->follows);
	if (row->first < 0)
		return;
	unit_number(row->name, "how", ranks[facts.first].how, row->how);
	if (strcmp(row->kind, "exit") == 0 || strcmp(row->kind, "signal") == 0)
		unit_text(row->name, "kind", facts.kind,
			  row->how == FACTS_EXIT ? "exit" : "signal");
	unit_text(row->name, "why", ranks[facts.first].why, row->why ? row->why : "");
}

UNIT_MAIN("verdict", NULL)
