/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scratch.h - memory that a layer needs while it computes
 *
 * One piece for all layers of a thread's work, as large as the largest wish so far: layers compute
 * one after another, and what one left warm in the cache serves the next.
 */
#ifndef TRAIN_ONEDNN_SCRATCH_H
#define TRAIN_ONEDNN_SCRATCH_H

#include <stddef.h>

#define SCRATCH_ALIGN 64

/* Layers exist; the memory goes with the last one. */
void scratch_open(void);
void scratch_close(void);

struct scratch {
	char *data;
	size_t size;
};

/* Take a piece of at least [size] bytes. Returns 0, or -1 where memory is out. */
int scratch_take(struct scratch *scratch, size_t size);
void scratch_give(struct scratch *scratch);

/* Let go of what nobody uses now: an algorithm that was tried may have wished for much more. */
void scratch_trim(void);

/* Memory that starts on a cache line, for free(); NULL where memory is out. */
void *scratch_alloc(size_t size);

#endif /* TRAIN_ONEDNN_SCRATCH_H */
