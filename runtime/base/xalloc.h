/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xalloc.h - allocation that ends the program on failure: for ddp-train, never for libddp
 *
 * These functions never return NULL. If memory is short, the program prints the purpose of the
 * memory, aborts the other ranks, and ends. Free the memory with free().
 */
#ifndef DDP_BASE_XALLOC_H
#define DDP_BASE_XALLOC_H

#include <stddef.h>

#include "ddp.h"

/*
 * Returns [count] times [size] zero bytes. [what] is their purpose, for the message, such as "the
 * order of samples".
 */
void *ddp_xcalloc(size_t count, size_t size, const char *what)
	__attribute__((malloc, returns_nonnull));

/*
 * Returns [old], an array of [count] elements of [size] bytes, with space for at least one more, and
 * updates its [capacity]. Elements after the first [count] are zero if [old] grew.
 */
void *ddp_xgrow(void *old, size_t count, size_t *capacity, size_t size, const char *what);

/*
 * Returns [bytes] zero bytes, aligned to 64 (a cache line). More zeros follow, up to the next
 * multiple of 64.
 */
void *ddp_xaligned(size_t bytes, const char *what) __attribute__((malloc, returns_nonnull));

char *ddp_xstrdup(const char *text, const char *what) __attribute__((malloc, returns_nonnull));

/*
 * Set the function that is called as call(ddp, "%s", text) before the program ends. Pass
 * ddp_abort(), so that the other ranks report the reason, or NULL for none. Each module has its own
 * copy of xalloc.c, for which the function must be set separately.
 */
void ddp_xalloc_tell(void (*call)(struct ddp *ddp, const char *format, ...), struct ddp *ddp);

#endif /* DDP_BASE_XALLOC_H */
