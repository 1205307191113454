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
#define STACK(place_, line_) .stack = {.place = STACK_##place_, .line = line_}
#define ALIVE .state = 'S', .heartbeat_age = -1

static const struct row {
	const char *name;
	enum run_end end;
	const char *silent;	    /* name of a node that does not answer; NULL: all answer */
	struct facts_rank ranks[4]; /* three ranks; the last element is not used */
	int missing;		    /* bit mask of ranks that did not arrive in the collective */
	/* first: rank that failed first; follows: bit mask of ranks that failed because of it */
	int first, follows;
	enum facts_how how; /* how the first rank failed */
	const char *why;
	bool lost;			 /* srun lost a slurmstepd */
	const char *stepd_lost, *missed; /* node whose slurmstepd srun lost, or that srun missed */
	const char *refused_by;
} rows[] = {
	{"the earliest message of srun",
	 RUN_END_EXIT,
	 NULL,
	 {{EXIT(1), AT(2, 11), .message = "b"}, {EXIT(1), AT(1, 10), .message = "a"}},
	 .first = 1,
	 .how = FACTS_EXIT},
	{"an exception and a message of srun",
	 RUN_END_EXIT,
	 NULL,
	 {{EXIT(1), AT(1, 10), .message = "b"}, {EXIT(1), AT(2, 11), .message = "a", .raised = 8}},
	 .first = 0,
	 .how = FACTS_EXIT},
	{"the earliest exception counts more than the earliest message of srun",
	 RUN_END_EXIT,
	 NULL,
	 {{EXIT(1), AT(1, 10), .message = "b", .raised = 9},
	  {EXIT(1), AT(2, 11), .message = "a", .raised = 8}},
	 .first = 1,
	 .how = FACTS_EXIT},
	{"of two at the same time, the first that srun reported",
	 RUN_END_EXIT,
	 NULL,
	 {{EXIT(1), AT(2, 10), .message = "b"}, {EXIT(1), AT(1, 10), .message = "a"}},
	 .first = 1,
	 .how = FACTS_EXIT},
	{"an exit without a message may be the effect of a signal that srun reports later",
	 RUN_END_SIGNAL,
	 NULL,
	 {{EXIT(1), AT(1, 10)}, {KILLED(11), AT(2, 10.5)}},
	 .first = 1,
	 .follows = 1,
	 .how = FACTS_SIGNAL},
	{"a shell's exit status for a signal is a signal",
	 RUN_END_EXIT,
	 NULL,
	 {{EXIT(1), AT(1, 10)}, {EXIT(139), AT(2, 10.5)}},
	 .first = 1,
	 .follows = 1,
	 .how = FACTS_EXIT},
	{"a lost connection follows",
	 RUN_END_EXIT,
	 NULL,
	 {{EXIT(1), AT(1, 10), .message = PEER}, {EXIT(1), AT(2, 11), .message = "KeyError: x"}},
	 .first = 1,
	 .follows = 1,
	 .how = FACTS_EXIT},
	{"a stop on request follows",
	 RUN_END_EXIT,
	 NULL,
	 {{EXIT(3), AT(1, 10), .message = "stopped: SIGTERM"}, {EXIT(9), AT(2, 11)}},
	 .first = 1,
	 .follows = 1,
	 .how = FACTS_EXIT},
	{"SIGTERM, and SIGKILL more than a second later, end a rank with the step",
	 RUN_END_EXIT,
	 NULL,
	 {{KILLED(15), AT(1, 10)}, {EXIT(2), AT(2, 10)}, {KILLED(9), AT(3, 11.5)}},
	 .first = 1,
	 .follows = 1 | 4,
	 .how = FACTS_EXIT},
	{"SIGKILL within a second is the failure",
	 RUN_END_SIGNAL,
	 NULL,
	 {{EXIT(1), AT(1, 10)}, {KILLED(9), AT(2, 10.5)}},
	 .first = 1,
	 .follows = 1,
	 .how = FACTS_SIGNAL},
	{"out of memory",
	 RUN_END_SIGNAL,
	 NULL,
	 {{.how = FACTS_OOM, AT(1, 10)}, {KILLED(15), AT(2, 11)}},
	 .first = 0,
	 .follows = 2,
	 .how = FACTS_OOM},
	{"libddp's exit status for a lost peer follows, also without a message",
	 RUN_END_EXIT,
	 NULL,
	 {{EXIT(64 - DDP_ERR_PEER), AT(1, 10)}, {EXIT(70), AT(2, 11), LIBDDP("cannot open /data")}},
	 .first = 1,
	 .follows = 1,
	 .how = FACTS_EXIT},
	{"if all follow, the rank that most of them name",
	 RUN_END_EXIT,
	 NULL,
	 {{EXIT(66), AT(1, 10), LIBDDP("rank 2 on n2 is gone")},
	  {EXIT(66), AT(2, 10), LIBDDP("from rank 0 on n1: rank 2 on n2 is gone")},
	  {KILLED(15), AT(3, 11)}},
	 .first = 2,
	 .follows = 1 | 2,
	 .how = FACTS_SIGNAL,
	 .why = "other ranks name it"},
	{"a rank that has left, not the one that makes the next call",
	 RUN_END_EXIT,
	 NULL,
	 {{KILLED(15), AT(2, 11)},
	  {KILLED(15), AT(2, 11),
	   LIBDDP("rank 1 on n1 calls barrier #3, rank 0 has left with ddp_destroy #3")},
	  {EXIT(1), AT(1, 10),
	   LIBDDP("from rank 0 on n1: rank 1 on n1 calls barrier #3, rank 0 has left with ddp_destroy #3")}},
	 .first = 0,
	 .follows = 2 | 4,
	 .how = FACTS_SIGNAL,
	 .why = "other ranks name it"},
	{"a rank that sent the message is not the rank that the message names",
	 RUN_END_EXIT,
	 NULL,
	 {{EXIT(86), AT(1, 10), LIBDDP("rank 1 on n2: rank 2 on n2 (pid 3) is gone")},
	  {KILLED(15), AT(3, 12), LIBDDP("rank 2 on n2 (pid 3) is gone")},
	  {KILLED(9), AT(2, 12)}},
	 .first = 2,
	 .follows = 1 | 2,
	 .how = FACTS_SIGNAL,
	 .why = "other ranks name it"},
	{"a rank that received another rank's error follows",
	 RUN_END_EXIT,
	 NULL,
	 {{EXIT(86), AT(1, 10), LIBDDP("from rank 1 on n2: cannot open /data")},
	  {EXIT(70), AT(2, 11), LIBDDP("cannot open /data")}},
	 .first = 1,
	 .follows = 1,
	 .how = FACTS_EXIT},
	{"rank 0, which others name",
	 RUN_END_EXIT,
	 NULL,
	 {{KILLED(15), AT(3, 11)}, {EXIT(66), AT(1, 10), LIBDDP("rank 0 on n1 is gone")}},
	 .first = 0,
	 .follows = 2,
	 .how = FACTS_SIGNAL,
	 .why = "other ranks name it"},
	{"if all follow and name none, the rank that reported an error, but that Slurm ended before it exited",
	 RUN_END_EXIT,
	 NULL,
	 {{EXIT(1), AT(1, 10), .message = PEER, .raised = 9},
	  {KILLED(15), AT(2, 11), .message = "KeyError: x", .raised = 9},
	  {KILLED(15), AT(3, 11)}},
	 .missing = 4,
	 .first = 1,
	 .follows = 1 | 4,
	 .how = FACTS_SIGNAL},
	{"if all follow and name none, a rank that did not arrive",
	 RUN_END_SIGNAL,
	 NULL,
	 {{KILLED(15), AT(1, 10)}, {KILLED(15), AT(2, 10)}, {KILLED(15), AT(3, 11)}},
	 .missing = 4,
	 .first = 2,
	 .follows = 1 | 2,
	 .how = FACTS_SIGNAL,
	 .why = "it did not arrive"},
	{"if all follow and have lost a peer, the rank that srun did not report, since it ended with status 0",
	 RUN_END_EXIT,
	 NULL,
	 {{EXIT(1), AT(1, 10), .message = PEER},
	  {.pid = 7},
	  {KILLED(9), AT(2, 12),
	   .message = "RuntimeError: DataLoader worker (pid 5) is killed by signal: Terminated. "}},
	 .first = 1,
	 .follows = 1 | 4,
	 .how = FACTS_EXIT,
	 .why = "and other ranks lost the connection to it"},
	{"if all follow and none is missing, the earliest",
	 RUN_END_SIGNAL,
	 NULL,
	 {{KILLED(15), AT(2, 10)}, {KILLED(15), AT(1, 10)}},
	 .first = 1,
	 .follows = 1,
	 .how = FACTS_SIGNAL},
	{"a rank of a lost node counts more than a message",
	 RUN_END_NODE,
	 "n2",
	 {{EXIT(1), AT(1, 10), .node = "n1", .message = "x"}, {.node = "n2"}},
	 .first = 1,
	 .how = FACTS_NODE},
	{"a lost slurmstepd: the rank that srun did not report",
	 RUN_END_NODE,
	 NULL,
	 {{KILLED(9), AT(1, 10)}, {.pid = 7}, {KILLED(9), AT(2, 10)}},
	 .first = 1,
	 .follows = 1 | 4,
	 .how = FACTS_SLURMSTEPD,
	 .lost = true},
	{"a lost slurmstepd: a rank of its node, not one that ended with status 0",
	 RUN_END_NODE,
	 NULL,
	 {{.node = "n1"}, {KILLED(9), AT(1, 10), .node = "n2"}, {.node = "n3"}},
	 .first = 2,
	 .follows = 2,
	 .how = FACTS_SLURMSTEPD,
	 .lost = true,
	 .stepd_lost = "n3"},
	{"a rank that was not started, and a killed one",
	 RUN_END_NODE,
	 NULL,
	 {{KILLED(9), AT(1, 10), .node = "n1"}, {.node = ""}, {EXIT(1), AT(2, 11), .node = "n3"}},
	 .first = 1,
	 .follows = 1 | 4,
	 .how = FACTS_NOT_STARTED,
	 .why = "srun reports \"Job credential expired\"",
	 .lost = true,
	 .missed = "n2"},
	{"a rank that was not started, because its node does not answer",
	 RUN_END_NODE,
	 "n2",
	 {{KILLED(9), AT(1, 10), .node = "n1"}, {.node = ""}, {KILLED(9), AT(2, 10), .node = "n3"}},
	 .first = 1,
	 .follows = 1 | 4,
	 .how = FACTS_NOT_STARTED,
	 .why = "node n2 does not answer",
	 .lost = true,
	 .missed = "n2"},
	{"a refused step: not a rank that Slurm killed earlier",
	 RUN_END_SIGNAL,
	 NULL,
	 {{KILLED(9), AT(1, 10), .node = "n1"},
	  {EXIT(1), AT(3, 11), .node = "n1"},
	  {KILLED(9), AT(2, 10), .node = "n2"}},
	 .first = 1,
	 .follows = 1 | 4,
	 .how = FACTS_EXIT,
	 .refused_by = "n1"},
	{"a killed rank, after which Slurm did not end a rank on another node",
	 RUN_END_NODE,
	 NULL,
	 {{.pid = 7}, {KILLED(9), AT(1, 10)}, {KILLED(15), AT(2, 10)}},
	 .first = 1,
	 .follows = 4,
	 .how = FACTS_SIGNAL},
	{"of three ranks, one that ended with status 0 while the others ran on",
	 RUN_END_EXIT,
	 NULL,
	 {{.how = FACTS_LATE, .code = 60, AT(1, 70)},
	  {.pid = 7},
	  {.how = FACTS_LATE, .code = 60, AT(2, 70)}},
	 .first = 1,
	 .follows = 1 | 4,
	 .how = FACTS_EXIT,
	 .why = "and most other ranks ran on"},
	{"of three ranks, one that ran on after the others had ended",
	 RUN_END_EXIT,
	 NULL,
	 {{.pid = 6}, {.pid = 7}, {.how = FACTS_LATE, .code = 60, AT(1, 70)}},
	 .first = 2,
	 .how = FACTS_LATE},
	{"nobody failed if the job's time was over",
	 RUN_END_TIME_LIMIT,
	 NULL,
	 {{KILLED(15), AT(1, 10)}},
	 .first = -1,
	 .follows = 1},
	{"nothing is known", RUN_END_EXIT, NULL, {{.pid = 0}}, .first = -1},
	{"a hang: a node that does not answer counts more than a stopped rank",
	 RUN_END_HANG,
	 "n2",
	 {{.node = "n1", .state = 'T', .heartbeat_age = -1}, {.node = "n2", .heartbeat_age = -1}},
	 .first = 1,
	 .why = "its node does not answer"},
	{"a hang: a stopped rank, although the end of the step killed it",
	 RUN_END_HANG,
	 NULL,
	 {{ALIVE, KILLED(15), AT(1, 10)},
	  {.state = 'T', .heartbeat_age = -1, KILLED(9), AT(2, 12)}},
	 .missing = 1,
	 .first = 1,
	 .how = FACTS_SIGNAL,
	 .why = "it is stopped"},
	{"a hang: a rank without a process, but not one that ended with status 0",
	 RUN_END_HANG,
	 NULL,
	 {{.state = '-', .heartbeat_age = -1, EXIT(0), AT(1, 10)},
	  {.state = '-', .heartbeat_age = -1},
	  {ALIVE, STACK(RUNS, "")}},
	 .first = 1,
	 .why = "its process no longer exists"},
	{"a hang: others wait for a rank that ended with status 0",
	 RUN_END_HANG,
	 NULL,
	 {{ALIVE, STACK(WAITS, "")}, {.state = '-', .heartbeat_age = -1, EXIT(0), AT(1, 10)}},
	 .first = 1,
	 .how = FACTS_EXIT,
	 .why = "its program has ended, and others wait for it"},
	{"a hang: a lost parent",
	 RUN_END_HANG,
	 NULL,
	 {{ALIVE, .parent = "slurmstepd"}, {ALIVE, .parent = "systemd"}},
	 .first = 1,
	 .why = "the slurmstepd that started it is gone"},
	{"a hang: a rank that did not arrive counts more than an old heartbeat",
	 RUN_END_HANG,
	 NULL,
	 {{.state = 'S', .heartbeat_age = 60}, {.state = 'S', .heartbeat_age = 1}},
	 .missing = 2,
	 .first = 1,
	 .why = "it did not arrive"},
	{"a hang: a heartbeat that is more than five seconds older than another",
	 RUN_END_HANG,
	 NULL,
	 {{.state = 'D', .heartbeat_age = 3},
	  {.state = 'S', .heartbeat_age = 9},
	  {.heartbeat_age = -1}},
	 .first = 1,
	 .why = "its last heartbeat was 9 s ago, those of other ranks were later"},
	{"a hang: a rank that waits in the kernel, if heartbeats do not differ",
	 RUN_END_HANG,
	 NULL,
	 {{.state = 'S', .heartbeat_age = 3},
	  {.state = 'D', .heartbeat_age = 7},
	  {.heartbeat_age = -1}},
	 .first = 1,
	 .why = "it waits in the kernel, usually for a disk or a file server"},
	{"a hang: rank 0 waits in the kernel",
	 RUN_END_HANG,
	 NULL,
	 {{.state = 'D', .heartbeat_age = -1}, {ALIVE}},
	 .first = 0,
	 .why = "it waits in the kernel, usually for a disk or a file server"},
	{"a hang: the node of rank 0 does not answer",
	 RUN_END_HANG,
	 "n1",
	 {{.node = "n1", .heartbeat_age = -1}, {ALIVE}},
	 .first = 0,
	 .why = "its node does not answer"},
	{"a rank that did not exit after an exception, although srun reports only the ranks that ddp-run ended",
	 RUN_END_EXIT,
	 NULL,
	 {{KILLED(15), AT(2, 80)}, {.how = FACTS_RAISED, AT(1, 10), .message = "KeyError: x"}},
	 .first = 1,
	 .follows = 1,
	 .how = FACTS_RAISED},
	{"a hang: a rank with an exception counts more than one that did not arrive",
	 RUN_END_HANG,
	 NULL,
	 {{.state = 'S', .heartbeat_age = -1, .how = FACTS_RAISED, AT(1, 5), .message = PEER},
	  {.state = 'S',
	   .heartbeat_age = -1,
	   .how = FACTS_RAISED,
	   AT(2, 9),
	   .message = "KeyError: x"},
	  {ALIVE, STACK(RUNS, "")}},
	 .missing = 4,
	 .first = 1,
	 .how = FACTS_RAISED,
	 .why = "it has not exited after an exception"},
	{"a hang: a rank whose stack is not in a collective, while others wait in one",
	 RUN_END_HANG,
	 NULL,
	 {{ALIVE, STACK(WAITS, "f (a.py:1)")},
	  {ALIVE, STACK(RUNS, "main (a.py:3)")},
	  {.state = 'S', .heartbeat_age = 60, STACK(WAITS, "")}},
	 .first = 1,
	 .why = "it is not in a collective, and others wait for it: main (a.py:3)"},
	{"a hang: a rank that runs counts more than ranks that have ended",
	 RUN_END_HANG,
	 NULL,
	 {{ALIVE, STACK(ENDS, "_shutdown (threading.py:1)")}, {ALIVE, STACK(RUNS, "")}},
	 .first = 1,
	 .why = "it is not in a collective, and others wait for it"},
	{"a hang: a rank that has ended, while others wait in a collective",
	 RUN_END_HANG,
	 NULL,
	 {{ALIVE, STACK(WAITS, "")}, {ALIVE, STACK(UNKNOWN, "")}, {ALIVE, STACK(ENDS, "")}},
	 .first = 2,
	 .why = "its program has ended, and others wait for it"},
	{"a hang: a rank that did not arrive counts more than one that is not in a collective",
	 RUN_END_HANG,
	 NULL,
	 {{ALIVE, STACK(RUNS, "")}, {ALIVE, STACK(WAITS, "")}},
	 .missing = 2,
	 .first = 1,
	 .why = "it did not arrive"},
	{"a hang: if all ranks run their program, none differs",
	 RUN_END_HANG,
	 NULL,
	 {{ALIVE, STACK(RUNS, "")}, {ALIVE, STACK(RUNS, "")}, {ALIVE, STACK(UNKNOWN, "")}},
	 .first = -1},
	{"a hang: one rank waits in another line than the others",
	 RUN_END_HANG,
	 NULL,
	 {{ALIVE, STACK(WAITS, "gather (c.py:2)")},
	  {ALIVE, STACK(WAITS, "reduce (c.py:1)")},
	  {ALIVE, STACK(WAITS, "gather (c.py:2)")}},
	 .first = 1,
	 .why = "it waits in reduce (c.py:1), and rank 2 in gather (c.py:2)"},
	{"a hang: all ranks wait in one line",
	 RUN_END_HANG,
	 NULL,
	 {{ALIVE, STACK(WAITS, "gather (c.py:2)")},
	  {ALIVE, STACK(WAITS, "gather (c.py:2)")},
	  {ALIVE, STACK(WAITS, "gather (c.py:2)")}},
	 .first = -1},
	{"a hang: the line of one rank is not known",
	 RUN_END_HANG,
	 NULL,
	 {{ALIVE, STACK(WAITS, "gather (c.py:2)")},
	  {ALIVE, STACK(WAITS, "reduce (c.py:1)")},
	  {ALIVE, STACK(WAITS, "")}},
	 .first = -1},
	{"a hang of which no rank stands out",
	 RUN_END_HANG,
	 NULL,
	 {{ALIVE}, {ALIVE}, {ALIVE}},
	 .first = -1},
};

