/* SPDX-License-Identifier: Apache-2.0 */
/*
 * error.h - errors with a text
 *
 * base/ has services that do not depend on ranks: errors, log, deadlines, files, text and JSON,
 * modules, random numbers, reduction kernels. It calls the C library, its own files and, in
 * gpu-cuda.c alone, CUDA. Every other directory calls base/. Start reading here, then log.h,
 * watch.h (deadlines) and file.h.
 *
 * The last argument of an internal function that can fail is a struct ddp_error, which may be NULL.
 * The function returns a negative DDP_ERR_x. The text names the object, the operation, the peer and
 * the limit. The layer that knows most about the error writes the text; the layers above return it
 * unchanged.
 */
#ifndef DDP_BASE_ERROR_H
#define DDP_BASE_ERROR_H

#include <ddp.h>

/*
 * Set [error] to [status] and a formatted text.
 * Returns [status], so that a caller can return it.
 */
int ddp_error_set(struct ddp_error *error, int status, const char *format, ...) DDP_FORMAT(3, 4);

/* As ddp_error_set(), but appends ": " and the text of errno. Does not change errno. */
int ddp_error_errno(struct ddp_error *error, int status, const char *format, ...) DDP_FORMAT(3, 4);

void ddp_error_clear(struct ddp_error *error);

#endif /* DDP_BASE_ERROR_H */
