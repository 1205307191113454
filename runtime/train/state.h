/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.h - a run as the metadata of a checkpoint
 */
#ifndef TRAIN_STATE_H
#define TRAIN_STATE_H

#include <limits.h>

#include "run.h"

/* What describes the training, what it is made of, where it is; then the options that matter. */
#define STATE_FIELDS(X)               \
	X(NETWORK, "network")         \
	X(CLASSES, "classes")         \
	X(OPTIMIZER, "optimizer")     \
	X(SEED, "seed")               \
	X(IMAGES, "images")           \
	X(DATA, "data")               \
	X(RANKS, "ranks")             \
	X(BATCH, "batch")             \
	X(EPOCH, "epoch")             \
	X(POSITION, "position")       \
	X(STEP, "step")               \
	X(UPDATES, "updates")         \
	X(LOSS, "loss")               \
	X(HITS, "hits")               \
	X(SAMPLES, "samples")         \
	X(BEST, "best")               \
	X(BEST_EPOCH, "best-epoch")   \
	X(SCALE, "scale")             \
	X(GOOD_STEPS, "good-steps")   \
	X(ENGINE, "engine")           \
	X(CHOICES_CPU, "choices-cpu") \
	X(CHOICES_CUDA, "choices-cuda")

enum state_field {
#define STATE_ENUM(id, name) STATE_##id,
	STATE_FIELDS(STATE_ENUM)
#undef STATE_ENUM
		STATE_COUNT
};

enum { STATE_VALUE = 128, STATE_KEY = 40 };

/* The struct must stay where it is: pairs point into it, and into the run. */
struct state {
	struct ddp_pair pairs[STATE_COUNT + OPTION_COUNT];
	size_t count;
	char values[STATE_COUNT][STATE_VALUE];
	char keys[STATE_COUNT + OPTION_COUNT][STATE_KEY];
	enum option_id options[OPTION_COUNT]; /* of the pairs from STATE_COUNT on */
};

/* The algorithms that run->class chose before the checkpoint that this run goes on from, or NULL. */
const char *state_choices(const struct run *run);

/* What [run] is now. The engine may be missing. */
void state_fill(struct state *state, const struct run *run);

/*
 * Look whether the values of a file, which have replaced those of [state], are of [run]'s training.
 * Returns 0, or DDP_ERR_ARGUMENT with what differs.
 */
int state_check(const struct state *state, struct run *run);

/*
 * Go on with [run] where a checkpoint of [step] was, whose values have replaced those of [state].
 * Refuses what is of another training, and notes for the log what is not as it was.
 * Returns 0, DDP_ERR_ARGUMENT, or DDP_ERR_FORMAT where a value is missing or no number.
 */
int state_take(const struct state *state, struct run *run, uint64_t step);

/* --- Files of an earlier run (old.c) -------------------------------------------------------- */

/* Note the checkpoints that are there. */
int old_list(struct keeper *keeper, struct ddp_error *error);

/* The step of the newest of them, and the path of one; false where that is too long. */
uint64_t old_newest(const struct keeper *keeper);
bool old_path(const struct keeper *keeper, char path[static PATH_MAX], uint64_t step);

/* Remove them, now that there is a new one, of step [saved]. */
void old_remove(struct keeper *keeper, uint64_t saved);

#endif /* TRAIN_STATE_H */
