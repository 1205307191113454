/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segment.h - memory that several processes of one user map
 *
 * A memfd: it has no name, so nothing is left behind, and it is sealed, so that no peer can
 * shrink it under our feet. Others find it by a ticket, a line of text, through /proc. Threads
 * of the process that made it share its mapping.
 */
#ifndef DDP_LOCAL_SEGMENT_H
#define DDP_LOCAL_SEGMENT_H

#include <stdatomic.h>

#include "group.h"

/* The beginning of each segment; what is behind belongs to the owner. */
struct ddp_segment_head {
	uint64_t token[2];
	uint64_t bytes;
	_Atomic uint32_t sharers; /* users of the mapping in the process that made it */
};

enum { DDP_SEGMENT_HEAD = 4096 };

struct ddp_segment {
	char *base; /* NULL: none */
	size_t bytes;
	int fd;	     /* of who made it, until the others have it; -1 */
	bool shared; /* the mapping is the one of the process that made it */
};

#define DDP_SEGMENT_INIT           \
	{                          \
		NULL, 0, -1, false \
	}

/*
 * Make a segment of [bytes], zeroed, mapped at a multiple of [alignment], and its [ticket].
 * Returns 0 or DDP_ERR_SYSTEM.
 */
int ddp_segment_create(struct ddp_segment *segment, size_t bytes, size_t alignment,
		       char ticket[DDP_GROUP_TICKET], struct ddp_error *error);

/*
 * Map the segment of [ticket] and prove by its token that it is that one.
 * Returns 0, or DDP_ERR_SYSTEM with a text that names the path and what failed.
 */
int ddp_segment_attach(struct ddp_segment *segment, const char *ticket, size_t alignment,
		       struct ddp_error *error);

/* All who need it have it: from here on the ticket is worth nothing. */
void ddp_segment_seal(struct ddp_segment *segment);

/* Unmap and close. Legal on one that is not open. */
void ddp_segment_close(struct ddp_segment *segment);

/*
 * Have pages for [bytes] at [memory] now, on the node of the calling thread where they are new.
 * Returns 0 or DDP_ERR_MEMORY.
 */
int ddp_segment_touch(void *memory, size_t bytes, struct ddp_error *error);

/* When the process [pid] started, in ticks since boot; 0 if there is none, or it is a zombie. */
uint64_t ddp_process_start(int pid);

#endif /* DDP_LOCAL_SEGMENT_H */
