/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_preflight.c - which nodes failed or are slow according to measurements, and which pairs of
 * nodes meet
 */
#include "config.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "info/node-tests.h"
#include "run/failure-report.h"
#include "run/preflight-report.h"
#include "unit.h"

enum { NODES = 8, ROWS = 16 };

#define RATE(node_, test_, value_)                                                            \
	{                                                                                     \
		.node = node_, .partner = -1, .test = test_, .is_rate = true, .value = value_ \
	}
#define KIND(node_, kind_, value_)                                                               \
	{                                                                                        \
		.node = node_, .partner = -1, .test = "product", .kind = kind_, .is_rate = true, \
		.value = value_                                                                  \
	}
#define PAIR(node_, partner_, value_)                                                \
	{                                                                            \
		.node = node_, .partner = partner_, .test = "pair", .is_rate = true, \
		.value = value_                                                      \
	}
#define GPU_PAIR(node_, partner_, value_)                                                \
	{                                                                                \
		.node = node_, .partner = partner_, .test = "GPU pair", .is_rate = true, \
		.value = value_                                                          \
	}
#define BAD(node_, partner_, verdict_)                                            \
	{                                                                         \
		.node = node_, .partner = partner_, .test = "pair", .value = NAN, \
		.verdict = PREFLIGHT_##verdict_                                   \
	}
#define CLOCK(node_, value_)                                                   \
	{                                                                      \
		.node = node_, .partner = -1, .test = "clock", .value = value_ \
	}
#define CPUS(node_, kind_, value_)                                                              \
	{                                                                                       \
		.node = node_, .partner = -1, .test = "CPUs", .kind = kind_, .is_config = true, \
		.value = value_                                                                 \
	}
#define SILENT(node_)                                                                  \
	{                                                                              \
		.node = node_, .partner = -1, .test = "product", .value = (double)NAN, \
		.verdict = PREFLIGHT_SILENT                                            \
	}
#define WRONG(node_)                                                                   \
	{                                                                              \
		.node = node_, .partner = -1, .test = "product", .value = (double)NAN, \
		.verdict = PREFLIGHT_FAILED                                            \
	}
#define FACT(node_, verdict_)                                                  \
	{                                                                      \
		.node = node_, .partner = -1, .test = "program", .value = NAN, \
		.verdict = PREFLIGHT_##verdict_                                \
	}

