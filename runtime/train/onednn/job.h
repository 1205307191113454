/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.h - a primitive and the reorders around it
 *
 * Outside all arrays are plain. Where a primitive wants others, or rows of windows instead of images,
 * its job turns what it reads before and what it writes after, in scratch memory.
 */
#ifndef TRAIN_ONEDNN_JOB_H
#define TRAIN_ONEDNN_JOB_H

#include "columns.h"
#include "weights.h"

struct job {
	struct plan *plan;
	enum plan_slot result;
	struct plan *turns[PLAN_SLOTS]; /* NULL: the caller's array is used as it is */
	size_t offsets[PLAN_SLOTS];	/* of turned arrays in scratch memory */
	bool has_columns;
	struct columns columns;
	size_t bytes;		 /* of scratch memory */
	struct weights *weights; /* NULL: they are what it computes */
	struct weights_copy *copy;
};

/* Returns 0 or as plan_create(). [weights] outlive it. */
int job_create(struct job **job, const struct plan_options *options, struct weights *weights,
	       struct ddp_error *error);
void job_destroy(struct job *job);

/*
 * Compute, with the caller's arrays in [data]; weights that are read are not among them.
 * Returns 0 or as plan_run(), or DDP_ERR_MEMORY.
 */
int job_run(struct job *job, void *const data[PLAN_SLOTS], struct ddp_error *error);

#endif /* TRAIN_ONEDNN_JOB_H */