TEST_ROWS(test_decisions, rows)
{
	const struct row *row = &rows[_i];
	struct facts_rank ranks[4];
	struct ddp_arrival arrivals[3] = {{.there = false}};
	struct facts_node node[] = {{.silent = row->silent != NULL},
				    {.stepd_lost = row->stepd_lost != NULL,
				     .missed = row->missed != NULL}};
	struct facts facts = {.end = row->end,
			      .size = 3,
			      .ranks = ranks,
			      .arrivals = arrivals,
			      .known = node,
			      .known_count = 2,
			      .missed_why = "Job credential expired",
			      .refused_by = row->refused_by ? row->refused_by : "",
			      .lost = row->lost,
			      .collectives = "did not arrive"};
	int follows = 0;

	memcpy(ranks, row->ranks, sizeof(ranks));
	snprintf(node[0].name, sizeof(node[0].name), "%s", row->silent ? row->silent : "n9");
	snprintf(node[1].name, sizeof(node[1].name), "%s",
		 row->missed	   ? row->missed
		 : row->stepd_lost ? row->stepd_lost
				   : "n8");
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
	if (row->end == RUN_END_EXIT || row->end == RUN_END_SIGNAL)
		unit_number(row->name, "end", facts.end,
			    row->how == FACTS_SIGNAL || row->how == FACTS_OOM ? RUN_END_SIGNAL
									      : RUN_END_EXIT);
	unit_text(row->name, "why", ranks[facts.first].why, row->why ? row->why : "");
}

