/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard-engine.h - what ranks that share a GPU need of it (ddp_shard.so)
 *
 * The moves of shard-protocol.h, one call each, and memory that another process can be given. No CUDA type here:
 * a stream is a void pointer, NULL the engine's own. Calls enqueue and return, but for those that
 * say that they wait; what is on one stream happens in its order. tests/runtime has a second engine, whose
 * device is host memory and whose streams are threads; the same tests run over both.
 */
#ifndef DDP_DEVICE_SHARD_ENGINE_H
#define DDP_DEVICE_SHARD_ENGINE_H

#include "base/log.h"
#include "base/module.h"
#include "base/type.h"

#define DDP_SHARD_VERSION 2

struct ddp_shard_gpu; /* an engine's own */

enum { DDP_SHARD_HANDLE = 64 };

/* Memory that can be given to another process: by its descriptor, or where that is -1 by its handle. */
struct ddp_shard_memory {
	void *base;
	size_t bytes;
	int fd;
	unsigned char handle[DDP_SHARD_HANDLE];
};

struct ddp_shard_engine {
	struct ddp_module_head head; /* kind "shard" */

	/* Take device [index], whose memory this rank may have a [share] of (0: not known). */
	int (*open)(struct ddp_shard_gpu **gpu, int index, double share, const struct ddp_log *log,
		    struct ddp_error *error);

	/*
	 * Device memory, zeroed, that others can import(). Waits. The descriptor is the caller's, to be
	 * closed once all who need the memory have it. release() unmaps what either
	 * call gave; memory that went by its descriptor lives while somebody maps it, what went by its handle
	 * is to be released by who imported it before it is by who made it. NULL is legal.
	 */
	int (*alloc)(struct ddp_shard_gpu *gpu, size_t bytes, struct ddp_shard_memory *memory,
		     struct ddp_error *error);
	/* [theirs] came from another process on the same device; its descriptor stays the caller's. */
	int (*import)(struct ddp_shard_gpu *gpu, const struct ddp_shard_memory *theirs,
		      void **memory, struct ddp_error *error);
	void (*release)(struct ddp_shard_gpu *gpu, void *memory);

	/* Host memory, pages of it, that wait() and write() will be told words of; once. */
	int (*know)(struct ddp_shard_gpu *gpu, void *page, size_t bytes, struct ddp_error *error);
	int (*wait)(struct ddp_shard_gpu *gpu, void *stream, const void *word, uint32_t value,
		    struct ddp_error *error);
	int (*write)(struct ddp_shard_gpu *gpu, void *stream, void *word, uint32_t value,
		     struct ddp_error *error);

	/*
	 * to[*][i] = from[0][i] op from[1][i] ... op from[sources-1][i], as local/kernel.h has it: in this
	 * order, f32 for 16-bit types, rounded once. Elements of [type] are aligned to their size, no more.
	 */
	int (*sum)(struct ddp_shard_gpu *gpu, void *stream, void *const *to, int targets,
		   const void *const *from, int sources, size_t count, enum ddp_type type,
		   enum ddp_op op, struct ddp_error *error);
	int (*copy)(struct ddp_shard_gpu *gpu, void *stream, void *to, const void *from,
		    size_t bytes, struct ddp_error *error);
	int (*zero)(struct ddp_shard_gpu *gpu, void *stream, void *memory, size_t bytes,
		    struct ddp_error *error);

	/* Whether all that was enqueued on [stream] has ended: 1, 0, or what went wrong. Never waits. */
	int (*idle)(struct ddp_shard_gpu *gpu, void *stream, struct ddp_error *error);

	/* Whether [stream] is being captured into a graph, where turns may not be. */
	bool (*captured)(struct ddp_shard_gpu *gpu, void *stream);

	/* The engine's own stream, which NULL is here and not to other engines of the device. */
	void *(*stream)(struct ddp_shard_gpu *gpu);

	/* Where streams are not at rest it leaves all to the end of the process. NULL is legal. */
	void (*close)(struct ddp_shard_gpu *gpu);
};

#endif /* DDP_DEVICE_SHARD_ENGINE_H */
