/* SPDX-License-Identifier: Apache-2.0 */
/*
 * primitive.h - creates and runs oneDNN's primitives for one pass of a layer
 *
 * A primitive computes one pass of a layer for a fixed number of images. Only one thread may use a
 * primitive at a time. A primitive has oneDNN's memory objects, but the caller owns the data.
 */
#ifndef TRAIN_ONEDNN_PRIMITIVE_H
#define TRAIN_ONEDNN_PRIMITIVE_H

#include "cpu/math.h"

/* Arrays of a pass, or their gradients. A reorder reads ARRAY_X and writes ARRAY_Y. */
enum array { ARRAY_X, ARRAY_WEIGHTS, ARRAY_BIAS, ARRAY_Y, ARRAY_SCRATCH, ARRAYS };

struct primitive_options {
	struct math_options layer;
	enum math_pass pass;
	size_t count; /* images */
	bool winograd;
	bool wide;		      /* the input, or its gradient, is f32 */
	bool any_images, any_weights; /* oneDNN chooses the layout */
	const char *skip;	      /* name of an implementation to skip, or NULL */
};

struct primitive;

/*
 * Creates a primitive. Returns 0 or an error: DDP_ERR_UNSUPPORTED if oneDNN has no implementation
 * other than a reference one, DDP_ERR_MEMORY, or DDP_ERR_ENGINE. Error texts name the primitive and
 * its shape, and have oneDNN's text.
 */
int primitive_create(struct primitive **primitive, const struct primitive_options *options,
		     struct ddp_error *error);
void primitive_destroy(struct primitive *primitive);

#define PRIMITIVE_NAME 64

/* Properties of the implementation that oneDNN would use. */
struct primitive_offer {
	char name[PRIMITIVE_NAME]; /* "brgconv:avx512_core" */
	bool plain;		   /* whether input and output have the caller's layout */
};

/*
 * Finds the implementation that oneDNN would use. This is faster than creating the primitive.
 * Returns 0 or an error of primitive_create().
 */
int primitive_probe(const struct primitive_options *options, struct primitive_offer *offer,
		    struct ddp_error *error);

/*
 * With [enter], creates the primitive that converts [array] from the caller's layout to the layout
 * that primitive [of] uses. Without [enter], creates the primitive that converts it back. In the
 * caller's layout, weights are f32. If both layouts are equal, sets [primitive] to NULL. Returns 0
 * or an error of primitive_create().
 */
int primitive_reorder(struct primitive **primitive, const struct primitive *of, enum array array,
		      bool enter, struct ddp_error *error);

size_t primitive_bytes(const struct primitive *primitive, enum array array);

/* Whether the output of [reorder] has the layout of the weights of [of]. */
bool primitive_fits(const struct primitive *reorder, const struct primitive *of);

/*
 * Runs the primitive. [data] is NULL for arrays that the pass does not have. Returns 0 or
 * DDP_ERR_ENGINE.
 */
int primitive_run(struct primitive *primitive, void *const data[ARRAYS], struct ddp_error *error);

/* Version of the loaded library and the CPU's instructions: "oneDNN 2.6.3, AVX512_CORE_BF16". */
const char *primitive_library(void);

#endif /* TRAIN_ONEDNN_PRIMITIVE_H */
