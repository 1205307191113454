/* SPDX-License-Identifier: Apache-2.0 */
/*
 * source.h - a file's bytes: mapped where they lie plain, unpacked in order where gzipped
 *
 * Whether a file is gzipped is told by its first bytes, not by its name. Offsets in messages count
 * unpacked bytes, or are said to be of the gzipped file.
 */
#ifndef TRAIN_SOURCE_H
#define TRAIN_SOURCE_H

#include "base/error.h"

struct source;

/*
 * Open [path]. Returns 0; 1 where there is no such file; DDP_ERR_FILE; DDP_ERR_FORMAT where it is
 * too short to be anything; DDP_ERR_UNSUPPORTED where it is gzipped and zlib was not built in.
 */
int source_open(struct source **source, const char *path, struct ddp_error *error);

/* NULL is legal. */
void source_close(struct source *source);

const char *source_path(const struct source *source);
bool source_packed(const struct source *source);

/* All bytes of one that is not packed. */
const uint8_t *source_bytes(const struct source *source);

/* How many bytes the file has, as it lies there. */
uint64_t source_size(const struct source *source);

/* How many were read so far. */
uint64_t source_offset(const struct source *source);

/*
 * Up to [bytes] more; [to] may be NULL: skip them. Returns how many, fewer at the end alone, or
 * DDP_ERR_FORMAT where the file is damaged.
 */
int64_t source_take(struct source *source, void *to, uint64_t bytes, struct ddp_error *error);

/*
 * The next [bytes], which are [what] to a reader of the message; [to] may be NULL.
 * Returns 0, or DDP_ERR_FORMAT where the file ends before, or is damaged.
 */
int source_read(struct source *source, void *to, uint64_t bytes, const char *what,
		struct ddp_error *error);

/*
 * No byte is to follow, and what was unpacked has the checksum that the file has.
 * Returns 0 or DDP_ERR_FORMAT.
 */
int source_finish(struct source *source, struct ddp_error *error);

/* As source_finish(), but skip what follows, whatever it is. */
int source_drain(struct source *source, struct ddp_error *error);

#endif /* TRAIN_SOURCE_H */