static const struct {
	const char *name;
	int nodes;
	struct preflight_row rows[ROWS];
	/* verdict of each node: "." ok, "d" differs, "s" slow, "f" failed, "n" no answer */
	const char *verdicts;
	const char *marks; /* verdict of each row, with the same letters */
} rows[] = {
	{"nodes at one speed",
	 3,
	 {RATE(0, "memory", 10), RATE(1, "memory", 9), RATE(2, "memory", 11)},
	 "...",
	 "..."},
	{"one node below 0.8 of the median",
	 3,
	 {RATE(0, "memory", 10), RATE(1, "memory", 7.9), RATE(2, "memory", 10)},
	 ".s.",
	 ".s."},
	{"one at 0.8 of it",
	 3,
	 {RATE(0, "memory", 10), RATE(1, "memory", 8), RATE(2, "memory", 10)},
	 "...",
	 "..."},
	{"two nodes: the median is the faster",
	 2,
	 {RATE(0, "memory", 10), RATE(1, "memory", 5)},
	 ".s",
	 ".s"},
	{"one node is compared with nothing", 1, {RATE(0, "memory", 1)}, ".", "."},
	{"a clock that is ahead", 3, {CLOCK(0, 0), CLOCK(1, 0.2), CLOCK(2, 1.4)}, "..s", "..s"},
	{"a clock that is ahead by less than a second",
	 3,
	 {CLOCK(0, 0), CLOCK(1, 0.2), CLOCK(2, 1.1)},
	 "...",
	 "..."},
	{"the clock of ddp-run's host is wrong, and so that of its node",
	 4,
	 {CLOCK(0, 0), CLOCK(1, -9), CLOCK(2, -9), CLOCK(3, -9.1)},
	 "s...",
	 "s..."},
	{"two clocks, compared with that of ddp-run's host",
	 2,
	 {CLOCK(0, 0), CLOCK(1, 2)},
	 ".s",
	 ".s"},
	{"a node with half of the CPUs of all others",
	 3,
	 {CPUS(0, "a", 64), CPUS(1, "a", 32), CPUS(2, "a", 64)},
	 ".d.",
	 ".d."},
	{"two nodes differ, and a node of another kind",
	 5,
	 {CPUS(0, "a", 64), CPUS(1, "a", 32), CPUS(2, "a", 64), CPUS(3, "a", 32), CPUS(4, "b", 8)},
	 ".....",
	 "....."},
	{"two nodes have nobody to differ from",
	 2,
	 {CPUS(0, "a", 64), CPUS(1, "a", 32)},
	 "..",
	 ".."},
	{"hardware of two kinds",
	 4,
	 {KIND(0, "a", 10), KIND(1, "a", 10), KIND(2, "b", 1), KIND(3, "b", 1)},
	 "....",
	 "...."},
	{"tests are not compared with one another",
	 2,
	 {RATE(0, "memory", 10), RATE(1, "memory", 10), RATE(0, "product", 1),
	  RATE(1, "product", 1)},
	 "..",
	 "...."},
	{"a failed test, and one without an answer",
	 3,
	 {FACT(0, FAILED), FACT(1, OK), FACT(2, SILENT)},
	 "f.n",
	 "f.n"},
	{"no node answers in a test: the limit is too short for the load",
	 2,
	 {SILENT(0), SILENT(1), RATE(0, "memory", 1), RATE(1, "memory", 1)},
	 "..",
	 "nn.."},
	{"no node answers in a test that another, which failed, did not reach",
	 3,
	 {SILENT(0), SILENT(1), FACT(2, FAILED), FACT(0, OK)},
	 "..f",
	 "nnf."},
	{"two nodes do not answer, and one has a wrong result in the same test",
	 3,
	 {SILENT(0), SILENT(1), WRONG(2)},
	 "nnf",
	 "nnf"},
	{"two nodes do not answer, and one does that failed in another test",
	 3,
	 {SILENT(0), SILENT(1), RATE(2, "product", 1), FACT(2, FAILED), FACT(0, OK)},
	 "nnf",
	 "nn.f."},
	{"two nodes do not answer, and one does",
	 3,
	 {SILENT(0), SILENT(1), KIND(2, "a", 1)},
	 "nn.",
	 "nn."},
	{"a failed value does not move the median",
	 3,
	 {RATE(0, "memory", 10),
	  RATE(1, "memory", 9),
	  {.node = 2,
	   .partner = -1,
	   .test = "memory",
	   .is_rate = true,
	   .value = 1000,
	   .verdict = PREFLIGHT_FAILED}},
	 "..f",
	 "..f"},
	{"slow with two partners: these are not",
	 4,
	 {PAIR(0, 1, 1), PAIR(2, 3, 10), PAIR(0, 2, 1), PAIR(1, 3, 10), PAIR(0, 3, 10),
	  PAIR(1, 2, 10)},
	 "s...",
	 "s.s..."},
	{"one slow pair of four nodes counts for neither",
	 4,
	 {PAIR(0, 1, 1), PAIR(2, 3, 10), PAIR(0, 2, 10), PAIR(1, 3, 10), PAIR(0, 3, 10),
	  PAIR(1, 2, 10)},
	 "....",
	 "s....."},
	{"a pair whose processes waited for a CPU, so that its rate is no rate",
	 4,
	 {PAIR(0, 1, 1),
	  PAIR(2, 3, 10),
	  PAIR(0, 2, 1),
	  PAIR(1, 3, 10),
	  PAIR(1, 2, 10),
	  {.node = 0, .partner = 3, .test = "pair", .value = 1}},
	 "s...",
	 "s.s..."},
	{"two slow nodes, which meet",
	 6,
	 {PAIR(0, 1, 1), PAIR(2, 3, 10), PAIR(4, 5, 10), PAIR(0, 2, 1), PAIR(1, 3, 1),
	  PAIR(2, 4, 10), PAIR(3, 5, 10), PAIR(2, 5, 10), PAIR(0, 4, 1), PAIR(1, 5, 1),
	  PAIR(3, 4, 10)},
	 "ss....",
	 "s..ss...ss."},
	{"values that scatter: none is slow",
	 5,
	 {RATE(0, "memory", 10), RATE(1, "memory", 7), RATE(2, "memory", 13), RATE(3, "memory", 9),
	  RATE(4, "memory", 12)},
	 ".....",
	 "....."},
	{"values that scatter, and one far below",
	 5,
	 {RATE(0, "memory", 10), RATE(1, "memory", 1), RATE(2, "memory", 11.5),
	  RATE(3, "memory", 9), RATE(4, "memory", 11)},
	 ".s...",
	 ".s..."},
	{"values that scatter widely, of which two are far below",
	 6,
	 {RATE(0, "memory", 10), RATE(1, "memory", 1), RATE(2, "memory", 18), RATE(3, "memory", 1),
	  RATE(4, "memory", 12), RATE(5, "memory", 19)},
	 ".s.s..",
	 ".s.s.."},
	{"slow with two of six partners, of which four are fast",
	 8,
	 {PAIR(0, 1, 1), PAIR(0, 2, 1), PAIR(0, 3, 10), PAIR(0, 4, 10), PAIR(0, 5, 10),
	  PAIR(0, 6, 10), PAIR(1, 2, 10), PAIR(1, 3, 10), PAIR(2, 3, 10)},
	 "........",
	 "ss......."},
	{"slow with two partners between GPUs, and not over TCP",
	 4,
	 {GPU_PAIR(0, 1, 1), GPU_PAIR(2, 3, 10), GPU_PAIR(0, 2, 1), GPU_PAIR(1, 3, 10),
	  GPU_PAIR(0, 3, 10), GPU_PAIR(1, 2, 10), PAIR(0, 1, 10), PAIR(0, 2, 10), PAIR(0, 3, 10)},
	 "s...",
	 "s.s......"},
	{"one slow pair in each of two tests counts for neither",
	 4,
	 {GPU_PAIR(0, 1, 1), GPU_PAIR(2, 3, 10), GPU_PAIR(0, 2, 10), PAIR(0, 1, 1), PAIR(2, 3, 10),
	  PAIR(0, 2, 10)},
	 "....",
	 "s..s.."},
	{"a program that no node can read is no node's fault",
	 2,
	 {FACT(0, FAILED), FACT(1, FAILED), RATE(1, "memory", 10)},
	 "..",
	 "ff."},
	{"if no pair passes, it is no node's fault",
	 3,
	 {BAD(0, 1, FAILED), BAD(0, 2, SILENT), BAD(1, 2, FAILED)},
	 "...",
	 "fnf"},
	{"a pair without a result, because the time was over, counts for neither node",
	 4,
	 {PAIR(0, 1, 1), PAIR(2, 3, 10), PAIR(0, 2, 1), PAIR(1, 2, 10), PAIR(1, 3, 10),
	  BAD(0, 3, UNTESTED)},
	 "s...",
	 "s.s..u"},
	{"all pairs with a result have failed",
	 4,
	 {BAD(0, 1, FAILED), BAD(2, 3, FAILED), BAD(0, 2, UNTESTED)},
	 "....",
	 "ffu"},
	{"two nodes: a slow pair is compared with nothing", 2, {PAIR(0, 1, 1)}, "..", "."},
	{"two nodes that do not reach each other: neither", 2, {BAD(0, 1, FAILED)}, "..", "f"},
	{"a node that no partner reaches",
	 3,
	 {BAD(0, 1, SILENT), PAIR(1, 2, 10), BAD(0, 2, FAILED)},
	 "f..",
	 "n.f"},
	{"a failed node explains its pairs",
	 4,
	 {FACT(0, FAILED), BAD(0, 1, FAILED), BAD(0, 2, FAILED), BAD(1, 2, FAILED), PAIR(1, 3, 10),
	  PAIR(2, 3, 10)},
	 "f...",
	 "ffff.."},
	{"a slow node explains slow pairs, but no failed ones",
	 4,
	 {RATE(0, "memory", 1), RATE(1, "memory", 10), RATE(2, "memory", 10), RATE(3, "memory", 10),
	  PAIR(0, 1, 1), PAIR(0, 2, 1), PAIR(1, 2, 10), PAIR(2, 3, 10), BAD(1, 3, FAILED)},
	 "s...",
	 "s...ss..f"},
};

