/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run-checkpoint.h - what is left of a run: checkpoints and models
 */
#ifndef TRAIN_RUN_CHECKPOINT_H
#define TRAIN_RUN_CHECKPOINT_H

#include "base/text.h"

struct run;

/* Where a training is: what a checkpoint keeps besides the model. The same on all ranks. */
struct progress {
	unsigned epoch;	   /* from 0 */
	uint64_t position; /* of all ranks together in its order */
	uint64_t step;	   /* of the epoch, begun */
	uint64_t total;	   /* since the beginning */
	uint64_t updates;  /* of the weights: steps that have ended and were not skipped */
	double loss;	   /* sum over the samples of the epoch, of steps that have ended */
	uint64_t hits, samples;
	double best;	     /* of the test set */
	unsigned best_epoch; /* from 1; 0: none yet */
};

enum { CHECKPOINT_ENGINES = 2 }; /* that checkpoints have algorithms of: "cpu", "cuda" */

struct run_checkpoint {
	const char *directory; /* of checkpoints, NULL: none */
	int lock;	       /* descriptor of the lock on it + 1, 0: none */
	/* What the runs before the newest checkpoint chose, with each engine; NULL: nothing. */
	const char *choices[CHECKPOINT_ENGINES];
	uint64_t saved; /* total of the newest checkpoint of this run */
	bool any;	/* there is one */
	bool resumed;	/* it was there before this run */
	bool failed;	/* what ends this run is that one, or a model, cannot be written */
	/*
	 * Checkpoints that a fresh run puts an end to, once it has one of its own: its steps begin at 0 again, so
	 * that the newest file would still be one of the old run's. Rank 0's.
	 */
	uint64_t *old;
	size_t old_count;
	struct ddp_text story; /* of what was found: for the log, when there is one */
};

/*
 * Go on from the newest checkpoint, if there is one and the options do not say otherwise: fills
 * model, progress, scaler. Refuses one of another training. Collective.
 */
int run_resume(struct run *run);

/* The algorithms that run->class chose before the checkpoint that this run goes on from, or NULL. */
const char *run_choices(const struct run *run);

/* Write a checkpoint, unless this step has one. Collective. */
int run_save(struct run *run);

/* Write the weights to --save-model's file and [suffix], if it was given. Collective. */
int run_save_model(struct run *run, const char *suffix);

/* Add what is kept of the training where it cannot go on, and how somebody can. Of rank 0. */
void run_tell_kept(const struct run *run, struct ddp_text *text);

void run_checkpoint_close(struct run_checkpoint *checkpoint);

#endif /* TRAIN_RUN_CHECKPOINT_H */
