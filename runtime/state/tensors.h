/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensors.h - safetensors files with a checksum
 *
 * state/ implements ddp.h's tensors, checkpoints and event files. It calls ddp.h and base/; only
 * checkpoint.c also calls comm/comm.h. Start reading in checkpoint.c at ddp_checkpoint_save().
 * tensors.c reads the file format, and tensors-save.c writes it.
 *
 * A file has three parts:
 *   1. The length of the header in eight bytes, little endian.
 *   2. The header: JSON, padded with spaces.
 *   3. The tensors' data without gaps or overlaps, up to the end of the file.
 *
 * The format itself has no checksum. libddp adds a checksum to the metadata, with key
 * DDP_TENSORS_CHECKSUM: the CRC-32C of the whole file as eight hexadecimal digits. While the
 * checksum is computed, its digits are '0'.
 */
#ifndef DDP_STATE_TENSORS_H
#define DDP_STATE_TENSORS_H

#include "base/error.h"

#define DDP_TENSORS_CHECKSUM "ddp.crc32c"

#define DDP_HEADER_LIMIT 100000000u /* largest header that the format allows, in bytes */
#define DDP_HEADER_METADATA "__metadata__"

enum {
	DDP_CHECKSUM_DIGITS = 8,
	DDP_HEADER_START = 8,	/* bytes before the header */
	DDP_TENSOR_SHAPE = 200, /* bytes of a shape as text */
};

/* Format the shape of [tensor] for messages: "[32, 1, 3, 3]". */
void ddp_tensor_shape(const struct ddp_tensor *tensor, char text[DDP_TENSOR_SHAPE]);

/* Bytes of [tensor]'s data. Returns false if the type or the shape is invalid or too large. */
bool ddp_tensor_bytes(const struct ddp_tensor *tensor, uint64_t *bytes);

/* Like ddp_tensors_save(), but without a checksum unless [checksum] is set. */
int ddp_tensors_write(const char *path, const struct ddp_tensor *tensors, size_t count,
		      const struct ddp_pair *metadata, size_t pairs, bool checksum,
		      struct ddp_error *error);

/*
 * Read the whole file and check its checksum. If the disk has a read error, this function returns
 * it. Without this call, the error would raise a signal when the mapped data is read.
 * Returns 0; 1 if the file has no checksum; DDP_ERR_FORMAT if it is damaged; DDP_ERR_FILE; or
 * DDP_ERR_MEMORY.
 */
int ddp_tensors_verify(const struct ddp_tensors *tensors, struct ddp_error *error);

/* Returns the name of [tensor]'s type in the file. [tensor] must be from ddp_tensors_list(). */
const char *ddp_tensors_type(const struct ddp_tensors *tensors, const struct ddp_tensor *tensor);

#endif /* DDP_STATE_TENSORS_H */
