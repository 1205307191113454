/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_run_report.c - reports on failed attempts, from srun's messages, the output of the ranks, and
 * their files
 */
#include "config.h"

#include "run/failure-report.h"
#include "unit.h"

#define TASK(rank_, node_, how_, code_, time_)                                    \
	{                                                                         \
		.rank = rank_, .node = node_, .how = FACTS_##how_, .code = code_, \
		.time = 1795000000 + time_                                        \
	}

/* The end of an attempt, its number of ranks, and srun's messages. */
#define ATTEMPT(end, ranks, ...) \
	RUN_END_##end, ranks,    \
	{                        \
		__VA_ARGS__      \
	}
#define NONE                         \
	{                            \
		.how = FACTS_UNKNOWN \
	}

#define RECORD(rank, reason, last) RECORD_IN(rank, "", reason, last)
#define RECORD_IN(rank, world, reason, last)                                                      \
	"rank " #rank " of 3 on n1, pid 70" #rank ", " world "job c.12.3\nafter 7.250 s: " reason \
	"\n"                                                                                      \
	"#16 barrier, begun 6.000 s, ended 6.001 s\n#17 all-reduce 1000 F32 sum, begun 6.500 s"   \
	", " last "\n"

/*
 * A dump of PyTorch's flight recorder without zero bytes. The dump has one all-reduce, with the
 * given sequence number and state.
 */
#define SHORT(size, text) "\x8c" size text
#define DUMP(sequence, size, state)                                                               \
	"\x80\4}" SHORT("\7", "entries") "]}(" SHORT("\x0d", "process_group") SHORT("\1", "0")    \
		SHORT("\x0a", "default_pg") "\x86" SHORT(                                         \
			"\x11", "collective_seq_id") "K" sequence SHORT("\x0e", "profiling_name") \
			SHORT("\x0f", "nccl:all_reduce") SHORT("\5", "state")                     \
				SHORT(size, state) "uas."
#define LATE \
	"[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=17) ran for 10014 milliseconds"

struct file {
	const char *name, *text;
};

/*
 * Each row has the end of the attempt, the number of ranks (0: unknown), srun's messages, files, texts
 * that the report must contain, texts that it must not contain, texts of report.json, and the failure's
 * point (a text that identifies the failure). Instead of files, tail-<rank>.txt and tail.txt are the
 * output that one rank or unknown ranks have printed, and nodes.txt is Slurm's description of nodes.
 */