/* Outputs of py-spy 0.4.3 and gdb 13, of Python 3.11 with PyTorch 2.15. The process is 77. */
#define SPY "Process 77: python3 a.py\nPython v3.11.2 (/usr/bin/python3.11)\n\n"
#define SPY_MAIN SPY "Thread 77 (idle): \"MainThread\"\n"
#define SPY_OTHER "Thread 78 (idle): \"Thread-1\"\n    wait (torch/distributed/rpc.py:3)\n"
#define GDB                                                                                \
	"Thread 2 (Thread 0x7f2 (LWP 78) \"python3\"):\n#0  0x1 in gloo::Loop::run ()\n\n" \
	"Thread 1 (Thread 0x7f1 (LWP 77) \"python3\"):\n#0  __futex_wait (a=1) at f.c:3\n"
#define GDB_RUN "#16 0x2 in PyEval_EvalCode ()\n#18 0x6 in Py_RunMain ()\n#22 0x6 in _start ()\n"

static const struct stack_row {
	const char *name, *text;
	enum stack_place place;
	const char *line;
} stack_rows[] = {
	{"py-spy: a wait in a collective",
	 SPY_MAIN
	 "    all_reduce (torch/distributed/distributed_c10d.py:4181)\n    train (a.py:7)\n"
	 "    <module> (a.py:34)\n",
	 STACK_WAITS, "all_reduce (torch/distributed/distributed_c10d.py:4181)"},
	{"py-spy: a sleep, while another thread waits",
	 SPY_MAIN "    train (a.py:7)\n    <module> (a.py:34)\n" SPY_OTHER, STACK_RUNS,
	 "train (a.py:7)"},
	{"py-spy: a module's code that a framework calls",
	 SPY_MAIN "    forward (a.py:7)\n    forward (torch/distributed/fsdp/a.py:3)\n"
		  "    <module> (a.py:34)\n",
	 STACK_RUNS, "forward (a.py:7)"},
	{"py-spy: python3 -m",
	 SPY_MAIN "    main (a.py:7)\n    _run_code (<frozen runpy>:88)\n"
		  "    _run_module_as_main (<frozen runpy>:198)\n",
	 STACK_RUNS, "main (a.py:7)"},
	{"py-spy --native: a wait that the program's own line calls",
	 SPY_MAIN "    0x7f4b2ce21f16 (libc.so.6)\n    c10d::Work::wait (libtorch_cpu.so)\n"
		  "    train (a.py:9)\n    <module> (a.py:34)\n    0x7f4b2cdc324a (libc.so.6)\n",
	 STACK_WAITS, "train (a.py:9)"},
	{"py-spy: threading._shutdown()", SPY_MAIN "    _shutdown (threading.py:1583)\n" SPY_OTHER,
	 STACK_ENDS, "_shutdown (threading.py:1583)"},
	{"py-spy: a destructor, without the name of the thread",
	 SPY "Thread 77 (idle)\n    train.<locals>.D.__del__ (a.py:18)\n", STACK_ENDS,
	 "train.<locals>.D.__del__ (a.py:18)"},
	{"py-spy: no access",
	 "Error: Permission Denied: Try running again with elevated permissions\n", STACK_UNKNOWN,
	 ""},
	{"gdb: a wait in a collective",
	 GDB
	 "#6  0x7 in c10d::Work::wait(std::chrono::duration<long>) () from libtorch_cpu.so\n" GDB_RUN,
	 STACK_WAITS, ""},
	{"gdb: a sleep, while another thread waits", GDB GDB_RUN, STACK_RUNS, ""},
	{"gdb: finalization", GDB "#13 0x6 in Py_FinalizeEx ()\n#14 0x6 in Py_RunMain ()\n",
	 STACK_ENDS, ""},
	{"gdb: finalization by a static function",
	 GDB "#13 0x6 in ?? ()\n#14 0x6 in Py_RunMain ()\n", STACK_ENDS, ""},
	{"gdb: a destructor of the C library waits for another rank",
	 GDB
	 "#3 0x1 in ncclCommDestroy () from libnccl.so.2\n#9  0x1 in __run_exit_handlers (a=0)\n",
	 STACK_ENDS, ""},
	{"gdb: a program of one thread",
	 "#0  0x1 in pause ()\n\nThread 1 (process 77):\n#0  0x1 in pause ()\n#1  0x2 in main ()\n",
	 STACK_RUNS, ""},
	{"gdb: no access", "ptrace: Operation not permitted.\n", STACK_UNKNOWN, ""},
};

