/* SPDX-License-Identifier: Apache-2.0 */
/*
 * primitive.h - oneDNN's primitives as the layers need them
 *
 * One for a pass of a layer and a number of images, with its memory objects; it owns no data. One
 * thread at a time uses it.
 */
#ifndef TRAIN_ONEDNN_PRIMITIVE_H
#define TRAIN_ONEDNN_PRIMITIVE_H

#include "cpu/math.h"

/* The arrays of a pass, or their gradients; of a reorder: from ARRAY_X to ARRAY_Y. */
enum array { ARRAY_X, ARRAY_WEIGHTS, ARRAY_BIAS, ARRAY_Y, ARRAY_SCRATCH, ARRAYS };

struct primitive_options {
	struct math_options layer;
	enum math_pass pass;
	size_t count; /* images */
	bool winograd;
	bool wide;		      /* what is read, or its gradient, is f32 */
	bool any_images, any_weights; /* the primitive chooses how they lie in memory */
	const char *skip;	      /* an implementation not to take, or NULL */
};

struct primitive;

/*
 * Make it. Returns 0; DDP_ERR_UNSUPPORTED where oneDNN has none, or a reference one alone;
 * DDP_ERR_MEMORY or DDP_ERR_ENGINE, with the primitive, its shape and oneDNN's word.
 */
int primitive_create(struct primitive **primitive, const struct primitive_options *options,
		     struct ddp_error *error);
void primitive_destroy(struct primitive *primitive);

#define PRIMITIVE_NAME 64

/* What oneDNN would take. */
struct primitive_offer {
	char name[PRIMITIVE_NAME]; /* "brgconv:avx512_core" */
	bool plain;		   /* what is read and written lies as the caller has it */
};

/* Ask for a primitive without making it, which costs little. Returns as primitive_create(). */
int primitive_probe(const struct primitive_options *options, struct primitive_offer *offer,
		    struct ddp_error *error);

/*
 * Make the reorder between the caller's [array] (plain; weights f32) and that of [of]: [enter] goes
 * from the caller's, else back to it.
 * Returns 0, with NULL where the two are one; or as primitive_create().
 */
int primitive_reorder(struct primitive **primitive, const struct primitive *of, enum array array,
		      bool enter, struct ddp_error *error);

size_t primitive_bytes(const struct primitive *primitive, enum array array);

/* Whether what [reorder] writes is laid out as the weights of [of]. */
bool primitive_fits(const struct primitive *reorder, const struct primitive *of);

/*
 * Compute. [data]: NULL where the pass has no such array.
 * Returns 0 or DDP_ERR_ENGINE.
 */
int primitive_run(struct primitive *primitive, void *const data[ARRAYS], struct ddp_error *error);

/* "oneDNN 2.6.3, AVX512_CORE_BF16", of the library that is loaded. */
const char *primitive_library(void);

#endif /* TRAIN_ONEDNN_PRIMITIVE_H */
