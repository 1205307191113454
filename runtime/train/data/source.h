/* SPDX-License-Identifier: Apache-2.0 */
/*
 * source.h - sequential reader of a file that may be gzipped
 *
 * A plain file is mapped. A gzipped file is recognised by its first bytes, not by its name. Offsets
 * in messages count unpacked bytes, unless the message says "of the gzipped file".
 */
#ifndef TRAIN_SOURCE_H
#define TRAIN_SOURCE_H

#include "base/error.h"

struct source {
	char *path;
	uint8_t *map; /* the mapped file, of [size] bytes */
	uint64_t size;
	uint64_t at;		    /* bytes read so far, after unpacking */
	struct z_stream_s *gzipped; /* state of zlib; NULL: a plain file */
};

/*
 * Opens [path]. Returns 0 or DDP_ERR_FILE, DDP_ERR_MEMORY, DDP_ERR_FORMAT for a file of less than
 * four bytes, or DDP_ERR_UNSUPPORTED for a gzipped file if zlib was not built in.
 */
int source_open(struct source **source, const char *path, struct ddp_error *error);

/* NULL is legal. */
void source_close(struct source *source);

/*
 * Reads up to [bytes] bytes to [to] or, if [to] is NULL, skips them. Returns the number of bytes,
 * which is smaller than [bytes] only at the end of the file. At the end, gzip's checksum and length
 * have been verified. Returns DDP_ERR_FORMAT if the file is damaged.
 */
int64_t source_read_some(struct source *source, void *to, uint64_t bytes, struct ddp_error *error);

/*
 * Reads exactly [bytes] bytes; [to] may be NULL. Messages call the bytes [what]. Returns 0, or
 * DDP_ERR_FORMAT if the file is shorter or damaged.
 */
int source_read(struct source *source, void *to, uint64_t bytes, const char *what,
		struct ddp_error *error);

/* Checks that the whole file was read. Returns 0 or DDP_ERR_FORMAT. */
int source_finish(struct source *source, struct ddp_error *error);

struct source_member {
	char name[101]; /* file name without directories */
	bool file;	/* a regular file */
	uint64_t bytes;
	uint64_t padding; /* bytes between the end of the member and the next header */
};

/*
 * Reads the header of the next member of a tar archive. The caller must then read the member's
 * bytes and padding. Returns 1, 0 at the end of the archive, or DDP_ERR_FORMAT.
 */
int source_member(struct source *source, struct source_member *member, struct ddp_error *error);

#endif /* TRAIN_SOURCE_H */
