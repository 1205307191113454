/* SPDX-License-Identifier: Apache-2.0 */
/*
 * choice.h - what choosing by time needs: names of choices, and the time
 *
 * Choices are told as text, "conv2 forward winograd, conv2 gradients list": a layer, what of it, and
 * how.
 */
#ifndef TRAIN_CHOICE_H
#define TRAIN_CHOICE_H

#include "engine-private.h"

enum { CHOICE_NAME = 32, CHOICE_KEY = 512 };

/* [what] of [op], and all that its time depends on: a key of the memo. */
void choice_key(const struct engine *engine, const struct program_op *op, const char *what,
		char key[CHOICE_KEY]);

/* Copy to [name] what [choices] say of [what] of layer [layer]; it stays if they say nothing. */
void choice_restore(const char *choices, const char *layer, const char *what,
		    char name[CHOICE_NAME]);

/*
 * A clock for work of the engine. Of one thread it is the time that it had, which others on the
 * machine do not lengthen; of several, which wait for each other, that of the clock.
 */
double choice_seconds(const struct engine *engine);

#endif /* TRAIN_CHOICE_H */
