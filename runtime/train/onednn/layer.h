/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer.h - a layer's passes, each with algorithms to choose from and jobs for numbers of images
 */
#ifndef TRAIN_ONEDNN_LAYER_H
#define TRAIN_ONEDNN_LAYER_H

#include "job.h"

#define VARIANTS 8 /* of a pass at most */
#define VARIANT_NAME 16
#define VARIANT_SKIPS 1

/* A way to do a pass. */
struct variant {
	char name[VARIANT_NAME]; /* "direct", "direct2", "blocked", "winograd", "columns" */
	bool winograd, columns;
	enum layout layout; /* of what is read and written */
	enum layout weights;
	const char *skip[VARIANT_SKIPS + 1]; /* implementations of variants before it */
	char implementation[PLAN_NAME];	     /* oneDNN's name, for the largest number of images */
	bool turns;			     /* there are reorders around it */
};

/* A job for so many images, the one used last in front. */
struct slot {
	struct slot *next;
	size_t count;
	struct job *job;
};

struct pass {
	struct variant variants[VARIANTS];
	int variant_count, chosen;
	struct slot *slots;
};

struct math_layer {
	struct math_options options;
	struct weights weights;
	const float *bias;
	struct pass passes[MATH_PASSES];
};

/*
 * The ways in which oneDNN does [pass] of [layer], the exact one that suits most first.
 * Returns 0, or the error of that first one: at least one there is.
 */
int variants_find(struct pass *found, const struct math_options *layer, enum math_pass pass,
		  struct ddp_error *error);

/* What to ask for, for [count] images. */
void variant_ask(struct plan_options *options, const struct variant *variant,
		 const struct math_options *layer, enum math_pass pass, size_t count);

/* As in math.h. */
int layer_create(struct math_layer **layer, const struct math_options *options,
		 struct ddp_error *error);
int layer_choose(struct math_layer *layer, enum math_pass pass, int number,
		 struct ddp_error *error);
int layer_run(struct math_layer *layer, enum math_pass pass, size_t count,
	      void *const data[PLAN_SLOTS], struct ddp_error *error);
void layer_destroy(struct math_layer *layer);

#endif /* TRAIN_ONEDNN_LAYER_H */