static char letter(enum preflight_verdict verdict)
{
	return ".dusfn"[verdict];
}

TEST_ROWS(judge, rows)
{
	enum preflight_verdict verdicts[NODES];
	struct preflight_row judged[ROWS];
	char got[ROWS + 1] = "", marks[ROWS + 1] = "";
	size_t count = strlen(rows[_i].marks);

	memcpy(judged, rows[_i].rows, sizeof(judged));
	preflight_judge(judged, count, rows[_i].nodes, 0.8, verdicts);
	for (int i = 0; i < rows[_i].nodes; i++)
		got[i] = letter(verdicts[i]);
	for (size_t i = 0; i < count; i++)
		marks[i] = letter(judged[i].verdict);
	ck_assert_msg(strcmp(got, rows[_i].verdicts) == 0 && strcmp(marks, rows[_i].marks) == 0,
		      "%s: nodes \"%s\", rows \"%s\"", rows[_i].name, got, marks);
}

#define RESULT(run_, verdict_, is_rate_, value_)                                                   \
	{                                                                                          \
		.run = run_, .verdict = PREFLIGHT_##verdict_, .is_rate = is_rate_, .value = value_ \
	}

static const struct {
	const char *name;
	struct preflight_row older, newer;
	bool replaced;
} replacements[] = {
	{"the first result", RESULT(1, OK, false, NAN), RESULT(1, FAILED, false, NAN), true},
	{"a better rate", RESULT(1, OK, true, 1), RESULT(2, OK, true, 2), true},
	{"a worse rate", RESULT(1, OK, true, 2), RESULT(2, OK, true, 1), false},
	{"a rate of one node, no answer from the other", RESULT(1, OK, true, 1),
	 RESULT(1, SILENT, false, NAN), true},
	{"no answer, and a failure", RESULT(1, SILENT, false, NAN), RESULT(1, FAILED, false, NAN),
	 false},
	{"no answer, and a rate in the second run", RESULT(1, SILENT, false, NAN),
	 RESULT(2, OK, true, 1), true},
	{"a failure, and a rate in the second run", RESULT(1, FAILED, false, NAN),
	 RESULT(2, OK, true, 1), false},
	{"the time of a node was over, so its partner lost it", RESULT(1, UNTESTED, false, NAN),
	 RESULT(1, FAILED, false, NAN), false},
	{"a partner was lost, since the time of this node was over", RESULT(1, FAILED, false, NAN),
	 RESULT(1, UNTESTED, false, NAN), true},
	{"the time of a node was over, after its partner had the rate", RESULT(1, OK, true, 1),
	 RESULT(1, UNTESTED, false, NAN), false},
	{"a rate, after the time of the partner was over", RESULT(1, UNTESTED, false, NAN),
	 RESULT(1, OK, true, 1), true},
	{"no time in the first run, and no answer in the second", RESULT(1, UNTESTED, false, NAN),
	 RESULT(2, SILENT, false, NAN), true},
	{"no answer in the first run, and no time in the second", RESULT(1, SILENT, false, NAN),
	 RESULT(2, UNTESTED, false, NAN), false},
};

