/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensors.h - safetensors files with a checksum
 *
 * A file is: eight bytes with the length of the header, little endian; the header, JSON, padded
 * with spaces; the data, with neither holes nor overlaps nor anything behind it.
 *
 * The format has none of its own. Ours is in the metadata, key DDP_TENSORS_CHECKSUM: the CRC-32C
 * of the whole file, eight hexadecimal digits, computed with zeros in their place.
 */
#ifndef DDP_STATE_TENSORS_H
#define DDP_STATE_TENSORS_H

#include "base/error.h"

#define DDP_TENSORS_CHECKSUM "ddp.crc32c"

/* The header. */
#define DDP_HEADER_LIMIT 100000000u /* bytes, by the format */
#define DDP_HEADER_METADATA "__metadata__"

enum {
	DDP_CHECKSUM_DIGITS = 8,
	DDP_HEADER_START = 8,	/* bytes before it */
	DDP_TENSOR_SHAPE = 200, /* bytes of a shape as text */
};

/* The shape of [tensor] for messages: "[32, 1, 3, 3]". */
void ddp_tensor_shape(const struct ddp_tensor *tensor, char text[DDP_TENSOR_SHAPE]);

/* Bytes of [tensor]'s data. Returns false where type or shape are impossible, or too large. */
bool ddp_tensor_bytes(const struct ddp_tensor *tensor, uint64_t *bytes);

/* As ddp_tensors_save(), with a checksum if [checksum]. */
int ddp_tensors_write(const char *path, const struct ddp_tensor *tensors, size_t count,
		      const struct ddp_pair *metadata, size_t pairs, bool checksum,
		      struct ddp_error *error);

/*
 * Read all of the file and compare it with its checksum. What the disk cannot give is found here
 * and not as a signal when the mapped data is looked at.
 * Returns 0; 1 where it has none; DDP_ERR_FORMAT where it is damaged; DDP_ERR_FILE;
 * DDP_ERR_MEMORY.
 */
int ddp_tensors_verify(const struct ddp_tensors *tensors, struct ddp_error *error);

/* What the file calls the type of [tensor], which is one of ddp_tensors_list(). */
const char *ddp_tensors_type(const struct ddp_tensors *tensors, const struct ddp_tensor *tensor);

#endif /* DDP_STATE_TENSORS_H */
