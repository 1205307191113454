/* SPDX-License-Identifier: Apache-2.0 */
/*
 * error.h - a failure and its story, carried upwards
 *
 * Every function below ddp.h that can fail takes a struct ddp_error as its last argument, which
 * may be NULL, and returns a negative DDP_ERR_x. The text names the object, the operation, the
 * peer and the limit; the layer that knows most writes it, those above pass it on.
 */
#ifndef DDP_BASE_ERROR_H
#define DDP_BASE_ERROR_H

#include <ddp.h>

/*
 * Put [status] and a formatted text into [error].
 * Returns [status], so that a caller can return it.
 */
int ddp_error_set(struct ddp_error *error, int status, const char *format, ...) DDP_FORMAT(3, 4);

/* As ddp_error_set with DDP_ERR_x [status], and ": " and the text of errno at the end. */
int ddp_error_errno(struct ddp_error *error, int status, const char *format, ...) DDP_FORMAT(3, 4);

/* Forget what [error] had. */
void ddp_error_clear(struct ddp_error *error);

#endif /* DDP_BASE_ERROR_H */