TEST_ROWS(test_stacks, stack_rows)
{
	const struct stack_row *row = &stack_rows[_i];
	struct stack stack;

	stack_parse(&stack, row->text, 77);
	unit_number(row->name, "place", stack.place, row->place);
	unit_text(row->name, "line", stack.line, row->line);
}

/* Of several programs of a rank, the one that runs; other processes of the rank do not count. */
TEST(test_stacks_of_a_file)
{
	struct stack stack;

	stack_parse_file(&stack, "--- program: pid 5, python3\nThread 5 (idle): \"MainThread\"\n"
				 "    barrier (torch/distributed/a.py:1)\n    <module> (a.py:1)\n"
				 "--- program: pid 6, python3\nThread 6 (idle): \"MainThread\"\n"
				 "    main (a.py:2)\n    <module> (a.py:1)\n"
				 "--- pid 4, torchrun\nThread 4 (idle): \"MainThread\"\n"
				 "    run (torchrun.py:3)\n    <module> (a.py:1)\n");
	ck_assert_int_eq(stack.place, STACK_RUNS);
	ck_assert_str_eq(stack.line, "main (a.py:2)");
	stack_parse_file(&stack, "--- pid 4, bash\nThread 1 (process 4):\n#0  0x1 in wait ()\n");
	ck_assert_int_eq(stack.place, STACK_UNKNOWN);
}

UNIT_MAIN("verdict", NULL)
