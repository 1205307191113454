/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xalloc.h - memory for programs that cannot go on without it: for ddp-train, never for libddp
 *
 * These never return NULL: where there is no memory the program says what it was for, tells the other ranks, and ends.
 * So nobody checks. What they return is freed with free().
 */
#ifndef DDP_BASE_XALLOC_H
#define DDP_BASE_XALLOC_H

#include <stddef.h>

#include "ddp.h"

/* Zeros: [count] times [size] bytes for [what], "the order of samples". */
void *ddp_xcalloc(size_t count, size_t size, const char *what)
	__attribute__((malloc, returns_nonnull));

/* [bytes] that begin at a multiple of [alignment], a power of two; not set. */
void *ddp_xaligned(size_t alignment, size_t bytes, const char *what)
	__attribute__((malloc, returns_nonnull));

/* A copy of [text]. */
char *ddp_xstrdup(const char *text, const char *what) __attribute__((malloc, returns_nonnull));

/*
 * Let tell(ddp, "%s", text) be called before the program ends: ddp_abort, so that the other ranks hear why. NULL: nobody
 * listens. A module has an xalloc of its own, and is told by itself: else a rank that ends there is only missed by the others.
 */
void ddp_xalloc_tell(void (*tell)(struct ddp *ddp, const char *format, ...), struct ddp *ddp);

#endif /* DDP_BASE_XALLOC_H */
