/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keeper.h - what is left of a run: checkpoints and models
 */
#ifndef TRAIN_KEEPER_H
#define TRAIN_KEEPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct run;

enum { KEEPER_ENGINES = 2 };

struct keeper {
	const char *directory; /* of checkpoints, NULL: none */
	/* Of the runs before the checkpoint, one of each engine, as state.c orders them; NULL: none. */
	char *choices[KEEPER_ENGINES];
	uint64_t saved; /* total of the newest checkpoint of this run */
	bool any;	/* there is one */
	bool resumed;	/* it was there before this run */
	uint64_t *old;	/* checkpoints that a fresh run puts an end to */
	size_t old_count;
	char story[1024]; /* of what was found: for the log, when there is one */
};

/*
 * Go on from the newest checkpoint, if there is one and the options do not say otherwise: fills
 * model, progress, scaler. Refuses one of another training. Collective.
 */
int keeper_load(struct run *run);

/* Write a checkpoint, unless this step has one. Collective. */
int keeper_save(struct run *run);

/* Write the weights to --save-model's file and [suffix], if it was given. Collective. */
int keeper_save_model(struct run *run, const char *suffix);

void keeper_destroy(struct keeper *keeper);

#endif /* TRAIN_KEEPER_H */
