/* SPDX-License-Identifier: Apache-2.0 */
/*
 * buckets.h - which gradients are summed together, where they lie, and whether all ranks agree
 *
 * Parameters are listed in the order of the forward pass; their gradients become
 * ready from the last to the first, and everything below is in that order: bucket 0 holds the
 * last parameters.
 */
#ifndef DDP_GRADIENT_BUCKETS_H
#define DDP_GRADIENT_BUCKETS_H

#include "base/error.h"

#define DDP_BUCKET_FIRST_BYTES ((size_t)1 << 20)
#define DDP_BUCKET_BYTES ((size_t)25 << 20)

/* Bytes that each view begins at a multiple of. */
#define DDP_VIEW_ALIGNMENT 64u

struct ddp_bucket {
	size_t offset, count; /* elements of the arena */
	size_t members;	      /* parameters */
	size_t waiting;	      /* of these not ready yet, in a step */
};

struct ddp_view {
	size_t offset, count; /* elements of the arena */
	size_t bucket;
	bool ready; /* in a step */
};

struct ddp_layout {
	struct ddp_view *views; /* of each parameter */
	size_t view_count;
	struct ddp_bucket *buckets;
	size_t bucket_count;
	size_t elements; /* of the arena; gaps between views included */
};

/*
 * PyTorch's rule (_compute_bucket_assignment_by_size): put [count] tensors of bytes[i], one
 * after the other, into the open bucket, and close it when it has reached its limit, which it
 * may pass; the limit of bucket 0 is [first], that of the others [limit].
 * Returns the number of buckets, with the bucket of each tensor in [bucket].
 */
size_t ddp_buckets_assign(const size_t *bytes, size_t count, size_t first, size_t limit,
			  size_t *bucket);

/*
 * Lay out [count] parameters, at least one, of elements of [size] bytes, with [first] and
 * [limit] as above.
 * Returns 0; DDP_ERR_MEMORY; or DDP_ERR_ARGUMENT where the sum does not fit a size_t.
 */
int ddp_layout_create(struct ddp_layout *layout, const struct ddp_parameter *parameters,
		      size_t count, size_t size, size_t first, size_t limit,
		      struct ddp_error *error);

/* Free what create made; a layout of zeros is legal. */
void ddp_layout_destroy(struct ddp_layout *layout);

/* Elements of the largest bucket. */
size_t ddp_layout_largest(const struct ddp_layout *layout);

/* Begin a step: nothing is ready. */
void ddp_layout_reset(struct ddp_layout *layout);

/*
 * Compare options and [parameters] of all ranks. Collective.
 * Returns 0; DDP_ERR_MISMATCH, on all ranks, with a text that names the first parameter and the
 * first rank that differ from rank 0; or what a collective says. The text is in the handle.
 */
int ddp_layout_agree(struct ddp *ddp, const struct ddp_gradients_options *options,
		     const struct ddp_parameter *parameters, size_t count);

#endif /* DDP_GRADIENT_BUCKETS_H */
