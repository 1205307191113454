/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reference.h - networks in doubles, as the table says, one loop for each layer
 *
 * For comparison: slow, naive, and written without a look at the engine. A loss in doubles can be
 * differentiated by differences to nine digits.
 */
#ifndef DDP_TESTS_REFERENCE_H
#define DDP_TESTS_REFERENCE_H

#include "data/batch.h"
#include "net/model.h"

struct reference {
	const struct graph *graph;
	double **parameters; /* copies, to be changed at will */
	double **values;     /* of each node, after reference_loss() */
	double *images;
	size_t count;
	const struct batch *batch;
	const int32_t *labels;
	double smoothing;
	bool dropout;
	const float *running; /* model->buffers: BatchNorm by these; NULL: by the batch */
	const size_t *running_offsets;
};

/* With [model]'s parameters, for [batch] of [set]. */
struct reference *reference_create(const struct model *model, struct set *set,
				   const struct batch *batch, const int32_t *labels);
void reference_destroy(struct reference *reference);

/* The sum over samples of the cross entropy. */
double reference_loss(struct reference *reference);

/* The derivative of that with respect to element [at] of parameter [index]. */
double reference_slope(struct reference *reference, size_t index, size_t at);

/* The labels that have the largest logit, after reference_loss(). */
uint64_t reference_hits(const struct reference *reference);

#endif /* DDP_TESTS_REFERENCE_H */
