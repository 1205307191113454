/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sum.h - the kernel that adds the memory of ranks that share a GPU
 */
#ifndef DDP_DEVICE_SUM_H
#define DDP_DEVICE_SUM_H

#include "base/type.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DDP_SHARD_SOURCES = 64 };

/*
 * Enqueue to[*][i] = from[0][i] op ... op from[sources-1][i] for i < count, as local/kernel.h has it without
 * a scale: in this order, f32 for 16-bit types, rounded once; a NaN may become another one. [processors]: of
 * the GPU. 1 to DDP_SHARD_SOURCES sources and as many targets, which may be sources; elements of [type] are
 * aligned to their size. Nothing for a [type] or [op] that is none.
 */
void ddp_shard_kernel_sum(void *stream, int processors, void *const *to, int targets,
			  const void *const *from, int sources, size_t count, enum ddp_type type,
			  enum ddp_op op);

#ifdef __cplusplus
}
#endif

#endif /* DDP_DEVICE_SUM_H */
