/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node-tests.h - ddp-info --preflight: the tests of one node, directed by ddp-run (run/preflight.c) through srun
 *
 * One process runs on each node. Its results are lines on stdout, written as they come, so that a node that hangs or dies loses only its
 * own. Fields are separated by tabs:
 *
 *	ddp-preflight <rank> <event> <test> <kind> <value> <unit> <text>
 *
 * Events: hello (text: the node's name; value: its time), begin (a test begins), done (value: the phase), and results: rate (ddp-run
 * compares those of one test and kind; a pair's text may begin with the rate that it would have if no process had waited for a CPU), fact (in order), slow, failed, silent (a peer did not answer), untested (text: why).
 *
 * Commands are lines on stdin, the same for all nodes; LIMIT is in seconds, TIME is that of the launch host:
 *
 *	node <phase> LIMIT TIME e0 e1 ...  tests of the node, if the number of its rank is not -1
 *	pair <phase> LIMIT TIME p0 p1 ...  all-reduce with a partner: that of rank 0, of rank 1, ...; -1: none
 *	all <phase> LIMIT TIME r0 r1 ...   all-reduce of the ranks that have a number in it; -1: none
 *
 * At the end of stdin the process ends. Without any command it runs the tests of the node first.
 */
#ifndef DDP_INFO_NODE_TESTS_H
#define DDP_INFO_NODE_TESTS_H

#include <sys/types.h>

#include "base/text.h"

/* [files] end with NULL: the program, and what else must be readable on each node. Returns the exit status. */
int info_preflight(char *const *files);

/* Print a line, [value] NAN: none. May be called by several threads. */
void info_preflight_say(const char *event, const char *test, const char *kind, double value,
			const char *unit, const char *format, ...) DDP_FORMAT(6, 7);

/* fork(), for a child that is killed if this process ends. */
pid_t info_preflight_fork(void);

/*
 * preflight-gpu.c: the tests of all GPUs that this process sees. Prints nothing if Slurm gave it none and there is no driver. Returns how
 * many GPUs it has tested; 0 if Slurm gave it more.
 */
int info_preflight_gpus(void);

/* The name of GPU [index]; "": not known. */
void info_preflight_gpu_name(int index, char *name, size_t size);

/*
 * sum-tests.c: an all-reduce of [size] nodes, of which this is [number], in host memory. They meet in [directory]. Then, if all nodes have
 * GPUs, the same of their GPUs, as test "GPU [test]". [limit] is that of each of both. [gpus] is set to 0 if their sums cannot be tested.
 */
void info_preflight_sum(const char *test, const char *directory, int number, int size, int *gpus,
			double limit);

/* An all-reduce of [gpus] GPUs of each node, with a process for each of them. */
void info_preflight_gpu_sum(const char *test, const char *directory, int number, int size,
			    int *gpus, double limit);

#endif /* DDP_INFO_NODE_TESTS_H */
