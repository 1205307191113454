/* SPDX-License-Identifier: Apache-2.0 */
/*
 * choices.h - the text of plans that were chosen for convolutions
 *
 * A line for each pass of a layer, "conv2.forward=KEY: PLAN\n". KEY has all that the choice depends
 * on: pass, shape, type and kind of arithmetic, architecture of the GPU, version of cuDNN. What stands
 * in front of it is for people: lines of several networks and batch sizes can be kept together, and
 * layers of one shape share a line.
 *
 * PLAN is an engine of cuDNN by its number, with the values of its knobs, "whole 38 2:1 13:64". It says
 * itself what is to be built, within one version of cuDNN; a place in the list of heuristics would be
 * another plan wherever the list is (it depends on the number of processors, on the driver and on
 * what the heuristics know of the card), and cuDNN's own text of a plan is tens of kilobytes of one
 * machine. Whether a plan can be built is seen when it is.
 *
 * Nothing here calls a library.
 */
#ifndef TRAIN_CUDA_CHOICES_H
#define TRAIN_CUDA_CHOICES_H

#include <stdint.h>

#include "conv.h"

/* More knobs than an engine has: cuDNN 9 knows of 44 kinds, engines have up to about a dozen. */
enum { CHOICES_KNOBS = 44, CHOICES_KEY = 256, CHOICES_PLAN = 1024 };

struct choices_knob {
	int64_t kind, value;
};

struct choices_plan {
	bool whole; /* one graph does all; else a kernel of ours does what is around the convolution */
	int64_t engine;
	int count;
	struct choices_knob knobs[CHOICES_KNOBS];
};

/* What a choice depends on besides the convolution. */
struct choices_place {
	int major, minor; /* compute capability */
	size_t version;	  /* of cuDNN, as it says it */
	size_t workspace; /* bytes of scratch memory that it may have */
};

/* [pass] is "forward", "back-data" or "back-weights", of [batch] images. */
void choices_key(const struct conv_options *options, const char *pass, size_t batch,
		 const struct choices_place *place, char key[CHOICES_KEY]);

/*
 * Whether [choices], which may be NULL or any text, has a plan for [key]; of several the last, which
 * is the newest. A line that is not understood is as good as none.
 */
bool choices_find(const char *choices, const char *key, struct choices_plan *plan);

/* The text of a plan, as choices_find() reads it. */
void choices_format(const struct choices_plan *plan, char text[CHOICES_PLAN]);

bool choices_same(const struct choices_plan *a, const struct choices_plan *b);

/*
 * [old], which may be NULL, and behind it those lines of [more] that it lacks: for a file of what was
 * chosen, on this kind of machine, by all runs. To be freed; NULL without memory.
 */
char *choices_join(const char *old, const char *more);

#endif /* TRAIN_CUDA_CHOICES_H */
