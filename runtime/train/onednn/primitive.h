/* SPDX-License-Identifier: Apache-2.0 */
/*
 * primitive.h - oneDNN's primitives in the form that the layers need
 *
 * A primitive is for one pass of a layer and one number of images. It has memory objects, but owns
 * no data. Only one thread may use it at a time.
 */
#ifndef TRAIN_ONEDNN_PRIMITIVE_H
#define TRAIN_ONEDNN_PRIMITIVE_H

#include "cpu/math.h"

/* Arrays of a pass, or their gradients. A reorder goes from ARRAY_X to ARRAY_Y. */
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
 * Creates a primitive. Returns 0, DDP_ERR_UNSUPPORTED if oneDNN has none or only a reference
 * implementation, DDP_ERR_MEMORY or DDP_ERR_ENGINE, with the primitive, its shape and oneDNN's
 * text.
 */
int primitive_create(struct primitive **primitive, const struct primitive_options *options,
		     struct ddp_error *error);
void primitive_destroy(struct primitive *primitive);

#define PRIMITIVE_NAME 64

/* Properties of the implementation that oneDNN would use. */
struct primitive_offer {
	char name[PRIMITIVE_NAME]; /* "brgconv:avx512_core" */
	bool plain;		   /* input and output have the caller's layout */
};

/*
 * Finds the implementation without creating the primitive, which is fast. Returns as
 * primitive_create().
 */
int primitive_probe(const struct primitive_options *options, struct primitive_offer *offer,
		    struct ddp_error *error);

/*
 * Creates the reorder between the caller's layout of [array] (plain; weights in f32) and the layout
 * of [of]. [enter]: from the caller's layout, else to it. Returns 0 and sets NULL if the layouts
 * are equal; errors as primitive_create().
 */
int primitive_reorder(struct primitive **primitive, const struct primitive *of, enum array array,
		      bool enter, struct ddp_error *error);

size_t primitive_bytes(const struct primitive *primitive, enum array array);

/* Whether the output of [reorder] has the layout of the weights of [of]. */
bool primitive_fits(const struct primitive *reorder, const struct primitive *of);

/* Runs the primitive. [data]: NULL for arrays that the pass lacks. Returns 0 or DDP_ERR_ENGINE. */
int primitive_run(struct primitive *primitive, void *const data[ARRAYS], struct ddp_error *error);

/* Version of the loaded library and the CPU's instructions: "oneDNN 2.6.3, AVX512_CORE_BF16". */
const char *primitive_library(void);

#endif /* TRAIN_ONEDNN_PRIMITIVE_H */
