/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share.h - memory that the ranks of a node fill once, and what they agree on
 */
#ifndef TRAIN_SHARE_H
#define TRAIN_SHARE_H

#include "base/error.h"

/* One piece of memory; with ranks it is theirs and goes with ddp_destroy(). */
struct share {
	struct ddp *ddp; /* NULL: this process alone */
	void *memory;
	size_t bytes;
};

/*
 * Memory of [bytes], zeroed, for the ranks of [ddp] that share memory; NULL: for this process.
 * Collective.
 * Returns 0, DDP_ERR_MEMORY, or what ddp_shared_create() returns.
 */
int share_create(struct share *share, struct ddp *ddp, size_t bytes, struct ddp_error *error);
void share_destroy(struct share *share);

/*
 * All ranks go on, or none: where [status] is an error on a rank, all fail with the text of the
 * first of them, which names the rank unless all failed. So they do where [number], called
 * [what], differs between ranks. [most] becomes the largest of all. Collective.
 * Returns 0 or the error.
 */
int share_agree(struct ddp *ddp, int status, const char *what, uint64_t number, size_t *most,
		struct ddp_error *error);

enum { SHARE_HEAD = 64, SHARE_NOTES = 5 };

/* Write [bytes], which begin as zeros, and what others need to know of them into [notes]. */
typedef int share_filler(void *context, uint8_t *bytes, uint64_t *notes, struct ddp_error *error);

/*
 * Create memory for [bytes] and SHARE_NOTES notes behind a head of SHARE_HEAD; then one of those
 * who share it calls [fill] with [context], and the others wait. Collective.
 * Returns 0 or the error, which all have.
 */
int share_fill(struct share *share, struct ddp *ddp, size_t bytes, share_filler *fill,
	       void *context, struct ddp_error *error);

/* What share_fill() filled. */
const uint8_t *share_bytes(const struct share *share);
const uint64_t *share_notes(const struct share *share);

#endif /* TRAIN_SHARE_H */
