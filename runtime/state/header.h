/* SPDX-License-Identifier: Apache-2.0 */
/*
 * header.h - what a safetensors file says about its tensors
 *
 * A file is: eight bytes with the length of the header, little endian; the header, JSON, padded
 * with spaces; the data, with neither holes nor overlaps nor anything behind it.
 */
#ifndef DDP_STATE_HEADER_H
#define DDP_STATE_HEADER_H

#include "base/error.h"

#define DDP_HEADER_LIMIT 100000000u /* bytes, by the format */
#define DDP_HEADER_METADATA "__metadata__"

enum {
	DDP_HEADER_START = 8,	/* bytes before it */
	DDP_TENSOR_SHAPE = 200, /* bytes of a shape as text */
};

struct ddp_header {
	struct ddp_tensor *tensors; /* by place in the file; data is NULL */
	uint64_t *begin;	    /* where the data of each lies */
	const char **types;	    /* as the file calls them */
	size_t count;
	struct ddp_tensor **names; /* by name */
	struct ddp_pair *pairs;	   /* by key */
	size_t pair_count, pair_room;
	char *text; /* where all texts lie */
};

/*
 * Read the header in [text] of [size] bytes, which becomes the header's own whatever happens,
 * of the file [path] that holds [data] bytes after it.
 * A tensor of a type that libddp lacks has type DDP_TYPE_COUNT.
 * Returns 0; DDP_ERR_FORMAT with a text that names [path] and the tensor or the byte;
 * DDP_ERR_UNSUPPORTED; DDP_ERR_MEMORY. ddp_header_free() is needed in any case.
 */
int ddp_header_read(struct ddp_header *header, char *text, size_t size, uint64_t data,
		    const char *path, struct ddp_error *error);
void ddp_header_free(struct ddp_header *header);

/* The tensor called [name], NULL if there is none. */
struct ddp_tensor *ddp_header_find(const struct ddp_header *header, const char *name);

/* The value of [key], NULL if there is none. */
const char *ddp_header_metadata(const struct ddp_header *header, const char *key);

/* The name of [type] in files, "?" if there is no such type. */
const char *ddp_tensor_type(enum ddp_type type);

/* The shape of [tensor] for messages: "[32, 1, 3, 3]". */
void ddp_tensor_shape(const struct ddp_tensor *tensor, char text[DDP_TENSOR_SHAPE]);

/* Bytes of [tensor]'s data. Returns false where type or shape are impossible, or too large. */
bool ddp_tensor_bytes(const struct ddp_tensor *tensor, uint64_t *bytes);

#endif /* DDP_STATE_HEADER_H */
