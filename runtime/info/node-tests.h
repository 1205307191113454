/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node-tests.h - ddp-info --preflight: tests of one node, which ddp-run controls through srun
 * (run/preflight.c)
 *
 * One process runs on each node. It writes each result at once as a line on stdout, so that a node
 * that hangs or dies loses only its own results. Fields are separated by tabs:
 *
 * 	ddp-preflight <rank> <event> <test> <kind> <value> <unit> <text>
 *
 * Events: hello (text: name of the node; value: its time), begin (a test begins), done (value: the
 * phase), and results: rate (ddp-run compares those of the same test and kind; the text of a pair
 * may begin with the rate without waits for a CPU), fact (passed), slow, failed, silent (a peer did
 * not answer), untested (text: the reason).
 *
 * Commands are lines on stdin, the same for all nodes. LIMIT is in seconds, TIME is the time of the
 * host that runs ddp-run:
 *
 * 	node <phase> LIMIT TIME e0 e1 ...  run the tests of the node, if the entry of its rank is not -1
 * 	pair <phase> LIMIT TIME p0 p1 ...  all-reduce with a partner: entry i is the partner of rank i; -1: none
 * 	all <phase> LIMIT TIME r0 r1 ...   all-reduce: entry i is the number of rank i in it; -1: not in it
 *
 * The process ends at the end of stdin. If stdin has no command, it runs the tests of the node
 * first.
 */
#ifndef DDP_INFO_NODE_TESTS_H
#define DDP_INFO_NODE_TESTS_H

#include <sys/types.h>

#include "base/text.h"

/*
 * Run the tests. [files] is NULL-terminated: the program, and other files that must be readable on
 * each node. Returns the exit status.
 */
int info_preflight(char *const *files);

/* Print one line; [value] NAN: none. Safe to call from several threads. */
void info_preflight_say(const char *event, const char *test, const char *kind, double value,
			const char *unit, const char *format, ...) DDP_FORMAT(6, 7);

/* Like fork(), but the child is killed if this process ends. */
pid_t info_preflight_fork(void);

/*
 * preflight-gpu.c: test all GPUs that this process sees. Prints nothing if Slurm allocated none and
 * there is no driver. Returns the number of GPUs tested; 0 if Slurm allocated more than that.
 */
int info_preflight_gpus(void);

/* Get the name of GPU [index]; "": unknown. */
void info_preflight_gpu_name(int index, char *name, size_t size);

/*
 * sum-tests.c: all-reduce in host memory as node [number] of [size]; the nodes meet in [directory].
 * Then, if all nodes have GPUs, the same in GPU memory, as test "GPU [test]". [limit] applies to
 * each of the two. Sets [gpus] to 0 if sums of GPUs cannot be tested.
 */
void info_preflight_sum(const char *test, const char *directory, int number, int size, int *gpus,
			double limit);

/* All-reduce over [gpus] GPUs of each node, with one process for each GPU. */
void info_preflight_gpu_sum(const char *test, const char *directory, int number, int size,
			    int *gpus, double limit);

#endif /* DDP_INFO_NODE_TESTS_H */