TEST_ROWS(replaces, replacements)
{
	ck_assert_msg(preflight_replaces(&replacements[_i].newer, &replacements[_i].older) ==
			      replacements[_i].replaced,
		      "%s", replacements[_i].name);
}

#define MARKED(node_, test_, verdict_, is_rate_, compared_)                                      \
	{                                                                                        \
		.node = node_, .partner = -1, .test = test_, .verdict = PREFLIGHT_##verdict_,    \
		.is_rate = is_rate_, .compared = compared_, .value = 1, .median = 2, .unit = "x" \
	}

static const struct {
	const char *name;
	struct preflight_row rows[3];
	size_t count;
	const char *untested, *pieces[3], *never;
} reports[] = {
	{"a slow node of five is drained",
	 {MARKED(0, "memory", SLOW, true, 5)},
	 1,
	 "",
	 {"\nnode n1 is slow in test memory: 1.00 x, median 2.00 x\n  an administrator would type: ",
	  "reason=\"memory: 1.00 x, median 2.00 x\"\n"},
	 "not tested"},
	{"a slow node of four is not drained",
	 {MARKED(0, "memory", SLOW, true, 4)},
	 1,
	 "",
	 {"\nnode n1 is slow in test memory: "},
	 "drain"},
	{"a node that shares its CPUs is not drained",
	 {MARKED(0, "CPU time", SLOW, true, 8)},
	 1,
	 "",
	 {"\nnode n1 is slow in test CPU time: "},
	 "drain"},
	{"a node that shares its CPUs and has slow memory is drained for its memory",
	 {MARKED(0, "CPU time", SLOW, true, 8), MARKED(0, "memory", SLOW, true, 8)},
	 2,
	 "",
	 {"reason=\"memory: "},
	 "reason=\"CPU"},
	{"a node is drained for a slow clock",
	 {MARKED(0, "clock", SLOW, false, 0)},
	 1,
	 "",
	 {"reason=\"clock: "},
	 "not tested"},
	{"a partner gets no answer from a process that has ended",
	 {{.node = 0, .partner = 1, .test = "pair", .value = NAN, .verdict = PREFLIGHT_SILENT},
	  MARKED(0, "pair", FAILED, false, 0)},
	 2,
	 "",
	 {"\nnode n1 has failed in test pair: failed\n"},
	 "reason=\"pairs: "},
	{"a slow node gets no answer from a node that has failed",
	 {{.node = 0, .partner = 1, .test = "pair", .value = NAN, .verdict = PREFLIGHT_SILENT},
	  MARKED(0, "GPU state", SLOW, false, 0),
	  MARKED(1, "product", FAILED, false, 0)},
	 3,
	 "",
	 {"\nnode n1 is slow in test GPU state: ", "\nnode n2 has failed in test product: "},
	 "reason=\"pairs: "},
	{"a node is not slow for a failure of all nodes",
	 {MARKED(0, "memory", SLOW, true, 4),
	  {.node = 0,
	   .partner = -1,
	   .test = "program",
	   .verdict = PREFLIGHT_FAILED,
	   .is_shared = true}},
	 2,
	 "",
	 {"\nnode n1 is slow in test memory: ", "\ntest program failed on all nodes"},
	 "drain"},
	{"one file is not \"files\"",
	 {MARKED(0, "program", OK, false, 0), MARKED(0, "memory", FAILED, false, 0)},
	 2,
	 "",
	 {"\n1 file ", "reason=\"memory: failed\"\n"},
	 "files"},
	{"GPUs whose sums were not tested",
	 {MARKED(0, "memory", FAILED, false, 0)},
	 1,
	 "",
	 {"\nGPUs ", "GPU sum", "not tested  no NCCL"},
	 "\npairs "},
	{"pairs that were not tested",
	 {MARKED(0, "memory", FAILED, false, 0)},
	 1,
	 "no directory",
	 {", 0 of 3 rounds of pairs: ", "\npairs ", "not tested  no directory"},
	 "3 of 3"},
};

