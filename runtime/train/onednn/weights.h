/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weights.h - a layer's weights in the layouts that its primitives want
 *
 * The caller's are plain f32. Primitives that want the same layout share a copy, which is made
 * anew when it is first used after a load.
 */
#ifndef TRAIN_ONEDNN_WEIGHTS_H
#define TRAIN_ONEDNN_WEIGHTS_H

#include "plan.h"

struct weights_copy;

/* All zeros: nothing loaded. */
struct weights {
	const float *plain;
	struct weights_copy *copies;
};

/* The caller's have changed. */
void weights_load(struct weights *weights, const float *plain);

/*
 * Have a copy for [plan]. Returns 0, with NULL in [copy] where it takes the caller's, or as
 * plan_create().
 */
int weights_want(struct weights *weights, struct weights_copy **copy, const struct plan *plan,
		 struct ddp_error *error);
void weights_drop(struct weights *weights, struct weights_copy *copy);

/* Put what the primitive reads into [data]. Returns 0 or as plan_run(). */
int weights_get(struct weights *weights, struct weights_copy *copy, void **data,
		struct ddp_error *error);

#endif /* TRAIN_ONEDNN_WEIGHTS_H */
