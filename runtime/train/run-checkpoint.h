/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run-checkpoint.h - checkpoints and saved models of a run
 */
#ifndef TRAIN_RUN_CHECKPOINT_H
#define TRAIN_RUN_CHECKPOINT_H

#include "base/text.h"

struct run;

/* Position in a training, which a checkpoint stores besides the model. Equal on all ranks. */
struct run_progress {
	unsigned epoch;	   /* number of the epoch, from 0 */
	uint64_t position; /* position of all ranks together in the epoch's order */
	uint64_t step;	   /* steps of this epoch that were started */
	uint64_t total;	   /* steps since the start of the training */
	uint64_t updates;  /* optimizer steps: finished steps that were not skipped */
	double loss;	   /* sum over the epoch's samples in finished steps */
	uint64_t hits, samples;
	double best;	     /* best accuracy on the test set */
	unsigned best_epoch; /* epoch of [best], from 1; 0: none yet */
	bool evaluated;	     /* the test set was evaluated after the last step */
};

struct run_checkpoint {
	const char *directory; /* directory of the checkpoints; NULL: none */
	int lock;	       /* descriptor of the lock file + 1; 0: none */
	/* on rank 0: identifier of this training and its restarts, stored in checkpoints */
	char training[48];
	bool restarted; /* on rank 0: an earlier attempt of this job used the directory last */
	uint64_t saved; /* step of the newest checkpoint of this run */
	bool saved_evaluated; /* that checkpoint was written after an evaluation */
	bool any;	      /* there is a checkpoint */
	bool resumed;	      /* this run resumed from a checkpoint */
	bool failed;	      /* the run ends because a checkpoint or a model cannot be written */
	bool fresh; /* --fresh, and no attempt of this training has written a checkpoint yet */
	/*
	 * With --fresh: step numbers of an earlier training's checkpoints. They are removed after
	 * this run's first checkpoint, since one with a higher step number would count as the
	 * newest. On rank 0 only.
	 */
	uint64_t *old;
	size_t old_count;
	struct ddp_text summary; /* what was resumed, for the log */
};

/*
 * With --evaluate --checkpoint: sets run->optim to the optimizer of the newest checkpoint, whose
 * state the model must be able to load. Collective.
 */
int run_find_optimizer(struct run *run);

/*
 * If there is a checkpoint and the options allow it, resumes from the newest one: sets the model,
 * progress and scaler. Fails if the checkpoint belongs to another training. Collective.
 */
int run_resume(struct run *run);

/*
 * Writes a checkpoint, unless one of this position exists. This function and run_save_model() must
 * not be called while a step is under way. Collective.
 */
int run_save(struct run *run);

/*
 * If --save-model was given, writes the weights to its file, with [suffix] appended to the name.
 * Collective.
 */
int run_save_model(struct run *run, const char *suffix);

/*
 * Adds a sentence to [text] that says which checkpoint and model are kept after a failure, and how
 * to continue. On rank 0.
 */
void run_describe_kept(const struct run *run, struct ddp_text *text);

void run_checkpoint_close(struct run_checkpoint *checkpoint);

#endif /* TRAIN_RUN_CHECKPOINT_H */