static const struct row {
	const char *name;
	enum run_end end;
	int ranks;
	struct srun_task tasks[4];
	struct file files[8];
	const char *text[10], *never[4], *json[10], *point;
	bool lost;	    /* srun has lost a slurmstepd */
	const char *silent; /* a node that does not answer */
	const char *failed; /* a node that has failed, as srun reports */
} rows[] = {
	{"an exception that @record caught",
	 ATTEMPT(EXIT, 4, TASK(2, "n2", EXIT, 1, 10.5), TASK(0, "n1", EXIT, 1, 10.6),
		 TASK(1, "n1", SIGNAL, 15, 10.7), TASK(3, "n2", SIGNAL, 15, 10.7)),
	 {{"task-2", "n2 4711\n"},
	  {"error-2.json",
	   "{\"message\": {\"message\": \"ValueError: loss is 17\", \"extraInfo\": {\"py_callstack\": "
	   "\"Traceback (most recent call last):\\n  File \\\"train.py\\\", line 3\\nValueError: loss "
	   "is 17\\n\", \"timestamp\": \"1795000010\"}, \"errorCode\": 1}}"},
	  {"tail-2.txt",
	   "epoch 1\nTraceback (most recent call last):\nValueError: loss is 17\nbye\n"},
	  {"tail-0.txt", "Traceback (most recent call last):\n  File \"x\"\nRuntimeError: "
			 "[../gloo/pair.cc:598] Connection closed by peer [127.0.0.1]:3\n"}},
	 {"step 12.3, attempt 1 of 4, failed at ", ", 10.2 s after its start\n",
	  "\nrank 2 on n2, pid 4711, failed first: exit status 1\n    Traceback",
	  "\n    ValueError: loss is 17\n  its last lines:\n    epoch 1\n    bye\n",
	  "\nas a result: rank 0: exit status 1, RuntimeError: [../gloo/pair.cc:598] Connection closed",
	  "\nas a result: ranks 1,3: killed by SIGTERM, ended with the step\n",
	  "\nnext: started again on n1,n2 with 4 ranks, 0.12 s later (restart 1 of 3)\n"},
	 {"also failed"},
	 {"\"job\": 12, \"step\": 3, \"attempt\": 0, \"restarts\": 3, \"kind\": \"exit\"",
	  "\"command\": [\"python3\", \"train.py\"]",
	  "\"first\": {\"rank\": 2, \"node\": \"n2\", \"pid\": 4711, \"how\": \"exit\", \"code\": 1, "
	  "\"time\": 1795000010.5, \"follows\": false",
	  "\"message\": \"ValueError: loss is 17\", \"raised\": 1795000010, \"traceback\": "
	  "[\"Traceback (most recent call last):\", ",
	  "\"tail\": [\"epoch 1\", ",
	  "{\"rank\": 1, \"node\": \"n1\", \"pid\": null, \"how\": \"signal\", \"code\": 15, "
	  "\"signal\": \"SIGTERM\", \"time\": 1795000010.7, \"follows\": true, \"why\": \"ended with "
	  "the step\"",
	  "\"next\": \"restart\", \"next_nodes\": [\"n1\", \"n2\"], \"next_ranks\": 4, "
	  "\"next_after\": 0.12"},
	 .point = "exit status 1: ValueError: loss is #"},
	{"the earlier exception counts, not the earlier end; an error file with only a text",
	 ATTEMPT(EXIT, 4, TASK(0, "n1", EXIT, 1, 10.5), TASK(1, "n1", EXIT, 1, 10.6)),
	 {{"error-0.json", "{\"message\": {\"message\": \"KeyError: later\", \"extraInfo\": "
			   "{\"timestamp\": \"1795000010\"}}}"},
	  {"error-1.json", "{\"message\": {\"message\": \"KeyError: earlier\", \"extraInfo\": "
			   "{\"timestamp\": 1795000009}}}"},
	  {"error-2.json", "{\"message\": \"a text\"}"}},
	 {"\nrank 1 on n1, failed first: exit status 1\n  KeyError: earlier\n",
	  "\nalso failed: rank 0 on n1: exit status 1, KeyError: later\n",
	  "\nalso failed: rank 2: failed, a text\n"},
	 {"as a result"},
	 {"\"message\": \"a text\""},
	 .point = "exit status 1: KeyError: earlier"},
	{"srun loses a slurmstepd and kills the other ranks, whose ends alone are reported to it",
	 ATTEMPT(NODE, 3, TASK(2, "n3", SIGNAL, 9, 10.5), TASK(0, "n1", SIGNAL, 9, 10.5)),
	 {{"task-1", "n2 4711\n"}},
	 {"\nrank 1 on n2, pid 4711, failed first: srun did not report its end, since it lost "
	  "the slurmstepd\n"},
	 {NULL},
	 {"\"first\": {\"rank\": 1, \"node\": \"n2\", \"pid\": 4711, \"how\": \"slurmstepd\""},
	 .lost = true},
	{"srun loses a slurmstepd, and a rank names the lost one",
	 ATTEMPT(NODE, 3, TASK(0, "n1", EXIT, 1, 10.5)),
	 {{"tail-0.txt", "ddp[0@n1]: rank 2 on n3 is gone\n"}},
	 {"\nrank 2, failed first: srun did not report its end, other ranks name it\n"},
	 {NULL},
	 {NULL},
	 .point = NULL},
	{"out of memory, with the cgroup's count of killed processes",
	 ATTEMPT(EXIT, 4, TASK(1, "n1", OOM, 0, 10.5)),
	 {{"nodes.txt", "NodeName=n1 State=MIXED ThreadsPerCore=1\n"},
	  {"memory-n1.txt", "oom_kill 2\n"}},
	 {"\nrank 1 on n1, failed first: killed for lack of memory\n",
	  "\nnode n1: the job's cgroup counts 2 processes killed for lack of memory\n"},
	 {NULL},
	 {"\"how\": \"oom\"",
	  "{\"node\": \"n1\", \"silent\": false, \"state\": \"MIXED\", \"reason\": null, \"oom_kills\": 2}"},
	 .point = "rank 1, killed for lack of memory"},
	{"libddp's records: one aborted, other ranks name it",
	 ATTEMPT(EXIT, 4, TASK(0, "n1", EXIT, 69, 10.5), TASK(2, "n1", EXIT, 70, 10.6)),
	 {{"rank-0",
	   RECORD(0, "rank 2 on n1 aborted: cannot open /data\nslow: rank 1 on n1 is slow",
		  "failed: aborted")},
	  {"rank-1", RECORD(1, "SIGTERM", "not ended")},
	  {"rank-2", "rank 2 of 3 on n1, pid 702, job c.12.3\nafter 7.2 s: cannot open /data\n#16 "
		     "barrier, begun 6.000 s, ended 6.001 s\n"},
	  {"rank-3", RECORD(3, "SIGTERM", "not ended")}},
	 {"\nrank 2 on n1, pid 702, failed first: exit status 70\n  cannot open /data\n",
	  "\nas a result: rank 0: exit status 69, rank 2 on n1 aborted: cannot open /data\n",
	  "\ncollectives: did not arrive in #17 all-reduce 1000 F32 sum: rank 2\n",
	  "\nbefore: rank 1 on n1 is slow\n"},
	 {NULL},
	 {"\"slow\": \"rank 1 on n1 is slow\"",
	  "\"collective\": \"#17 all-reduce 1000 F32 sum\", \"waits\": true, \"missing\": false",
	  "\"collective\": \"#16 barrier\", \"waits\": false, \"missing\": true",
	  "\"collectives\": \"did not arrive in #17 all-reduce 1000 F32 sum: rank 2\""},
	 .point = "rank 2, exit status 70: cannot open /data"},
	{"output of all ranks together",
	 ATTEMPT(EXIT, 4, TASK(0, "n1", EXIT, 66, 10.5), TASK(1, "n1", EXIT, 84, 10.6)),
	 {{"tail.txt",
	   "epoch 1\nddp[0@n1]: rank 1 on n1 aborted: no data\nsrun: error: x\nddp[1@n1]: no data\nend\nsrun: y\n"
	   "[2026-11-24T12:23:54.145] error: execve(): x: No such file\n[2026-11-24T12:23:54.145] error: loss\n"}},
	 {"\nrank 1 on n1, failed first: exit status 84\n  no data\n  the last lines of all ranks:\n    epoch "
	  "1\n    ddp[0@n1]: rank 1 on n1 aborted: no data\n    ddp[1@n1]: no data\n    end\n"
	  "    [2026-11-24T12:23:54.145] error: loss\nas a result:",
	  "\nas a result: rank 0: exit status 66, rank 1 on n1 aborted: no data\n"},
	 {NULL},
	 {"\"tail\": [\"epoch 1\", ", "\"message\": \"no data\""},
	 .point = "rank 1, exit status 84: no data"},
	{"a lost node, with its state in Slurm",
	 ATTEMPT(NODE, 2, TASK(0, "n1", SIGNAL, 15, 10.5)),
	 {{"task-1", "n2 4712\n"},
	  {"nodes.txt",
	   "NodeName=n2 Arch=x86_64 State=DOWN*+DRAIN ThreadsPerCore=1 Reason=Not responding "
	   "[slurm@2026-11-23T13:00:00]\n"}},
	 {"\nrank 1 on n2, pid 4712, failed first: lost with its node\n",
	  "\nas a result: rank 0: killed by SIGTERM, ended with the step\n",
	  "\nnode n2: does not answer, Slurm says DOWN*+DRAIN (Not responding)\n"},
	 {NULL},
	 {"{\"node\": \"n2\", \"silent\": true, \"state\": \"DOWN*+DRAIN\", \"reason\": \"Not "
	  "responding\", \"oom_kills\": 0}"},
	 "rank 1, lost with its node",
	 .silent = "n2"},
	{"a failed node, after the other ranks ended with status 0",
	 ATTEMPT(NODE, 2),
	 {{"task-0", "n1 4711\n"},
	  {"task-1", "n2 4712\n"},
	  {"nodes.txt",
	   "NodeName=n2 State=DOWN+NOT_RESPONDING Reason=Not responding [slurm@2026-11-23T13:00:00]\n"}},
	 {"\nrank 1 on n2, pid 4712, failed first: lost with its node\n",
	  "\nnode n2: Slurm says DOWN+NOT_RESPONDING (Not responding)\n"},
	 {"rank 0 on n1"},
	 {"\"first\": {\"rank\": 1, \"node\": \"n2\""},
	 "rank 1, lost with its node",
	 .failed = "n2"},
	{"a hang: a rank that is stopped",
	 ATTEMPT(HANG, 3, TASK(0, "n1", SIGNAL, 15, 10.5)),
	 {{"proc-0.txt",
	   "node n1\npid 700\nstate S\nwchan futex_wait\nbeat 21.500\ncommand ./a\n\nName:\ta\n"},
	  {"proc-2.txt", "node n1\npid 702\nstate T\nwchan do_signal_stop\ncommand ./a\n"},
	  {"stacks-2.txt", "--- pid 702, a\n#0 pause ()\n"},
	  {"fr-0", "x"},
	  {"fr-1", "x"}},
	 {"attempt 1 of 4, hung at ", " after its start, with no output or heartbeat for 20.0 s\n",
	  "\nrank 2 on n1, pid 702: it is stopped\n",
	  "\n  rank 0 on n1, pid 700: state S in futex_wait, last heartbeat 21.5 s before\n",
	  "\n  rank 2 on n1, pid 702: state T in do_signal_stop, stacks-2.txt\n",
	  "\nPyTorch's flight recorder left 2 dumps. Print them: torchfrtrace --prefix fr- "},
	 {"as a result", "failed first"},
	 {"\"first\": {\"rank\": 2,",
	  "\"state\": \"T\", \"wchan\": \"do_signal_stop\", \"command\": "
	  "\"./a\", \"stacks\": true",
	  "\"quiet\": 20", "\"beat\": 21.5", "\"flight_recorder_dumps\": 2"},
	 .point = "rank 2, hangs"},
	{"a hang: a record that an earlier program of the step left",
	 ATTEMPT(HANG, 3, NONE),
	 {{"rank-0", RECORD_IN(0, "world 1795000000000000002, ", "SIGTERM", "not ended")},
	  {"rank-1", RECORD_IN(1, "world 1795000000000000001, ", "no more data", "not ended")},
	  {"rank-2", RECORD_IN(2, "world 1795000000000000002, ", "SIGTERM", "not ended")}},
	 {"\nrank 1: it did not arrive in #17 all-reduce 1000 F32 sum: rank 1\n"},
	 {"no more data"},
	 {"\"first\": {\"rank\": 1,"},
	 .point = "rank 1, hangs"},
	{"a hang: PyTorch's dumps, of which one cannot be read",
	 ATTEMPT(HANG, 3, NONE),
	 {{"proc-1.txt", "node n1\npid 701\nstate S\n"},
	  {"fr-0", DUMP("\x11", "\7", "started")},
	  {"fr-1", "x"},
	  {"fr-2", DUMP("\x11", "\7", "started")}},
	 {"\nrank 1 on n1, pid 701: it did not arrive in #17 nccl:all_reduce: rank 1\n",
	  "\ncollectives: did not arrive in #17 nccl:all_reduce: rank 1\n",
	  "\nPyTorch's flight recorder left 3 dumps. Print them: torchfrtrace --prefix fr- "},
	 {NULL},
	 {"\"first\": {\"rank\": 1,",
	  "\"collective\": \"#17 nccl:all_reduce\", \"waits\": true, \"missing\": false",
	  "\"missing\": true", "\"collectives\": \"did not arrive in #17 nccl:all_reduce: rank 1\"",
	  "\"flight_recorder_dumps\": 3"},
	 .point = "rank 1, hangs"},
	{"PyTorch's timeout: the rank that did not arrive failed first, not those that waited",
	 ATTEMPT(EXIT, 4, TASK(0, "n1", SIGNAL, 6, 10.5), TASK(1, "n1", SIGNAL, 15, 10.6),
		 TASK(2, "n1", SIGNAL, 6, 10.7)),
	 {{"tail-0.txt", "  what():  " LATE "\n"},
	  {"tail-2.txt", "  what():  " LATE "\n"},
	  {"fr-0", DUMP("\x11", "\7", "started")},
	  {"fr-1", DUMP("\x10", "\x9", "completed")},
	  {"fr-2", DUMP("\x11", "\7", "started")},
	  {"fr-3", DUMP("\x11", "\7", "started")}},
	 {"\nrank 1 on n1, failed first: killed by SIGTERM, it did not arrive in #17 nccl:all_reduce: rank 1\n",
	  "\nas a result: ranks 0,2: killed by SIGABRT, [Rank 0] Watchdog caught",
	  "\ncollectives: did not arrive in #17 nccl:all_reduce: rank 1\n"},
	 {NULL},
	 {"\"first\": {\"rank\": 1,",
	  "\"collective\": \"#16 nccl:all_reduce\", \"waits\": false, \"missing\": true"},
	 .point = "rank 1, killed by SIGTERM"},
	{"libddp's own records count more than PyTorch's dumps",
	 ATTEMPT(HANG, 3, NONE),
	 {{"rank-0", RECORD(0, "SIGTERM", "not ended")},
	  {"rank-1", RECORD(1, "SIGTERM", "not ended")},
	  {"fr-1", DUMP("\x10", "\x9", "completed")},
	  {"fr-2", DUMP("\x11", "\7", "started")}},
	 {"\nrank 2: it did not arrive in #17 all-reduce 1000 F32 sum: rank 2\n"},
	 {NULL},
	 {"\"first\": {\"rank\": 2,"},
	 .point = "rank 2, hangs"},
	{"a hang: a process that is gone",
	 ATTEMPT(HANG, 3, NONE),
	 {{"proc-1.txt", "node n1\npid 701\nstate -\n"}},
	 {"\nrank 1 on n1, pid 701: its process no longer exists\n",
	  "\n  rank 1 on n1, pid 701: no process\n"},
	 {NULL},
	 {NULL},
	 .point = "rank 1, hangs"},
	{"a hang: a slurmstepd that is gone",
	 ATTEMPT(HANG, 3, NONE),
	 {{"proc-0.txt", "node n1\npid 700\nstate S\nparent slurmstepd\n"},
	  {"proc-1.txt", "node n2\npid 701\nstate S\nparent systemd\n"}},
	 {"\nrank 1 on n2, pid 701: the slurmstepd that started it is gone\n"},
	 {NULL},
	 {NULL},
	 .point = "rank 1, hangs"},
	{"a hang of unknown cause",
	 ATTEMPT(HANG, 3, NONE),
	 {{"proc-1.txt", "node n1\npid 701\nstate S\n"}},
	 {"\nno rank differs from the others\n"},
	 {NULL},
	 {"\"first\": null"},
	 .point = ""},
	{"output with control characters, progress bars and colours",
	 ATTEMPT(EXIT, 4, TASK(0, "n1\x1b[2J", EXIT, 1, 10.5)),
	 {{"error-0.json", "{\"message\": \"\\u001b]0;title\\u0007\\nbad\"}"},
	  {"tail-0.txt", "  1%\r 50%\r 99%\n\x1b[1mbold\x1b[0m\a\b \xc2\x9b \xff\n\ttab\n"},
	  {"nodes.txt", "NodeName=n1 State=\x1b[2JIDLE Reason=a\rb [root@x]\n"}},
	 {"\n     99%\n", "\n    bold?? ? \xef\xbf\xbd\n", "\n        tab\n"},
	 {"50%"},
	 {"\"tail\": [\" 99%\", \"bold\\u0007\\b "},
	 .point = NULL},
	{"a logged exception is no reason of a signal, if PyTorch prints uncaught ones with a prefix",
	 ATTEMPT(EXIT, 4, TASK(0, "n1", EXIT, 1, 10.5), TASK(1, "n1", SIGNAL, 15, 10.6)),
	 {{"tail-0.txt",
	   "[rank0]: Traceback (most recent call last):\n[rank0]: RuntimeError: [pair.cc:598] "
	   "Connection closed by peer [127.0.0.1]:3\n"},
	  {"tail-1.txt", "Traceback (most recent call last):\nOSError: transient\nstep 4\n"}},
	 {"\nrank 2, failed first: exit status 0, and other ranks lost the connection to it\n",
	  "\nas a result: rank 1: killed by SIGTERM, ended with the step\n"},
	 {"also failed"},
	 {NULL},
	 .point = NULL},
	{"a logged exception is the reason if its rank printed no more, and PyTorch printed only lost peers",
	 ATTEMPT(EXIT, 4, TASK(0, "n1", EXIT, 1, 10.5), TASK(1, "n1", SIGNAL, 15, 10.6),
		 TASK(2, "n2", SIGNAL, 15, 10.6), TASK(3, "n2", EXIT, 1, 10.6)),
	 {{"tail-0.txt",
	   "[rank0]: Traceback (most recent call last):\n[rank0]: RuntimeError: [pair.cc:598] "
	   "Connection closed by peer [127.0.0.1]:3\n"},
	  {"tail-1.txt",
	   "ERROR:root:training failed\nTraceback (most recent call last):\n  File \"a\"\n"
	   "ValueError: the loss is not finite\n"},
	  {"tail-3.txt",
	   "[rank3]: Traceback (most recent call last):\n[rank3]: RuntimeError: [pair.cc:446] writev "
	   "[127.0.0.1]:3: Connection reset by peer\n"}},
	 {"\nrank 1 on n1, failed first: killed by SIGTERM\n  ValueError: the loss is not finite\n",
	  "\nas a result: rank 0: exit status 1, RuntimeError: [pair.cc:598] Connection closed"},
	 {"also failed"},
	 {NULL},
	 .point = NULL},
	{"the exception of a rank follows a progress bar, or a prefix of each line",
	 ATTEMPT(EXIT, 4, TASK(0, "n1", EXIT, 1, 10.5), TASK(1, "n1", EXIT, 1, 10.6)),
	 {{"tail-0.txt",
	   " 40%|███▌      | 4/10[rank0]: Traceback (most recent call last):\n[rank0]:   File \"a\"\n"
	   "[rank0]: RuntimeError: [pair.cc:598] Connection closed by peer [127.0.0.1]:3\n"},
	  {"tail-1.txt", "[n1] Traceback (most recent call last):\n[n1]   File \"a\"\n"
			 "[n1] ValueError: bad\n"}},
	 {"\nrank 1 on n1, failed first: exit status 1\n  ValueError: bad\n"},
	 {NULL},
	 {"\"message\": \"ValueError: bad\""},
	 .point = NULL},
	{"an error file that was cut off",
	 ATTEMPT(EXIT, 4, TASK(1, "n1", SIGNAL, 9, 10.5)),
	 {{"error-1.json", "{\"message\": {\"message\": \"Value"}},
	 {"\n  the rank's error file is incomplete: a string without an end\n"},
	 {NULL},
	 {NULL},
	 .point = NULL},
	{"the time limit is no failure of a rank",
	 ATTEMPT(TIME_LIMIT, 0, TASK(0, "n1", SIGNAL, 15, 10.5)),
	 {{NULL, NULL}},
	 {"reached the job's time limit"},
	 {"failed first"},
	 {"\"first\": null"},
	 .point = ""},
	{"a rank that fails after a warning is named",
	 ATTEMPT(WARNED, 0, TASK(0, "n1", SIGNAL, 10, 10.5)),
	 {{NULL, NULL}},
	 {"ended after a signal that announced the end of the job",
	  "failed first: killed by SIGUSR1"},
	 {NULL},
	 {"\"kind\": \"warned\""},
	 .point = "rank 0, killed by SIGUSR1"},
	{"malformed files",
	 ATTEMPT(EXIT, 0, NONE),
	 {{"rank-99999999999999999999", "x"},
	  {"rank-1", "no record"},
	  {"error-3.json", "{}"},
	  {"task-0", "\n"},
	  {"nodes.txt", "NodeName= State\nx\n"},
	  {"memory-.txt", "oom_kill x"}},
	 {"attempt 1 of 4, failed at ", "no rank reported a reason\n"},
	 {NULL},
	 {"\"size\": 4, \"first\": null"},
	 .point = ""},
	{"an empty directory",
	 ATTEMPT(EXIT, 0, NONE),
	 {{NULL, NULL}},
	 {"attempt 1 of 4, failed at "},
	 {NULL},
	 {"\"size\": 0"},
	 .point = ""},
};

