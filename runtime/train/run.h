/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.h - one training from its options to its end: what the files of the trainer share
 *
 * Functions return 0, or a negative DDP_ERR_x with its text in run->error. Those that are marked
 * collective must be called by all ranks.
 */
#ifndef TRAIN_RUN_H
#define TRAIN_RUN_H

#include "base/error.h"
#include "engine.h"
#include "report/report.h"
#include "run-checkpoint.h"
#include "stop.h"
#include "throughput.h"
#include "train-options.h"

struct run {
	struct ddp *ddp;
	const struct ddp_world *world;
	const struct options *options;
	struct ddp_error error;
	bool shared; /* all ranks have this same error: one tells it */

	/* What is trained. */
	struct set *train, *test;
	struct net *net;
	struct graph *graph;
	struct model *model;
	struct optim optim;
	struct schedule schedule;
	struct ddp_scaler scaler;

	/* What computes. */
	const struct engine_class *class;
	struct engine *engine;
	char why[DDP_ERROR_SIZE + 64]; /* it is not the GPU's, although there is a driver; "" */
	char sharing[256];	       /* which ranks share GPUs, and how; "": none do */
	double share;		       /* of this rank's GPU, 0: all */

	/* Samples. */
	size_t dealt;		       /* what samples are dealt to: ranks, or virtual ones */
	size_t parts;		       /* of these, this rank's: 1, or its virtual ranks */
	bool virtual;		       /* --virtual-ranks */
	struct ddp_sampler **samplers; /* of each part */
	size_t batch, test_batch;      /* of a step of a part */
	size_t most; /* of an epoch of a part, or of a batch: there is room for as much of each */
	uint64_t *indices, *orders;
	uint64_t seed;
	int threads; /* 0: what the CPUs allow */

	/* Where it is, and where it ends. */
	struct progress progress;
	uint64_t pending; /* steps that were begun and that the engine has not told of */
	unsigned epochs;
	uint64_t limit; /* steps in all, UINT64_MAX: none */
	struct stop stop;

	/* What is left of it, and what is told. */
	struct run_checkpoint checkpoint;
	struct throughput throughput;
	struct report *report; /* of rank 0 */
	double begin;	       /* on ddp_seconds()'s clock */
	bool diverged;	       /* that was told */
	bool not_finite;       /* the losses of the last epoch, or the weights after it */
};

/* --- trainer.c ----------------------------------------------------------------------------- */

/*
 * Exit statuses. Stopped early, by a signal or before the job's time ended, with a checkpoint; finished, but the loss or a
 * weight is not finite.
 */
enum { TRAINER_STOPPED = 3, TRAINER_DIVERGED = 4 };

/*
 * Train as rank of [ddp]. Collective.
 * Returns an exit status: 0, TRAINER_STOPPED, TRAINER_DIVERGED, or ddp_exit_status() of what was told on stderr, which is
 * higher than all of these.
 */
int trainer_run(struct ddp *ddp, const struct options *options);

/*
 * Put libddp's error into run->error; the second one is for functions that fail on all ranks with
 * the error of one of them. Return [status].
 */
int run_pass_on(struct run *run, int status);
int run_pass_on_shared(struct run *run, int status);

/*
 * All ranks go on, or none: where [status] is an error on a rank, all get that of the first of
 * them. For what fails on each rank by itself. Collective.
 */
int run_agree(struct run *run, int status);

/*
 * The same for [status] of a collective function, which may have failed on one rank while others
 * wait in it: an error that all ranks must have is agreed on, others are as they are. Collective.
 */
int run_agree_likely(struct run *run, int status);

/* --- engine-choice.c ----------------------------------------------------------------------- */

/*
 * Choose run->class: with --engine=auto the GPU's if all ranks have a GPU, of their own or with others whom they
 * share memory with, and can sum there, else the CPU's, with run->why; with --engine=cuda the rank that has none is
 * named in the error. What is shared is in run->sharing and share. Collective.
 */
int run_find_engine(struct run *run);

/* --- setup.c ------------------------------------------------------------------------------- */

/* Everything up to the first step: data, network, weights, checkpoint, engine. Collective. */
int run_open(struct run *run);
void run_close(struct run *run);

/* --- loop.c -------------------------------------------------------------------------------- */

/* Steps of the epoch that the run is in, those already done included. */
uint64_t run_steps(const struct run *run);

/* Samples of a step of all ranks. */
uint64_t run_global_batch(const struct run *run);

/*
 * Wait until the engine has told of all steps that were begun: before the model, what has been
 * summed up, or the clock are looked at. Collective.
 */
int run_settle(struct run *run);

/* Train until the end, or until a rank wants to stop. Collective. */
int run_train(struct run *run);

/* --evaluate: the test set alone. Collective. */
int run_evaluate(struct run *run);

#endif /* TRAIN_RUN_H */
