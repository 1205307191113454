/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slice.h - vectors that are summed by several members, each a slice
 */
#ifndef DDP_LOCAL_SLICE_H
#define DDP_LOCAL_SLICE_H

#include "group-private.h"

struct ddp_vector {
	const char *send;
	char *recv;
	size_t count, size; /* elements, bytes of one */
	double scale;
	ddp_kernel *kernel;
};

struct ddp_slice {
	size_t at;    /* bytes from the vector's beginning */
	size_t count; /* elements */
};

/* The vector that [call] is about. */
struct ddp_vector ddp_vector_of(const struct ddp_group *group, const struct ddp_call *call,
				const void *send, void *recv, double scale);

/*
 * Slice [index] of the [count] elements from [first] on, cut into [slices] at whole cache lines.
 * Later ones may be empty, those from [slices] on are.
 */
struct ddp_slice ddp_slice_of(const struct ddp_vector *vector, size_t first, size_t count,
			      int slices, int index);

/* Some of a vector: what is worked on at a time. */
struct ddp_piece {
	size_t first, count;
	int slices;
	char *buffer; /* of this member, to stage it in for the others */
};

/* Copy into the buffer what the others need: all but this member's slice. */
void ddp_piece_stage(const struct ddp_group *group, const struct ddp_vector *vector,
		     const struct ddp_piece *piece);

enum ddp_way {
	DDP_WAY_DIRECT,	  /* all have the vectors at the same place of a region */
	DDP_WAY_STAGED,	  /* all have staged the piece */
	DDP_WAY_UNSTAGED, /* some have and some not */
};

/*
 * The first step of a long vector: tell where it is, and stage [piece] if that is no region.
 * Returns an enum ddp_way, the same on all members, with this member's [place]; or an error.
 */
int ddp_piece_meet(struct ddp_group *group, const struct ddp_vector *vector,
		   const struct ddp_piece *piece, struct ddp_span *place,
		   const struct ddp_watch *watch, struct ddp_error *error);

static inline size_t ddp_smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

#endif /* DDP_LOCAL_SLICE_H */
