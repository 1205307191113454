/* SPDX-License-Identifier: Apache-2.0 */
/*
 * source.h - a file's bytes in order: mapped where they lie plain, unpacked where gzipped
 *
 * Whether a file is gzipped is told by its first bytes, not by its name. Offsets in messages count
 * unpacked bytes, or are said to be of the gzipped file.
 */
#ifndef TRAIN_SOURCE_H
#define TRAIN_SOURCE_H

#include "base/error.h"

struct source {
	char *path;
	uint8_t *map; /* the file as it lies there, of [size] bytes */
	uint64_t size;
	uint64_t at;		    /* how many bytes were read, as they are unpacked */
	struct z_stream_s *gzipped; /* NULL: plain */
};

/*
 * Open [path]. Returns 0; DDP_ERR_FILE; DDP_ERR_FORMAT where it is too short to be anything;
 * DDP_ERR_MEMORY; DDP_ERR_UNSUPPORTED where it is gzipped and zlib was not built in.
 */
int source_open(struct source **source, const char *path, struct ddp_error *error);

/* NULL is legal. */
void source_close(struct source *source);

/*
 * Up to [bytes] more; [to] may be NULL: skip them. Returns how many, fewer at the end alone, where
 * what was unpacked has the checksum and length that the file has; or DDP_ERR_FORMAT where the
 * file is damaged.
 */
int64_t source_take(struct source *source, void *to, uint64_t bytes, struct ddp_error *error);

/*
 * The next [bytes], which are [what] to a reader of the message; [to] may be NULL.
 * Returns 0, or DDP_ERR_FORMAT where the file ends before, or is damaged.
 */
int source_read(struct source *source, void *to, uint64_t bytes, const char *what,
		struct ddp_error *error);

/* No byte is to follow. Returns 0 or DDP_ERR_FORMAT. */
int source_finish(struct source *source, struct ddp_error *error);

/* A member of a tar archive. */
struct source_member {
	char name[101]; /* without directories */
	bool file;	/* a plain one */
	uint64_t bytes;
	uint64_t padding; /* bytes that follow them, before the next member */
};

/*
 * The next member of a tar archive; its bytes and then its padding are to be read from [source].
 * Returns 1, 0 at the archive's end, or DDP_ERR_FORMAT.
 */
int source_member(struct source *source, struct source_member *member, struct ddp_error *error);

#endif /* TRAIN_SOURCE_H */
