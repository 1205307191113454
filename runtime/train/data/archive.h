/* SPDX-License-Identifier: Apache-2.0 */
/*
 * archive.h - the members of a tar archive, one after the other
 */
#ifndef TRAIN_ARCHIVE_H
#define TRAIN_ARCHIVE_H

#include "source.h"

enum { ARCHIVE_NAME = 101 };

struct archive_member {
	char name[ARCHIVE_NAME]; /* without directories */
	bool file;		 /* a plain one */
	uint64_t bytes, padding;
};

/*
 * The next member; its bytes and then its padding are to be read from [source].
 * Returns 1, 0 at the archive's end, or DDP_ERR_FORMAT.
 */
int archive_next(struct source *source, struct archive_member *member, struct ddp_error *error);

#endif /* TRAIN_ARCHIVE_H */
