/* SPDX-License-Identifier: Apache-2.0 */
/*
 * error.h - errors with a text
 *
 * base/ has services that do not depend on ranks: errors, log, deadlines, files, text and JSON,
 * modules, random numbers, reduction kernels. It calls the C library, its own files and, in
 * card-cuda.c alone, CUDA. Every other directory calls it. Start reading here, then log.h, watch.h
 * (deadlines) and file.h.
 *
 * Every internal function that can fail has a struct ddp_error as its last argument, which may be
 * NULL, and returns a negative DDP_ERR_x. The text names the object, the operation, the peer and
 * the limit. The layer that knows most writes it; the layers above return it unchanged.
 */
#ifndef DDP_BASE_ERROR_H
#define DDP_BASE_ERROR_H

#include <ddp.h>

/*
 * Set [error] to [status] and a formatted text.
 * Returns [status], so that a caller can return it.
 */
int ddp_error_set(struct ddp_error *error, int status, const char *format, ...) DDP_FORMAT(3, 4);

/* As ddp_error_set(), with ": " and the text of errno appended. Keeps errno. */
int ddp_error_errno(struct ddp_error *error, int status, const char *format, ...) DDP_FORMAT(3, 4);

/* Reset [error] to success. */
void ddp_error_clear(struct ddp_error *error);

#endif /* DDP_BASE_ERROR_H */
