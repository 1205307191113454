/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensors.h - safetensors files with a checksum
 *
 * The format has none of its own. Ours is in the metadata, key DDP_TENSORS_CHECKSUM: the CRC-32C
 * of the whole file, eight hexadecimal digits, computed with zeros in their place.
 */
#ifndef DDP_STATE_TENSORS_H
#define DDP_STATE_TENSORS_H

#include "base/error.h"

#define DDP_TENSORS_CHECKSUM "ddp.crc32c"

enum { DDP_CHECKSUM_DIGITS = 8 };

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
