/* SPDX-License-Identifier: Apache-2.0 */
/* wire.h - kernels that convert gradients for transport between devices */
#ifndef DDP_DEVICE_WIRE_H
#define DDP_DEVICE_WIRE_H

#include "base/type.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Set to[i] to from[i] * factor for i < count, computed in f32 and rounded to nearest even. One
 * type is DDP_F32; the other is DDP_F32 or has 16 bits. [to] may equal [from] if the types are
 * equal. Both are aligned to 16 bytes.
 */
void ddp_wire_kernel_convert(void *stream, void *to, enum ddp_type to_type, const void *from,
			     enum ddp_type from_type, size_t count, float factor);

/* Increment [word], which is host memory that is mapped on the device. */
void ddp_wire_kernel_count(void *stream, uint64_t *word);

#ifdef __cplusplus
}
#endif

#endif /* DDP_DEVICE_WIRE_H */
