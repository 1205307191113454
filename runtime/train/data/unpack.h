/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unpack.h - gzipped bytes, plain; what zlib does, with messages
 */
#ifndef TRAIN_UNPACK_H
#define TRAIN_UNPACK_H

#include "base/error.h"

struct unpack;

/*
 * Unpack [size] bytes at [data], which stay there as long as it does; so does [path], for
 * messages. Returns 0, DDP_ERR_MEMORY, or DDP_ERR_UNSUPPORTED in a build without zlib.
 */
int unpack_create(struct unpack **unpack, const char *path, const uint8_t *data, size_t size,
		  struct ddp_error *error);

/* NULL is legal. */
void unpack_destroy(struct unpack *unpack);

/*
 * Up to [bytes] more, at least one. Returns how many; 0 at the end, where checksum and length
 * were found right; DDP_ERR_FORMAT with where the file is damaged.
 */
int64_t unpack_read(struct unpack *unpack, void *to, size_t bytes, struct ddp_error *error);

#endif /* TRAIN_UNPACK_H */
