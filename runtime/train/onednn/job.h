/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.h - a primitive and the reorders around it
 *
 * Outside all arrays are plain. Where a primitive wants others, or rows of windows instead of images,
 * its job turns what it reads before and what it writes after, in scratch memory.
 */
#ifndef TRAIN_ONEDNN_JOB_H
#define TRAIN_ONEDNN_JOB_H

#include "plan.h"

/* --- Columns: a convolution as a dense layer ------------------------------------------------- */

/*
 * One row for each output pixel with all that its window sees, in the order of the weights (H, W, I):
 * then the convolution is a product of two matrices. Where images are small and weights large that
 * is faster than oneDNN's convolutions, although the rows repeat what windows share.
 */
struct columns {
	size_t count; /* images */
	int height, width, in, size, stride, pad;
	int out_height, out_width;
	enum ddp_type type; /* of images */
	bool wide;	    /* rows of gradients are f32, since windows share pixels */
};

/* Those of [options], for its pass. */
void columns_init(struct columns *columns, const struct plan_options *options);

/* What the dense layer is asked for: [options], with its window gone. */
void columns_ask(struct plan_options *options);

/* Bytes that rows take, and that adding gradients up takes besides. */
size_t columns_bytes(const struct columns *columns);

/* --- Weights in the layouts that primitives want ------------------------------------------------- */

/*
 * The caller's are plain f32. Primitives that want the same layout share a copy, which is made
 * anew when it is first used after a load. All zeros: nothing loaded.
 */
struct weights_copy;
struct weights {
	const float *plain;
	struct weights_copy *copies;
};

/* The caller's have changed. */
void weights_load(struct weights *weights, const float *plain);

/* --- Jobs ------------------------------------------------------------------------------------- */

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

#endif /* TRAIN_ONEDNN_JOB_H */
