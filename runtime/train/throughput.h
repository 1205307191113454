/* SPDX-License-Identifier: Apache-2.0 */
/*
 * throughput.h - progress of all ranks in intervals, for the report
 *
 * Steps are grouped into intervals of about one second. At the end of an interval, the ranks
 * all-gather their counters. At the same time, rank 0 sends the number of steps in the next
 * interval. It computes this number from the duration of the last steps.
 */
#ifndef TRAIN_THROUGHPUT_H
#define TRAIN_THROUGHPUT_H

#include "engine.h"
#include "report/report.h"

struct run;

struct throughput {
	struct report_place *places; /* location of each rank */
	/*
	 * [mine]: work of this rank in this interval. [last] and [whole]: work of each rank in the
	 * last interval, and in the run.
	 */
	struct report_work mine, *last, *whole;
	uint64_t next_steps;
	uint64_t steps; /* finished in this interval */
	bool live;	/* a live line is shown */
	double target;	/* duration of an interval in seconds; 0: a fixed number of steps */
	double begin;	/* start of the interval */
	double loss;	/* sums over all ranks in this interval */
	uint64_t hits, samples;
};

/* Collects the locations of the ranks. Collective. */
int throughput_open(struct run *run);
void throughput_close(struct throughput *throughput);

/*
 * Counts a step with [count] samples of this rank (without repeated samples). Returns true on all
 * ranks if the interval is complete. Only finished steps count, unless the user gave the number of
 * steps per interval.
 */
bool throughput_is_due(struct run *run, size_t count);

/*
 * Ends the interval, and reports it if a step has finished in it. The epoch has [steps] steps.
 * Collective.
 */
int throughput_flush(struct run *run, uint64_t steps);

/* Updates the totals of the run. Collective. */
int throughput_end(struct run *run);

#endif /* TRAIN_THROUGHPUT_H */
