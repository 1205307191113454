/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plans.h - which plans convolutions have, as text
 *
 * A line for each pass of a layer, "conv2.forward=KEY: PLAN\n". KEY has all that the choice depends on (conv-plan.h);
 * what stands in front of it is for people: layers of one shape share a line, and lines of several networks and batch
 * sizes can be kept together. PLAN is for those who build it; " busy" behind it says that other work disturbed the
 * timing: the plan is taken by this training, also when it goes on from a checkpoint, and timed again by others.
 */
#ifndef TRAIN_CUDA_PLANS_H
#define TRAIN_CUDA_PLANS_H

#include "base/text.h"
#include "net/memo.h"

enum { PLANS_KEY = 256, PLANS_PLAN = 256 };

struct plans {
	const char *
		known; /* lines of an earlier run of this training, or of rank 0; any text, or NULL */
	struct memo *memo;     /* what all runs on this kind of machine took; NULL: nobody looks */
	struct ddp_text taken; /* lines of this run */
	/* Of all ranks, which have the same plans: */
	size_t memory; /* bytes of a GPU that a rank may have, at least */
	bool shared;   /* a GPU may have others at work */
};

/*
 * The plan of [key]: one that was taken in this run, else the newest of those that were known, else the memo's. A line that is not
 * understood is as good as none.
 */
bool plans_find(const struct plans *plans, const char *key, char plan[PLANS_PLAN]);

/* [label] "conv2.forward". Nothing happens where [key] was taken before. The memo has it too, unless it was busy. */
void plans_take(struct plans *plans, const char *label, const char *key, const char *plan);

#endif /* TRAIN_CUDA_PLANS_H */
