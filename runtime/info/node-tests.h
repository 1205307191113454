/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node-tests.h - ddp-info --preflight: the programme of tests of one node (run/preflight.c starts
 * it on all nodes)
 *
 * One process runs on each node. Its programme consists of tests of the node, tests of pairs of
 * nodes in rounds, and a sum over all nodes. The programme depends only on the rank, the number of
 * nodes and the time, so nothing is read from stdin. The process itself only waits and writes
 * lines. Each test is a child process with a time limit, so a test that hangs stops neither the
 * lines nor the next tests. For a test with other nodes, the time limit begins when all of them
 * have arrived. A wait for another node lasts at most until the end of the programme.
 *
 * Each result is one line on stdout, written at once. Fields are separated by tabs:
 *
 * 	ddp-preflight <rank> <time> <event> <test> <kind> <value> <unit> <text>
 *
 * The time is that of the node's clock, in seconds since 1970. The events are:
 *
 * 	hello	  the process has started; value: number of rounds; text: name of the node
 * 	wait	  the node has announced itself, and waits; value: round; text: rank of a missing node
 * 	met	  the missing nodes have arrived; value: round; text: rank of the first of them
 * 	rate	  result that is compared with those of the same test and kind
 * 	config	  result that should be equal on all nodes of the same kind
 * 	fact	  the test has passed
 * 	slow, failed, silent	the text says why; silent: no answer within the limit
 * 	cut	  the programme's time has ended during the test, so a partner reports a failure
 * 	untested  text: the reason
 * 	end	  the process ends, because its programme has ended or its time is over
 */
#ifndef DDP_INFO_NODE_TESTS_H
#define DDP_INFO_NODE_TESTS_H

#include <math.h>

#include "base/text.h"
#include "base/watch.h"

enum { INFO_GPUS_MOST = 64 };

/*
 * Returns the number of rounds of pairs. In each round, a node has a different partner. With
 * [full], there are as many rounds as are needed to test all pairs. Otherwise there are ceil(log2
 * n) + 1, or fewer if they test all pairs.
 */
static inline int info_preflight_rounds(int nodes, bool full)
{
	int all = nodes < 2 ? 0 : nodes - 1 + nodes % 2, rounds = 1;

	for (int reached = 1; reached < nodes; reached *= 2)
		rounds++;
	return full || rounds > all ? all : rounds;
}

/*
 * Returns the partner of [node] in [round] (from 0) of a round-robin tournament of [nodes]; -1: the
 * number of nodes is odd, and the node has no partner. In the first info_preflight_rounds(nodes,
 * true) rounds, no pair occurs twice.
 *
 * This is the circle method: two nodes are partners if the sum of their numbers is 2 * round, modulo
 * the size of the circle. If the number of nodes is even, the last node is outside of the circle.
 */
static inline int info_preflight_partner(int nodes, int round, int node)
{
	int circle = nodes - 1 + nodes % 2, at = round % circle;
	int partner = node == circle ? at : (2 * at + circle - node) % circle;

	if (partner == node)
		partner = circle;
	return partner < nodes ? partner : -1;
}

/*
 * Run the programme. [plan] is "SECONDS[,full][,again]", or NULL for "30". With "again", tests of
 * CPUs are repeated. [files] is a NULL-terminated list of files that every node must be able to
 * read, beginning with the program. Returns the exit status.
 */
int info_preflight(const char *plan, char *const *files);

/* Set this process's rank in the step, for info_preflight_say(). (In preflight-lines.c.) */
void info_preflight_set_rank(int rank);

/*
 * Print one line. [value] is NAN if the line has no value. Several threads and processes can call
 * this at the same time.
 */
void info_preflight_say(const char *event, const char *test, const char *kind, double value,
			const char *unit, const char *format, ...) DDP_FORMAT(6, 7);

/*
 * Test all GPUs that this process sees. (In preflight-gpu.c.) If Slurm allocated no GPU and there
 * is no driver, prints nothing. Returns the number of GPUs that were tested, or 0 if the driver
 * finds fewer GPUs than Slurm allocated.
 */
int info_preflight_gpus(void);

/* Write the name of GPU [index] to [name], or "" if it is unknown. */
void info_preflight_gpu_name(int index, char *name, size_t size);

/*
 * Run [test] in [count] child processes, at most INFO_GPUS_MOST. (In sum-tests.c.) Child i exits
 * with the result of work([data], i). The test may take [limit] seconds, not counting suspensions,
 * and must not continue after [end]. Prints a line if a child was ended by a signal, by [limit] or
 * by [end]. Returns the highest result, or -1 if a child has no result.
 */
int info_preflight_run(const char *test, int count, int (*work)(void *data, int i), void *data,
		       double limit, const struct ddp_watch *end);

/*
 * All-reduce in host memory, as node [number] of [size], which meet in [directory]. If all nodes
 * have GPUs, then do the same in GPU memory, as test "GPU [test]". [limit] is the time limit for
 * each of the two. Sets [gpus] to 0 if sums on GPUs cannot be tested.
 */
void info_preflight_sum(const char *test, const char *directory, int number, int size, int *gpus,
			double limit, const struct ddp_watch *end);

/* All-reduce over [gpus] GPUs of each node, with one process for each GPU. */
void info_preflight_gpu_sum(const char *test, const char *directory, int number, int size,
			    int *gpus, double limit, const struct ddp_watch *end);

#endif /* DDP_INFO_NODE_TESTS_H */