TEST_ROWS(report, reports)
{
	char name[2][FACTS_NAME] = {"n1", "n2"}, directory[PATH_MAX], *text = NULL;
	const struct node_list nodes = {.name = name, .count = 2};
	enum preflight_verdict verdicts[2] = {PREFLIGHT_OK, PREFLIGHT_OK};
	struct preflight_row judged[3];
	struct preflight_results results = {.nodes = &nodes,
					    .verdicts = verdicts,
					    .rows = judged,
					    .count = reports[_i].count,
					    .rounds_wanted = 3};
	size_t size;
	FILE *screen = open_memstream(&text, &size);

	memcpy(judged, reports[_i].rows, sizeof(judged));
	snprintf(results.untested[0], sizeof(results.untested[0]), "%s", reports[_i].untested);
	snprintf(results.untested[1], sizeof(results.untested[1]), "%s",
		 strcmp(reports[_i].name, "GPUs whose sums were not tested") == 0 ? "no NCCL" : "");
	for (size_t i = 0; i < results.count; i++)
		if (judged[i].verdict > verdicts[judged[i].node] && judged[i].partner < 0 &&
		    !judged[i].is_shared)
			verdicts[judged[i].node] = judged[i].verdict;
	unit_directory(directory, sizeof(directory));
	ck_assert(preflight_report(&results, directory));
	ck_assert(failure_explain(directory, "preflight.json", screen));
	fclose(screen);
	for (int i = 0; i < 3 && reports[_i].pieces[i]; i++)
		UNIT_SAYS(reports[_i].name, text, reports[_i].pieces[i]);
	ck_assert_msg(!strstr(text, reports[_i].never), "%s: \"%s\" is in %s", reports[_i].name,
		      reports[_i].never, text);
	free(text);
	unit_remove(directory);
	/* Results that cannot be written are not announced. */
	ck_assert(!preflight_report(&results, directory));
}

