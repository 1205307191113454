/* SPDX-License-Identifier: Apache-2.0 */
/*
 * throughput.h - what all ranks did since the last beat, for the report
 *
 * A beat is one all-gather of a few numbers. Rank 0 says in it how many steps the next one is
 * away, so that beats come about once a second whatever a step takes.
 */
#ifndef TRAIN_THROUGHPUT_H
#define TRAIN_THROUGHPUT_H

#include "engine.h"
#include "report/report.h"

struct run;

/* What a rank tells at a beat. */
struct throughput_card {
	struct report_work work;
	uint64_t interval; /* rank 0's word: steps to the next beat */
};

struct throughput {
	struct throughput_card mine, *cards; /* since the last beat: of this rank, of all */
	struct report_place *places;	     /* of all ranks */
	struct report_work *beat, *whole;    /* of all: since the last beat, of the run */
	uint64_t interval;
	uint64_t steps; /* that have ended since the last beat */
	bool live;	/* they are shown in a live line */
	double target;	/* seconds between two beats; 0: a fixed number of steps */
	double begin;	/* of the time since the last beat */
	double loss;	/* of all ranks, since the last beat */
	uint64_t hits, samples;
};

/* Collect who the ranks are. Collective. */
int throughput_open(struct run *run);
void throughput_close(struct throughput *throughput);

/* Time that is no training's: the next beat counts from now. */
void throughput_skip(struct run *run);

/* What the engine told of steps that have ended. */
void throughput_add(struct run *run, const struct engine_step *done);

/*
 * After each step of an epoch of [steps], of which [count] samples, without repeated ones, were this rank's. A beat tells
 * of the steps that have ended; where people said how many steps are in one, it waits for these. Collective.
 */
int throughput_step(struct run *run, size_t count, uint64_t steps);

/* A beat with the steps since the last one, if there were any; none is under way. Collective. */
int throughput_flush(struct run *run, uint64_t steps);

/* Bring the numbers of the whole run up to date. Collective. */
int throughput_end(struct run *run);

#endif /* TRAIN_THROUGHPUT_H */