static void put_file(const char *dir, const char *name, const char *text)
{
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	file = fopen(path, "w");
	ck_assert(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

/* The only control characters in the report must be newlines. */
static void check_harmless(const char *row, const char *text)
{
	for (const char *at = text; *at; at++)
		ck_assert_msg((unsigned char)*at >= 0x20 || *at == '\n', "%s: byte %d in %s", row,
			      *at, text);
	ck_assert_msg(!strstr(text, "\xc2\x9b"), "%s: CSI in %s", row, text);
}

/* An attempt of step 12.3 with the files in [dir], before attempt_judge(). */
static struct attempt attempt_in(const char *dir)
{
	static char *const command[] = {"python3", "train.py", NULL};
	static char names[2][FACTS_NAME] = {"n1", "n2"};
	static const struct node_list nodes = {names, 2};
	struct attempt attempt = {.run_id = "r",
				  .command = command,
				  .restarts = 3,
				  .started = 1795000000.25,
				  .ended = 1795000012.5,
				  .status = 1,
				  .end = RUN_END_EXIT,
				  .job = "12",
				  .step = "3",
				  .nodes = nodes,
				  .tails = tails_create(NULL),
				  .facts = {.first = -1},
				  .decision = {.act = RUN_RESTART, .why = "restart 1 of 3"},
				  .next_nodes = &nodes,
				  .next_after_s = 0.12};

	snprintf(attempt.dir, sizeof(attempt.dir), "%s", dir);
	return attempt;
}

static void release(struct attempt *attempt)
{
	facts_free(&attempt->facts);
	tails_destroy(attempt->tails);
}

static void add_file(struct attempt *attempt, const struct file *file)
{
	int rank = TAILS_ALL;

	if (sscanf(file->name, "tail-%d.txt", &rank) == 1 || strcmp(file->name, "tail.txt") == 0)
		tails_add(attempt->tails, rank, 1, file->text, strlen(file->text));
	else
		put_file(attempt->dir, file->name, file->text);
}

TEST_ROWS(test_report, rows)
{
	const struct row *row = &rows[_i];
	char dir[64], nodes[256] = "", screen[16384] = "", point[512], node[FACTS_NAME];
	struct ddp_text text = {.data = NULL}, json = {.data = NULL};
	struct attempt attempt;
	FILE *file;

	unit_directory(dir, sizeof(dir));
	attempt = attempt_in(dir);
	attempt.end = row->end;
	attempt.ranks = row->ranks;
	attempt.quiet_s = row->end == RUN_END_HANG ? 20 : 0;
	attempt.said =
		(struct srun_said){.task = (struct srun_task *)row->tasks, .broken = row->lost};
	while (attempt.said.count < 4 && row->tasks[attempt.said.count].how)
		attempt.said.count++;
	if (row->silent)
		nodes_add(&attempt.silent, row->silent);
	if (row->failed)
		nodes_add(&attempt.said.lost, row->failed);
	for (int i = 0; i < ROWS(row->files) && row->files[i].name; i++)
		if (strcmp(row->files[i].name, "nodes.txt") == 0)
			snprintf(nodes, sizeof(nodes), "%s", row->files[i].text);
		else
			add_file(&attempt, &row->files[i]);
	attempt_judge(&attempt);
	facts_read_nodes(&attempt.facts, nodes);
	failure_report(&attempt, &text, &json);
	check_harmless(row->name, text.data);
	unit_pieces(row->name, text.data, row->text);
	for (const char *const *never = row->never; *never; never++)
		ck_assert_msg(!strstr(text.data, *never), "%s: %s contains \"%s\"", row->name,
			      text.data, *never);
	unit_pieces(row->name, json.data, row->json);
	failure_point(&attempt, point, sizeof(point), node, sizeof(node));
	if (row->point)
		unit_text(row->name, "point", point, row->point);

	put_file(dir, "report.json", json.data);
	file = fmemopen(screen, sizeof(screen), "w");
	ck_assert(failure_explain(dir, "report.json", file));
	fclose(file);
	ck_assert_str_eq(screen, text.data);
	nodes_free(&attempt.silent);
	nodes_free(&attempt.said.lost);
	release(&attempt);
	ddp_text_free(&text);
	ddp_text_free(&json);
	unit_remove(dir);
}

/*
 * The point of a failure identifies the failure in later attempts. So it has no numbers and
 * addresses, but different messages have different points.
 */
TEST(test_point)
{
	static const char *const messages[] = {"at 0x7f12, pid 12: late by 3.25 s",
					       "at 0x7a1, pid 4: late by 17.5 s",
					       "at 0x7a1: early"};
	struct srun_task task = TASK(0, "n1", EXIT, 1, 10.5);
	char dir[64], text[256], points[3][256], node[FACTS_NAME], small[12];

	unit_directory(dir, sizeof(dir));
	for (int i = 0; i < 3; i++) {
		struct attempt attempt = attempt_in(dir);

		snprintf(text, sizeof(text), "{\"message\": \"%s\"}", messages[i]);
		put_file(dir, "error-0.json", text);
		attempt.said = (struct srun_said){.task = &task, .count = 1};
		attempt_judge(&attempt);
		failure_point(&attempt, points[i], sizeof(points[i]), node, sizeof(node));
		failure_point(&attempt, small, sizeof(small), node, sizeof(node));
		ck_assert_str_eq(small, "exit status");
		release(&attempt);
	}
	ck_assert_str_eq(points[0], "exit status 1: at #x#f#, pid #: late by #.# s");
	ck_assert_str_ne(points[1], points[2]);
	unit_remove(dir);
}

/*
 * The node of a late rank is not reported, because the rank may be waiting for another node. srun's
 * messages are used even if there is no failure directory.
 */
TEST(test_node_of_a_late_rank_is_not_reported)
{
	struct srun_task tasks[] = {TASK(1, "n2", EXIT, 3, 10.5), TASK(1, "n2", LATE, 3, 10.5)};
	char point[256], node[FACTS_NAME];

	for (int i = 0; i < 2; i++) {
		struct attempt attempt = attempt_in(i == 0 ? "" : "/nowhere");

		attempt.said = (struct srun_said){.task = &tasks[i], .count = 1};
		attempt_judge(&attempt);
		failure_point(&attempt, point, sizeof(point), node, sizeof(node));
		ck_assert_str_eq(node, i == 0 ? "n2" : "");
		release(&attempt);
	}
}

TEST(test_a_report_that_cannot_be_written_is_printed)
{
	static const struct launch launch;
	struct srun_task task = TASK(1, "n2", EXIT, 3, 10.5);
	struct attempt attempt = attempt_in("");
	char screen[4096] = "";
	FILE *file = fmemopen(screen, sizeof(screen), "w");

	ck_assert_int_eq(setenv("TMPDIR", "/nowhere", 1), 0);
	ck_assert_int_eq(setenv("PATH", "/nowhere", 1), 0); /* without scontrol */
	attempt.said = (struct srun_said){.task = &task, .count = 1};
	attempt_judge(&attempt);
	attempt_report(&launch, &attempt, file);
	attempt_report(&launch, &attempt, NULL);
	fclose(file);
	UNIT_SAYS("screen", screen, "\nrank 1 on n2, failed first: exit status 3\n");
	ck_assert_ptr_null(strstr(screen, "--explain"));
	release(&attempt);
}

TEST(test_a_directory_without_a_report)
{
	char dir[64];

	unit_directory(dir, sizeof(dir));
	ck_assert(!failure_explain(dir, "report.json", stdout));
	put_file(dir, "report.json", "{\"job\": 12}\n"); /* as release 1.0 wrote it */
	ck_assert(!failure_explain(dir, "report.json", stdout));
	unit_remove(dir);
}

/*
 * attempt_discard() removes the attempt's directory. If .ddp is then empty, it is removed too.
 */
TEST(test_discard)
{
	char top[64], path[128], other[128];

	unit_directory(top, sizeof(top));
	snprintf(path, sizeof(path), "%s/.ddp", top);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	snprintf(other, sizeof(other), "%s/.ddp/failed-1.1", top);
	ck_assert_int_eq(mkdir(other, 0700), 0);
	snprintf(path, sizeof(path), "%s/.ddp/failed-1.0", top);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	put_file(path, "task-0", "n1 1\n");
	attempt_discard(path);
	ck_assert_int_eq(access(path, F_OK), -1);
	ck_assert_int_eq(access(other, F_OK), 0);
	attempt_discard(other);
	snprintf(path, sizeof(path), "%s/.ddp", top);
	ck_assert_int_eq(access(path, F_OK), -1);
	ck_assert_int_eq(access(top, F_OK), 0);
	unit_remove(top);
}

UNIT_MAIN("run_report", NULL)