#define WAITS(round_, partner_)                                         \
	{                                                               \
		.has_ended = true, .round = round_, .partner = partner_ \
	}
#define MET(round_) WAITS(round_, -1)
#define LOST(round_, partner_)                       \
	{                                            \
		.round = round_, .partner = partner_ \
	}
#define ABSENT LOST(-1, -1)

static const struct {
	const char *name;
	int nodes;
	struct preflight_node seen[NODES];
	const char *
		blocked; /* "b": other nodes are the reason that the node's programme ended early */
} waits[] = {
	{"all nodes have come to the end", 2, {MET(3), MET(3)}, ".."},
	{"a node waits for one that has not started", 2, {ABSENT, WAITS(0, 0)}, "bb"},
	{"a node waits for one that waits for a lost one",
	 4,
	 {LOST(0, -1), WAITS(1, 0), WAITS(2, 1), MET(3)},
	 "bbb."},
	{"a lost node has passed the round of a partner that waits for it",
	 2,
	 {LOST(2, -1), WAITS(1, 0)},
	 "b."},
	{"a lost node waits for a partner that is past this round: it waits for none",
	 3,
	 {LOST(1, 1), WAITS(2, 0), MET(1)},
	 "bb."},
	{"two nodes wait for each other: their link is broken",
	 4,
	 {WAITS(1, 1), WAITS(1, 0), WAITS(2, 0), MET(2)},
	 "bbb."},
	{"a node did not come to its first pair in time", 2, {MET(-1), WAITS(0, 0)}, "bb"},
	{"a node was still busy with an earlier pair: there was too little time",
	 2,
	 {MET(1), WAITS(2, 0)},
	 ".."},
};

TEST_ROWS(blocked, waits)
{
	char got[NODES + 1] = "";

	for (int i = 0; i < waits[_i].nodes; i++)
		got[i] = preflight_is_blocked(waits[_i].seen, waits[_i].nodes, i) ? 'b' : '.';
	ck_assert_msg(strcmp(got, waits[_i].blocked) == 0, "%s: \"%s\"", waits[_i].name, got);
}

/*
 * In all rounds together, each pair of nodes meets once. The partner of a node's partner is the
 * node.
 */
TEST_LOOP(pairs, 1, 33)
{
	int nodes = _i, rounds = info_preflight_rounds(nodes, true);
	bool met[33][33] = {{false}};

	for (int round = 0; round < rounds; round++) {
		int alone = 0;

		for (int i = 0; i < nodes; i++) {
			int other = info_preflight_partner(nodes, round, i);

			alone += other < 0;
			if (other < 0)
				continue;
			ck_assert(other < nodes && other != i &&
				  info_preflight_partner(nodes, round, other) == i &&
				  !met[i][other]);
			met[i][other] = true;
		}
		ck_assert_int_eq(alone, nodes % 2);
	}
	for (int i = 0; i < nodes; i++)
		for (int j = 0; j < nodes; j++)
			ck_assert(met[i][j] == (i != j));
}

TEST(rounds)
{
	static const int wanted[][3] = {{1, 0, 0}, {2, 1, 1}, {3, 3, 3},       {4, 3, 3},
					{8, 4, 7}, {9, 5, 9}, {1000, 11, 999}, {1024, 11, 1023}};

	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		ck_assert_int_eq(info_preflight_rounds(wanted[i][0], false), wanted[i][1]);
		ck_assert_int_eq(info_preflight_rounds(wanted[i][0], true), wanted[i][2]);
	}
}

UNIT_MAIN("preflight", NULL)
