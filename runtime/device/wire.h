/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire.h - kernels for gradients on their way between devices
 */
#ifndef DDP_DEVICE_WIRE_H
#define DDP_DEVICE_WIRE_H

#include "base/type.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * to[i] = from[i] * factor for i < count, computed in f32 and rounded to nearest even; one of the types is
 * DDP_F32, the other that or of 16 bits. [to] may be [from] where their types are one. Both begin at a multiple of 16
 * bytes.
 */
void ddp_wire_kernel_convert(void *stream, void *to, enum ddp_type to_type, const void *from,
			     enum ddp_type from_type, size_t count, float factor);

/* One more in [counter], device memory; the sum goes to [word], host memory that the device reaches. */
void ddp_wire_kernel_count(void *stream, uint64_t *counter, uint64_t *word);

#ifdef __cplusplus
}
#endif

#endif /* DDP_DEVICE_WIRE_H */
