/* SPDX-License-Identifier: Apache-2.0 */
/*
 * card-uuid.h - what tells a GPU from all others, as text
 */
#ifndef DDP_WIDE_CARD_UUID_H
#define DDP_WIDE_CARD_UUID_H

#include <stddef.h>

enum { DDP_CARD_UUID = 16 };

/*
 * Of the GPU that CUDA numbers [ordinal]: "GPU-..." as nvidia-smi writes it, or "MIG-..." of a slice.
 * [properties] is the UUID in CUDA's properties of it, which is taken where the driver tells none.
 */
void ddp_card_uuid(char *text, size_t size, int ordinal, const char properties[DDP_CARD_UUID]);

#endif /* DDP_WIDE_CARD_UUID_H */
