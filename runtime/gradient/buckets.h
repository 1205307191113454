/* SPDX-License-Identifier: Apache-2.0 */
/*
 * buckets.h - assigns each gradient to a bucket and an offset in the arena
 *
 * A bucket is a set of gradients that one all-reduce sums. A view is the memory of one parameter's
 * gradient in a bucket. The arena is the memory of all buckets.
 *
 * gradient/ implements ddp.h's gradients, scaler, moments and evaluations. It calls ddp.h,
 * comm/comm.h and base/. Start reading in gradients.c at ddp_gradients_ready(). The arithmetic is
 * in buckets.c, statistics.c and virtual.c.
 *
 * Parameters are listed in the order of the forward pass. Their gradients become ready from the
 * last to the first. The arena and the buckets are in the order in which gradients become ready, so
 * bucket 0 holds the last parameters.
 */
#ifndef DDP_GRADIENT_BUCKETS_H
#define DDP_GRADIENT_BUCKETS_H

#include "base/error.h"

#define DDP_BUCKET_FIRST_BYTES ((size_t)1 << 20)
#define DDP_BUCKET_BYTES ((size_t)25 << 20)

/* Each view begins at a multiple of this many bytes. */
#define DDP_VIEW_ALIGNMENT 64u

struct ddp_bucket {
	size_t offset, count; /* position and size, in elements of the arena */
	size_t members;	      /* number of parameters */
	size_t waiting;	      /* parameters that are not ready yet in this step */
};

struct ddp_view {
	size_t offset, count; /* position and size, in elements of the arena */
	size_t bucket;
	bool ready; /* the gradient is ready in this step */
};

struct ddp_layout {
	struct ddp_view *views; /* one per parameter */
	size_t view_count;
	struct ddp_bucket *buckets;
	size_t bucket_count;
	size_t elements; /* size of the arena, including gaps between views */
};

/*
 * Assign [count] tensors of bytes[i] to buckets by PyTorch's rule
 * (_compute_bucket_assignment_by_size). Tensors are added to a bucket until its size reaches the
 * limit; the last tensor may exceed the limit. The next tensor starts the next bucket. The limit of
 * bucket 0 is [first], the limit of other buckets is [limit].
 * Sets bucket[i] to the bucket of tensor i. Returns the number of buckets.
 */
size_t ddp_buckets_assign(const size_t *bytes, size_t count, size_t first, size_t limit,
			  size_t *bucket);

/*
 * Create a layout for [count] parameters (at least one) whose elements have [size] bytes. [first]
 * and [limit] are the limits for ddp_buckets_assign().
 * Returns 0; DDP_ERR_MEMORY; or DDP_ERR_ARGUMENT if the total size does not fit into a size_t.
 */
int ddp_layout_create(struct ddp_layout *layout, const struct ddp_parameter *parameters,
		      size_t count, size_t size, size_t first, size_t limit,
		      struct ddp_error *error);

/* Free the memory of the layout. The layout may be all zero. */
void ddp_layout_destroy(struct ddp_layout *layout);

/* Returns the number of elements of the largest bucket. */
size_t ddp_layout_largest(const struct ddp_layout *layout);

/* Start a step: mark all views as not ready. */
void ddp_layout_reset(struct ddp_layout *layout);

#endif /* DDP_GRADIENT_BUCKETS_H */
