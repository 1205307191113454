/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node-tests.h - ddp-info --preflight: the programme of tests of one node (run/preflight.c starts
 * it on all nodes)
 *
 * One process runs on each node. Its programme consists of tests of the node, tests of pairs of
 * nodes in rounds, and a sum over all nodes. The programme follows from the rank, the number of
 * nodes and the time, so nothing is read from stdin. The process itself only waits and writes
 * lines: each test is a child process with a time limit, so a test that hangs stops neither the
 * lines nor the next tests. The limit of a test with other nodes begins when all of them have
 * arrived. A wait for another node ends with the programme.
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
 * Returns the number of rounds: ceil(log2 n) + 1, unless fewer rounds test all pairs. A node has a
 * different partner in each round. With [full], returns the number of rounds in which all pairs are
 * tested.
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
 * Run the programme. [plan] is "SECONDS[,full][,again]"; NULL: "30". With "again", tests of CPUs are
 * repeated. [files] is a NULL-terminated list: the program, and other files that every node must be
 * able to read. Returns the exit status.
 */
int info_preflight(const char *plan, char *const *files);

/* preflight-lines.c: set this process's rank in the step, for info_preflight_say(). */
void info_preflight_set_rank(int rank);

/*
 * Print one line. NAN as [value] means that there is no value. Safe to call from several threads
 * and processes.
 */
void info_preflight_say(const char *event, const char *test, const char *kind, double value,
			const char *unit, const char *format, ...) DDP_FORMAT(6, 7);

/*
 * preflight-gpu.c: test all GPUs that this process sees. If Slurm allocated no GPU and there is no
 * driver, print nothing. Returns the number of GPUs tested; 0 if the driver finds fewer GPUs than
 * Slurm allocated.
 */
int info_preflight_gpus(void);

/* Get the name of GPU [index]; "": unknown. */
void info_preflight_gpu_name(int index, char *name, size_t size);

/*
 * sum-tests.c: run [test] as [count] child processes, at most INFO_GPUS_MOST, for at most [limit]
 * seconds, without suspensions, and not after [end]. Child i exits with the result of work([data],
 * i). Prints a line if a child was ended by a signal, by [limit] or by [end]. Returns the highest
 * result; -1: a child has none.
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
