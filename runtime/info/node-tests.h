/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node-tests.h - ddp-info --preflight: tests of one node, which ddp-run controls through srun
 * (run/preflight.c)
 *
 * One process runs on each node. It writes each result as a line on stdout as soon as the test has
 * ended, so that a node that hangs loses only its later results. Fields are separated by tabs:
 *
 * 	ddp-preflight <rank> <event> <test> <kind> <value> <unit> <text>
 *
 * The events are hello (the process has started; text: name of the node; value: time of its
 * clock), begin (a test begins), done (a phase has ended; value: its number), and the results of
 * tests: rate (ddp-run compares rates of the same test and kind; for a pair, the text may begin with
 * the rate without waits for a CPU), fact (passed), slow, failed, silent (a peer did not answer),
 * and untested (text: the reason).
 *
 * Commands are lines on stdin, the same for all nodes. LIMIT is in seconds. TIME is the time on the
 * host that runs ddp-run:
 *
 * 	node <phase> LIMIT TIME e0 e1 ...  run the tests of the node if entry i is not -1, for rank i
 * 	pair <phase> LIMIT TIME p0 p1 ...  all-reduce with a partner: entry i is the partner of rank i; -1: none
 * 	all <phase> LIMIT TIME r0 r1 ...   all-reduce: entry i is the number of rank i in it; -1: not in it
 *
 * The process ends at the end of stdin. If stdin has no command, it runs the tests of the node
 * first.
 */
#ifndef DDP_INFO_NODE_TESTS_H
#define DDP_INFO_NODE_TESTS_H

#include <math.h>
#include <sys/types.h>

#include "base/text.h"

/*
 * Run the tests. [files] is a NULL-terminated list: the program, and other files that every node
 * must be able to read. Returns the exit status.
 */
int info_preflight(char *const *files);

/* preflight-lines.c: set the rank of this process in the step, which info_preflight_say() prints. */
void info_preflight_set_rank(int rank);

/*
 * Print one line. NAN as [value] means that there is no value. Safe to call from several threads.
 */
void info_preflight_say(const char *event, const char *test, const char *kind, double value,
			const char *unit, const char *format, ...) DDP_FORMAT(6, 7);

/* Report that [test] begins. */
static inline void info_preflight_begin(const char *test)
{
	info_preflight_say("begin", test, "", (double)NAN, "", "%s", "");
}

/* Like fork(), but the child is killed if this process ends. */
pid_t info_preflight_fork(void);

/*
 * preflight-gpu.c: test all GPUs that this process sees. If Slurm allocated no GPU and there is no
 * driver, print nothing. Returns the number of GPUs tested; 0 if Slurm allocated more GPUs than
 * that.
 */
int info_preflight_gpus(void);

/* Get the name of GPU [index]; "": unknown. */
void info_preflight_gpu_name(int index, char *name, size_t size);

/*
 * sum-tests.c: all-reduce in host memory, as node [number] of [size]. The nodes meet in
 * [directory]. If all nodes have GPUs, then do the same in GPU memory, as test "GPU [test]".
 * [limit] is the time limit for each of the two. Sets [gpus] to 0 if sums on GPUs cannot be tested.
 */
void info_preflight_sum(const char *test, const char *directory, int number, int size, int *gpus,
			double limit);

/* All-reduce over [gpus] GPUs of each node, with one process for each GPU. */
void info_preflight_gpu_sum(const char *test, const char *directory, int number, int size,
			    int *gpus, double limit);

#endif /* DDP_INFO_NODE_TESTS_H */
