/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.h - state of a training, shared by the trainer's files
 *
 * Functions return 0, or a negative DDP_ERR_x with a text in run->error. Functions marked
 * "Collective" must be called by all ranks.
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
	bool shared; /* whether all ranks have the same error, so that only one rank prints it */

	/* Model and data. */
	struct set *train, *test;
	struct net *net;
	struct graph *graph;
	struct model *model;
	struct optim optim;
	struct schedule schedule;
	struct ddp_scaler scaler;

	/* Engine. */
	const struct engine_class *class;
	struct engine *engine;
	/* reason for computing on CPUs although there is a GPU driver; "": none */
	char why[DDP_ERROR_SIZE + 64];
	char sharing[256]; /* which ranks share GPUs, and how; "": none */
	double share;	   /* fraction of the GPU for this rank; 0: all */

	/* Samples. */
	size_t total_parts;	       /* ranks or, with --virtual-ranks, virtual ranks */
	size_t parts;		       /* parts on this rank: 1, or its virtual ranks */
	bool virtual;		       /* --virtual-ranks is set */
	struct ddp_sampler **samplers; /* one per part */
	size_t batch, test_batch;      /* samples of each part per step */
	uint64_t *indices, *orders;
	uint64_t seed;
	int threads; /* 0: as many as CPUs */

	/* Position and end. */
	struct run_progress progress;
	uint64_t pending; /* steps that were started and not yet reported by the engine */
	unsigned epochs;
	uint64_t limit; /* total steps; UINT64_MAX: no limit */
	struct stop stop;

	/* Output. */
	struct run_checkpoint checkpoint;
	struct throughput throughput;
	struct report *report; /* on rank 0, else NULL */
	double begin;	       /* start of the run, on ddp_seconds()'s clock */
	bool diverged;	       /* the warning about a loss that is not finite was printed */
	bool not_finite; /* the last epoch's losses, or the weights after it, are not finite */
	bool lost;	 /* a weight is not finite, so the training cannot recover */
};

/* --- run.c --------------------------------------------------------------------------------- */

/*
 * Copy libddp's error to run->error and return [status]. run_pass_on_shared() is for calls that
 * fail on all ranks with the same error, which is then printed once.
 */
int run_pass_on(struct run *run, int status);
int run_pass_on_shared(struct run *run, int status);

/*
 * Makes all ranks fail if a rank has failed. If [status] is an error on some ranks, all ranks get
 * the error of the first of these ranks. Call this function after functions that can fail on each
 * rank independently. Collective.
 */
int run_agree(struct run *run, int status);

/*
 * Returns the number of steps in the current epoch, including finished steps. The remaining samples
 * are divided evenly among the parts, rounded up.
 */
uint64_t run_steps(const struct run *run);

/* Returns the number of steps in an epoch that this run trains from the epoch's beginning. */
uint64_t run_whole_steps(const struct run *run);

/* Returns the position after the last finished step, in epochs since the start of the training. */
double run_position(const struct run *run);

/* Returns the number of samples that all ranks together process in a step. */
uint64_t run_global_batch(const struct run *run);

/* --- trainer.c ----------------------------------------------------------------------------- */

/*
 * Exit statuses. STOPPED: a signal or the job's time limit ended the run early, and a checkpoint
 * was written. DIVERGED: the loss or a weight is not finite at the end.
 */
enum { TRAINER_STOPPED = 3, TRAINER_DIVERGED = 4 };

/*
 * Trains as a rank of [ddp]. Collective. Returns an exit status: 0, TRAINER_STOPPED,
 * TRAINER_DIVERGED or, after it has printed an error, the ddp_exit_status() of that error. The
 * statuses of errors are larger than TRAINER_DIVERGED.
 */
int trainer_run(struct ddp *ddp, const struct options *options);

/* --- self-test.c --------------------------------------------------------------------------- */

/*
 * Trains the network [net], or each network if [net] is NULL, for a few steps on CPUs and on a GPU.
 * Prints one line with the differences of the losses. Returns the exit status: 0 if the differences
 * are small, 1 if they are not or after an error.
 */
int self_test(const char *net);

/* --- engine-choice.c ----------------------------------------------------------------------- */

/*
 * Sets run->class, run->sharing and run->share. With --engine=auto, chooses the GPU engine if all
 * ranks have a GPU on which they can sum gradients. Otherwise chooses the CPU engine, with the
 * reason in run->why. Ranks that share memory can share a GPU. With --engine=cuda, it is an error
 * if a rank has no GPU, and the error text names that rank. Collective.
 */
int run_find_engine(struct run *run);

/* --- setup.c ------------------------------------------------------------------------------- */

/*
 * Prepares everything for the first step: data, network, weights, checkpoint, engine. Collective.
 */
int run_open(struct run *run);
void run_close(struct run *run);

/* --- loop.c -------------------------------------------------------------------------------- */

/* Whether the run has trained and evaluated everything that it should. */
bool run_is_finished(const struct run *run);

/* Trains until the training ends or a rank wants to stop. Collective. */
int run_train(struct run *run);

/* Evaluates the test set, for --evaluate. Collective. */
int run_evaluate(struct run *run);

#endif /* TRAIN_RUN_H */
