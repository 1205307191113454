/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h - oneDNN's primitives as the layers need them
 *
 * A plan is one primitive for one pass of a layer and one number of images, with its memory
 * objects; it owns no data. One thread at a time uses it.
 */
#ifndef TRAIN_ONEDNN_PLAN_H
#define TRAIN_ONEDNN_PLAN_H

#include "cpu/math.h"

/* How an array lies in memory. PLANES: N, C, H, W; with one channel that is the plain one too. */
enum layout { LAYOUT_PLAIN, LAYOUT_ANY, LAYOUT_PLANES };

/* The arrays of a pass, or their gradients; of a reorder: from PLAN_X to PLAN_Y. */
enum plan_slot { PLAN_X, PLAN_WEIGHTS, PLAN_BIAS, PLAN_Y, PLAN_SLOTS };

struct plan_options {
	struct math_options layer;
	enum math_pass pass;
	size_t count; /* images */
	bool winograd;
	bool columns;		   /* of job.h: a dense layer over windows */
	bool wide;		   /* what is read, or its gradient, is f32 */
	const char *const *skip;   /* names of implementations not to take, or NULL */
	enum layout x, weights, y; /* ANY: the primitive chooses */
};

struct plan;

/*
 * Make the primitive. Returns 0; DDP_ERR_UNSUPPORTED where oneDNN has none, or a reference one
 * alone; DDP_ERR_MEMORY or DDP_ERR_ENGINE, with the primitive, its shape and oneDNN's word.
 */
int plan_create(struct plan **plan, const struct plan_options *options, struct ddp_error *error);
void plan_destroy(struct plan *plan);

#define PLAN_NAME 64

/* What oneDNN would take. */
struct plan_offer {
	char name[PLAN_NAME]; /* "brgconv:avx512_core" */
	bool plain;	      /* what is read and written lies as the caller has it */
};

/* Ask for a primitive without making it, which costs little. Returns as plan_create(). */
int plan_probe(const struct plan_options *options, struct plan_offer *offer,
	       struct ddp_error *error);

/*
 * Make the reorder between the caller's array of [slot] (plain; weights f32) and that of [of]:
 * enter goes from the caller's, leave back to it.
 * Returns 0, with NULL where the two are one; or as plan_create().
 */
int plan_enter(struct plan **plan, const struct plan *of, enum plan_slot slot,
	       struct ddp_error *error);
int plan_leave(struct plan **plan, const struct plan *of, enum plan_slot slot,
	       struct ddp_error *error);

size_t plan_bytes(const struct plan *plan, enum plan_slot slot);
size_t plan_scratch(const struct plan *plan);

/* Whether [slot] of [plan] is laid out as [of] needs or leaves its weights. */
bool plan_fits(const struct plan *plan, enum plan_slot slot, const struct plan *of);

/*
 * Compute. [data] has the arrays by slot, NULL where the pass has none; [scratch] as many bytes
 * as plan_scratch() says. Returns 0 or DDP_ERR_ENGINE.
 */
int plan_run(struct plan *plan, void *const data[PLAN_SLOTS], void *scratch,
	     struct ddp_error *error);

/* "2.6.3", of the library that is loaded; "AVX512_CORE_BF16". */
const char *plan_version(void);
const char *plan_instructions(void);

#endif /* TRAIN_ONEDNN_PLAN_H */
